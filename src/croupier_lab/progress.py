"""Progress output for terminals and logs."""

import sys
import time
from collections.abc import Callable
from typing import Protocol

import rich.progress
from rich.console import Console

from croupier.cli import terminal

LOG_INTERVAL = 10.0


class ProgressReporter(Protocol):
    def step(self, text: str) -> None:
        """A normal step begins."""

    def say(self, text: str) -> None:
        """A message about an unusual event."""

    def advance(self, what: str, done: int, total: int) -> None:
        """Progress of a long step; called often."""

    def settle(self) -> None:
        """The long step has ended."""


class NoProgress:
    def step(self, text: str) -> None:
        pass

    def say(self, text: str) -> None:
        pass

    def advance(self, what: str, done: int, total: int) -> None:
        pass

    def settle(self) -> None:
        pass


class LogProgress:
    """Plain lines; a long step is printed when it begins and then every ten seconds."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        steps: bool = True,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._steps = steps
        self._monotonic = monotonic
        self._what = ""
        self._begun = 0.0
        self._next = 0.0

    def step(self, text: str) -> None:
        if self._steps:
            self._write(text)

    def say(self, text: str) -> None:
        self._write(text)

    def advance(self, what: str, done: int, total: int) -> None:
        now = self._monotonic()
        if what != self._what:
            self._what, self._begun, self._next = what, now, now
        if now >= self._next:
            self._next = now + LOG_INTERVAL
            self._write(f"{what}: {done} of {total}, {now - self._begun:.0f} s")

    def settle(self) -> None:
        self._what = ""


class TerminalProgress:
    """A progress bar for the current long step, with lines above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: rich.progress.Progress | None = None
        self._task = rich.progress.TaskID(0)
        self._what = ""

    def step(self, text: str) -> None:
        self.settle()
        self._console.print(text, highlight=False, markup=False)

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def advance(self, what: str, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = _bar(self._console)
            self._bar.start()
        if what != self._what:
            for task in self._bar.task_ids:
                self._bar.remove_task(task)
            self._what, self._task = what, self._bar.add_task(what, total=total)
        self._bar.update(self._task, completed=done, total=total)

    def settle(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar, self._what = None, ""


def _bar(console: Console) -> rich.progress.Progress:
    return rich.progress.Progress(
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.MofNCompleteColumn(),
        rich.progress.TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def to_stderr() -> ProgressReporter:
    """Progress bars on a terminal, plain lines otherwise; on stderr, because stdout is for results."""
    if sys.stderr.isatty() and not terminal.forbids_styles():
        return TerminalProgress(Console(stderr=True))
    return LogProgress(lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
