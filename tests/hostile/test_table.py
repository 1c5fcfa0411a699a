"""The table of docs/security.md: its tests exist, and every test of this folder is in it."""

import re
from pathlib import Path

from tests import named_tests

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/security.md").read_text()
ROW = re.compile(r"^\| .+ \| .+ \| ([0-9]+) \|$", re.MULTILINE)
NAMED = re.compile(r"^([0-9]+)\. `([^`]+)`$", re.MULTILINE)
OWN_CHECKS = {"test_the_tenant_can_do_its_own_work"}
"""Tests that make sure that an attack tests something."""


def located(named: str) -> tuple[Path, str]:
    path, _, test = named.partition("::")
    return TESTS / (path if "/" in path else f"hostile/{path}"), test


def test_every_test_of_the_table_exists():
    numbered = dict(NAMED.findall(PAGE))
    assert set(ROW.findall(PAGE)) == set(numbered), "each number of the table is in the list, and the reverse"
    for named in numbered.values():
        file, test = located(named)
        assert test in named_tests.in_file(file), f"{named} does not exist"


def test_every_attack_of_this_folder_is_in_the_table():
    named = {located(test) for test in dict(NAMED.findall(PAGE)).values()}
    files = {file for file in (TESTS / "hostile").glob("test_*.py") if file != Path(__file__)}
    missing = {test for file in files for test in named_tests.in_file(file) if (file, test) not in named}
    assert missing == OWN_CHECKS
