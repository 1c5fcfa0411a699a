"""The `croupier` command, as a program, or in a fork.

Most tests ask what a command prints, and a fork answers that. Tests of the start itself, of signals and of
terminals use the program.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests import forks

CROUPIER = (sys.executable, "-c", "from croupier.cli import main; main()")


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def run(
    args: Sequence[str], *, env: Mapping[str, str], stdin: str = "", timeout: float = 120.0
) -> CommandResult:
    """Run the command in a fork, with this environment and input."""
    with (
        tempfile.TemporaryFile("w+") as source,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        source.write(stdin)
        source.seek(0)
        command = forks.Command("croupier.cli.__main__", ["croupier", *args], dict(env))
        child = forks.start(command, source.fileno(), out.fileno(), err.fileno())
        child.join(timeout)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise TimeoutError(f"croupier {' '.join(args)} did not end in {timeout:g} s")
        out.seek(0)
        err.seek(0)
        return CommandResult(child.exitcode, out.read(), err.read())
