"""The demo is the first thing a newcomer runs: it must show what it promises and leave nothing behind."""

import os
import subprocess

import psutil

from croupier.lab.lab import Lab
from tests.cli.command import CROUPIER


def test_the_demo_shows_our_kinds_and_the_refused_overcommit_and_goes(lab: Lab, tmp_path):
    programs = os.path.dirname(lab.record.binaries["kube-apiserver"])
    ended = subprocess.run(
        [*CROUPIER, "demo"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "CROUPIER_HOME": str(tmp_path / "home"), "KUBEBUILDER_ASSETS": programs},
    )

    assert ended.returncode == 0, ended.stderr
    for promised in (
        "Croupier-Simulated-70GB",
        "$ kubectl get nodereservations",
        "gpu-worker-0000-10-00-0",
        "example-reservation",
        "nodereservation.mps.nvidia.com/gpu-worker patched",
        "card gpu-worker-0000-10-00-0 is overcommitted",
    ):
        assert promised in ended.stdout
    assert "Running" in ended.stdout.partition("get pod trainer")[2]
    assert running_under(str(tmp_path)) == []


def running_under(folder: str) -> list[list[str]]:
    """Command lines of processes that work in `folder`."""
    lines = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if any(folder in word for word in line) and "pytest" not in " ".join(line)]
