"""Child processes that a test starts, communicates with line by line, freezes and kills."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import psutil
import structlog

from croupier_lab import process
from tests import forks

MAX_LINE = 64 * 2**20
"""Maximum bytes of one line; a process reports all its grants in one line."""


@dataclass
class ChildProcess:
    """One process. It writes one JSON value per line and reads commands line by line."""

    name: str
    child: ForkServerProcess
    log: Path
    input: int
    """Its standard input, which closes with this process or `close`."""
    output: asyncio.StreamReader

    async def receive(self, within: float = 120.0) -> Any:
        async with asyncio.timeout(within):
            line = await self.output.readline()
        assert line, f"{self.name} ended with {await self.ended()}:\n{self.log.read_text()[-3000:]}"
        return json.loads(line)

    def tell(self, word: str) -> None:
        os.write(self.input, f"{word}\n".encode())

    async def ended(self, within: float = 120.0) -> int:
        await asyncio.to_thread(self.child.join, within)
        if self.child.exitcode is None:
            raise TimeoutError(f"{self.name} did not end in {within:g} s")
        return self.child.exitcode

    @property
    def pid(self) -> int:
        assert self.child.pid is not None
        return self.child.pid

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self.pid, how)

    def close(self) -> None:
        """End the process if it still runs."""
        self.child.kill()
        self.child.join()
        os.close(self.input)

    def freeze(self) -> None:
        process.suspend(psutil.Process(self.pid))

    def resume(self) -> None:
        self.kill(signal.SIGCONT)


Start = Callable[..., Awaitable[ChildProcess]]


@contextlib.asynccontextmanager
async def child_processes(folder: Path) -> AsyncIterator[Start]:
    """A factory: `await start("tests.proof.flow_process", name, *arguments)`. All end with the block."""

    async def start(module: str, name: str, *arguments: str) -> ChildProcess:
        log = folder / f"{name}.log"
        command = forks.Command(module, [module, *arguments], dict(os.environ))
        (stdin, told), (said, stdout) = os.pipe(), os.pipe()
        with log.open("ab") as errors:
            child = forks.start(command, stdin, stdout, errors.fileno())
        os.close(stdin)
        os.close(stdout)
        output = asyncio.StreamReader(limit=MAX_LINE)
        protocol = asyncio.StreamReaderProtocol(output)
        connect = asyncio.get_running_loop().connect_read_pipe
        transport, _ = await connect(lambda: protocol, os.fdopen(said, "rb"))
        closing.callback(transport.close)
        player = ChildProcess(name, child, log, told, output)
        closing.callback(player.close)
        return player

    with contextlib.ExitStack() as closing:
        yield start


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
