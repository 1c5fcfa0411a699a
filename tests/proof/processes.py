"""Child processes that a test starts, communicates with line by line, freezes and kills."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import structlog

from tests.polling import until

ROOT = Path(__file__).parents[2]
MAX_LINE = 64 * 2**20
"""Maximum bytes of one line; a process reports all its grants in one line."""


@dataclass
class ChildProcess:
    """One process. It writes one JSON value per line and reads commands line by line."""

    name: str
    child: asyncio.subprocess.Process
    log: Path

    async def receive(self, within: float = 120.0) -> Any:
        assert self.child.stdout is not None
        async with asyncio.timeout(within):
            line = await self.child.stdout.readline()
        assert line, f"{self.name} ended with {await self.child.wait()}:\n{self.log.read_text()[-3000:]}"
        return json.loads(line)

    def tell(self, word: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{word}\n".encode())

    async def ended(self, within: float = 120.0) -> int:
        async with asyncio.timeout(within):
            return await self.child.wait()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.child.pid, how)

    async def freeze(self) -> None:
        """Send SIGSTOP and wait until the process is stopped."""
        self.kill(signal.SIGSTOP)
        frozen = psutil.Process(self.child.pid)
        await until(lambda: frozen.status() == psutil.STATUS_STOPPED, f"{self.name} to be stopped")

    def resume(self) -> None:
        self.kill(signal.SIGCONT)


Start = Callable[..., Awaitable[ChildProcess]]


@contextlib.asynccontextmanager
async def child_processes(folder: Path) -> AsyncIterator[Start]:
    """A factory: `await start("tests.proof.flow_process", name, *arguments)`. All end with the block."""
    players: list[ChildProcess] = []

    async def start(module: str, name: str, *arguments: str) -> ChildProcess:
        log = folder / f"{name}.log"
        with log.open("ab") as errors:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                cwd=ROOT,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=MAX_LINE,
                start_new_session=True,
            )
        players.append(ChildProcess(name, child, log))
        return players[-1]

    try:
        yield start
    finally:
        for player in players:
            with contextlib.suppress(ProcessLookupError):
                player.child.kill()
            await player.child.wait()


def log_to_stderr() -> None:
    """For a child process: log to stderr, because stdout carries the messages."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def emit(value: Any) -> None:
    """For a child process: send one message to the test."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


async def read_command() -> str:
    """For a child process: wait for a command; empty at end of file."""
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()
