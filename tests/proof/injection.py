"""The point where a process dies or stands still: around its n-th write, or with the answer to it lost.

The client asks its permit before every attempt to write and tells its observer after every answer, so
the writes of a flow can be counted once and then be interrupted one by one, all of them.
"""

import os
import signal
from dataclasses import dataclass, field
from typing import Literal

from croupier.kube.errors import Unreachable

When = Literal["never", "before", "after", "lost", "freeze"]
WRITES = frozenset({"create", "update", "patch", "apply", "delete", "deletecollection"})


def die() -> None:
    """As the kernel would have it: nothing is flushed, closed or said."""
    os.kill(os.getpid(), signal.SIGKILL)


def stand_still() -> None:
    """Until somebody sends SIGCONT; the rest of the world goes on."""
    os.kill(os.getpid(), signal.SIGSTOP)


@dataclass
class Injection:
    """Something happens at the `number`-th write (from 1)."""

    number: int = 0
    when: When = "never"
    begun: int = 0
    writes: list[str] = field(default_factory=list)
    """What was written, in the order the answers came."""

    @property
    def quiet(self) -> bool:
        """Every write that was begun has its answer."""
        return len(self.writes) >= self.begun  # one that is repeated has an answer for each try

    def permit(self) -> None:
        self.begun += 1
        if self.begun != self.number:
            return
        if self.when == "before":
            die()
        if self.when == "freeze":
            stand_still()

    def observe(self, verb: str, resource: str, code: int, _seconds: float) -> None:
        if verb not in WRITES:
            return
        self.writes.append(f"{verb} {resource.partition('.')[0]} {code}")
        if len(self.writes) != self.number:
            return
        if self.when == "after":
            die()
        if self.when == "lost":
            raise Unreachable("the answer was lost on its way, by intent")
