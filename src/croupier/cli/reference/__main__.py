"""Write the reference, or say which of its pages are stale.

python -m croupier.cli.reference            write them
python -m croupier.cli.reference --check    exit 1 and name the stale ones
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from croupier.api import generate
from croupier.cli.reference import kinds, metrics, verbs

FOLDER: Final = "docs/reference"
INDEX: Final = """# Reference

Generated from what the programs themselves are made of: `make generate` writes it, `make check` compares.

- [Kinds](kinds.md): every field of every object of ours
- [Settings](../settings.md): one tree for everything that can be set
- [Metrics](metrics.md): what is counted, and by which process
- [Command line](commands.md): every verb and option
"""


def files() -> dict[str, str]:
    """Path within the repository to content."""
    return {
        f"{FOLDER}/README.md": INDEX,
        f"{FOLDER}/kinds.md": kinds.page(),
        f"{FOLDER}/metrics.md": metrics.page(),
        f"{FOLDER}/commands.md": verbs.page(),
    }


def stale(root: Path) -> list[str]:
    """The paths that are not as they would be written."""
    return [path for path, text in files().items() if _now(root / path) != text]


def write(root: Path) -> list[str]:
    """Bring the pages up to date; the paths that changed."""
    changed = stale(root)
    wanted = files() if changed else {}
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    def complaints(root: Path) -> list[str]:
        return [f"{path} is stale" for path in stale(root)]

    return generate.carry_out("croupier.cli.reference", __doc__, complaints, write, arguments)


def _now(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
