"""Builders of nodes, ledgers and pods, and a runner of the `croupier` command."""

import contextlib
import json
import os
import pty
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from croupier.api import kinds
from croupier.kube.client.api_client import Client
from croupier_lab import nodes
from tests.cli.command import CROUPIER

NO_SCHEDULER = "no-such-scheduler"
"""Pods with this schedulerName stay pending."""


@dataclass(frozen=True)
class CommandResult:
    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


def croupier(*args: str, stdin: str = "", kubeconfig: Any = None) -> CommandResult:
    env = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    if kubeconfig is not None:
        env["KUBECONFIG"] = str(kubeconfig)
    ended = subprocess.run(
        [*CROUPIER, *args], input=stdin, capture_output=True, text=True, timeout=120, check=False, env=env
    )
    assert "Traceback" not in ended.stderr, ended.stderr
    return CommandResult(ended.returncode, ended.stdout, ended.stderr)


def at_a_terminal(
    command: Sequence[str], *, answer: str = "", env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run the command at a terminal and answer its question; the exit code and everything shown."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as process:
        os.close(theirs)
        shown, answered = b"", False
        with contextlib.suppress(OSError):  # the terminal is closed at the end of the command
            while chunk := os.read(ours, 65536):
                shown += chunk
                if answer and not answered and b"Continue?" in shown:
                    os.write(ours, f"{answer}\n".encode())
                    answered = True
        code = process.wait(timeout=60)
    os.close(ours)
    return code, shown.decode().replace("\r\n", "\n")


async def node(api: Client, name: str, cards: str = "H100:2", **changes: Any) -> None:
    """Create a KWOK node; `changes` are merged into its spec."""
    body = nodes.manifest(nodes.SimulatedNode(name, "zone-a", nodes.parse_cards(cards)), datetime.now(UTC))
    body["spec"] = {**body.get("spec", {}), **changes}
    await api.create(kinds.NODES, body)


async def ledger(
    api: Client,
    name: str,
    *holders: Mapping[str, int],
    held: Mapping[str, str] = {},
    indexes: Sequence[int] | None = None,
) -> None:
    """Create the NodeReservation of a node: one card for each mapping of holders."""
    cards = [
        {
            "id": f"{name}-gpu-{index}",
            "index": index,
            "mode": "Percent",
            "epoch": 1,
            "healthy": True,
            "capacityPercent": 100,
        }
        | ({"holders": dict(card_holders)} if card_holders else {})
        for index, card_holders in zip(indexes or range(len(holders)), holders, strict=True)
    ]
    body = {"metadata": {"name": name}, "spec": {"cards": cards, **({"held": dict(held)} if held else {})}}
    await api.create(kinds.NODE_RESERVATIONS.raw, body)


async def reservation(api: Client, namespace: str, pod: str, *, node: str, cards: Sequence[str]) -> None:
    """Create a Reservation that holds whole cards for a pod."""
    spec = {"podKey": f"{namespace}/{pod}", "nodeName": node, "numCards": len(cards), "percentPerCard": 100}
    body = {"metadata": {"name": pod, "namespace": namespace}, "spec": spec}
    await api.create(kinds.RESERVATIONS.raw, body)
    status = {"phase": "Reserved", "cards": [{"id": card, "percent": 100} for card in cards]}
    patch = {"status": status}
    await api.patch(kinds.RESERVATIONS, pod, patch, namespace=namespace, subresource="status")


def pod(
    namespace: str, name: str = "trainer", *, marked: bool = True, gpus: int = 0, **annotations: str
) -> dict[str, Any]:
    """A pod that stays pending; annotations are named by the last part of their key."""
    limits = {"gpu.mps.io/ledger": "1"} if marked else {}
    limits |= {"nvidia.com/gpu": str(gpus)} if gpus else {}
    if (ratio := annotations.get("ratio", "")).isdigit():
        limits["gpu.mps.io/percent"] = str(int(annotations.get("cards", "1")) * int(ratio))
    full_annotations = {f"gpu.mps.io/{key}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": full_annotations},
        "spec": {
            "schedulerName": NO_SCHEDULER,
            "containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}],
        },
    }
