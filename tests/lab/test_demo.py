"""`croupier demo` shows every step and leaves nothing running."""

import os
import shutil
import subprocess
from pathlib import Path

import psutil

from croupier_lab.lab import Lab
from tests.cli.command import CROUPIER

SECONDS = 70


def test_the_demo_shows_every_step_and_stops_its_cluster(lab: Lab, tmp_path):
    programs = os.path.dirname(lab.record.binaries["kube-apiserver"])
    ended = subprocess.run(
        [*CROUPIER, "demo"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "CROUPIER_HOME": str(tmp_path / "home"), "KUBEBUILDER_ASSETS": programs},
    )

    assert ended.returncode == 0, ended.stderr
    for expected in (
        "Croupier-Simulated-70GB",
        "$ kubectl get nodereservations",
        "card gpu-worker2-0000-10-00-0 is assigned to pool training.",
        "holds 50 % of card node-1-0000-10-00-0 and 50 % of card node-1-0000-11-00-0 of node-1",
        "$ croupier ledger node-1",
        "default/my-pod 50 %",
        "needs 12 cards with 80 % free but has",
        "All 3 copies would fit now",
        "Warning: no node offers nvidia.com/mig-2g.20gb: container trainer gets nvidia.com/gpu instead",
        "2g.20gb->gpu",
        "card gpu-worker-0000-10-00-0 is overcommitted",
        "No findings on 4 nodes.",
    ):
        assert expected in ended.stdout
    cards = ended.stdout.partition("$ croupier cards")[2].partition("$")[0].splitlines()[2:]
    assert [line.split()[:5] for line in cards if line] == [
        [f"gpu-worker2-0000-1{index}-00-0", "gpu-worker2", str(index), "Unassigned", "-"]
        for index in range(4)
    ]
    pool = ended.stdout.partition("$ croupier pools")[2].partition("$")[0].splitlines()[2]
    assert pool.split()[:6] == ["training", "MPS", "Percent", "1", "1", "100"]
    assert pool.endswith("Available")
    listed = ended.stdout.partition("$ kubectl get pods")[2].partition("$")[0]
    assert {line.split()[0]: line.split()[2] for line in listed.splitlines()[2:] if line} == {
        "greedy": "Pending",
        "my-pod": "Running",
        "quarter": "Running",
        "trainer": "Running",
    }
    _check_page(ended.stdout, tmp_path / "build/demo-page.png")
    assert running_under(str(tmp_path)) == []


def _check_page(printed: str, picture: Path) -> None:
    """The demo ends with a picture of the page, because a test has no terminal."""
    if shutil.which("chromium") is None:
        assert "No display and no chromium here" in printed
        return
    assert f"this is a picture of the page: {picture}" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")


def running_under(folder: str) -> list[list[str]]:
    """Command lines of processes that use `folder`."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if any(folder in word for word in line) and "pytest" not in " ".join(line)]
