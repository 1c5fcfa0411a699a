"""The point where a process dies: before or after its n-th write, or with the answer to it lost.

The client asks its permit before every attempt to write and tells its observer after every answer, so
the writes of a flow can be counted once and then be interrupted one by one, all of them.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from croupier.kube.errors import Unreachable

When = Literal["never", "before", "after", "lost"]
WRITES = frozenset({"create", "update", "patch", "apply", "delete", "deletecollection"})


def die() -> None:
    """As the kernel would have it: nothing is flushed, closed or said."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Injection:
    """`act` happens at the `number`-th write (from 1); by default the process dies."""

    number: int = 0
    when: When = "never"
    act: Callable[[], None] = die
    begun: int = 0
    writes: list[str] = field(default_factory=list)
    """What was written, in the order the answers came."""

    def permit(self) -> None:
        self.begun += 1
        if self.when == "before" and self.begun == self.number:
            self.act()

    def observe(self, verb: str, resource: str, code: int, _seconds: float) -> None:
        if verb not in WRITES:
            return
        self.writes.append(f"{verb} {resource.partition('.')[0]} {code}")
        if len(self.writes) != self.number:
            return
        if self.when == "after":
            self.act()
        if self.when == "lost":
            raise Unreachable("the answer was lost on its way, by intent")
