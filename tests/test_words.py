"""The repository's words: one class name for one concept, plain words, lines that a diff can show.

Each rule is a function of files, so that the tests at the end can break it on purpose.
"""

import ast
import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAX_EXCEPTIONS = 20
MAX_DOC_LINE = 120

SHARED_CLASS_NAMES: dict[str, str] = {}
"""Class names that stand for more than one class, each with its reason."""

UNCLEAR_WORDS = ("nobody", "somebody", "whoever", "shall", "anew", "meanwhile", "beside")
ALLOWED_LINES: dict[str, tuple[int, str]] = {
    "tests/test_words.py": (2, "the list of these words, and a reason below"),
    "LICENSE": (15, "the text of the Apache licence is not ours to change"),
    "src/croupier_lab/image.py": (1, "the user nobody of /etc/passwd"),
}
"""Files in which the words above may stand: on how many lines, and why."""

UNREAD = (".lock", ".sum", ".svg", ".png", "_pb2.py", "_pb2.pyi", "static/LICENSES.txt")
GENERATED = ("docs/reference/",)


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    paths = (ROOT / name for name in listed if not name.endswith(UNREAD))
    return [path for path in paths if path.is_file()]


def shared_class_names(sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Public class names that several files define, and the files."""
    files: dict[str, list[str]] = defaultdict(list)
    for name, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files[node.name].append(name)
    return {name: sorted(found) for name, found in sorted(files.items()) if len(found) > 1}


def unclear_lines(texts: Mapping[str, str]) -> list[str]:
    pattern = re.compile(rf"\b(?:{'|'.join(UNCLEAR_WORDS)})\b", re.IGNORECASE)
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def long_lines(texts: Mapping[str, str]) -> list[str]:
    """Lines of prose over the limit. A table row or a line of code cannot be wrapped."""
    found = []
    for name, text in texts.items():
        in_code = False
        for number, line in enumerate(text.splitlines(), start=1):
            in_code ^= line.lstrip().startswith("```")
            unwrappable = in_code or line.startswith(("|", "    ", "![")) or " " not in line.strip()
            if len(line) > MAX_DOC_LINE and not unwrappable:
                found.append(f"{name}:{number}: {len(line)} characters")
    return found


def _read(paths: Iterable[Path]) -> dict[str, str]:
    texts = {}
    for path in paths:
        try:
            texts[str(path.relative_to(ROOT))] = path.read_text()
        except UnicodeDecodeError:
            continue
    return texts


def test_one_class_name_means_one_class():
    sources = _read(
        path for path in tracked_files() if path.suffix == ".py" and path.is_relative_to(ROOT / "src")
    )

    shared = shared_class_names(sources)
    for name, files in shared.items():
        print(f"{name}: {', '.join(files)} ({SHARED_CLASS_NAMES.get(name, 'no reason given')})")  # noqa: T201

    assert sources
    assert shared.keys() - SHARED_CLASS_NAMES.keys() == set(), "give the second class a name of its own"
    assert SHARED_CLASS_NAMES.keys() - shared.keys() == set(), "no longer shared: remove it from the list"
    assert len(SHARED_CLASS_NAMES) <= MAX_EXCEPTIONS


def test_words_are_plain():
    lines = unclear_lines(_read(tracked_files()))
    print(*lines, sep="\n")  # noqa: T201

    allowed = {name: count for name, (count, _) in ALLOWED_LINES.items()}
    assert Counter(line.split(":")[0] for line in lines) == allowed
    assert len(lines) <= MAX_EXCEPTIONS


def test_lines_of_the_documents_fit_a_diff():
    pages = [path for path in tracked_files() if path.suffix == ".md"]
    texts = {name: text for name, text in _read(pages).items() if not name.startswith(GENERATED)}

    assert texts
    assert long_lines(texts) == []


def test_a_second_class_of_the_same_name_is_found():
    sources = {
        "a.py": "class Card: ...",
        "b.py": "class Card: ...\nclass _Card: ...",
        "c.py": "class Node: ...",
    }

    assert shared_class_names(sources) == {"Card": ["a.py", "b.py"]}


@pytest.mark.parametrize("word", UNCLEAR_WORDS)
def test_an_unclear_word_is_found(word):
    text = f"plain\n# a card that {word.title()} uses\nbesidesanew"

    assert unclear_lines({"a.py": text}) == [f"a.py:2: # a card that {word.title()} uses"]


def test_a_long_line_is_found():
    prose, table, code = "word " * 30, "| " + "fact " * 30, "```\n" + "x y " * 40 + "\n```"

    assert long_lines({"a.md": f"{prose}\n{table}\n{code}\n"}) == ["a.md:1: 150 characters"]
