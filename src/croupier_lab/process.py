"""Start, find and stop the processes of a lab.

A process is identified by its pid and its creation time, so that a reused pid is never signalled. Every
process has its own session, so that Ctrl-C reaches only the owner, which stops them in order.
"""

import asyncio
import contextlib
import os
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import psutil

STOP_GRACE = 10.0
POLL = 0.02
SUSPEND_POLL = 0.001


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run; `env` extends the current environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class LabProcess(msgspec.Struct, frozen=True):
    """A started program, as stored in the record."""

    name: str
    pid: int
    created: float
    log: str


def start(program: Program, log_folder: Path) -> LabProcess:
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
    # From here on it is managed by pid; without a return code Popen would warn when it is garbage-collected.
    child.returncode = 0
    return LabProcess(program.name, child.pid, psutil.Process(child.pid).create_time(), str(log))


def alive(process: LabProcess) -> bool:
    return _find(process) is not None


def kill(process: LabProcess) -> None:
    if found := _find(process):
        found.kill()


def freeze(process: LabProcess) -> None:
    if found := _find(process):
        suspend(found)


def suspend(running: psutil.Process) -> None:
    """Send SIGSTOP, and wait until the last thread has stopped: until then the process still answers."""
    running.suspend()
    while not _is_suspended(running):
        time.sleep(SUSPEND_POLL)


def thaw(process: LabProcess) -> None:
    if found := _find(process):
        found.resume()


async def stop(process: LabProcess, grace: float = STOP_GRACE) -> None:
    """Send SIGTERM, wait `grace` seconds, then send SIGKILL. Idempotent."""
    if found := _find(process):
        with contextlib.suppress(psutil.NoSuchProcess):
            found.terminate()
            found.resume()  # a frozen process cannot act on SIGTERM
    if not await gone(process, within=grace):
        kill(process)
        await gone(process, within=grace)


async def gone(process: LabProcess, within: float) -> bool:
    """Wait until the process has ended; False on timeout."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while alive(process):
        if loop.time() > deadline:
            return False
        await asyncio.sleep(POLL)
    return True


def _is_suspended(running: psutil.Process) -> bool:
    """Whether it runs no longer: a killed process is no thread that will stop."""
    try:
        states = {psutil.Process(thread.id).status() for thread in running.threads()}
    except psutil.NoSuchProcess:
        return not running.is_running()  # or a thread has just ended
    return states <= {psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}


def _find(process: LabProcess) -> psutil.Process | None:
    try:
        found = psutil.Process(process.pid)
        if found.create_time() != process.created:
            return None
        if found.status() == psutil.STATUS_ZOMBIE and found.num_threads() <= 1:
            # Until its last thread has ended, a killed process still holds its ports.
            with contextlib.suppress(psutil.TimeoutExpired):
                found.wait(0)  # reap it if it is our child
            return None
    except psutil.NoSuchProcess:
        return None
    return found
