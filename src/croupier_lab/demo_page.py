"""The end of `croupier demo`: the page of the demo's cluster, in a browser or as a picture.

With a display and a terminal the page stays open until Ctrl-C. Otherwise chromium, if it is installed, takes
a picture of it. A page that does not start does not fail the demo.
"""

import asyncio
import contextlib
import os
import random
import re
import shutil
import subprocess
import sys
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from croupier_lab import croupier_processes, page_picture, ports
from croupier_lab.lab import Lab

PICTURE: Final = Path("build/demo-page.png")
READY: Final = "window.croupier?.status() === 'live' && window.croupier.model().named"
LOG: Final = "croupier-ui.log"
START_TIMEOUT: Final = 30.0
STOP_TIMEOUT: Final = 10.0
POLL: Final = 0.1
LOOPBACK: Final = "127.0.0.1"


async def show(lab: Lab, tell: Callable[[str], None]) -> None:
    """Serve the page of the lab as long as there is a viewer, or take a picture of it."""
    watched = _has_display() and sys.stdin.isatty() and sys.stdout.isatty()
    if not watched and shutil.which(page_picture.CHROMIUM) is None:
        tell("No display and no chromium here. With a browser, croupier ui opens the page of a cluster.")
        return
    async with _served(lab) as page:
        link = await _link(page, lab.logs / LOG)
        if link is None:
            tell(f"croupier ui did not start; its log is {lab.logs / LOG}.")
        elif watched:
            tell(f"Open {link}\nThe link works once. Ctrl-C ends the page and the demo.")
            await _wait_for_interrupt(page)
        elif await page_picture.take(link, READY, PICTURE):
            tell(f"There is no display, so this is a picture of the page: {PICTURE.resolve()}")
        else:
            tell("chromium could not take a picture of the page.")


def _has_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@contextlib.asynccontextmanager
async def _served(lab: Lab) -> AsyncIterator[Process]:
    """`croupier ui` with the kubeconfig of the lab; it ends with the block."""
    listen, health = ports.free(2, chance=random.Random())  # noqa: S311  # ports, no secrets
    with (lab.logs / LOG).open("wb") as log:
        page = await asyncio.create_subprocess_exec(
            *(*croupier_processes.PROGRAM, "ui", f"--kubeconfig={lab.kubeconfig}", "--no-open"),
            *(f"--listen={LOOPBACK}:{listen}", f"--health={LOOPBACK}:{health}"),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield page
    finally:
        if page.returncode is None:
            page.terminate()
        try:
            await asyncio.wait_for(page.wait(), STOP_TIMEOUT)
        except TimeoutError:
            page.kill()
            await page.wait()


async def _link(page: Process, log: Path) -> str | None:
    """The link that the process prints; None if it ends or prints none in time."""
    deadline = time.monotonic() + START_TIMEOUT
    while page.returncode is None and time.monotonic() < deadline:
        printed = await asyncio.to_thread(log.read_text, errors="replace")
        if found := re.search(rf"http://{LOOPBACK}:\d+/\S+", printed):
            return found[0].rstrip(".,")
        await asyncio.sleep(POLL)
    return None


async def _wait_for_interrupt(page: Process) -> None:
    """Until Ctrl-C, which cancels this task, or until the page ends."""
    try:
        await page.wait()
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None:
            task.uncancel()
