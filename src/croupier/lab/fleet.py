"""Create simulated nodes in a lab, up to thousands.

For large fleets, lease renewals and the not-ready taint are reduced, because these writes dominate the cost.
"""

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from croupier.api import kinds
from croupier.api.core_v1 import Node
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.errors import AlreadyExists
from croupier.lab import nodes
from croupier.lab.controlplane import API_SERVER, CONTROLLER_MANAGER, KWOK
from croupier.lab.errors import LabError
from croupier.lab.lab import Lab
from croupier.lab.nodes import SimulatedNode
from croupier.lab.progress import Progress

AT_ONCE = 32
LARGE = 250
LEASE_SECONDS = 400
POLL = 0.3
NOT_READY = "node.kubernetes.io/not-ready"


def settings(count: int) -> Mapping[str, tuple[str, ...]]:
    """Extra component arguments for a fleet of `count` nodes, for `LabPlan.extra`."""
    if count <= LARGE:
        return {}
    return {
        KWOK: (f"--node-lease-duration-seconds={LEASE_SECONDS}",),
        CONTROLLER_MANAGER: (f"--node-monitor-grace-period={LEASE_SECONDS + 20}s",),
        API_SERVER: ("--disable-admission-plugins=TaintNodesByCondition",),
    }


async def create(
    lab: Lab, wanted: Sequence[SimulatedNode], show: Progress, *, within: float | None = None
) -> None:
    """Create the nodes and wait until all are schedulable. Existing nodes are kept."""
    if not wanted:
        return
    show.step(f"Creating {len(wanted)} simulated node{'s' if len(wanted) > 1 else ''}")
    async with client.connect(config.load(lab.kubeconfig), field_manager="croupier-lab") as api:
        try:
            await _create_all(api, wanted, show)
            await _all_ready(api, {node.name for node in wanted}, show, within=within or 60 + len(wanted) / 5)
        finally:
            show.settle()


async def _create_all(api: Client, wanted: Sequence[SimulatedNode], show: Progress) -> None:
    queue = iter(wanted)
    done = [0]
    async with asyncio.TaskGroup() as workers:
        for _ in range(min(AT_ONCE, len(wanted))):
            workers.create_task(_create_some(api, queue, done, len(wanted), show))


async def _create_some(
    api: Client, queue: Iterator[SimulatedNode], done: list[int], total: int, show: Progress
) -> None:
    for node in queue:
        with contextlib.suppress(AlreadyExists):
            await api.create(kinds.NODES, nodes.manifest(node, datetime.now(UTC)))
        done[0] += 1
        if done[0] % 100 == 0:
            show.advance("Creating nodes", done[0], total)


async def _all_ready(api: Client, names: set[str], show: Progress, *, within: float) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        listed = await api.list(kinds.NODES)
        ready = {node.metadata.name for node in listed.items if usable(node)}
        if names <= ready:
            return
        show.advance("Nodes ready", len(names & ready), len(names))
        await asyncio.sleep(POLL)
    raise LabError(
        f"Not all of the {len(names)} nodes were Ready within {within:g} seconds; see the log of kwok."
    )


def usable(node: Node) -> bool:
    """Whether the node is Ready and has no not-ready taint."""
    ready = any(
        condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions
    )
    return ready and not any(taint.key == NOT_READY for taint in node.spec.taints)
