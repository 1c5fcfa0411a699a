"""`make mutate` changes one part of core, and runs the tests of that part."""

from configparser import ConfigParser

import pytest

from tools import mutate


@pytest.mark.parametrize("part", mutate.PARTS)
def test_a_part_has_code_and_tests(part):
    assert list((mutate.ROOT / "src/croupier/core" / part).glob("*.py"))
    assert list((mutate.ROOT / "tests/core" / part).glob("test_*.py"))


def test_only_the_part_is_changed_and_only_its_tests_run(tmp_path):
    mutate.prepare("pools", tmp_path / "pools")

    written = ConfigParser()
    written.read(tmp_path / "pools/setup.cfg")
    assert written["mutmut"]["only_mutate"] == "src/croupier/core/pools/*"
    assert written["mutmut"]["pytest_add_cli_args_test_selection"] == "tests/core/pools"
    assert "--hypothesis-profile=mutate" in written["mutmut"]["pytest_add_cli_args"].split()
    assert (tmp_path / "pools/src/croupier/core/pools").is_dir()


def test_another_name_is_refused(capsys):
    assert mutate.main("nothing") == 2
    assert "the parts are ledger, placement" in capsys.readouterr().err
