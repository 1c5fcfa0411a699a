"""docs/promises.md names tests that exist."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests import named_tests

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS.parent / "docs/promises.md"
ROW = re.compile(r"^\| (?!promise |-)(?P<promise>[^|]+?) \| (?P<tests>`.+`) \|$", re.MULTILINE)
PROMISES = [
    (row["promise"], re.findall(r"`([^`]+)`", row["tests"])) for row in ROW.finditer(PAGE.read_text())
]
NAMED = sorted({name for _, names in PROMISES for name in names})


def test_every_row_is_read():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    heads = [line for line in lines if line.startswith("| promise |")]

    assert len(PROMISES) == len(lines) - len(heads) > 50


def test_no_promise_is_listed_twice():
    assert [name for name, count in Counter(name for name, _ in PROMISES).items() if count > 1] == []


@pytest.mark.parametrize("named", NAMED)
def test_the_test_exists(named):
    path, _, function = named.partition("::")
    source = TESTS / path
    files = [source] if source.is_file() else sorted(source.glob("test_*.py"))
    tests = {test for file in files for test in named_tests.in_file(file)}

    assert function in tests if function else tests, named
