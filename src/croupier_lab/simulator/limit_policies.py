"""The limit policies that are compared: no limits, static limits, a recommender, and the market.

All see the same node second by second: the counters of each pod, never its demand.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from typing import Protocol

from croupier.core.market import terms, ticking
from croupier.core.market.cpu_supply import NodeCPU
from croupier.core.market.model import MarketPod, MarketState, NodeObservation, SetLimit
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.terms import PodShape
from croupier.core.market.units import MICROS, SECOND
from croupier_lab.simulator.kernel import SimulatedCgroup, SimulatedPod

APPLIED_AFTER = 2
"""Seconds from the write of a desired limit to the kubelet's report."""


class LimitPolicy(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> Mapping[str, int | None]: ...

    def step(self, second: int, meters: Mapping[str, SimulatedCgroup]) -> int:
        """Called after each second: change limits, and return how many were changed."""
        ...


class FixedLimits:
    """Static limits, or none at all."""

    def __init__(self, name: str, limits: Mapping[str, int | None]) -> None:
        self.name = name
        self.limits = limits

    def step(self, second: int, meters: Mapping[str, SimulatedCgroup]) -> int:
        del second, meters
        return 0


class RecommenderLimits:
    """Works like the VerticalPodAutoscaler.

    Once a minute the request becomes the 90th percentile of the usage plus 15 %, and the limit keeps its
    ratio to the request. A limit is changed when it is off by more than a tenth.
    """

    name = "recommender"

    def __init__(self, tenants: Sequence[SimulatedPod]) -> None:
        self._tenants = tenants
        self._used: dict[str, list[int]] = {tenant.name: [] for tenant in tenants}
        self._last = {tenant.name: 0 for tenant in tenants}
        self.limits: dict[str, int | None] = {tenant.name: tenant.limit for tenant in tenants}

    def step(self, second: int, meters: Mapping[str, SimulatedCgroup]) -> int:
        if second % 60:
            return 0
        return sum(self._moved(tenant, meters[tenant.name].usage) for tenant in self._tenants)

    def _moved(self, tenant: SimulatedPod, usage: int) -> bool:
        used = self._used[tenant.name]
        insort(used, (usage - self._last[tenant.name]) // 60)
        self._last[tenant.name] = usage
        request = max(1, -(-used[len(used) * 9 // 10] * 115 // (100 * MICROS)))
        limit = max(1, request * tenant.limit // tenant.request)
        now = self.limits[tenant.name] or 0
        if abs(limit - now) * 10 <= now:
            return False
        self.limits[tenant.name] = limit
        return True


class MarketLimits:
    """The real market: calls `core/market` once a second, as the agent does."""

    def __init__(
        self, name: str, tenants: Sequence[SimulatedPod], *, capacity: int, policy: MarketPolicy
    ) -> None:
        self.name = name
        self._tenants = tenants
        self._capacity = capacity
        self._policy = policy
        self._state = MarketState()
        self._desired = {tenant.name: tenant.limit for tenant in tenants}
        self._due: list[tuple[int, str, int]] = []
        self.limits: dict[str, int | None] = {tenant.name: tenant.limit for tenant in tenants}

    def step(self, second: int, meters: Mapping[str, SimulatedCgroup]) -> int:
        for _, name, limit in [write for write in self._due if write[0] <= second]:
            self.limits[name] = limit
        self._due = [write for write in self._due if write[0] > second]
        pods = tuple(self._seen(tenant, meters[tenant.name], second) for tenant in self._tenants)
        done = ticking.tick(
            self._state, NodeObservation(NodeCPU(self._capacity), pods), self._policy, second * SECOND
        )
        self._state = done.state
        moves = [decision for decision in done.decisions if isinstance(decision, SetLimit)]
        for move in moves:
            name = move.key.removeprefix("trace/")
            self._desired[name] = move.limit
            self._due.append((second + APPLIED_AFTER, name, move.limit))
        return len(moves)

    def _seen(self, tenant: SimulatedPod, meter: SimulatedCgroup, second: int) -> MarketPod:
        applied = self.limits[tenant.name] or 0
        return MarketPod(
            key=f"trace/{tenant.name}",
            uid=tenant.name,
            shape=PodShape(
                namespace="trace",
                request=tenant.request,
                original=tenant.limit,
                labels={terms.MANAGED: "true"},
                annotations={terms.CLASS: tenant.book},
            ),
            limit=applied,
            readings={"main": meter.sample(second, applied)},
            desired=self._desired[tenant.name],
            applied=applied,
        )
