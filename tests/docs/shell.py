"""Run the blocks of a page in order, in one shell, as a reader would type them. Stop at the first failure."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import ROOT, Block

ENDS_WITH = re.compile(r", ends with (\d+)$")
PATIENCE = 300
SHOWN = 4000
"""How many characters of the output are shown after a failure, counted from its end."""


@dataclass(frozen=True, slots=True)
class Shell:
    """`tools` are folders with programs for PATH; `home` contains the state of labs."""

    home: Path
    tools: tuple[Path, ...] = ()
    settings: Mapping[str, str] | None = None
    patience: float = PATIENCE

    def types(self, blocks: Iterable[Block]) -> str:
        """Return the output. Raise an AssertionError with the block and its last lines if a block fails."""
        script = "\n".join(["set -euo pipefail", *map(_script, blocks)])
        try:
            completed = subprocess.run(
                ["bash", "-c", script],
                cwd=self._folder(),
                env=self._env(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self.patience,
                check=False,
            )
        except subprocess.TimeoutExpired as timeout:
            output = (timeout.stdout or b"").decode()
            raise AssertionError(f"not done within {self.patience:g} s:\n{output[-SHOWN:]}") from None
        output = completed.stdout.decode()
        assert completed.returncode == 0, f"exit code {completed.returncode}:\n{output[-SHOWN:]}"
        return output

    def _folder(self) -> Path:
        """A folder of links to the repository, so that files that the commands write stay outside of it."""
        folder = self.home / "repository"
        if not folder.exists():
            folder.mkdir()
            for entry in ROOT.iterdir():
                (folder / entry.name).symlink_to(entry)
        return folder

    def _env(self) -> dict[str, str]:
        folders = [Path(sys.executable).parent, *self.tools]
        path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
        variables = {"PATH": path, "CROUPIER_HOME": str(self.home), "COLUMNS": "160", "NO_COLOR": "1"}
        return {**os.environ, **variables, **(self.settings or {})}


def _script(block: Block) -> str:
    title = f"echo '--- {block.where}'"
    if expected := ENDS_WITH.search(block.runs):
        return f"{title}\nended=0\n{{ {block.text}\n}} || ended=$?\n[ $ended = {expected[1]} ]"
    return f"{title}\n{block.text}"
