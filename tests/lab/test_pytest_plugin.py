"""Fixtures provide a cluster, and a run leaves no processes behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from croupier_lab import process, realnode, record
from croupier_lab.record import LabRecord

SECONDS = 100

SETTINGS = """
[pytest]
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""

USES_EVERYTHING = """
seen = []

async def test_one(namespace, cluster):
    seen.append(namespace)
    assert "default" in cluster.kubectl("get", "serviceaccounts", "-n", namespace).stdout

def test_another_gets_a_namespace_of_its_own(namespace, cluster, lab):
    assert namespace not in seen
    assert cluster == lab.cluster

async def test_private(private_lab, lab):
    mine = await private_lab()
    assert mine.server != lab.server
    mine.kill("kube-apiserver")
    await mine.start("kube-apiserver")
    await mine.ready()
    assert "default" in mine.kubectl("get", "namespaces").stdout
"""

CLUSTER_SCOPED = """
import json

NODE = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-by-a-test"}})

def test_that_makes_a_node(clean_cluster, crds, cluster):
    assert crds
    cluster.kubectl("create", "-f", "-", stdin=NODE)

def test_that_looks_afterwards(cluster):
    assert "made-by-a-test" not in cluster.kubectl("get", "nodes", "-o", "name").stdout
"""

FAILS = """
def test_that_fails(lab):
    assert False
"""

FILE_AFTER_FILE = {
    "test_1_joins.py": """
def test_it_is_there(lab, real_node):
    assert "Ready" in lab.kubectl("get", "node", real_node).stdout
""",
    "test_2_counts.py": """
def test_there_is_no_node(lab):
    assert lab.kubectl("get", "nodes").stdout == ""
""",
    "test_3_joins_again.py": """
def test_it_is_there_again(lab, real_node):
    assert "Ready" in lab.kubectl("get", "node", real_node).stdout
""",
}

WAITS = """
import pathlib
import time

def test_that_takes_long(lab):
    pathlib.Path("up").write_text(str(lab.folder))
    time.sleep(600)
"""


class InnerPytest:
    """Runs pytest as a subprocess in its own folder."""

    def __init__(self, folder: Path, options: list[str]) -> None:
        self.folder = folder
        self._options = options
        self._env = {**os.environ, "CROUPIER_HOME": str(folder / "home"), "TMPDIR": str(folder)}
        self.children: list[subprocess.Popen[str]] = []

    def __call__(self, code: str, *more: str) -> "subprocess.Popen[str]":
        (self.folder / "pytest.ini").write_text(SETTINGS)
        (self.folder / "test_it.py").write_text(code)
        command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-rs", *self._options, *more]
        child = subprocess.Popen(
            command,
            cwd=self.folder,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.children.append(child)
        return child

    def left_over(self) -> list[str]:
        """Names of processes that still use this folder."""
        return [program.name() for program in self._programs()]

    def end(self) -> None:
        """Stop all processes of the run."""
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                ended(child)
        for program in self._programs():
            program.kill()

    def _programs(self) -> list[psutil.Process]:
        return [program for program in psutil.process_iter() if str(self.folder) in _command(program)]

    def kept(self) -> list[Path]:
        return list(self.folder.glob("croupier-test-*"))

    def lab(self, within: float = 60.0) -> LabRecord:
        """Wait for the record of the run's lab."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if (self.folder / "up").exists():
                folder = Path((self.folder / "up").read_text() or os.devnull)
                if stored := record.load(folder):
                    return stored
            time.sleep(0.05)
        raise AssertionError("the lab of the inner run did not start")


@pytest.fixture
def run(tmp_path, pytestconfig):
    folder = pytestconfig.getoption("--lab-bin")
    started = InnerPytest(tmp_path, [f"--lab-bin={folder.absolute()}"] if folder else [])
    yield started
    started.end()


def ended(child: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and output; the process is killed after a timeout."""
    with child:
        try:
            output, _ = child.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
    return child.returncode, output


def _command(program: psutil.Process) -> str:
    try:
        return " ".join(program.cmdline())
    except psutil.Error:
        return ""


def test_one_lab_serves_the_run_is_restored_after_a_test_and_stopped_afterwards(run):
    code, output = ended(run(USES_EVERYTHING + CLUSTER_SCOPED))

    assert code == 0, output
    assert "5 passed" in output
    assert run.left_over() == []
    assert run.kept() == []


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["without workers", "with a worker"])
def test_logs_are_kept_and_reported_when_a_test_fails(run, workers):
    code, output = ended(run(FAILS, *workers))

    (folder,) = run.kept()
    assert code == 1
    assert f"Logs of the lab the failed tests ran on: {folder / 'shared' / 'logs'}" in output
    assert (folder / "shared" / "logs" / "kube-apiserver.log").exists()
    assert run.left_over() == []


@pytest.mark.skipif(realnode.obstacle() is not None, reason=str(realnode.obstacle()))
def test_a_real_node_stays_for_one_file(run):
    for name, text in FILE_AFTER_FILE.items():
        (run.folder / name).write_text(text)

    code, output = ended(run("", *FILE_AFTER_FILE))

    assert code == 0, output
    assert "3 passed" in output
    assert run.left_over() == []


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything(run, by):
    child = run(WAITS)
    run.lab()
    child.send_signal(by)
    code, output = ended(child)

    assert code == 2, output
    assert run.left_over() == []


def test_the_next_run_cleans_up_after_a_killed_run(run):
    killed = run(WAITS)
    broken = run.lab()
    killed.kill()
    ended(killed)
    assert all(map(process.alive, broken.processes))

    code, output = ended(run(USES_EVERYTHING, "-k", "one"))

    assert code == 0, output
    assert f"Cleaning up after a test run that was killed: {broken.folder}" in output
    assert not any(map(process.alive, broken.processes))
    assert run.kept() == []


def test_with_a_kubeconfig_no_lab_is_started_and_the_cluster_is_restored(run, cluster, request):
    if request.config.getoption("--kubeconfig"):
        pytest.skip("compares all objects of the cluster")
    before = cluster.kubectl("get", "crds,nodes", "-o", "name").stdout

    code, output = ended(run(USES_EVERYTHING + CLUSTER_SCOPED, f"--kubeconfig={cluster.kubeconfig}"))

    assert code == 0, output
    assert "3 passed, 2 skipped" in output
    assert "--kubeconfig selects another cluster" in output
    assert cluster.kubectl("get", "crds,nodes", "-o", "name").stdout == before
    assert not (run.folder / "home" / "runs").exists()
