"""Gives limits back when a node's market agent has fallen silent.

The agent may have left a pod at the low point of its day. So whoever can see Leases looks at the agents', one
for each node, and after two minutes without a sign of life raises every limit there to at least what its pod
came with. It does so in the PodAllocation, where everybody sees it and an agent that comes back finds it.
Clocks are not compared: a Lease is silent since it was last seen to change.
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
from croupier.controllers.watched import Watched
from croupier.core import quantity
from croupier.core.market import silence, units
from croupier.core.market.units import SECOND
from croupier.core.quantity import InvalidQuantityError
from croupier.kube import store
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.errors import ApiError
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured

NAME: Final = "market-silence"
AGAIN: Final = 30.0
"""Seconds after which a silent node is looked at again: its pods may come and go."""
MARGIN: Final = 0.1

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    options: Options = field(default_factory=lambda: Options(workers=2))
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)
    patience: int = silence.SILENT
    """Microseconds without a sign of life."""


class MarketSilence:
    """One key is one node. `leases` are those of agents that move limits, not of those that only watch."""

    def __init__(
        self,
        allocations: Watched[PodAllocation],
        leases: Watched[Lease],
        api: Client,
        settings: Settings | None = None,
    ) -> None:
        self._allocations = allocations.store.index(_node_of)
        self._leases = leases.store.index(lambda one: [market_report.node_of(one)])
        self._api = api
        self._settings = settings or Settings()
        self._heard: dict[str, tuple[str, float]] = {}
        """By node: the last sign of life, and when we first saw it."""
        options, gauge = self._settings.options, self._settings.gauge
        self.controller: Controller[str] = Controller(NAME, self.reconcile, options, gauge=gauge)
        self.controller.watch(allocations.store, allocations.cache, _node_of)
        self.controller.watch(leases.store, leases.cache, lambda one: [market_report.node_of(one)])

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        self._heard.clear()  # one who comes to office knows nothing of what happened before
        with store.kept(self._allocations, self._leases):
            await self.controller.run(stop, authority)

    async def reconcile(self, node: str) -> Result:
        held = self._allocations.get(node)
        quiet = self._silent_for(node)
        if not held:
            return DONE
        if quiet <= self._settings.patience:
            return Result(again_after=(self._settings.patience - quiet) / SECOND + MARGIN)
        refused = []
        for one in held:
            try:
                await self._give_back(one, quiet)
            except ApiError as error:  # the others shall not starve for that
                refused.append(error)
        if refused:
            raise refused[0]
        return Result(again_after=AGAIN)

    def _silent_for(self, node: str) -> int:
        now = self._settings.clock.monotonic()
        found = self._leases.get(node)
        sign = found[0].spec.renew_time if found else ""
        before = self._heard.get(node)
        if before is None or before[0] != sign:
            before = self._heard[node] = (sign, now)
        return int((now - before[1]) * SECOND)

    async def _give_back(self, one: PodAllocation, quiet: int) -> None:
        meta, original = one.metadata, _quanta(one.status.original_cpu_limit)
        desired = _quanta(one.spec.desired_cpu_limit)
        if original is None or desired is None:
            return  # never moved, so nothing was taken
        limit = silence.limit(desired, original, silent_for=quiet, after=self._settings.patience)
        if limit == desired:
            return
        patch = {"metadata": {"uid": meta.uid}, "spec": {"desiredCPULimit": units.text(limit)}}
        await self._api.patch(POD_ALLOCATIONS, meta.name, patch, namespace=meta.namespace)
        log.warning(
            "the market agent is silent: a limit goes back to what its pod came with",
            node=one.spec.node_name,
            pod=f"{one.spec.namespace}/{one.spec.pod_name}",
            limit=units.text(limit),
            seconds=quiet // SECOND,
        )


def _node_of(one: PodAllocation) -> Iterable[str]:
    """Only what an agent wrote: what a person wrote stays as it is."""
    return [one.spec.node_name] if one.spec.node_name else []


def _quanta(written: str | None) -> int | None:
    try:
        return None if written is None else units.at_least(quantity.parse(written))
    except InvalidQuantityError:
        return None
