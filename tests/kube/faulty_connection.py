"""A TCP proxy between a client and the API server that a test can interrupt, freeze or disconnect.

It passes TLS through unchanged, so only the network is broken.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.parse import urlsplit

from croupier.kube.client.config import Config


class FaultyConnection:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._plugged = True
        self._writers: set[asyncio.StreamWriter] = set()
        self._frozen: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    def cut(self) -> None:
        """Reset all open connections; new ones work."""
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Keep open connections open without passing data; new ones work."""
        self._frozen |= self._writers

    def unplug(self) -> None:
        """Reset all open and new connections until `plug`."""
        self._plugged = False
        self.cut()

    def plug(self) -> None:
        self._plugged = True

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._plugged:
            writer.transport.abort()
            return
        self.connections += 1
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError):
                while data := await source.read(65536):
                    if sink in self._frozen:
                        continue
                    sink.write(data)
                    await sink.drain()
        finally:
            sink.transport.abort()
            self._writers.discard(sink)

    async def close(self) -> None:
        for task in (pending := tuple(self._tasks)):
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


@asynccontextmanager
async def proxied(config: Config) -> AsyncIterator[tuple[FaultyConnection, Config]]:
    """A proxy to the API server of `config`, and the config that uses it."""
    url = urlsplit(config.server)
    cable = FaultyConnection(url.hostname or "", url.port or 443)
    server = await asyncio.start_server(cable.carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield cable, replace(config, server=f"https://127.0.0.1:{port}", tls_server_name=url.hostname)
    finally:
        server.close()
        await cable.close()
