"""`make mutate` changes one part of core, runs the tests of core, and shows what they do not notice."""

import json
from configparser import ConfigParser
from pathlib import Path

import pytest
from mutmut.mutation.file_mutation import mutate_file_contents

from tools import mutate

PATH = Path("src/croupier/core/pools/example.py")
CODE = """
def double(number):
    return 2 * number

class Pool:
    def size(self):
        return self.cards + 1
"""
DOUBLE, SIZE = "croupier.core.pools.example.x_double", "croupier.core.pools.example.xǁPoolǁsize"
KILLED, SURVIVED, NO_TESTS = 1, 0, 33


@pytest.mark.parametrize("part", mutate.PARTS)
def test_a_part_has_code_and_tests(part):
    assert list((mutate.ROOT / "src/croupier/core" / part).glob("*.py"))
    assert list((mutate.ROOT / "tests/core" / part).glob("test_*.py"))


def test_only_the_part_is_changed_and_the_tests_of_core_run(tmp_path):
    mutate.prepare("pools", tmp_path / "pools")

    written = ConfigParser()
    written.read(tmp_path / "pools/setup.cfg")
    assert written["mutmut"]["only_mutate"] == "src/croupier/core/pools/*"
    assert written["mutmut"]["pytest_add_cli_args_test_selection"] == "tests/core"
    assert "--hypothesis-profile=mutate" in written["mutmut"]["pytest_add_cli_args"].split()
    assert (tmp_path / "pools/src/croupier/core/pools").is_dir()


REFUSED = {
    "no such part": (["nothing"], "ledger"),
    "no such mutant": (["fallbacks", "nothing*"], "no mutant matches"),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_another_name_is_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        mutate.main(*arguments)

    assert ended.value.code == 2
    assert message in capsys.readouterr().err


NAMES = [f"{function}__mutmut_{number}" for function in "abcd" for number in range(20)]


def test_a_sample_has_a_mutant_of_each_function_and_is_always_the_same():
    few = mutate.sample(NAMES, 10, seed=1)

    assert {name[0] for name in few} == set("abcd")
    assert len(few) == len(set(few)) == 10
    assert mutate.sample(reversed(NAMES), 10, seed=1) == few
    assert mutate.sample(NAMES, 10, seed=2) != few
    assert sorted(mutate.sample(NAMES, 80, seed=1)) == sorted(NAMES)


def test_a_new_mutant_of_one_function_replaces_at_most_one_in_the_sample():
    before = set(mutate.sample(NAMES, 40, seed=1))

    for number in range(20, 40):
        after = set(mutate.sample([*NAMES, f"a__mutmut_{number}"], 40, seed=1))
        assert len(before - after) <= 1


def tried(folder: Path, codes: dict[str, int]) -> dict[str, Path]:
    """A folder in which mutmut has tried the mutants of CODE, with these exit codes."""
    mutated = folder / "mutants" / PATH
    mutated.parent.mkdir(parents=True)
    mutated.write_text(mutate_file_contents(str(PATH), CODE).code)
    mutated.with_suffix(".py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    return dict.fromkeys(codes, PATH)


def test_mutants_that_no_test_noticed_are_shown_unless_they_are_known(tmp_path):
    codes = {f"{DOUBLE}__mutmut_1": SURVIVED, f"{DOUBLE}__mutmut_2": KILLED, f"{SIZE}__mutmut_1": NO_TESTS}
    names = tried(tmp_path, codes)

    entries, totals = mutate.report(names, tmp_path, known=())
    assert totals == "3 mutants tried: 1 killed, 1 no tests, 1 survived"
    assert len(entries) == 2
    assert 'function = "pools.example.double"\n' in entries[0]
    assert "\n- return 2 * number\n+ return 2 / number\n" in entries[0]
    assert 'function = "pools.example.Pool.size"\n' in entries[1]

    known = {("pools.example.double", "- return 2 * number\n+ return 2 / number")}
    entries, totals = mutate.report(names, tmp_path, known)
    assert totals == "3 mutants tried: 1 accepted, 1 killed, 1 no tests, 1 survived"
    assert len(entries) == 1


def test_accepted_mutants_change_code_that_exists_and_have_a_reason():
    entries = mutate.accepted()

    assert len(set(entries)) == len(entries)
    for entry in entries:
        part, module, _ = entry.function.split(".", 2)
        code = (mutate.ROOT / f"src/croupier/core/{part}/{module}.py").read_text()
        removed = {line[2:] for line in entry.change.splitlines() if line.startswith("- ")}
        assert removed, entry
        assert removed <= {line.strip() for line in code.splitlines()}, entry
        assert entry.reason.endswith("."), entry
