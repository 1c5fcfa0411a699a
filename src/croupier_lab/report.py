"""The output of `croupier lab status`."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from croupier.api import kinds
from croupier.core.model import name_list
from croupier.kube.client import api_client, config
from croupier.kube.client.errors import KubeError
from croupier_lab import fleet, process, record
from croupier_lab.lab import Lab
from croupier_lab.record import LabState


class ComponentStatus(msgspec.Struct, frozen=True):
    name: str
    pid: int
    port: int | None
    running: bool
    log: str


class NodeCounts(msgspec.Struct, frozen=True):
    total: int
    ready: int


class LabReport(msgspec.Struct, frozen=True):
    name: str
    state: LabState
    server: str
    kubeconfig: str
    logs: str
    parts: Sequence[ComponentStatus]
    nodes: NodeCounts | None
    """None if the API server is not reachable."""


async def collect(lab: Lab) -> LabReport:
    state = record.state(lab.record)
    return LabReport(
        name=lab.name,
        state=state,
        server=lab.server,
        kubeconfig=str(lab.kubeconfig),
        logs=str(lab.logs),
        parts=[
            ComponentStatus(
                part.name, part.pid, lab.record.ports.get(part.name), process.alive(part), part.log
            )
            for part in lab.record.processes
        ],
        nodes=await _nodes(lab) if state is LabState.RUNNING else None,
    )


def lines(report: LabReport) -> list[str]:
    head = f"Lab {report.name} is {report.state.value}: {report.server}"
    if report.nodes is not None:
        head += f", {name_list.part_of(report.nodes.ready, report.nodes.total, 'node')} ready"
    parts = [
        f"  {part.name:<24} {'running' if part.running else 'dead':<8} pid {part.pid:<8}"
        + (f" port {part.port}" if part.port else "")
        for part in report.parts
    ]
    return [head, *parts, f"  kubeconfig {report.kubeconfig}", f"  logs       {Path(report.logs)}"]


async def _nodes(lab: Lab) -> NodeCounts | None:
    with contextlib.suppress(KubeError, TimeoutError):
        async with api_client.connect(config.load(lab.kubeconfig)) as api:
            listed = await api.list(kinds.NODES)
            return NodeCounts(len(listed.items), sum(map(fleet.is_schedulable, listed.items)))
    return None
