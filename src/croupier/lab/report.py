"""The output of `croupier lab status`."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from croupier.api import kinds
from croupier.kube import client, config
from croupier.kube.errors import KubeError
from croupier.lab import fleet, process, record
from croupier.lab.lab import Lab
from croupier.lab.record import State


class Part(msgspec.Struct, frozen=True):
    name: str
    pid: int
    port: int | None
    running: bool
    log: str


class Nodes(msgspec.Struct, frozen=True):
    total: int
    ready: int


class Report(msgspec.Struct, frozen=True):
    name: str
    state: State
    server: str
    kubeconfig: str
    logs: str
    parts: Sequence[Part]
    nodes: Nodes | None
    """None if the API server is not reachable."""


async def look(lab: Lab) -> Report:
    state = record.state(lab.record)
    return Report(
        name=lab.name,
        state=state,
        server=lab.server,
        kubeconfig=str(lab.kubeconfig),
        logs=str(lab.logs),
        parts=[
            Part(part.name, part.pid, lab.record.ports.get(part.name), process.alive(part), part.log)
            for part in lab.record.processes
        ],
        nodes=await _nodes(lab) if state is State.RUNNING else None,
    )


def lines(report: Report) -> list[str]:
    head = f"Lab {report.name} is {report.state.value}: {report.server}"
    if report.nodes is not None:
        head += f", {report.nodes.ready} of {report.nodes.total} nodes ready"
    parts = [
        f"  {part.name:<24} {'running' if part.running else 'dead':<8} pid {part.pid:<8}"
        + (f" port {part.port}" if part.port else "")
        for part in report.parts
    ]
    return [head, *parts, f"  kubeconfig {report.kubeconfig}", f"  logs       {Path(report.logs)}"]


async def _nodes(lab: Lab) -> Nodes | None:
    with contextlib.suppress(KubeError, TimeoutError):
        async with client.connect(config.load(lab.kubeconfig)) as api:
            listed = await api.list(kinds.NODES)
            return Nodes(len(listed.items), sum(map(fleet.usable, listed.items)))
    return None
