"""The heartbeats of nodes, by the local monotonic clock: clocks of other machines are not compared."""

from croupier.api.gpu import GPUNodeInventory
from croupier.api.gpu.agent_report import AgentReport
from croupier.controllers.bootstrap import node_snapshot
from croupier.core.nodes import bootstrap
from croupier.core.nodes.bootstrap import HeartbeatCount
from croupier.kube.client.clock import Clock


class Heartbeats:
    """A heartbeat is a Lease renewal of the agent; without an agent, a reconcile with a ready exporter."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, HeartbeatCount] = {}
        self._since: dict[str, float] = {}

    def forget_all(self) -> None:
        self._counts.clear()
        self._since.clear()

    def forget(self, node: str) -> None:
        self._counts.pop(node, None)
        self._since.pop(node, None)

    def since(self, node: str) -> float:
        """When the node was first seen."""
        return self._since.setdefault(node, self._clock.monotonic())

    def heartbeat(self, node: str) -> None:
        """The agent renewed its Lease. Its report contains the number of good heartbeats."""
        before = self._counts.get(node)
        self._counts[node] = HeartbeatCount(
            before.beats if before is not None else 0, self._clock.monotonic()
        )

    def observe(
        self, inventory: GPUNodeInventory, report: AgentReport | None, *, good: bool
    ) -> HeartbeatCount | None:
        """`good`: an exporter on the node is ready now."""
        node, now = inventory.metadata.name, self._clock.monotonic()
        before = self._counts.get(node) or _recorded(inventory, report, now)
        if report is not None:
            count = None if before is None else HeartbeatCount(report.beats, before.at)
        else:
            count = bootstrap.count_heartbeat(before, good=good, now=now)
        if count is not None:
            self._counts[node] = count
        return count


def _recorded(inventory: GPUNodeInventory, report: AgentReport | None, now: float) -> HeartbeatCount | None:
    """After a restart keep the recorded state; a failing node stays failing until its next heartbeat."""
    if node_snapshot.failing(inventory):
        return None
    beats = inventory.status.monitoring.consecutive_heartbeats
    if report is not None:
        beats = report.beats
    elif not beats:
        return None
    return HeartbeatCount(min(beats, bootstrap.HEARTBEATS_NEEDED), now)
