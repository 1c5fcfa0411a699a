"""Every verb of the command, as the command itself knows them, and how to call it within this process."""

import contextlib
import io
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import typer
import yaml

from croupier import cli
from tests.cli.env import CommandResult


def leaves() -> dict[str, Any]:
    """The commands by name, such as `pools confirm`. A group that does something itself is a command, too."""
    return dict(_below(typer.main.get_command(cli.app), ()))


def _below(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if path and not (hasattr(command, "commands") and not command.invoke_without_command):
        yield " ".join(path), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from _below(inner, (*path, name))


POD = str(Path(__file__).parents[2] / "examples" / "pod" / "shares.yaml")

CLUSTER_VERBS = {
    "explain pod": ("explain", "pod", "trainer"),
    "what-if": ("what-if", "-f", POD),
    "fallback": ("fallback", "-f", POD),
    "available": ("available",),
    "reservations": ("reservations",),
    "ledger": ("ledger",),
    "usage": ("usage",),
    "audit": ("audit",),
    "cards": ("cards",),
    "pools": ("pools",),
    "pools show": ("pools", "show", "team-a"),
    "pools confirm": ("pools", "confirm", "team-a"),
    "assign": ("assign", "node-1/0", "team-a"),
    "unassign": ("unassign", "node-1/0"),
    "drain": ("drain", "node-1/0"),
    "retire": ("retire", "node-1/0"),
    "market status": ("market", "status"),
    "ui": ("ui", "--no-open"),
    "scheduler-config": ("scheduler-config",),
    "doctor": ("doctor",),
    "uninstall": ("uninstall", "--yes"),
}
"""How to call every verb that asks a cluster and ends."""

PROCESSES = ("manager", "extender", "node", "mps", "webhook", "market run")
"""Long-running processes: without a cluster they wait and log."""


def call(*args: str, env: Mapping[str, str] | None = None) -> CommandResult:
    """Run the command in this process, which is ten times as fast as another Python."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["croupier", *args]),
        mock.patch.dict("os.environ", {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb", **(env or {})}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
    return CommandResult(code, out.getvalue(), err.getvalue())


def kubeconfig(folder: Path, server: str) -> Path:
    file = folder / "kubeconfig"
    context = {"name": "production", "context": {"cluster": "c", "user": "u"}}
    content = {
        "current-context": "production",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [context],
    }
    file.write_text(yaml.safe_dump(content))
    return file
