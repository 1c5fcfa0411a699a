"""Runs the commands of examples/cards on a private lab; takes minutes, so only at full size."""

import re
import subprocess
from pathlib import Path

import pytest

from croupier_lab import realnode
from tests.proof.env import FULL, ProofSize

ROOT = Path(__file__).resolve().parents[2]
WALK = ROOT / "examples/cards/README.md"


def test_the_example_works_as_printed(size: ProofSize, tmp_path: Path) -> None:
    if size is not FULL:
        pytest.skip("runs with `make prove`")
    if reason := realnode.obstacle():
        pytest.skip(reason)
    blocks = re.findall(r"```sh\n(.*?)```", WALK.read_text(), re.DOTALL)
    home = f"export CROUPIER_HOME={tmp_path}"
    try:
        played = _bash("set -ex", home, *blocks)
        assert played.returncode == 0, played.stdout + played.stderr
        assert re.search(r"^CROUPIER_CDI_\d_1G_10GB_\d=MIG-", played.stdout, re.MULTILINE), played.stdout
    finally:
        _bash(home, ".venv/bin/croupier lab down")


def _bash(*lines: str) -> "subprocess.CompletedProcess[str]":
    script = "\n".join(lines)
    return subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
