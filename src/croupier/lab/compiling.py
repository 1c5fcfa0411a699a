"""How far a build is, from what the compiler prints.

`go build -v` names each package it compiles, but is silent about those it has
already. Counting over all programs together is honest: a package counts once,
and when a program is done all it is made of is done.
"""

from collections.abc import Mapping


class Account:
    def __init__(self, needs: Mapping[str, frozenset[str]]) -> None:
        """`needs`: the packages each program to build is made of."""
        self._needs = needs
        self._all = frozenset[str]().union(*needs.values())
        self._done: set[str] = set()

    @property
    def total(self) -> int:
        return len(self._all)

    @property
    def done(self) -> int:
        return len(self._done)

    def read(self, line: str) -> bool:
        """Take in a line of output; True if it says that one more package is compiled."""
        package = line.strip()
        if package not in self._all or package in self._done:
            return False
        self._done.add(package)
        return True

    def finish(self, program: str) -> None:
        self._done |= self._needs[program]
