"""Processes forked from one that has imported Croupier already, which takes a tenth of the CPU of a new one.

They have a pid, an environment, streams and an exit code of their own, and are killed and frozen like others.
"""

import io
import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psutil

multiprocessing.get_context("forkserver").set_forkserver_preload(["tests.preloaded"])


@dataclass(frozen=True)
class Command:
    """A module that runs as a program; `words` are the name of the program and its arguments."""

    module: str
    words: Sequence[str]
    env: Mapping[str, str]


def start(command: Command, stdin: int, stdout: int, stderr: int) -> ForkServerProcess:
    """Run the command in a fork, with these open files as its streams."""
    streams = [os.dup(number) for number in (stdin, stdout, stderr)]
    # A Connection is what multiprocessing passes on as an open file.
    passed = [
        Connection(number, writable=bool(index), readable=not index) for index, number in enumerate(streams)
    ]
    child = ForkServerProcess(target=_run, args=(command, passed))
    try:
        child.start()
    finally:
        for stream in passed:
            stream.close()
    return child


def croupier(words: Sequence[str], log: Path, env: Mapping[str, str]) -> psutil.Process:
    """Run `croupier` without input; its output is appended to the log, and `env` extends the environment."""
    command = Command("croupier.cli.__main__", ["croupier", *words], {**os.environ, **env})
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(os.devnull, "rb") as nothing, log.open("ab") as output:
        return psutil.Process(start(command, nothing.fileno(), output.fileno(), output.fileno()).pid)


def _run(command: Command, passed: Sequence[Connection]) -> None:
    """In the fork: connect the streams and run the command."""
    os.setsid()
    for number, stream in enumerate(passed):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, mode, closefd=False), encoding="utf-8", line_buffering=True)
        for number, mode in enumerate(("rb", "wb", "wb"))
    )
    os.environ.clear()
    os.environ.update(command.env)
    sys.argv = list(command.words)
    runpy.run_module(command.module, run_name="__main__")
