"""Fault injection at the n-th write of a process: kill or freeze it, or lose the answer.

The client calls `permit` before every write attempt and `observe` after every answer, so the writes of a flow
can be counted once and then be interrupted one by one.
"""

import os
import signal
from dataclasses import dataclass, field
from typing import Literal

from croupier.kube.client.errors import Unreachable

When = Literal["never", "before", "after", "lost", "freeze"]
WRITES = frozenset({"create", "update", "patch", "apply", "delete", "deletecollection"})


def die() -> None:
    """Kill the own process with SIGKILL: nothing is flushed or closed."""
    os.kill(os.getpid(), signal.SIGKILL)


def freeze() -> None:
    """Stop the own process until it receives SIGCONT."""
    os.kill(os.getpid(), signal.SIGSTOP)


@dataclass
class WriteInjection:
    """Injects a fault at the `number`-th write (from 1)."""

    number: int = 0
    when: When = "never"
    begun: int = 0
    writes: list[str] = field(default_factory=list)
    """The answered writes, in order."""

    @property
    def quiet(self) -> bool:
        """Whether every started write is answered."""
        return len(self.writes) >= self.begun  # a retried write has an answer for each attempt

    def permit(self) -> None:
        self.begun += 1
        if self.begun != self.number:
            return
        if self.when == "before":
            die()
        if self.when == "freeze":
            freeze()

    def observe(self, verb: str, resource: str, code: int, _seconds: float) -> None:
        if verb not in WRITES:
            return
        self.writes.append(f"{verb} {resource.partition('.')[0]} {code}")
        if len(self.writes) != self.number:
            return
        if self.when == "after":
            die()
        if self.when == "lost":
            raise Unreachable("lost answer, injected")
