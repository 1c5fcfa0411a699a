"""Before anything is installed into a lab: what stands in the way is said with what to do about it."""

import asyncio
from pathlib import Path

import pytest

from croupier.lab import dealer, installation, own_image, places, realnode, record
from croupier.lab.errors import LabError
from croupier.lab.installation import Wish
from croupier.lab.lab import Lab
from croupier.lab.progress import Silent
from croupier.lab.record import Record
from tests.cli.asking import croupier


def lab(
    *parts: str, name: str = places.DEFAULT_NAME, real_node: str | None = realnode.NAME, ready: bool = True
) -> Lab:
    """One that runs: this very process is each of its parts."""
    me = record.myself()
    return Lab(
        Record(
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


def test_a_plain_lab_with_a_real_node_will_do(monkeypatch):
    monkeypatch.setattr(own_image, "obstacle", lambda: None)

    assert installation.refusal(lab()) is None


def test_who_cannot_build_the_image_is_told_so(monkeypatch):
    monkeypatch.setattr(own_image, "obstacle", lambda: "run the same command as root.")

    assert installation.refusal(lab()) == "run the same command as root."


IN_THE_WAY = {
    "it does not run": (
        lab(ready=False),
        "Lab default does not run: raise it as root with `croupier lab up --real-node --detach`.",
    ),
    "no real node": (
        lab(real_node=None, name="mine"),
        "Lab mine has no real node to run pods: as root, `croupier lab up --real-node --detach --name mine` "
        "joins this machine.",
    ),
    "it deals already": (
        lab(dealer.EXTENDER, dealer.WEBHOOK),
        "Lab default runs croupier-extender, croupier-webhook as processes, and an installation beside them "
        "would deal the same cards: `croupier lab down`, then `croupier lab up --real-node --detach` without "
        "--croupier, --cards and --agents.",
    ),
}


@pytest.mark.parametrize(("found", "sentence"), IN_THE_WAY.values(), ids=IN_THE_WAY)
def test_what_stands_in_the_way_is_said_before_anything_is_done(found, sentence):
    assert installation.refusal(found) == sentence
    with pytest.raises(LabError, match=sentence[:20]):
        asyncio.run(installation.prepare(found, Wish(), Silent()))


def test_helm_is_told_what_the_lab_says_first_and_what_people_say_last():
    wish = Wish(values=(Path("mine.yaml"),), sets=("settings.logLevel=Debug",))

    words = installation.typed(lab(), wish, Path("lab.yaml"))

    assert words[-3:] == ("--values=lab.yaml", "--values=mine.yaml", "--set=settings.logLevel=Debug")
    assert installation.printed(lab(), wish, {"a": 1}).endswith("\na: 1\n")


TYPED_WRONG = {
    "no such lab": (("--name", "none"), 1, "There is no lab none: raise one, as root, with `croupier lab up"),
    "no such card": (("--cards", "X:1"), 2, "--cards X:1: no card model is called 'X'"),
    "no such file": (("--values", "not/there.yaml"), 2, "--values not/there.yaml: there is no such file."),
}


@pytest.mark.parametrize(("words", "code", "sentence"), TYPED_WRONG.values(), ids=TYPED_WRONG)
def test_what_cannot_be_meant_is_said(words, code, sentence, tmp_path, monkeypatch):
    monkeypatch.setenv("CROUPIER_HOME", str(tmp_path))

    answer = croupier("lab", "install", *words)

    assert (answer.code, sentence in answer.err) == (code, True), answer.err
