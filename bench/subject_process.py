"""Run a subject of a benchmark in its own process; communication is by lines of JSON."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

TIMEOUT = 1200.0
"""Seconds to wait for a line of output."""


class SubjectProcess:
    def __init__(self, name: str, process: asyncio.subprocess.Process) -> None:
        self._name = name
        self._process = process

    async def hear(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise RuntimeError(f"{self._name} has no output")
        async with asyncio.timeout(TIMEOUT):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._name} exited without a result, see its output above")
        message: dict[str, Any] = msgspec.json.decode(line)
        return message

    async def tell(self, text: str) -> None:
        if self._process.stdin is None:
            raise RuntimeError(f"{self._name} has no input")
        self._process.stdin.write(f"{text}\n".encode())
        await self._process.stdin.drain()


@asynccontextmanager
async def started(module: str, kubeconfig: Path, *args: object) -> AsyncIterator[SubjectProcess]:
    """Run `bench.subjects.<module>` until the block ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", f"bench.subjects.{module}", str(kubeconfig), *map(str, args)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
    )
    try:
        yield SubjectProcess(module, process)
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close stdin, wait, then kill."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        await asyncio.wait_for(process.wait(), 20)
    except TimeoutError:
        process.kill()
        await process.wait()
