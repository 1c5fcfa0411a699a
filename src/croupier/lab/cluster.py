"""A cluster one can talk to with kubectl: a lab's, or any other a kubeconfig leads to."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from croupier.lab.errors import LabError


@dataclass(frozen=True, slots=True)
class Completed:
    """How a kubectl call ended."""

    stdout: str
    stderr: str
    returncode: int


@dataclass(frozen=True, slots=True)
class Cluster:
    """`program` is the kubectl that fits; `memory` is where it keeps what it learned about the API."""

    kubeconfig: Path
    program: Path
    memory: Path | None = None

    def kubectl(self, *args: str, stdin: str | None = None, check: bool = True) -> Completed:
        """Run kubectl to its end. With `check`, a failure is a LabError with what kubectl said."""
        ended = subprocess.run(
            self.command(*args), input=stdin or "", capture_output=True, text=True, check=False
        )
        if check and ended.returncode != 0:
            said = ended.stderr.strip() or ended.stdout.strip()
            raise LabError(f"kubectl {' '.join(args)} failed (exit code {ended.returncode}): {said}")
        return Completed(ended.stdout, ended.stderr, ended.returncode)

    def command(self, *args: str) -> list[str]:
        """The command line, for whoever wants to run it differently."""
        # Ports are reused by later labs; what kubectl remembers by address must not outlive this one.
        memory = [f"--cache-dir={self.memory}"] if self.memory else []
        return [str(self.program), f"--kubeconfig={self.kubeconfig}", *memory, *args]
