"""`make coverage` also measures the processes that tests start."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STARTS = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'croupier.cli', 'version'])"


def test_a_started_process_is_measured(tmp_path):
    (tmp_path / "starts.py").write_text(STARTS)
    data = f"--data-file={tmp_path / 'data'}"
    for arguments in (["run", data, str(tmp_path / "starts.py")], ["combine", "--quiet", data]):
        subprocess.run([sys.executable, "-m", "coverage", *arguments], cwd=ROOT, check=True)
    report = ["report", data, "--include=src/croupier/cli/version.py", "--format=total"]
    total = subprocess.run(
        [sys.executable, "-m", "coverage", *report], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout

    assert int(total) > 90
