"""The programs of a lab as operating-system processes.

A process is remembered by its pid *and* the moment it was created, so that a
record on disk never leads us to signal a stranger who got the same pid later.
Every program runs in a session of its own: a Ctrl-C in the terminal reaches
us, and we stop them in order.
"""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

STOP_GRACE = 10.0
POLL = 0.02


@dataclass(frozen=True, slots=True)
class Program:
    """What to run. `env` is added to ours."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class Process(msgspec.Struct, frozen=True):
    """A started program; it can be written to disk and found again."""

    name: str
    pid: int
    created: float
    log: str


def start(program: Program, log_folder: Path) -> Process:
    """Start `program`; its output is appended to `<log_folder>/<name>.log`."""
    log_folder.mkdir(parents=True, exist_ok=True)
    log = log_folder / f"{program.name}.log"
    with log.open("ab") as output:
        child = subprocess.Popen(
            program.argv,
            env={**os.environ, **program.env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # It is watched and collected by pid from here on; an unset code would make Popen complain when it goes.
    child.returncode = 0
    return Process(program.name, child.pid, psutil.Process(child.pid).create_time(), str(log))


def alive(process: Process) -> bool:
    return _find(process) is not None


def kill(process: Process) -> None:
    """SIGKILL, as a crash would end it."""
    if found := _find(process):
        found.kill()


def freeze(process: Process) -> None:
    if found := _find(process):
        found.suspend()


def thaw(process: Process) -> None:
    if found := _find(process):
        found.resume()


async def stop(process: Process, grace: float = STOP_GRACE) -> None:
    """Ask it to end, wait `grace` seconds, then insist. Stopping a stopped one is harmless."""
    if found := _find(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.terminate()
            found.resume()  # a frozen process cannot act on SIGTERM
    if not await gone(process, within=grace):
        kill(process)
        await gone(process, within=grace)


async def gone(process: Process, within: float) -> bool:
    """Wait until the process has ended; False if it has not in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while alive(process):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(POLL)
    return True


def _find(process: Process) -> psutil.Process | None:
    try:
        found = psutil.Process(process.pid)
        if found.create_time() != process.created:
            return None
        if found.status() == psutil.STATUS_ZOMBIE and found.num_threads() <= 1:
            # Until its last thread has ended, a killed process still holds its ports.
            with contextlib.suppress(psutil.TimeoutExpired):
                found.wait(0)  # ours to collect, where it is our child
            return None
    except psutil.NoSuchProcess:
        return None
    return found
