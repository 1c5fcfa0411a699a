"""`make coverage` also measures the processes that tests start, and their forks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STARTS = {
    "a program": "import subprocess, sys; subprocess.run([sys.executable, '-m', 'croupier.cli', 'version'])",
    "a fork": "import os; from tests.cli import command; command.run(['version'], env=os.environ)",
}


@pytest.mark.parametrize("started", STARTS.values(), ids=STARTS)
def test_a_started_process_is_measured(tmp_path, started):
    (tmp_path / "starts.py").write_text(f"if __name__ == '__main__':\n    {started}\n")
    data = f"--data-file={tmp_path / 'data'}"
    for arguments in (["run", data, str(tmp_path / "starts.py")], ["combine", "--quiet", data]):
        command = [sys.executable, "-m", "coverage", *arguments]
        subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    report = ["report", data, "--include=src/croupier/cli/version.py", "--format=total"]
    total = subprocess.run(
        [sys.executable, "-m", "coverage", *report], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout

    assert int(total) > 90
