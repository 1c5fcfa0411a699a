"""`croupier ui` as a process, and Chromium to open it, for the benchmark and the tests of the page."""

import asyncio
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from playwright.async_api import Browser, Page, async_playwright
from playwright.async_api import Error as PageFailure

from croupier_lab import ports

CHROMIUM: Final = "chromium"
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
COMMAND: Final = (sys.executable, "-m", "croupier.cli")
LOOPBACK: Final = "127.0.0.1"
NETWORK_CHANGED: Final = "net::ERR_NETWORK_CHANGED"
"""Chromium ends requests when the interfaces of the machine change, as they do when a real node joins."""
INTERRUPTED: Final = 'interrupted by another navigation to "chrome-error:'
"""Chromium was still opening the page of that error."""
NAVIGATIONS: Final = 5
"""Attempts to open an address while interfaces change."""
START_TIMEOUT: Final = 60.0
STOP_TIMEOUT: Final = 15.0
POLL: Final = 0.05

Launch = Callable[[Sequence[str], Path, Mapping[str, str]], psutil.Process]
"""Runs `croupier` with these words; its output is appended to the log, and the environment extended."""


class PageError(Exception):
    """The page cannot be served or opened; the message says why."""


def obstacle() -> str | None:
    """Why no browser can be started; None if there is one."""
    if shutil.which(CHROMIUM) is None:
        return "chromium is not installed: run `apt-get install chromium` to open the page"
    return None


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    if reason := obstacle():
        raise PageError(reason)
    async with async_playwright() as playwright:
        program = shutil.which(CHROMIUM)
        browser = await playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            await browser.close()


async def goto(page: Page, address: str) -> None:
    """Open the address, again if the network of the machine has changed."""
    for _ in range(NAVIGATIONS - 1):
        try:
            await page.goto(address)
        except PageFailure as error:
            if NETWORK_CHANGED not in error.message and INTERRUPTED not in error.message:
                raise
        else:
            return
    await page.goto(address)


def launch(words: Sequence[str], log: Path, env: Mapping[str, str]) -> psutil.Process:
    """As a program."""
    with log.open("ab") as output:
        return psutil.Popen(
            [*COMMAND, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
        )


def end(process: psutil.Process, *, kill: bool = False) -> None:
    """End the process; it is killed if it takes long."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if kill:
            process.kill()
        else:
            process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass
class PageProcess:
    """`croupier ui` on one port, which it keeps when it is started again."""

    kubeconfig: Path
    log: Path
    options: Sequence[str] = ()
    port: int = 0
    health: int = 0
    launch: Launch = launch
    process: psutil.Process | None = None
    link: str = ""
    """The address that the process printed."""

    @property
    def origin(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise PageError("croupier ui does not run.")
        return self.process.pid

    async def start(self) -> None:
        if not self.port:
            self.port, self.health = ports.free(2, chance=random.Random())  # noqa: S311 (ports, no secret)
        begin = self.log.stat().st_size if self.log.exists() else 0
        env = {"XDG_STATE_HOME": str(self.log.parent), "COLUMNS": "400"}
        self.process = self.launch(self._words(), self.log, env)
        deadline = time.monotonic() + START_TIMEOUT
        while not (link := self._printed(begin)):
            if time.monotonic() > deadline:
                raise PageError(f"croupier ui printed no address within {START_TIMEOUT:g} seconds.")
            await asyncio.sleep(POLL)
        self.link = link

    def _words(self) -> list[str]:
        return [
            "ui",
            f"--kubeconfig={self.kubeconfig}",
            f"--listen={LOOPBACK}:{self.port}",
            f"--health={LOOPBACK}:{self.health}",
            "--no-open",
            *self.options,
        ]

    def _printed(self, begin: int) -> str:
        text = self.log.read_bytes()[begin:].decode(errors="replace")
        if self.process is not None and not _runs(self.process):
            raise PageError(f"croupier ui ended: {text[-2000:]}")
        found = re.search(rf"http://{LOOPBACK}:{self.port}[^\s\"',]*", text)
        return found[0].rstrip(".,") if found else ""

    async def stop(self, *, kill: bool = False) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            await asyncio.to_thread(end, process, kill=kill)


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
