"""Clients of the page without a browser: questions, snapshots, and many streams at a time."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from bench.page_process import PageProcess

TIMEOUT: Final = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
PARTS: Final = ("cards", "names")


@dataclass
class PageClient:
    """A client with the session of a browser."""

    session: aiohttp.ClientSession
    server: PageProcess

    async def snapshot(self, part: str) -> tuple[dict[str, Any], int]:
        """A part of the snapshot, and its size without compression."""
        url = f"{self.server.origin}/api/v1/snapshot?part={part}"
        async with self.session.get(url) as answer:
            answer.raise_for_status()
            body = await answer.read()
            return await answer.json(), len(body)

    async def post(self, path: str, body: dict[str, Any]) -> tuple[dict[str, Any], float]:
        """The answer to a question, and its time in milliseconds."""
        headers = {"X-Croupier": "1", "Origin": self.server.origin}
        began = time.perf_counter()
        async with self.session.post(f"{self.server.origin}{path}", json=body, headers=headers) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise RuntimeError(f"{path} answered {answer.status}: {text[:300]}")
            return await answer.json(), (time.perf_counter() - began) * 1000


@contextlib.asynccontextmanager
async def connected(server: PageProcess, cookie: str) -> AsyncIterator[PageClient]:
    connector = aiohttp.TCPConnector(limit=0)
    headers = {"Cookie": cookie}
    async with aiohttp.ClientSession(connector=connector, headers=headers, timeout=TIMEOUT) as session:
        yield PageClient(session, server)


@dataclass
class Streams:
    """Open streams that read everything and keep nothing."""

    client: PageClient
    events: list[int] = field(default_factory=list)
    """The deltas that each stream has received."""
    resets: int = 0
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def open(self, count: int) -> None:
        head, _ = await self.client.snapshot("cards")
        after = f"{head['process']}.{head['seq']}"
        opened = [asyncio.Event() for _ in range(count)]
        for number in range(count):
            self.events.append(0)
            self.tasks.append(asyncio.create_task(self._read(number, after, opened[number])))
        async with asyncio.timeout(60):
            await asyncio.gather(*(event.wait() for event in opened))

    async def _read(self, number: int, after: str, opened: asyncio.Event) -> None:
        url = f"{self.client.server.origin}/api/v1/stream?after={after}"
        async with self.client.session.get(url) as answer:
            answer.raise_for_status()
            async for line in answer.content:
                opened.set()
                if line.startswith(b"event: delta"):
                    self.events[number] += 1
                elif line.startswith(b"event: reset"):
                    self.resets += 1

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
