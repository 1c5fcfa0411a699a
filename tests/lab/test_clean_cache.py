"""`croupier lab clean-cache` deletes minutes of building, so it asks first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import env

COMMAND = (sys.executable, "-m", "croupier.cli", "lab", "clean-cache")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    program = tmp_path / "kubernetes-v1" / "bin" / "etcd"
    program.parent.mkdir(parents=True)
    program.write_text("built")
    return tmp_path


def variables(cache: Path) -> dict[str, str]:
    return {**os.environ, "CROUPIER_CACHE": str(cache)}


def test_without_a_terminal_it_needs_yes(cache):
    refused = subprocess.run(
        COMMAND, input="y\n", env=variables(cache), capture_output=True, text=True, timeout=60, check=False
    )

    assert refused.returncode == 2
    assert f"clean-cache would delete everything in {cache}" in refused.stderr
    assert "pass --yes to do it" in refused.stderr
    assert (cache / "kubernetes-v1/bin/etcd").exists()


@pytest.mark.parametrize(("answer", "code", "kept"), [("n", 1, True), ("y", 0, False)])
def test_at_a_terminal_the_answer_counts(cache, answer, code, kept):
    ended, shown = env.at_a_terminal(COMMAND, answer=answer, env=variables(cache))

    assert f"Will be deleted: everything in {cache}" in shown
    assert ended == code
    assert (cache / "kubernetes-v1/bin/etcd").exists() == kept


def test_with_yes_it_does_not_ask(cache):
    subprocess.run((*COMMAND, "--yes"), env=variables(cache), capture_output=True, timeout=60, check=True)

    assert not (cache / "kubernetes-v1/bin/etcd").exists()
