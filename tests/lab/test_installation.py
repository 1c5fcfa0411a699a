"""Obstacles to an installation into a lab are reported with advice."""

import asyncio
from pathlib import Path

import pytest

from croupier_lab import croupier_processes, installation, own_image, realnode, record, user_dirs
from croupier_lab.errors import LabError
from croupier_lab.installation import InstallOptions
from croupier_lab.lab import Lab
from croupier_lab.progress import NoProgress
from croupier_lab.record import LabRecord
from tests.cli.env import croupier


def lab(
    *parts: str, name: str = user_dirs.DEFAULT_NAME, real_node: str | None = realnode.NAME, ready: bool = True
) -> Lab:
    """A running lab, with the current process as each of its components."""
    me = record.current_process()
    return Lab(
        LabRecord(
            name=name,
            folder="nowhere",
            parts=(),
            ports={"kube-apiserver": 6443},
            binaries={},
            ready=ready,
            processes=tuple(type(me)(part, me.pid, me.created, "") for part in ("etcd", *parts)),
            real_node=real_node,
        )
    )


def test_a_lab_with_a_real_node_is_accepted(monkeypatch):
    monkeypatch.setattr(own_image, "obstacle", lambda: None)

    assert installation.obstacle(lab()) is None


def test_the_obstacle_to_the_image_is_reported(monkeypatch):
    monkeypatch.setattr(own_image, "obstacle", lambda: "run the same command as root.")

    assert installation.obstacle(lab()) == "run the same command as root."


OBSTACLES = {
    "not running": (
        lab(ready=False),
        "Lab default is not running: start it as root with `croupier lab up --real-node --detach`.",
    ),
    "no real node": (
        lab(real_node=None, name="mine"),
        "Lab mine has no real node: run `croupier lab up --real-node --detach --name mine` as root to join "
        "this machine.",
    ),
    "runs Croupier as processes": (
        lab(croupier_processes.EXTENDER, croupier_processes.WEBHOOK),
        "Lab default already runs croupier-extender, croupier-webhook as processes, which would allocate the "
        "same cards: run `croupier lab down`, then `croupier lab up --real-node --detach` without "
        "--croupier, --cards and --agents.",
    ),
}


@pytest.mark.parametrize(("found", "sentence"), OBSTACLES.values(), ids=OBSTACLES)
def test_obstacles_are_reported_first(found, sentence):
    assert installation.obstacle(found) == sentence
    with pytest.raises(LabError, match=sentence[:20]):
        asyncio.run(installation.prepare(found, InstallOptions(), NoProgress()))


def test_user_values_override_the_values_of_the_lab():
    wish = InstallOptions(values=(Path("mine.yaml"),), sets=("settings.logLevel=Debug",))

    words = installation.helm_arguments(lab(), wish, Path("lab.yaml"))

    assert words[-3:] == ("--values=lab.yaml", "--values=mine.yaml", "--set=settings.logLevel=Debug")
    assert installation.values_file(lab(), wish, {"a": 1}).endswith("\na: 1\n")


INVALID_OPTIONS = {
    "no such lab": (("--name", "none"), 1, "There is no lab none: start one as root with `croupier lab up"),
    "no such card": (("--cards", "X:1"), 2, "--cards X:1: no card model is called 'X'"),
    "no such file": (("--values", "not/there.yaml"), 2, "--values not/there.yaml: there is no such file."),
}


@pytest.mark.parametrize(("words", "code", "sentence"), INVALID_OPTIONS.values(), ids=INVALID_OPTIONS)
def test_invalid_options_are_rejected(words, code, sentence, tmp_path, monkeypatch):
    monkeypatch.setenv("CROUPIER_HOME", str(tmp_path))

    answer = croupier("lab", "install", *words)

    assert (answer.code, sentence in answer.err) == (code, True), answer.err
