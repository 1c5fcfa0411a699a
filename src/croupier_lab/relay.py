"""A TCP relay from the bridge of a real node to the API server, which listens on loopback only.

It is reachable only from the bridge, and clients still need credentials. It has no state.
"""

import argparse
import asyncio
import contextlib
from collections.abc import Sequence

PORT = 6443
CHUNK = 1 << 16


async def serve(listen: tuple[str, int], target: tuple[str, int]) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            beyond, back = await asyncio.open_connection(*target)
            await asyncio.gather(_pass(reader, back), _pass(beyond, writer))
            back.close()
        writer.close()

    server = await asyncio.start_server(connected, *listen)
    async with server:
        await server.serve_forever()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()  # half-close: the peer may still send


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m croupier_lab.relay", description=__doc__)
    parser.add_argument("listen", help="HOST:PORT")
    parser.add_argument("target", help="HOST:PORT")
    options = parser.parse_args(arguments)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(_address(options.listen), _address(options.target)))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


if __name__ == "__main__":
    main()
