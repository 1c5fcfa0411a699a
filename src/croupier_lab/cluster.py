"""A cluster accessed with kubectl: a lab, or any other cluster with a kubeconfig."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from croupier_lab.errors import LabError


@dataclass(frozen=True, slots=True)
class Completed:
    """Result of a kubectl call."""

    stdout: str
    stderr: str
    returncode: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """`program` is the path of kubectl; `memory` is its cache directory."""

    kubeconfig: Path
    program: Path
    memory: Path | None = None

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> Completed:
        """Run kubectl. With `check`, a failure raises a LabError with the output of kubectl."""
        ended = subprocess.run(
            self.command(*args), input=stdin or "", capture_output=True, text=True, check=False
        )
        if check and ended.returncode != 0:
            message = ended.stderr.strip() or ended.stdout.strip()
            raise LabError(f"kubectl {' '.join(args)} failed (exit code {ended.returncode}): {message}")
        return Completed(ended.stdout, ended.stderr, ended.returncode)

    def forget_kinds(self) -> None:
        """Let kubectl ask for the kinds and categories again, which it caches for hours."""
        if self.memory is not None:
            shutil.rmtree(self.memory / "discovery", ignore_errors=True)

    def command(self, *args: str) -> list[str]:
        """The command line of a kubectl call."""
        # Later labs reuse ports, and kubectl caches by address: the cache must not outlive this lab.
        memory = [f"--cache-dir={self.memory}"] if self.memory else []
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", *memory, *args]
