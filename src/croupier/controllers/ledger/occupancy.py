"""Writes the condition Occupied of every GPUDevice: how the card is held according to the ledger.

The components that change cards wait for the reason Withdrawn. So Withdrawn, and its end, are written
without rate limit, but Withdrawn only after it has been stable for a moment, because a ledger write in
flight could still contradict it. All other reasons are informative and rate limited, so that they do not
delay the placement of hundreds of pods.

Writes also why the card takes no new pods: what a person did at once and as a condition that names the pods
that are waited for, everything else like an informative reason.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from croupier.api import meta, withheld
from croupier.api.gpu import GPUDevice
from croupier.api.gpu.device import OCCUPIED, WITHDRAWALS, GPUDeviceStatus
from croupier.api.kinds import GPU_DEVICES
from croupier.capacity import index_keys
from croupier.capacity.cluster_view import ClusterView
from croupier.capacity.manager import CapacityManager
from croupier.controllers.shared import apply, conditions
from croupier.core.cards import lifecycle
from croupier.core.ledger import card_occupancy, reported_cards, sync_cards
from croupier.core.ledger.card_occupancy import CardOccupancy, OccupancyInputs
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.withheld import Withheld
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    LeaderCheck,
)
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.rate_limit import RateLimit, TokenBucket
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "occupancy"
FIELD_MANAGER: Final = lifecycle.LEDGER
MARGIN: Final = 0.01
DEBOUNCE: Final = 0.1
"""Seconds to collect changes of a ledger: pods are often placed on a node together."""

_CONDITIONS: Final = {
    "Free": DesiredCondition(OCCUPIED, "False", "Free", "no pod holds the card"),
    "Withdrawn": DesiredCondition(
        OCCUPIED, "False", "Withdrawn", "no pod holds the card, and none can get it"
    ),
    "Reserved": DesiredCondition(
        OCCUPIED, "True", "Reserved", "the card is held for pods that are not bound yet"
    ),
    "InUse": DesiredCondition(OCCUPIED, "True", "InUse", "bound pods hold the card or parts of it"),
}


@dataclass(frozen=True, slots=True)
class OccupancyOptions:
    stable_for: float = 0.5
    """Seconds for which a card must have been withdrawn before Withdrawn is written."""
    write_delay: float = 1.0
    """Seconds that other reasons are delayed: most placements are Reserved for less."""
    rate: RateLimit = field(default_factory=lambda: RateLimit(per_second=40, burst=100))
    """The rate limit of informative writes."""
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=8))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class OccupancyController:
    """The key is the node. The caller fences `api` if there is leader election."""

    def __init__(
        self,
        view: ClusterView,
        api: Client,
        *,
        manager: CapacityManager,
        settings: OccupancyOptions | None = None,
    ) -> None:
        self._view = view
        self._api = api
        self._manager = manager
        self._settings = settings or OccupancyOptions()
        self._bucket = TokenBucket(self._settings.rate)
        self._since: dict[str, tuple[CardOccupancy, float]] = {}
        """By card: the reason to write, and since when."""
        self._withheld_since: dict[str, tuple[Withheld | None, float]] = {}
        """By card: why it takes no pods, which is not written yet, and since when."""
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        sources = view.sources
        self.controller.watch(sources.devices.store, sources.devices.cache, index_keys.node_of_device)
        # The report of a node depends on these: their caches must have synced, but they enqueue no key.
        self.controller.watch(sources.nodes.store, sources.nodes.cache, lambda _: ())
        self.controller.watch(sources.pools.store, sources.pools.cache, lambda _: ())
        self.controller.watch(sources.pods.store, sources.pods.cache, lambda _: ())
        self.controller.watch(sources.inventories.store, sources.inventories.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        self._since.clear()
        self._withheld_since.clear()
        unsubscribe = self._manager.subscribe(lambda node: self.controller.add(node, within=DEBOUNCE))
        try:
            await self.controller.run(stop, leader_check)
        finally:
            unsubscribe()

    async def reconcile(self, node: str) -> Result:
        devices = self._view.devices_of(node)
        scene = self._scene(node) if devices else OccupancyInputs()
        later: list[float] = []
        due: list[tuple[GPUDevice, GPUDeviceStatus]] = []
        for device in devices:
            status, wait = self._status(device, scene)
            if wait > 0:
                later.append(wait)
            if status is not None:
                due.append((device, status))
        await concurrency.gather_limited(self._write(node, device, status) for device, status in due)
        return Result(requeue_after=min(later) + MARGIN) if later else DONE

    def _status(self, device: GPUDevice, scene: OccupancyInputs) -> tuple[GPUDeviceStatus | None, float]:
        """The status to write now, if any, and after how many seconds to look again."""
        name, old = device.metadata.name, device.status
        occupancy, listed = card_occupancy.decide(name, scene), scene.reported.get(name)
        why = listed.withheld if listed is not None else None
        held = scene.held.card(name) if scene.held is not None else None
        waits = (self._wait(device, occupancy), self._withheld_wait(device, why))
        withdrawal = card_occupancy.withdrawal(why, held, occupancy)
        judged = [_CONDITIONS[occupancy]] if occupancy is not None and waits[0] == 0 else []
        owned = conditions.merge(
            [*judged, *([withdrawal] if withdrawal is not None else [])],
            device,
            self._settings.clock.now(),
        )
        kept = () if judged else conditions.select((OCCUPIED,), old.conditions)
        sorted_ = tuple(sorted((*kept, *owned), key=lambda condition: condition.type))
        status = GPUDeviceStatus(withheld=withheld.encode(why), conditions=sorted_)
        later = min((wait for wait in waits if wait), default=0.0)
        changed = status.conditions != conditions.select((OCCUPIED, *WITHDRAWALS), old.conditions)
        return (status if changed or waits[1] == 0 else None), later

    def _scene(self, node: str) -> OccupancyInputs:
        held, report = self._manager.ledger(node), self._view.report(node)
        in_use = sync_cards.in_use(held) if held is not None else ()
        reported = {card.id: card for card in reported_cards.from_report(report, in_use).cards}
        if held is not None:  # the ledger has the holders of every card, by their current names
            return OccupancyInputs(held, reported)
        pods = self._view.pods_on(node)
        named = {part.card for pod in pods if not pod.finished for part in pod.grant}
        return OccupancyInputs(held, reported, named)

    def _wait(self, device: GPUDevice, reason: CardOccupancy | None) -> float | None:
        """Seconds until the reason may be written; None if it need not be written."""
        name, now = device.metadata.name, self._settings.clock.monotonic()
        found = meta.condition(device.status.conditions, OCCUPIED)
        written = found.reason if found is not None else ""
        is_current = found is not None and found.observed_generation == device.metadata.generation
        if reason is None or (reason == written and is_current):
            self._since.pop(name, None)
            return None
        before = self._since.get(name)
        if before is None or before[0] != reason:
            before = self._since[name] = (reason, now)
        if written == "Withdrawn":
            return 0.0
        lasted = now - before[1]
        if reason == "Withdrawn":
            return max(0.0, self._settings.stable_for - lasted)
        if lasted < self._settings.write_delay and written:
            return self._settings.write_delay - lasted
        return 0.0 if self._bucket.allows(now) else 1 / self._settings.rate.per_second

    def _withheld_wait(self, device: GPUDevice, why: Withheld | None) -> float | None:
        """Seconds until the reason why the card takes no pods may be written; None if it is written."""
        name, now, old = device.metadata.name, self._settings.clock.monotonic(), device.status.withheld
        if withheld.encode(why) == old:
            self._withheld_since.pop(name, None)
            return None
        by_person = (reason for reason in (why, withheld.decode(old)) if reason is not None)
        if any(reason.is_by_person for reason in by_person):
            return 0.0
        before = self._withheld_since.get(name)
        if before is None or before[0] != why:
            before = self._withheld_since[name] = (why, now)
        if (left := self._settings.write_delay - (now - before[1])) > 0:
            return left
        return 0.0 if self._bucket.allows(now) else 1 / self._settings.rate.per_second

    async def _write(self, node: str, device: GPUDevice, status: GPUDeviceStatus) -> None:
        body = apply.apply_body(device, status)
        with suppress(NotFound):
            written = await self._api.apply(
                GPU_DEVICES, body, field_manager=FIELD_MANAGER, subresource="status", force=True
            )
            self.controller.wrote(node, GPU_DEVICES, written)
