"""Tests get a cluster by asking for it, and a run leaves nothing running, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from croupier.lab import process, realnode, record
from croupier.lab.record import Record

SECONDS = 170

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
def test_nobody_is_there(lab):
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


class Run:
    """A pytest of its own in a folder of its own, as a person would start it."""

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
        """Programs that still run out of this folder."""
        return [found.name() for found in self._programs()]

    def end(self) -> None:
        """Whatever the test did, nothing outlives it."""
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                ended(child)
        for found in self._programs():
            found.kill()

    def _programs(self) -> list[psutil.Process]:
        return [found for found in psutil.process_iter() if str(self.folder) in _command(found)]

    def kept(self) -> list[Path]:
        return list(self.folder.glob("croupier-test-*"))

    def lab(self, within: float = 60.0) -> Record:
        """The record of the run's lab, once its test has begun."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            if (self.folder / "up").exists():
                folder = Path((self.folder / "up").read_text() or os.devnull)
                if found := record.load(folder):
                    return found
            time.sleep(0.05)
        raise AssertionError("the inner run's lab did not come up")


@pytest.fixture
def run(tmp_path, pytestconfig):
    given = pytestconfig.getoption("--lab-bin")
    started = Run(tmp_path, [f"--lab-bin={given.absolute()}"] if given else [])
    yield started
    started.end()


def ended(child: "subprocess.Popen[str]") -> tuple[int, str]:
    """How it ended; one that does not end is killed, and its code says so."""
    with child:
        try:
            output, _ = child.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            child.kill()
            output, _ = child.communicate()
    return child.returncode, output


def _command(found: psutil.Process) -> str:
    try:
        return " ".join(found.cmdline())
    except psutil.Error:
        return ""


def test_one_lab_serves_the_run_and_everything_is_gone_after_it(run):
    code, output = ended(run(USES_EVERYTHING))

    assert code == 0, output
    assert "3 passed" in output
    assert run.left_over() == []
    assert run.kept() == []


def test_nodes_a_test_made_are_gone_for_the_next(run):
    code, output = ended(run(CLUSTER_SCOPED))

    assert code == 0, output


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "by a worker"])
def test_when_a_test_fails_its_logs_are_kept_and_named(run, workers):
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
def test_a_run_that_is_asked_to_end_tears_everything_down(run, by):
    child = run(WAITS)
    run.lab()
    child.send_signal(by)
    code, output = ended(child)

    assert code == 2, output
    assert run.left_over() == []


def test_a_run_that_was_killed_is_cleaned_up_by_the_next(run):
    killed = run(WAITS)
    wreck = run.lab()
    killed.kill()
    ended(killed)
    assert all(map(process.alive, wreck.processes))

    code, output = ended(run(USES_EVERYTHING, "-k", "one"))

    assert code == 0, output
    assert f"Cleaning up after a test run that was killed: {wreck.folder}" in output
    assert not any(map(process.alive, wreck.processes))
    assert run.kept() == []


def test_with_a_kubeconfig_no_lab_is_raised_and_nothing_stays_behind(run, cluster, request):
    if request.config.getoption("--kubeconfig"):
        pytest.skip("counts namespaces, and somebody else's cluster makes its own")
    before = cluster.kubectl("get", "crds,nodes", "-o", "name").stdout

    code, output = ended(run(USES_EVERYTHING + CLUSTER_SCOPED, f"--kubeconfig={cluster.kubeconfig}"))

    assert code == 0, output
    assert "3 passed, 2 skipped" in output
    assert "--kubeconfig aims this run at another cluster" in output
    assert cluster.kubectl("get", "crds,nodes", "-o", "name").stdout == before
    assert not (run.folder / "home" / "runs").exists()
