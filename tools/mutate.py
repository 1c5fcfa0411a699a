"""Mutation tests of one part of `core/`: changes its code in one place at a time, and runs the tests of core.

    python -m tools.mutate ledger               # a sample, always the same
    python -m tools.mutate ledger --sample all  # all mutants
    python -m tools.mutate ledger '*x_hold__*'  # those whose names match

A mutant that no test notices shows a missing test, or a change without effect. The latter are listed in
tools/mutants.toml with the reason; the others are printed, and the command fails. mutmut works on a copy in
build/mutate, and runs for each mutant the tests that reach its function.
"""

import argparse
import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import mutate_file_contents
from mutmut.stats import status_by_exit_code
from mutmut.utils.format_utils import get_mutant_name, orig_function_and_class_names_from_key

ROOT = Path(__file__).resolve().parent.parent
ACCEPTED = ROOT / "tools/mutants.toml"
PARTS = ("ledger", "placement", "fallbacks", "market", "pools")
COPIED = ("src", "tests", "tools", "scenarios", "docs", "examples", "pyproject.toml")
OPTIONS = ("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-profile=mutate")
UNNOTICED = ("survived", "no tests")
ENTRY = """
# {name}: {status}
[[mutant]]
function = "{function}"
change = '''
{change}
'''
reason = ""
"""

CONFIGURATION = """[mutmut]
source_paths=src
only_mutate=src/croupier/core/{part}/*
pytest_add_cli_args_test_selection=tests/core
pytest_add_cli_args={options}
also_copy={copied}
use_git_change_detection=false
"""


@dataclass(frozen=True)
class Accepted:
    """A mutant that no test can notice; `change` are the removed and the added lines, without indentation."""

    function: str
    change: str
    reason: str


def prepare(part: str, folder: Path) -> None:
    """Fill the folder with what the tests of core read, and the configuration of mutmut."""
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


def mutants(part: str) -> dict[str, Path]:
    """The names of all mutants, each with the file that it changes."""
    paths = [path.relative_to(ROOT) for path in (ROOT / "src/croupier/core" / part).glob("*.py")]
    made = {path: mutate_file_contents(str(path), (ROOT / path).read_text()).mutant_names for path in paths}
    return {get_mutant_name(path, name): path for path, names in made.items() for name in names}


def sample(names: Iterable[str], size: int, seed: int) -> list[str]:
    """One mutant of each function, then others.

    They are chosen by a hash of their names, so that a change of the code changes little of the sample.
    """
    shuffled = sorted(names, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
    firsts = {name.partition("__mutmut_")[0]: name for name in reversed(shuffled)}
    chosen = set(firsts.values())
    return [*firsts.values(), *(name for name in shuffled if name not in chosen)][:size]


def identity(mutant: str, diff: str) -> tuple[str, str]:
    """The function and the changed lines: the number of a mutant changes with the code before it."""
    function, owner = orig_function_and_class_names_from_key(mutant)
    module = mutant.removeprefix("croupier.core.").partition(".x")[0]
    changed = [line for line in diff.splitlines() if line[:1] in "+-" and not line.startswith(("+++", "---"))]
    change = "\n".join(f"{line[0]} {line[1:].strip()}" for line in changed)
    return ".".join(filter(None, (module, owner, function))), change


def accepted() -> list[Accepted]:
    return [Accepted(**entry) for entry in tomllib.loads(ACCEPTED.read_text())["mutant"]]


def results(paths: Iterable[Path], folder: Path) -> dict[str, str]:
    """Of each mutant: killed, survived, no tests, timeout, or not checked."""
    metas = [json.loads((folder / "mutants" / f"{path}.meta").read_text()) for path in sorted(set(paths))]
    codes = {name: code for meta in metas for name, code in meta["exit_code_by_key"].items()}
    return {name: status_by_exit_code[code] for name, code in codes.items()}


def report(tried: dict[str, Path], folder: Path, known: Collection[tuple[str, str]]) -> tuple[list[str], str]:
    """An entry for each mutant that no test noticed and that is not `known`, and the totals."""
    outcome = {name: status for name, status in results(tried.values(), folder).items() if name in tried}
    counted = Counter(outcome.values())
    entries = []
    for name in (name for name, status in outcome.items() if status in UNNOTICED):
        with contextlib.chdir(folder):
            function, change = identity(name, get_diff_for_mutant(name, path=tried[name]))
        if (function, change) in known:
            counted["accepted"] += 1
        else:
            entries.append(ENTRY.format(name=name, status=outcome[name], function=function, change=change))
    totals = ", ".join(f"{counted[status]} {status}" for status in sorted(counted))
    return entries, f"{len(tried)} mutants tried: {totals}"


def main(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="tools.mutate", description="Mutation tests of one part of core/")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("names", nargs="*", help="patterns of mutants to try instead of a sample")
    parser.add_argument("--sample", default="150", help="how many mutants to try, or all")
    parser.add_argument("--seed", type=int, default=1, help="chooses another sample")
    options = parser.parse_args(arguments)

    made = mutants(options.part)
    if options.names:
        chosen = [name for name in made if any(fnmatch(name, pattern) for pattern in options.names)]
    else:
        size = len(made) if options.sample == "all" else int(options.sample)
        chosen = sample(made, size, options.seed)
    if not chosen:
        parser.error("no mutant matches; the names look like *x_function__mutmut_1")
    folder = ROOT / "build/mutate" / options.part
    prepare(options.part, folder)
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *chosen]
    ended = subprocess.run(command, cwd=folder, check=False)
    if ended.returncode:
        return ended.returncode
    known = {(entry.function, entry.change.strip()) for entry in accepted()}
    entries, totals = report({name: made[name] for name in chosen}, folder, known)
    print(*entries, f"{options.part}: {len(made)} mutants made, {totals}", sep="\n")  # noqa: T201
    return 1 if entries else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
