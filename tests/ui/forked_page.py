"""`croupier ui` in a fork (tests/forks.py), which takes a tenth of the CPU of a new process to start.

tests/ui/browser/test_operator.py starts the program itself.
"""

import asyncio
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from croupier_lab import ports
from tests import forks

START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 15.0
LOOPBACK: Final = "127.0.0.1"


def free_ports() -> tuple[int, int]:
    """For the page and its health."""
    listen, health = ports.free(2, chance=random.Random())  # noqa: S311 (a port is no secret)
    return listen, health


def start(options: Sequence[str], log: Path, env: Mapping[str, str]) -> ForkServerProcess:
    return forks.croupier(("ui", "--no-open", *options), log, env)


def stop(process: ForkServerProcess, *, kill: bool = False) -> None:
    """End the process; it is killed if it takes long."""
    if kill:
        process.kill()
    else:
        process.terminate()
    process.join(STOP_TIMEOUT)
    if process.exitcode is None:
        process.kill()
        process.join()


@dataclass
class ForkedPage:
    """`croupier ui` on one port, which it keeps when it is started again."""

    kubeconfig: Path
    log: Path
    port: int = 0
    health: int = 0
    process: ForkServerProcess | None = None
    link: str = ""
    """The address that the process printed."""

    @property
    def origin(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    async def start(self) -> None:
        if not self.port:
            self.port, self.health = free_ports()
        begin = self.log.stat().st_size if self.log.exists() else 0
        options = (
            f"--kubeconfig={self.kubeconfig}",
            f"--listen={LOOPBACK}:{self.port}",
            f"--health={LOOPBACK}:{self.health}",
        )
        env = {"XDG_STATE_HOME": str(self.log.parent), "COLUMNS": "400"}
        self.process = start(options, self.log, env)
        deadline = time.monotonic() + START_TIMEOUT
        while not (link := self._printed(begin)):
            assert time.monotonic() < deadline, f"croupier ui printed no address; its log is {self.log}"
            await asyncio.sleep(0.05)
        self.link = link

    def _printed(self, begin: int) -> str:
        text = self.log.read_bytes()[begin:].decode(errors="replace")
        assert self.process is None or self.process.exitcode is None, f"croupier ui ended: {text[-2000:]}"
        found = re.search(rf"http://{LOOPBACK}:{self.port}[^\s\"',]*", text)
        return found[0].rstrip(".,") if found else ""

    async def stop(self, *, kill: bool = False) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            await asyncio.to_thread(stop, process, kill=kill)
