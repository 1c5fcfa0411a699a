"""The agents that still renew their Leases, for all groups that act on silent agents.

The cause of a silence must be the agent and not this process. Before an agent is called silent, its Lease is
read directly, because the informer may be stale. If the API server is unavailable or slow, no agent can renew
its Lease, so the agent gets the full timeout again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final

from croupier.api.core_v1 import Lease
from croupier.api.kinds import LEASES
from croupier.core.model import agent_liveness
from croupier.core.model.agent_liveness import LastHeartbeat
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock
from croupier.kube.client.errors import NotFound

SLOW_RESPONSE: Final = 5.0
"""Seconds after which a response of the API server is too slow to conclude that an agent is silent."""


async def read_lease(api: Client, cached: Lease) -> Lease:
    return await api.get(LEASES, cached.metadata.name, namespace=cached.metadata.namespace)


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

    def observe(self, node: str, renew_time: str, *, was_silent: bool = False) -> LastHeartbeat:
        """`was_silent`: the agent is recorded as silent."""
        now, before = self.clock.monotonic(), self._heartbeats.get(node)
        heard = agent_liveness.observe(before, renew_time, now, was_silent=was_silent)
        self._heartbeats[node] = heard
        return heard

    async def silent(self, node: str, lease: Lease | None, *, was_silent: bool = False) -> bool | None:
        """Whether the agent is silent; None without an agent. Raises the errors of reading a Lease."""
        if lease is None:
            self.forget(node)
            return None
        heard = self.observe(node, lease.spec.renew_time, was_silent=was_silent)
        if not heard.is_silent(self.clock.monotonic(), self.timeout):
            return False
        return True if heard.known_silent else await self._confirm(node, lease, heard)

    def left(self, node: str) -> float:
        """Seconds until the agent is silent without a heartbeat; 0 if it is silent or does not exist."""
        heard = self._heartbeats.get(node)
        return 0.0 if heard is None else heard.left(self.clock.monotonic(), self.timeout)

    async def _confirm(self, node: str, lease: Lease, heard: LastHeartbeat) -> bool | None:
        asked = self.clock.monotonic()
        try:
            live = await self.read(lease)
        except NotFound:
            return None
        except Exception:
            self._heartbeats[node] = replace(heard, since=self.clock.monotonic())
            raise
        now = self.clock.monotonic()
        silent = live.spec.renew_time == heard.renew_time and now - asked <= SLOW_RESPONSE
        self._heartbeats[node] = replace(heard, known_silent=True) if silent else replace(heard, since=now)
        return silent
