"""A reader at a terminal: types the blocks of a page in order, in one shell, and stops where one fails."""

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
"""Characters of what was printed, where it went wrong: the end of it."""


@dataclass(frozen=True, slots=True)
class Shell:
    """`tools` are folders with the programs a reader would have; `home` is where labs live."""

    home: Path
    tools: tuple[Path, ...] = ()
    settings: Mapping[str, str] | None = None
    patience: float = PATIENCE

    def types(self, blocks: Iterable[Block]) -> str:
        """What was printed; an AssertionError with the block and the last lines if one ended otherwise."""
        script = "\n".join(["set -euo pipefail", *map(_script, blocks)])
        try:
            ended = subprocess.run(
                ["bash", "-c", script],
                cwd=self._folder(),
                env=self._env(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=self.patience,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"").decode()
            raise AssertionError(f"not done within {self.patience:g} s:\n{said[-SHOWN:]}") from None
        said = ended.stdout.decode()
        assert ended.returncode == 0, f"exit code {ended.returncode}:\n{said[-SHOWN:]}"
        return said

    def _folder(self) -> Path:
        """The repository as a reader has it; what is written beside its files does not end up in it."""
        folder = self.home / "repository"
        if not folder.exists():
            folder.mkdir()
            for entry in ROOT.iterdir():
                (folder / entry.name).symlink_to(entry)
        return folder

    def _env(self) -> dict[str, str]:
        folders = [Path(sys.executable).parent, *self.tools]
        path = os.pathsep.join([*map(str, folders), os.environ["PATH"]])
        own = {"PATH": path, "CROUPIER_HOME": str(self.home), "COLUMNS": "160", "NO_COLOR": "1"}
        return {**os.environ, **own, **(self.settings or {})}


def _script(block: Block) -> str:
    told = f"echo '--- {block.where}'"
    if wanted := ENDS_WITH.search(block.runs):
        return f"{told}\nended=0\n{{ {block.text}\n}} || ended=$?\n[ $ended = {wanted[1]} ]"
    return f"{told}\n{block.text}"
