"""Floods a port of this machine from other loopback addresses, as pods of a tenant would, in its own process.

python -m tests.hostile.flooder PORT KIND REQUESTS. It prints "flooding" when all its connections are open,
and ends after REQUESTS requests of all connections together.
"""

import asyncio
import contextlib
import ssl
import sys
from collections.abc import Iterator

import msgspec

SOURCES = ("127.0.0.2", "127.0.0.3")
CONNECTIONS = 160
"""Of each source."""
LARGE = 3 * 1024 * 1024
PIECE = 64 * 1024
SLOW_SECONDS = 20.0


def review(size: int) -> bytes:
    """A valid review of a pod without cards, of about this size."""
    pod = {"metadata": {"name": "flood", "annotations": {"gpu.mps.io/x": "x" * size}}, "spec": {}}
    request = {
        "uid": "u",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "object": pod,
    }
    return msgspec.json.encode(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    )


def request(body: bytes, length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    head = ("POST /mutate HTTP/1.1", "Host: x", "Content-Type: application/json", f"Content-Length: {size}")
    return "\r\n".join((*head, "", "")).encode() + body


KINDS = {
    "large reviews": request(review(LARGE)),
    "small reviews": request(review(1024)),
    "slow bodies": request(b"{", LARGE),
    "slow headers": b"POST /mutate HTTP/1.1\r\nX-A: ",
    "reconnects": request(b"", 0),
}


async def flood(port: int, kind: str, requests: int) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    left, opened = iter(range(requests)), asyncio.Barrier(len(SOURCES) * CONNECTIONS + 1)

    async def connection(source: str) -> None:
        first = True
        while first or next(left, None) is not None:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, ssl=context, local_addr=(source, 0)
                )
                if first:
                    first = False
                    await opened.wait()
                try:
                    await send(reader, writer, kind, left)
                finally:
                    writer.transport.abort()

    workers = [asyncio.create_task(connection(source)) for source in SOURCES for _ in range(CONNECTIONS)]
    await opened.wait()
    sys.stdout.write("flooding\n")
    sys.stdout.flush()
    await asyncio.wait(workers)


async def send(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kind: str, left: Iterator[int]
) -> None:
    """Send requests over one connection until none is left or the server closes it."""
    while next(left, None) is not None:
        for at in range(0, len(KINDS[kind]), PIECE):
            writer.write(KINDS[kind][at : at + PIECE])
            await writer.drain()
        if kind.startswith("slow"):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.read(1), SLOW_SECONDS)
            return
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(int(length.partition(b":")[2]))
        if kind == "reconnects":
            return


if __name__ == "__main__":
    asyncio.run(flood(int(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
