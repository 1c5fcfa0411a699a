"""What the first line of every process says, as docs/logs.md promises."""

import json
from typing import Any

from croupier.kube.serving import build_info

KEYS = {"version", "revision", "settings", "capacity_manager", "identity", "verbosity", "url", "server"}


def lines(log: str) -> list[dict[str, Any]]:
    """Those of Croupier; at level debug libraries log before it."""
    every = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in every if line["logger"].startswith("croupier.")]


def check(log: str, command: str, manager: str = "") -> None:
    """The first line of the log of `croupier <command>`, and the line that it is ready."""
    every = lines(log)
    first, process = every[0], f"croupier {command}"
    assert list(first)[:3] == ["time", "level", "message"]
    assert first["message"].startswith(f"{process} {build_info.version()} starts and waits for caches: ")
    assert first.keys() >= KEYS, first
    assert first["process"] == process
    assert not manager or first["capacity_manager"] == manager
    if command == "manager":
        assert first["controllers"]
    assert any(line["message"].startswith(f"{process} is ready after ") for line in every)
