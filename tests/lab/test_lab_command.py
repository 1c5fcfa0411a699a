"""`croupier lab` on the command line."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from croupier_lab import process, record
from croupier_lab.record import LabRecord
from tests.cli.command import CROUPIER

SECONDS = 60


class LabShell:
    """Runs `croupier lab` with its own CROUPIER_HOME."""

    def __init__(self, home: Path, assets: Path | None) -> None:
        self.home = home
        self.started: list[subprocess.Popen[str]] = []
        self._env = {**os.environ, "CROUPIER_HOME": str(home), "COLUMNS": "200", "NO_COLOR": "1"}
        if assets is not None:
            self._env["KUBEBUILDER_ASSETS"] = str(assets.absolute())

    def types(self, *args: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*CROUPIER, "lab", *args], env=self._env, capture_output=True, text=True, timeout=120, check=False
        )

    def starts(self, *args: str) -> "subprocess.Popen[str]":
        command = [*CROUPIER, "lab", *args]
        child = subprocess.Popen(
            command, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(child)
        return child

    def lab(self, name: str = "default") -> LabRecord | None:
        return record.load(self.home / "labs" / name)

    def waits_for(self, name: str = "default", *, ready: bool = True) -> LabRecord:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lab = self.lab(name)
            if lab is not None and lab.processes and lab.ready >= ready:
                return lab
            time.sleep(0.05)
        raise AssertionError(f"lab {name} did not start")


@pytest.fixture
def person(tmp_path, pytestconfig) -> Iterator[LabShell]:
    shell = LabShell(tmp_path, pytestconfig.getoption("--lab-bin"))
    yield shell
    for child in shell.started:
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            child.communicate(timeout=60)
    if (tmp_path / "labs").exists():
        shell.types("down", "--all")


def running(lab: LabRecord) -> list[str]:
    return [part.name for part in lab.processes if process.alive(part)]


def test_a_detached_lab_from_up_to_down(person):
    up = person.types("up", "--nodes", "2", "--gpus", "H100:8", "--node", "gpu-worker=T4:1", "--detach")
    assert up.returncode == 0, up.stderr
    assert "Lab default is running: https://127.0.0.1:" in up.stdout
    assert "gpu-worker, node-1, node-2" in up.stdout

    gpus = "-o=custom-columns=N:.metadata.name,G:.status.allocatable.nvidia\\.com/gpu"
    nodes = person.types("kubectl", "get", "nodes", gpus, "--no-headers").stdout
    assert sorted(line.split() for line in nodes.splitlines()) == [
        ["gpu-worker", "1"],
        ["node-1", "8"],
        ["node-2", "8"],
    ]

    status = person.types("status", "-o", "json")
    report = json.loads(status.stdout)
    assert status.returncode == 0
    assert (report["state"], report["nodes"]) == ("running", {"total": 3, "ready": 3})
    assert [part["name"] for part in report["parts"]] == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok",
    ]
    assert (
        Path(person.types("kubeconfig").stdout.strip()).read_text()
        == person.types("kubeconfig", "--raw").stdout
    )
    assert person.types("list").stdout.split()[:2] == ["default", "running"]

    again = person.types("up", "--node", "late=T4:1")
    assert again.returncode == 0
    assert "Lab default was already running" in again.stdout
    assert "late" in person.types("kubectl", "get", "nodes").stdout

    lab = person.lab()
    down = person.types("down")
    assert down.returncode == 0
    assert f"Its logs are in {lab.folder}/logs" in down.stdout
    assert running(lab) == []
    assert person.types("status").returncode == 1


def test_ctrl_c_stops_everything_in_the_foreground(person):
    child = person.starts("up")
    lab = person.waits_for()
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)

    assert child.returncode == 0, output
    assert "Stopping lab default" in output
    assert running(lab) == []


def test_a_second_ctrl_c_kills_everything(person):
    child = person.starts("up")
    lab = person.waits_for()
    child.send_signal(signal.SIGINT)
    for line in child.stdout:
        if line == "Stopping lab default\n":
            child.send_signal(signal.SIGINT)
            break
    output, _ = child.communicate(timeout=60)

    assert child.returncode == 0, output
    assert "Killing all processes" in output
    assert running(lab) == []


def test_ctrl_c_while_starting_leaves_nothing(person):
    child = person.starts("up")
    lab = person.waits_for(ready=False)
    child.send_signal(signal.SIGINT)
    output, _ = child.communicate(timeout=60)

    assert child.returncode == 130, output
    assert "Interrupted; lab default was stopped." in output
    assert running(lab) == []
    assert person.lab() is None


def test_down_in_another_terminal_stops_a_foreground_lab(person):
    child = person.starts("up")
    lab = person.waits_for()
    down = person.types("down")
    child.communicate(timeout=60)

    assert (down.returncode, child.returncode) == (0, 0)
    assert running(lab) == []


def test_a_component_that_exits_is_reported_with_its_log(person):
    child = person.starts("up")
    lab = person.waits_for()
    process.kill(next(part for part in lab.processes if part.name == "kube-scheduler"))
    output, _ = child.communicate(timeout=60)

    assert child.returncode == 1
    assert "croupier: kube-scheduler exited, so lab default was stopped. Its log is" in output
    assert running(lab) == []


def test_up_replaces_a_lab_whose_owner_was_killed(person):
    child = person.starts("up")
    broken = person.waits_for()
    child.kill()
    child.communicate()
    assert person.types("status").stdout.startswith("Lab default is broken")

    assert person.types("up", "--detach").returncode == 0
    assert running(broken) == []


INVALID_OPTIONS = {
    "an unknown model": (["up", "--gpus", "H1000:8"], "did you mean H100?"),
    "cards without a count": (["up", "--node", "a=H100"], "write MODEL:COUNT, for example H100:8."),
    "a node without cards": (["up", "--node", "a"], "write NAME=MODEL:COUNT"),
    "an invalid name": (["up", "--name", "Über/lab"], "use up to 42 lower-case letters"),
    "a missing folder": (["up", "--bin", "/nowhere"], "--bin /nowhere: there is no such folder."),
    "no timeout": (["up", "--timeout", "0"], "must be more than 0 seconds"),
    "a negative number of nodes": (["up", "--nodes", "-3"], "cannot be negative"),
    "an unknown output": (["status", "-o", "xml"], "must be text or json"),
}


@pytest.mark.parametrize(("args", "sentence"), INVALID_OPTIONS.values(), ids=INVALID_OPTIONS)
def test_an_invalid_option_is_rejected_with_one_sentence(person, args, sentence):
    answer = person.types(*args)

    assert answer.returncode == 2
    assert answer.stderr.startswith("croupier: ")
    assert answer.stderr.count("\n") == 1
    assert sentence in answer.stderr
    assert answer.stdout == ""


NO_LAB = {"status": ["status"], "kubeconfig": ["kubeconfig"], "kubectl": ["kubectl", "get", "pods"]}


@pytest.mark.parametrize("args", NO_LAB.values(), ids=NO_LAB)
def test_without_a_lab_the_error_says_how_to_start_one(person, args):
    answer = person.types(*args)

    assert answer.returncode == 1
    assert answer.stderr == "croupier: There is no lab default: start one with `croupier lab up`.\n"


def test_the_environment_chooses_a_lab_unless_an_option_does():
    env = {**os.environ, "CROUPIER_LAB": "from-environment"}

    for args, name in (([], "from-environment"), (["--name", "typed"], "typed")):
        command = [*CROUPIER, "lab", "status", *args]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
        assert f"There is no lab {name}" in ended.stderr


def test_stopping_a_missing_lab_is_not_an_error(person):
    assert person.types("down").stdout == "There is no lab default.\n"
    assert person.types("down", "--all").stdout == "There is no lab.\n"


def test_an_unwritable_folder_is_reported(person, tmp_path):
    (tmp_path / "file").touch()
    answer = LabShell(tmp_path / "file", None).types("up")

    assert answer.returncode == 1
    assert answer.stderr.startswith(f"croupier: {tmp_path}/file")
    assert "choose other folders with CROUPIER_HOME" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_start_up_timeout_is_reported_and_nothing_is_left(person):
    answer = person.types("up", "--timeout", "0.01")

    assert answer.returncode == 1
    assert "was not ready within 0.01 seconds" in answer.stderr
    assert f"{person.home}/labs/default/logs/" in answer.stderr
    assert person.lab() is None


def test_binaries_shows_the_source_of_each_binary(person, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    (old / "kubectl").write_text("#!/bin/sh\necho Client Version: v1.20.0\n")
    (old / "kubectl").chmod(0o755)

    output = person.types("binaries", "--bin", str(old)).stdout

    assert (
        f"kubectl at {old}/kubectl (--bin) was rejected: its version is 1.20.0; the lab needs 1.35 to 1.37"
        in output
    )
    for name in ("etcd", "kube-apiserver", "kubelet", "ctr"):
        assert f"\n{name} " in f"\n{output}"


def test_help_shows_examples():
    answer = subprocess.run(
        [*CROUPIER, "lab", "up", "--help"], capture_output=True, text=True, timeout=30, check=True
    )

    assert "croupier lab up --nodes 4 --gpus H100:8" in answer.stdout


def test_nothing_listens_beyond_loopback(person):
    assert person.types("up", "--detach").returncode == 0
    lab = person.lab()
    listening = {
        connection.laddr.ip
        for part in lab.processes
        for connection in psutil.Process(part.pid).net_connections("inet")
        if connection.status == "LISTEN"
    }

    assert listening == {socket.gethostbyname("localhost")}
