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
from croupier.controllers.shared.informer import Informer
from croupier.core import quantity
from croupier.core.market import limit_restore, units
from croupier.core.market.units import SECOND
from croupier.core.quantity import InvalidQuantityError
from croupier.kube.cache import store
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import ApiError
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    LeaderCheck,
)
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "market-silence"
RECHECK: Final = 30.0
"""Seconds between two checks of a node without an agent: its pods may come and go."""
MARGIN: Final = 0.1

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RestoreLimitsOptions:
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=2))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    timeout: int = limit_restore.AGENT_TIMEOUT
    """Microseconds without a heartbeat."""


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
        self._leases = leases.store.index(lambda lease: [market_report.node_of(lease)])
        self._api = api
        self._settings = settings or RestoreLimitsOptions()
        self._heard: dict[str, tuple[str, float]] = {}
        """By node: the last heartbeat, and when it was first observed."""
        options, metrics = self._settings.options, self._settings.metrics
        self.controller: Controller[str] = Controller(NAME, self.reconcile, options, metrics=metrics)
        self.controller.watch(allocations.store, allocations.cache, _node_of)
        self.controller.watch(leases.store, leases.cache, lambda lease: [market_report.node_of(lease)])

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        self._heard.clear()  # a new leader did not observe earlier heartbeats
        with store.open_indexes(self._allocations, self._leases):
            await self.controller.run(stop, leader_check)

    async def reconcile(self, node: str) -> Result:
        allocations = self._allocations.get(node)
        quiet = self._silent_for(node)
        if not allocations:
            return DONE
        if quiet <= self._settings.timeout:
            return Result(requeue_after=(self._settings.timeout - quiet) / SECOND + MARGIN)
        refused = []
        for allocation in allocations:
            try:
                await self._give_back(allocation, quiet)
            except ApiError as error:  # continue with the other pods
                refused.append(error)
        if refused:
            raise refused[0]
        return Result(requeue_after=RECHECK)

    def _silent_for(self, node: str) -> int:
        now = self._settings.clock.monotonic()
        leases = self._leases.get(node)
        sign = leases[0].spec.renew_time if leases else ""
        before = self._heard.get(node)
        if before is None or before[0] != sign:
            before = self._heard[node] = (sign, now)
        return int((now - before[1]) * SECOND)

    async def _give_back(self, allocation: PodAllocation, quiet: int) -> None:
        meta, original = allocation.metadata, _quanta(allocation.status.original_cpu_limit)
        desired = _quanta(allocation.spec.desired_cpu_limit)
        if original is None or desired is None:
            return  # the limit was never changed
        limit = limit_restore.restored_limit(
            desired, original, silent_for=quiet, after=self._settings.timeout
        )
        if limit == desired:
            return
        patch = {"metadata": {"uid": meta.uid}, "spec": {"desiredCPULimit": units.text(limit)}}
        await self._api.patch(POD_ALLOCATIONS, meta.name, patch, namespace=meta.namespace)
        log.warning(
            "restored an original CPU limit because the market agent sends no heartbeat",
            node=allocation.spec.node_name,
            pod=f"{allocation.spec.namespace}/{allocation.spec.pod_name}",
            limit=units.text(limit),
            seconds=quiet // SECOND,
        )


def _node_of(allocation: PodAllocation) -> Iterable[str]:
    """Only PodAllocations of agents have a node name; those written by hand stay unchanged."""
    return [allocation.spec.node_name] if allocation.spec.node_name else []


def _quanta(written: str | None) -> int | None:
    try:
        return None if written is None else units.at_least(quantity.parse(written))
    except InvalidQuantityError:
        return None
