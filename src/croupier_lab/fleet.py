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
from croupier.core.model import name_list
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import AlreadyExists
from croupier_lab import nodes
from croupier_lab.controlplane import API_SERVER, CONTROLLER_MANAGER, KWOK
from croupier_lab.errors import LabError
from croupier_lab.lab import Lab
from croupier_lab.nodes import SimulatedNode
from croupier_lab.progress import ProgressReporter

CONCURRENCY = 32
LARGE_FLEET = 250
LEASE_SECONDS = 400
POLL = 0.3
NOT_READY = "node.kubernetes.io/not-ready"


def extra_arguments(count: int) -> Mapping[str, tuple[str, ...]]:
    """Extra component arguments for a fleet of `count` nodes, for `LabPlan.extra`."""
    if count <= LARGE_FLEET:
        return {}
    return {
        KWOK: (f"--node-lease-duration-seconds={LEASE_SECONDS}",),
        CONTROLLER_MANAGER: (f"--node-monitor-grace-period={LEASE_SECONDS + 20}s",),
        API_SERVER: ("--disable-admission-plugins=TaintNodesByCondition",),
    }


async def create(
    lab: Lab, wanted: Sequence[SimulatedNode], show: ProgressReporter, *, within: float | None = None
) -> None:
    """Create the nodes and wait until all are schedulable. Existing nodes are kept."""
    if not wanted:
        return
    show.step(f"Creating {name_list.counted(len(wanted), 'simulated node')}")
    async with api_client.connect(config.load(lab.kubeconfig), field_manager="croupier-lab") as api:
        try:
            await _create_all(api, wanted, show)
            await _wait_until_ready(
                api, {node.name for node in wanted}, show, within=within or 60 + len(wanted) / 5
            )
        finally:
            show.settle()


async def _create_all(api: Client, wanted: Sequence[SimulatedNode], show: ProgressReporter) -> None:
    queue = iter(wanted)
    done = [0]
    async with asyncio.TaskGroup() as workers:
        for _ in range(min(CONCURRENCY, len(wanted))):
            workers.create_task(_create_some(api, queue, done, len(wanted), show))


async def _create_some(
    api: Client, queue: Iterator[SimulatedNode], done: list[int], total: int, show: ProgressReporter
) -> None:
    for node in queue:
        with contextlib.suppress(AlreadyExists):
            await api.create(kinds.NODES, nodes.manifest(node, datetime.now(UTC)))
        done[0] += 1
        if done[0] % 100 == 0:
            show.advance("Creating nodes", done[0], total)


async def _wait_until_ready(api: Client, names: set[str], show: ProgressReporter, *, within: float) -> None:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        listed = await api.list(kinds.NODES)
        ready = {node.metadata.name for node in listed.items if is_schedulable(node)}
        if names <= ready:
            return
        show.advance("Nodes ready", len(names & ready), len(names))
        await asyncio.sleep(POLL)
    raise LabError(
        f"Of {name_list.counted(len(names), 'node')}, not all were Ready within {within:g} seconds; "
        "see the log of kwok."
    )


def is_schedulable(node: Node) -> bool:
    """Whether the node is Ready and has no not-ready taint."""
    ready = any(
        condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions
    )
    return ready and not any(taint.key == NOT_READY for taint in node.spec.taints)
