"""`croupier lab` on the command line."""

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
from tests.cli import command
from tests.cli.command import CROUPIER, CommandResult

SECONDS = 90


class LabShell:
    """Runs `croupier lab` with its own CROUPIER_HOME: in a fork, or as a program that gets signals."""

    def __init__(self, home: Path, assets: Path | None) -> None:
        self.home = home
        self.started: list[subprocess.Popen[str]] = []
        self._env = {**os.environ, "CROUPIER_HOME": str(home), "COLUMNS": "200", "NO_COLOR": "1"}
        if assets is not None:
            self._env["KUBEBUILDER_ASSETS"] = str(assets.absolute())

    def types(self, *args: str) -> CommandResult:
        return command.run(["lab", *args], env=self._env)

    def starts(self, *args: str) -> "subprocess.Popen[str]":
        program = [*CROUPIER, "lab", *args]
        child = subprocess.Popen(
            program, env=self._env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.started.append(child)
        return child

    def lab(self, name: str = "default") -> LabRecord | None:
        return record.load(self.home / "labs" / name)

    def waits_for(self, *, ready: bool = True, owner: int | None = None) -> LabRecord:
        """The default lab once it has started, by the process `owner` if given."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            lab = self.lab()
            if lab is not None and lab.processes and lab.ready >= ready and _is_owned(lab, owner):
                return lab
            time.sleep(0.05)
        raise AssertionError("the lab did not start")


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


def _is_owned(lab: LabRecord, owner: int | None) -> bool:
    return owner is None or (lab.owner is not None and lab.owner.pid == owner)


def listening(lab: LabRecord) -> set[str]:
    """The addresses on which its processes accept connections."""
    return {
        connection.laddr.ip
        for part in lab.processes
        for connection in psutil.Process(part.pid).net_connections("inet")
        if connection.status == "LISTEN"
    }


def running(lab: LabRecord) -> list[str]:
    return [part.name for part in lab.processes if process.alive(part)]


def test_a_detached_lab_from_up_to_down(person):
    up = person.types("up", "--nodes", "2", "--gpus", "H100:8", "--node", "gpu-worker=T4:1", "--detach")
    assert up.code == 0, up.err
    assert "Lab default is running: https://127.0.0.1:" in up.out
    assert "gpu-worker, node-1, node-2" in up.out

    gpus = "-o=custom-columns=N:.metadata.name,G:.status.allocatable.nvidia\\.com/gpu"
    nodes = person.types("kubectl", "get", "nodes", gpus, "--no-headers").out
    assert sorted(line.split() for line in nodes.splitlines()) == [
        ["gpu-worker", "1"],
        ["node-1", "8"],
        ["node-2", "8"],
    ]

    status = person.types("status", "-o", "json")
    report = status.data
    assert status.code == 0
    assert (report["state"], report["nodes"]) == ("running", {"total": 3, "ready": 3})
    assert [part["name"] for part in report["parts"]] == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kwok",
    ]
    config = Path(person.types("kubeconfig").out.strip())
    assert config.read_text() == person.types("kubeconfig", "--raw").out
    assert listening(person.lab()) == {socket.gethostbyname("localhost")}
    assert person.types("list").out.split()[:2] == ["default", "running"]

    again = person.types("up", "--node", "late=T4:1")
    assert again.code == 0
    assert "Lab default was already running" in again.out
    assert "late" in person.types("kubectl", "get", "nodes").out

    lab = person.lab()
    down = person.types("down")
    assert down.code == 0
    assert f"Its logs are in {lab.folder}/logs" in down.out
    assert running(lab) == []
    assert person.types("status").code == 1


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


def test_a_component_that_exits_is_reported_with_its_log(person):
    child = person.starts("up")
    lab = person.waits_for()
    process.kill(next(part for part in lab.processes if part.name == "kube-scheduler"))
    output, _ = child.communicate(timeout=60)

    assert child.returncode == 1
    assert "croupier: kube-scheduler exited, so lab default was stopped. Its log is" in output
    assert running(lab) == []


def test_up_replaces_a_lab_whose_owner_was_killed_and_down_stops_it_in_another_terminal(person):
    child = person.starts("up")
    broken = person.waits_for()
    child.kill()
    child.communicate()
    assert person.types("status").out.startswith("Lab default is broken")

    child = person.starts("up")
    lab = person.waits_for(owner=child.pid)
    assert running(broken) == []

    down = person.types("down")
    child.communicate(timeout=60)
    assert (down.code, child.returncode) == (0, 0)
    assert running(lab) == []


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

    assert answer.code == 2
    assert answer.err.startswith("croupier: ")
    assert answer.err.count("\n") == 1
    assert sentence in answer.err
    assert answer.out == ""


NO_LAB = {"status": ["status"], "kubeconfig": ["kubeconfig"], "kubectl": ["kubectl", "get", "pods"]}


@pytest.mark.parametrize("args", NO_LAB.values(), ids=NO_LAB)
def test_without_a_lab_the_error_says_how_to_start_one(person, args):
    answer = person.types(*args)

    assert answer.code == 1
    assert answer.err == "croupier: There is no lab default: start one with `croupier lab up`.\n"


def test_the_environment_chooses_a_lab_unless_an_option_does():
    env = {**os.environ, "CROUPIER_LAB": "from-environment"}

    for args, name in (([], "from-environment"), (["--name", "typed"], "typed")):
        answer = command.run(["lab", "status", *args], env=env)
        assert f"There is no lab {name}" in answer.err


def test_stopping_a_missing_lab_is_not_an_error(person):
    assert person.types("down").out == "There is no lab default.\n"
    assert person.types("down", "--all").out == "There is no lab.\n"


def test_an_unwritable_folder_is_reported(person, tmp_path):
    (tmp_path / "file").touch()
    answer = LabShell(tmp_path / "file", None).types("up")

    assert answer.code == 1
    assert answer.err.startswith(f"croupier: {tmp_path}/file")
    assert "choose other folders with CROUPIER_HOME" in answer.err
    assert "Traceback" not in answer.err


def test_a_start_up_timeout_is_reported_and_nothing_is_left(person):
    answer = person.types("up", "--timeout", "0.01")

    assert answer.code == 1
    assert "was not ready within 0.01 seconds" in answer.err
    assert f"{person.home}/labs/default/logs/" in answer.err
    assert person.lab() is None


def test_binaries_shows_the_source_of_each_binary(person, tmp_path):
    old = tmp_path / "old"
    old.mkdir()
    (old / "kubectl").write_text("#!/bin/sh\necho Client Version: v1.20.0\n")
    (old / "kubectl").chmod(0o755)

    output = person.types("binaries", "--bin", str(old)).out

    assert (
        f"kubectl at {old}/kubectl (--bin) was rejected: its version is 1.20.0; the lab needs 1.35 to 1.37"
        in output
    )
    for name in ("etcd", "kube-apiserver", "kubelet", "ctr"):
        assert f"\n{name} " in f"\n{output}"


def test_help_shows_examples(person):
    answer = person.types("up", "--help")

    assert answer.code == 0
    assert "croupier lab up --nodes 4 --gpus H100:8" in answer.out
