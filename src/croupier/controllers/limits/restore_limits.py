"""Restores the original CPU limits when the market agent of a node stops.

The agent may have stopped while the limit of an idle pod was low. This controller watches the agents' Leases,
one per node, and after two minutes without a heartbeat raises every limit of the node to at least the
original. It does so in the PodAllocation, where users see it and a restarted agent reads it. Clocks are not
compared: the age of a heartbeat counts from the moment at which the Lease was observed to change.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.api import market_report
from croupier.api.core_v1 import Lease
from croupier.api.kinds import POD_ALLOCATIONS
from croupier.api.mbcas import PodAllocation
from croupier.controllers.shared import agent_liveness
from croupier.controllers.shared.agent_liveness import AgentLiveness
from croupier.core import quantity
from croupier.core.market import units
from croupier.core.model.agent_liveness import MARKET_AGENT_TIMEOUT
from croupier.core.quantity import InvalidQuantityError
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import ApiError
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "market-silence"
MARGIN: Final = 0.1

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreLimitsOptions:
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=2))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    timeout: float = MARKET_AGENT_TIMEOUT
    """Seconds without a heartbeat after which an agent counts as stopped."""


class RestoreLimitsController:
    """Keys are nodes. `leases` are those of agents that change limits, not of agents in dry-run mode."""

    def __init__(
        self,
        allocations: Informer[PodAllocation],
        leases: Informer[Lease],
        api: Client,
        settings: RestoreLimitsOptions | None = None,
    ) -> None:
        self._allocations = allocations.store.index(_node_of)
        self._leases = leases.store.index(lambda lease: [market_report.LEASE.node_of(lease)])
        self._api = api
        self._settings = settings or RestoreLimitsOptions()
        self._liveness = AgentLiveness(self._read, self._settings.clock, self._settings.timeout)
        options, metrics = self._settings.options, self._settings.metrics
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, options, metrics=metrics, group=self._has_agent
        )
        self.controller.watch(allocations.store, allocations.cache, _node_of)
        self.controller.watch(leases.store, leases.cache, lambda lease: [market_report.LEASE.node_of(lease)])

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        self._liveness.clear()  # a new leader has no history
        with store.open_indexes(self._allocations, self._leases):
            await self.controller.run(stop, leader_check)

    async def reconcile(self, node: str) -> Result:
        allocations = self._allocations.get(node)
        silent = await self._silent(node)
        if not allocations:
            if not self._has_agent(node):
                self._liveness.forget(node)
            return DONE
        if not silent:
            return Result(requeue_after=self._liveness.left(node) + MARGIN)
        refused = []
        for allocation in allocations:
            try:
                await self._restore(allocation)
            except ApiError as error:  # continue with the other pods
                refused.append(error)
        if refused:
            raise refused[0]
        return DONE  # a changed PodAllocation or Lease enqueues the node again

    def _has_agent(self, node: str) -> bool:
        """A PodAllocation may name any node: names without an agent do not delay the others."""
        return bool(self._leases.keys(node))

    async def _silent(self, node: str) -> bool:
        """A node without an agent is silent after the timeout, like one whose agent has stopped."""
        lease = next(iter(self._leases.get(node)), None)
        if lease is not None:
            return await self._liveness.silent(node, lease) is not False
        heard = self._liveness.observe(node, "")
        return heard.is_silent(self._settings.clock.monotonic(), self._settings.timeout)

    async def _read(self, cached: Lease) -> Lease:
        """An agent that changed to dry-run mode does not count as alive."""
        lease = await agent_liveness.read_lease(self._api, cached)
        active = lease.metadata.labels.get(market_report.AGENT_LABEL) == market_report.ACTIVE
        return lease if active else cached

    async def _restore(self, allocation: PodAllocation) -> None:
        meta, original = allocation.metadata, _quanta(allocation.status.original_cpu_limit)
        desired = _quanta(allocation.spec.desired_cpu_limit)
        if original is None or desired is None:
            return  # the limit was never changed
        if desired >= original:
            return
        patch = {"metadata": {"uid": meta.uid}, "spec": {"desiredCPULimit": units.text(original)}}
        await self._api.patch(POD_ALLOCATIONS, meta.name, patch, namespace=meta.namespace)
        pod, limit = f"{allocation.spec.namespace}/{allocation.spec.pod_name}", units.text(original)
        log.warning(
            f"pod {pod} gets its original CPU limit {limit} because its market agent sends no heartbeat",
            node=allocation.spec.node_name,
            pod=pod,
            limit=limit,
        )


def _node_of(allocation: PodAllocation) -> Iterable[str]:
    """Only PodAllocations of agents have a node name; those written by hand stay unchanged."""
    return [allocation.spec.node_name] if allocation.spec.node_name else []


def _quanta(written: str | None) -> int | None:
    try:
        return None if written is None else units.at_least(quantity.parse(written))
    except InvalidQuantityError:
        return None
