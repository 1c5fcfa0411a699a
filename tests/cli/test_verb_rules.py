"""Rules of all verbs, as docs/commands.md states them: which verbs ask first, and the exit codes."""

import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from croupier.cli import cluster
from tests.cli import verbs
from tests.cli.command import CROUPIER
from tests.polling import until_blocking

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text()
READ_ONLY = {
    *("explain pod", "what-if", "fallback", "available", "reservations", "ledger", "usage", "cards"),
    *("pools", "pools show", "market status", "market simulate", "market trace", "doctor", "ui"),
    *("webhook-config", "settings check", "settings show", "version"),
}
"""The page writes as its viewer, and only on request."""
LAB = re.compile(r"demo|lab .*")
"""Clusters that the commands themselves start."""


def table(heading: str) -> dict[str, list[str]]:
    """The rows of the table below the heading, by their first cell."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {row[0].strip().strip("`"): [cell.strip() for cell in row[1:]] for row in rows[2:]}


WRITING = table("What asks first")
ASKS = sorted(verb for verb, (asks, _) in WRITING.items() if asks == "yes")


def command(verb: str) -> Any:
    return verbs.leaves()[verb]


def options(verb: str) -> set[str]:
    return {option for param in command(verb).params for option in param.opts}


def test_every_verb_either_reads_or_writes_or_is_a_process():
    described = READ_ONLY | set(verbs.PROCESSES) | WRITING.keys()
    assert {verb for verb in verbs.leaves() if not LAB.fullmatch(verb)} <= described
    assert described <= verbs.leaves().keys()
    assert not READ_ONLY & WRITING.keys()


def test_exactly_the_verbs_that_ask_can_be_answered_in_advance():
    assert sorted(verb for verb in verbs.leaves() if "--yes" in options(verb)) == ASKS


@pytest.mark.parametrize("verb", sorted(WRITING.keys() - set(ASKS)))
def test_what_does_not_ask_can_be_reversed(verb):
    """The page names an option of the verb, or another verb, or says why nothing has to be reversed."""
    way = WRITING[verb][1]
    named = re.findall(r"`([^`]+)`", way)
    known = {f"{verb} {option}" for option in options(verb)} | options(verb) | verbs.leaves().keys()
    assert way.startswith("not needed: ") or (named and set(named) <= known), way


def test_without_a_terminal_a_verb_that_asks_changes_nothing(tmp_path):
    kept = tmp_path / "croupier" / "kept"
    kept.parent.mkdir()
    kept.touch()
    refused = verbs.call("lab", "clean-cache", env={"XDG_CACHE_HOME": str(tmp_path)})

    assert (refused.code, refused.out) == (2, "")
    assert "there is no terminal to ask at: pass --yes to do it" in refused.err
    assert kept.exists()  # tests/ops/test_uninstall.py shows the same for a cluster


def test_the_page_lists_the_exit_codes():
    assert table("Exit codes").keys() == {"0", "1", "2", "130"}


@pytest.mark.parametrize("verb", verbs.leaves())
def test_help_is_done_and_an_unknown_option_is_a_usage_error(verb):
    passes_on = command(verb).context_settings.get("ignore_unknown_options")  # to kubectl
    assert verbs.call(*verb.split(), "--help").code == 0
    assert passes_on or verbs.call(*verb.split(), "--no-such-option").code == 2


@pytest.mark.parametrize("verb", [verb for verb in verbs.CLUSTER_VERBS if verb != "ui"])
def test_an_interrupted_verb_ends_with_130(verb, monkeypatch, tmp_path):
    """The page runs until it is interrupted, so that is its normal end."""

    def interrupted(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "run", interrupted)
    file = verbs.kubeconfig(tmp_path, "https://127.0.0.1:9")
    ended = verbs.call(*verbs.CLUSTER_VERBS[verb], "--kubeconfig", str(file))

    assert ended.code == 130
    assert "Traceback" not in ended.err


def test_ctrl_c_while_waiting_for_the_api_server(silent, tmp_path):
    server, peers = silent
    file = verbs.kubeconfig(tmp_path, server)
    environment = {cluster.TIMEOUT_VARIABLE: "3600", "KUBECONFIG": str(file)}
    with subprocess.Popen([*CROUPIER, "cards"], stderr=subprocess.PIPE, env=environment) as process:
        until_blocking(lambda: bool(peers), "the command to connect")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 130
    assert b"Traceback" not in said
