"""The `croupier` command, as a program, or forked from a process that has imported it already.

Most tests ask what a command prints. A fork answers that for a tenth of the CPU of a new interpreter, with a
process, an environment and an exit code of its own. Tests of the start itself, of signals and of terminals
use the program.
"""

import io
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CROUPIER = (sys.executable, "-c", "from croupier.cli import main; main()")

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["pytest", "tests.cli.preloaded"])


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
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(stdin)
        child = _processes.Process(target=_main, args=(list(args), dict(env), streams))
        child.start()
        child.join(timeout)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise TimeoutError(f"croupier {' '.join(args)} did not end in {timeout:g} s")
        return CommandResult(child.exitcode, streams[1].read_text(), streams[2].read_text())


def _main(args: Sequence[str], env: Mapping[str, str], streams: Sequence[Path]) -> None:
    """In the fork: connect the streams, and run the command as the program does."""
    for number, (path, mode) in enumerate(zip(streams, ("r", "w", "w"), strict=True)):
        with path.open(mode) as file:
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(os.fdopen(number, mode, closefd=False), encoding="utf-8", line_buffering=True)
        for number, mode in enumerate(("rb", "wb", "wb"))
    )
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["croupier", *args]
    from croupier.cli import main

    main()
