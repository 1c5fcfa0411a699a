"""Write the pages in docs/reference, or check whether they are up to date.

python -m tools.reference            write the pages
python -m tools.reference --check    exit with 1 and list the stale pages
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools import generate_crds
from tools.reference import annotations, commands, kinds, metrics

FOLDER: Final = "docs/reference"
INDEX: Final = """# Reference

Generated from the source code: `make generate` writes it, `make check` compares it.

- [Kinds](kinds.md): every field of every custom resource
- [Annotations and labels](annotations.md): every annotation and label, and who sets it
- [Settings](../settings.md): every setting
- [Metrics](metrics.md): every metric, and the process that exports it
- [Command line](commands.md): every command and option
"""


def files() -> dict[str, str]:
    """Path within the repository to content."""
    return {
        f"{FOLDER}/README.md": INDEX,
        f"{FOLDER}/kinds.md": kinds.page(),
        f"{FOLDER}/annotations.md": annotations.page(),
        f"{FOLDER}/metrics.md": metrics.page(),
        f"{FOLDER}/commands.md": commands.page(),
    }


def stale(root: Path) -> list[str]:
    """The paths whose content is out of date."""
    return [path for path, text in files().items() if _now(root / path) != text]


def write(root: Path) -> list[str]:
    """Write the stale pages and return their paths."""
    changed = stale(root)
    wanted = files() if changed else {}
    for path in changed:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(wanted[path], encoding="utf-8")
    return changed


def main(arguments: Sequence[str] | None = None) -> int:
    def complaints(root: Path) -> list[str]:
        return [f"{path} is stale" for path in stale(root)]

    return generate_crds.run_generator("tools.reference", __doc__, complaints, write, arguments)


def _now(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
