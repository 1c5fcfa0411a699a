"""The command itself: what a newcomer sees first, and how it says no."""

import json
import subprocess
import sys

import pytest

from tests.cli.command import CROUPIER


def croupier(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CROUPIER, *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"COLUMNS": "120", "PATH": "/usr/bin:/bin", "TERM": "dumb"},
    )


def test_help_groups_its_verbs():
    shown = croupier("--help")

    assert shown.returncode == 0
    for heading in ("A cluster of your own", "About"):
        assert heading in shown.stdout
    for verb in ("lab", "demo", "version"):
        assert verb in shown.stdout


def test_version_is_told_to_people_and_to_programs():
    told = croupier("version").stdout.strip()
    parsed = json.loads(croupier("version", "-o", "json").stdout)

    assert told == f"croupier {parsed['croupier']}"


@pytest.mark.parametrize("typed", [["deal"], ["lab", "fly"], ["version", "--loud"]], ids=" ".join)
def test_what_it_does_not_know_is_refused_with_exit_code_2(typed):
    refused = croupier(*typed)

    assert refused.returncode == 2
    assert typed[-1] in refused.stderr
    assert "Traceback" not in refused.stderr


def test_help_loads_nothing_that_only_a_running_verb_needs():
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, croupier.cli; print(*sorted(sys.modules))"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split()

    assert not {"aiohttp", "cryptography", "uvicorn", "prometheus_client", "psutil"} & set(loaded)
