"""Mutation tests of one part of `core/`: changes its code in one place at a time, and runs its tests.

    python -m tools.mutate ledger           # all mutants
    python -m tools.mutate ledger '*claim*' # those whose names match

A mutant that no test notices shows a missing test, or a change without effect. mutmut works on a copy in
build/mutate, and only with the tests of that part: a mutant that only others notice counts as a survivor.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("ledger", "placement", "fallbacks", "market", "pools")
COPIED = ("src", "tests", "scenarios", "docs", "examples", "pyproject.toml")
OPTIONS = ("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-profile=mutate")

CONFIGURATION = """[mutmut]
source_paths=src
only_mutate=src/croupier/core/{part}/*
pytest_add_cli_args_test_selection=tests/core/{part}
pytest_add_cli_args={options}
also_copy={copied}
use_git_change_detection=false
"""


def prepare(part: str, folder: Path) -> None:
    """Fill the folder with what the tests of the part read, and the configuration of mutmut."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    lists = {"options": "\n  ".join(("", *OPTIONS)), "copied": "\n  ".join(("", *COPIED[2:]))}
    (folder / "setup.cfg").write_text(CONFIGURATION.format(part=part, **lists))


def main(part: str, *names: str) -> int:
    if part not in PARTS:
        print(f"There is no part {part}; the parts are {', '.join(PARTS)}.", file=sys.stderr)  # noqa: T201
        return 2
    folder = ROOT / "build/mutate" / part
    prepare(part, folder)
    mutmut = [sys.executable, "-m", "mutmut"]
    ended = subprocess.run([*mutmut, "run", "--max-children", "1", *names], cwd=folder, check=False)
    subprocess.run([*mutmut, "results"], cwd=folder, check=False)
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
