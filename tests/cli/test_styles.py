"""NO_COLOR forbids all escape sequences, also bold ones; without it a terminal gets styles."""

import json
import os
import sys
from typing import Any

import pytest
import typer

from croupier import cli
from croupier.cli import terminal
from croupier_lab import progress
from croupier_lab.progress import LogProgress, TerminalProgress
from tests.cli.env import at_a_terminal

EVERY: str = """
import json, sys
from croupier.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["croupier", *arguments]
    try:
        main()
    except SystemExit:
        pass
"""
POD = {
    "kind": "Pod",
    "metadata": {"name": "job"},
    "spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/mig-2g.20gb": 1}}}]},
}


def verbs(command: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The path of every command and group."""
    below = getattr(command, "commands", {})
    return [path, *(found for name, child in below.items() for found in verbs(child, (*path, name)))]


@pytest.fixture
def typed(tmp_path) -> str:
    """The help of every verb, usage errors, errors, and a verb with coloured output, as JSON."""
    (tmp_path / "pod.json").write_text(json.dumps(POD))
    (tmp_path / "nodes.yaml").write_text("node-1: {nvidia.com/mig-1g.10gb: 28}\n")
    fallback = ["fallback", "-f", str(tmp_path / "pod.json"), "--nodes", str(tmp_path / "nodes.yaml")]
    helps = [[*path, "--help"] for path in verbs(typer.main.get_command(cli.app))]
    errors = [
        ["nonsense"],
        ["cards", "--nonsense"],
        ["cards", "--kubeconfig", "/no/such/file"],
        ["settings", "show"],
    ]
    return json.dumps([fallback, *helps, *errors])


def shown(typed: str, **env: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [sys.executable, "-c", EVERY, typed]
    code, output = at_a_terminal(command, env={**inherited, "TERM": "xterm-256color", **env})
    assert code == 0, output
    return output


def test_no_verb_prints_escape_sequences_with_no_color(typed):
    output = shown(typed, NO_COLOR="1")

    assert "\x1b" not in output
    for text in ("+ nvidia.com/mig-1g.10gb: 1", "Usage: croupier cards", "No such command 'nonsense'"):
        assert text in output


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": ""}], ids=["unset", "empty"])
def test_a_terminal_has_styles_otherwise(typed, env):
    styled = shown(json.dumps([*json.loads(typed)[:2], ["nonsense"]]), **env)

    assert "\x1b[32m    + nvidia.com/mig-1g.10gb: 1" in styled, "a colour of a verb"
    assert "\x1b[1m" in styled, "a style of the help"


def test_progress_is_plain_with_no_color(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert isinstance(progress.to_stderr(), TerminalProgress)
    monkeypatch.setenv("NO_COLOR", "1")
    assert isinstance(progress.to_stderr(), LogProgress)


def test_any_value_of_no_color_counts(monkeypatch):
    values = {"": False, "0": True, "1": True, "false": True}

    for value, forbidden in values.items():
        monkeypatch.setenv("NO_COLOR", value)
        assert terminal.forbids_styles() is forbidden
