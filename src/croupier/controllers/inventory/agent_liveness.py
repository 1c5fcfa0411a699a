"""Whether agents still renew their Leases.

Cards of a node with a silent agent are not allocated, so the cause must be the agent and not this process.
Before an agent is reported as silent, its Lease is read directly. If the API server is unavailable or slow,
no agent can renew its Lease, so the agent gets the full timeout again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from croupier.api.core_v1 import Lease
from croupier.controllers.inventory.inventory_snapshot import InventorySnapshot
from croupier.core.cards import liveness
from croupier.core.cards.liveness import LastHeartbeat
from croupier.kube.client.clock import Clock
from croupier.kube.client.errors import NotFound

SLOW_RESPONSE: Final = 5.0
"""Seconds after which a response of the API server is too slow to conclude that an agent is silent."""


@dataclass(slots=True)
class AgentLiveness:
    read: Callable[[Lease], Awaitable[Lease]]
    """Reads the current Lease from the API server."""
    clock: Clock
    timeout: float
    """Seconds without a heartbeat after which an agent counts as silent."""
    _heartbeats: dict[str, LastHeartbeat] = field(default_factory=dict)

    def clear(self) -> None:
        self._heartbeats.clear()

    def forget(self, node: str) -> None:
        self._heartbeats.pop(node, None)

    async def silent(self, snapshot: InventorySnapshot) -> bool | None:
        """Whether the agent is silent; None without an agent. Raises the errors of reading a Lease."""
        if snapshot.lease is None:
            self.forget(snapshot.name)
            return None
        heard = self._listen(snapshot, snapshot.lease)
        if not heard.is_silent(self.clock.monotonic(), self.timeout):
            return False
        if snapshot.was_silent:
            return True
        return await self._confirmed(snapshot.lease, snapshot.name, heard)

    def left(self, node: str) -> float:
        """Seconds until the agent is silent without a heartbeat; 0 if it is silent or does not exist."""
        heard = self._heartbeats.get(node)
        return 0.0 if heard is None else heard.left(self.clock.monotonic(), self.timeout)

    def _listen(self, snapshot: InventorySnapshot, lease: Lease) -> LastHeartbeat:
        now, before = self.clock.monotonic(), self._heartbeats.get(snapshot.name)
        heard = liveness.observe(before, lease.spec.renew_time, now, was_silent=snapshot.was_silent)
        self._heartbeats[snapshot.name] = heard
        return heard

    async def _confirmed(self, lease: Lease, node: str, heard: LastHeartbeat) -> bool | None:
        asked, excused = self.clock.monotonic(), True
        try:
            live = await self.read(lease)
            slow = self.clock.monotonic() - asked > SLOW_RESPONSE
            excused = slow or live.spec.renew_time != heard.renew_time
            return not excused
        except NotFound:
            excused = False
            return None
        finally:
            if excused:
                self._heartbeats[node] = LastHeartbeat(heard.renew_time, self.clock.monotonic())
