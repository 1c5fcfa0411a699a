"""Progress of a build, from the output of the compiler.

`go build -v` prints each package it compiles, but not those in its cache. Each package counts once for all
programs, and when a program is finished all its packages count as done.
"""

from collections.abc import Mapping


class BuildProgress:
    def __init__(self, needs: Mapping[str, frozenset[str]]) -> None:
        """`needs`: the packages of each program."""
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
        """Process a line of output; True if it names a package that was not counted before."""
        package = line.strip()
        if package not in self._all or package in self._done:
            return False
        self._done.add(package)
        return True

    def finish(self, program: str) -> None:
        self._done |= self._needs[program]
