"""The heartbeats of nodes, by the local monotonic clock: clocks of other machines are not compared."""

from functools import partial

from croupier.api.core_v1 import Lease
from croupier.api.gpu import GPUNodeInventory
from croupier.api.gpu.agent_report import AgentReport
from croupier.controllers.bootstrap import node_snapshot
from croupier.controllers.shared import agent_liveness
from croupier.controllers.shared.agent_liveness import AgentLiveness
from croupier.core.nodes import bootstrap
from croupier.core.nodes.bootstrap import HEARTBEAT_TIMEOUT, HeartbeatCount
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock


class Heartbeats:
    """A heartbeat is a Lease renewal of the agent; without an agent, a reconcile with a ready exporter."""

    def __init__(self, api: Client, clock: Clock) -> None:
        self._clock = clock
        self._liveness = AgentLiveness(partial(agent_liveness.read_lease, api), clock, HEARTBEAT_TIMEOUT)
        self._counts: dict[str, HeartbeatCount] = {}
        self._since: dict[str, float] = {}

    def forget_all(self) -> None:
        self._liveness.clear()
        self._counts.clear()
        self._since.clear()

    def forget(self, node: str) -> None:
        self._liveness.forget(node)
        self._counts.pop(node, None)
        self._since.pop(node, None)

    def since(self, node: str) -> float:
        """When the node was first seen."""
        return self._since.setdefault(node, self._clock.monotonic())

    def renewed(self, node: str, lease: Lease | None) -> None:
        """The agent renewed its Lease. Its report contains the number of good heartbeats."""
        if lease is not None:
            self._liveness.observe(node, lease.spec.renew_time)

    async def confirm_silence(self, inventory: GPUNodeInventory, lease: Lease | None) -> None:
        """If the agent seems silent, read its Lease directly; it may get the full timeout again."""
        failing = node_snapshot.failing(inventory)
        await self._liveness.silent(inventory.metadata.name, lease, was_silent=failing)

    def observe(
        self, inventory: GPUNodeInventory, lease: Lease | None, report: AgentReport | None, *, good: bool
    ) -> HeartbeatCount | None:
        """`good`: an exporter on the node is ready now."""
        node, now = inventory.metadata.name, self._clock.monotonic()
        before = self._counts.get(node) or _recorded(inventory, now)
        if lease is not None:
            failing = node_snapshot.failing(inventory)
            heard = self._liveness.observe(node, lease.spec.renew_time, was_silent=failing)
            last = before or HeartbeatCount(0, heard.since)
            before = HeartbeatCount(report.beats if report else last.beats, max(last.at, heard.since))
        count = before if report else bootstrap.count_heartbeat(before, good=good, now=now)
        if count is not None:
            self._counts[node] = count
        return count


def _recorded(inventory: GPUNodeInventory, now: float) -> HeartbeatCount | None:
    """After a restart keep the recorded state; a failing node stays failing until its next heartbeat."""
    beats = inventory.status.monitoring.consecutive_heartbeats
    if node_snapshot.failing(inventory) or not beats:
        return None
    return HeartbeatCount(min(beats, bootstrap.HEARTBEATS_NEEDED), now)
