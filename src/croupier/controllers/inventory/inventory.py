"""Cards and nodes: from what agents, NFD and labels tell to GPUDevice and GPUNodeInventory.

One key is one node. A heartbeat that tells nothing new costs a comparison and no write. The GPUNodeInventory
is written first: a card must not join a pool before it is known whether all that is told of it is true.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Literal

import structlog

from croupier.api import nfd
from croupier.api.core_v1 import Lease
from croupier.api.gpu import GPUDevice, agent_report
from croupier.api.gpu.device import VANISHED, GPUDeviceStatus
from croupier.api.kinds import GPU_DEVICES, GPU_NODE_INVENTORIES, LEASES
from croupier.api.meta import ObjectMeta
from croupier.controllers import conditions
from croupier.controllers.inventory import writing
from croupier.controllers.inventory.listening import Listening
from croupier.controllers.inventory.reading import Look, Reading, Sources, node_of
from croupier.controllers.inventory.writing import Management, Silence
from croupier.core.cards.census import News, Placed, Plan
from croupier.core.cards.features import Features
from croupier.core.nodes.bootstrap import Judged
from croupier.kube import events, store, together
from croupier.kube.client import Client, Deletion
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.errors import AlreadyExists, NotFound
from croupier.kube.events import Recorder
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured

NAME: Final = "inventory"
REPORTER: Final = "gpu-inventory-controller"
"""Who Events come from, and who owns the fields."""
MARGIN: Final = 0.1

_TOLD: Final = {
    "InventoryIncomplete": "GPUNodeFeatureMissing",
    "AgentSilent": "GPUAgentSilent",
    "ManagedDisabled": "GPUNodeNotManaged",
}
"""Conditions of a node to the Event that says that one holds now."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Settings:
    management: Management = field(default_factory=Management)
    patience: float = 40.0
    """Seconds without a heartbeat after which an agent is silent."""
    gone: timedelta = timedelta(seconds=60)
    """How long the GPUDevice of a card that is gone stays at least: it may come back in a moment."""
    second_look: float = 2.0
    """Seconds for which a known node must be incomplete before that is said: an agent that lost a card
    tells it first, and corrects its labels after."""
    options: Options = field(default_factory=lambda: Options(workers=8, resync=30.0))
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class InventoryController:
    """`api` is fenced by the caller, where there is an election."""

    def __init__(
        self, sources: Sources, api: Client, *, recorder: Recorder, settings: Settings | None = None
    ) -> None:
        self._reading = Reading(sources)
        self._api = api.acting_as(REPORTER)
        self._recorder = recorder
        self._settings = settings or Settings()
        self._listening = Listening(self._lease, self._settings.clock, self._settings.patience)
        self._doubted: dict[str, float] = {}
        """By node: since when it is incomplete, while that is not said yet."""
        self._settled: dict[str, tuple[object, ...]] = {}
        """By node: the look after which nothing was left to write."""
        options, gauge = self._settings.options, self._settings.gauge
        self.controller: Controller[str] = Controller(NAME, self.reconcile, options, gauge=gauge)
        self._watch(sources)

    def _watch(self, sources: Sources) -> None:
        watch = self.controller.watch
        watch(sources.nodes.store, sources.nodes.cache, lambda one: (one.metadata.name,))
        watch(sources.leases.store, sources.leases.cache, lambda one: (agent_report.node_of(one),))
        watch(sources.features.store, sources.features.cache, lambda one: (nfd.node_of(one),))
        watch(sources.devices.store, sources.devices.cache, node_of)
        watch(sources.inventories.store, sources.inventories.cache, lambda one: (one.metadata.name,))

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        self._listening.clear()  # one who comes to office knows nothing of what happened before
        self._doubted.clear()
        self._settled.clear()
        with store.kept(*self._reading.indexes):
            await self.controller.run(stop, authority)

    async def _lease(self, seen: Lease) -> Lease:
        return await self._api.get(LEASES, seen.metadata.name, namespace=seen.metadata.namespace)

    async def reconcile(self, node: str) -> Result:
        look = self._reading.of(node)
        if look is None:  # its objects go with it: it owns them
            self._listening.forget(node)
            self._doubted.pop(node, None)
            self._settled.pop(node, None)
            return DONE
        silent = await self._listening.silent(look)
        vanished = self._vanished_due(look)
        mark = (silent, vanished == 0, *look.mark())
        if self._settled.get(node) != mark and not await self._keep(look, silent):
            self._settled[node] = mark
        doubt = self._settings.second_look if node in self._doubted else None
        times = [time for time in (self._listening.left(node), vanished, doubt) if time]
        return Result(again_after=min(times) + MARGIN) if times else DONE

    def _vanished_due(self, look: Look) -> float | None:
        """Seconds until the next card that is gone has been so long enough; 0: one has."""
        now = self._settings.clock.now()
        since = [
            one.last_transition_time
            for device in look.devices.values()
            for one in conditions.of({VANISHED}, device.status.conditions)
            if one.status == "True"
        ]
        left = [(one + self._settings.gone - now).total_seconds() for one in since]
        return max(0.0, min(left)) if left else None

    async def _keep(self, look: Look, silent: bool | None) -> bool:
        """Write what differs; whether anything did, or may soon."""
        found = look.features()
        sighting = look.sighting(found)
        plan = look.plan(sighting, self._settings.clock.now() - self._settings.gone)
        nothing = not plan.cards and not look.devices and look.lease is None and look.inventory is None
        if nothing and not sighting.troubles:
            return False  # not a node with cards
        managed = self._settings.management.judge(look.node)
        judged = (
            self._doubting(look, writing.incomplete(sighting, plan)),
            managed,
            Silence(silent, self._settings.patience).judge(),
        )
        wrote = await self._keep_node(look, plan, found, judged)
        ours, now = managed.status == "False", self._settings.clock.now()
        gone = {name: writing.gone_status(look.devices[name], now) for name in plan.vanished}
        changed = await together.all_of(
            (
                *(self._keep_card(look, placed, found, managed=ours) for placed in plan.cards),
                *(self._apply_card(look, look.devices[name], status) for name, status in gone.items()),
            )
        )
        # Only now: what people wrote on an old object must stand on its heir before it goes.
        removed = await together.all_of(self._remove(look, look.devices[name]) for name in plan.removed)
        self._tell(look, plan.news)
        return wrote or any((*changed, *removed)) or look.name in self._doubted

    def _doubting(self, look: Look, incomplete: Judged) -> Judged:
        """What to say of the inventory now: of one that was complete, nothing else at first sight."""
        was = look.was_complete
        if incomplete.status == "False" or was is None:
            self._doubted.pop(look.name, None)
            return incomplete
        now = self._settings.clock.monotonic()
        since = self._doubted.setdefault(look.name, now)
        if now - since < self._settings.second_look:
            return Judged(was.type, was.status, was.reason, was.message)
        del self._doubted[look.name]
        return incomplete

    async def _keep_node(self, look: Look, plan: Plan, found: Features, judged: tuple[Judged, ...]) -> bool:
        meta = ObjectMeta(name=look.name, owner_references=(writing.owner(look.node),))
        kept, wrote = look.inventory, False
        if kept is None or not writing.has(kept.metadata, meta):
            kept = await self._api.apply(GPU_NODE_INVENTORIES, writing.body(meta), force=True)
            self.controller.wrote(look.name, GPU_NODE_INVENTORIES, kept)
            wrote = True
        status = writing.node_status(look, plan, found, judged, self._settings.clock.now())
        before = writing.node_status_now(kept)
        if status != before:
            body = writing.body(ObjectMeta(name=look.name), status)
            kept = await self._api.apply(GPU_NODE_INVENTORIES, body, subresource="status", force=True)
            self.controller.wrote(look.name, GPU_NODE_INVENTORIES, kept)
            about = events.about(GPU_NODE_INVENTORIES, kept)
            for one in conditions.turned(before.conditions, status.conditions):
                log.warning(one.message, node=look.name, condition=one.type, reason=one.reason)
                self._recorder.record(about, _TOLD[one.type], one.message, action="Look", type="Warning")
            wrote = True
        if new := [one for one in plan.cards if one.id not in look.devices]:
            about = events.about(GPU_NODE_INVENTORIES, kept)
            self._recorder.record(about, "GPUCardsFound", f"found {_counted(new)}", action="Look")
        return wrote

    async def _keep_card(self, look: Look, placed: Placed, found: Features, *, managed: bool) -> bool:
        meta = writing.card_meta(look, placed)
        kept, wrote = look.devices.get(placed.id), False
        if kept is None:
            full = writing.inherited(look.devices.get(placed.heir_of), meta)
            with suppress(AlreadyExists):  # created before, and then we were stopped
                await self._api.create(GPU_DEVICES, writing.body(full))
            kept = GPUDevice(metadata=meta)
        elif not writing.has(kept.metadata, meta):
            kept = await self._api.apply(GPU_DEVICES, writing.body(meta), force=True)
            self.controller.wrote(look.name, GPU_DEVICES, kept)
            wrote = True
        now = self._settings.clock.now()
        status = writing.card_status(look, placed, found, managed=managed, now=now)
        return await self._apply_card(look, kept, status) or wrote

    async def _apply_card(self, look: Look, before: GPUDevice, status: GPUDeviceStatus) -> bool:
        if status == writing.card_status_now(before):
            return False
        body = writing.body(ObjectMeta(name=before.metadata.name), status)
        written = await self._api.apply(GPU_DEVICES, body, subresource="status", force=True)
        self.controller.wrote(look.name, GPU_DEVICES, written)
        return True

    async def _remove(self, look: Look, device: GPUDevice) -> bool:
        """Only this one, and only as it was seen: somebody may just have been given something of it."""
        meta = device.metadata
        how = Deletion(uid=meta.uid, resource_version=meta.resource_version)
        with suppress(NotFound):
            await self._api.delete(GPU_DEVICES, meta.name, how=how)
            self.controller.deleted(look.name, GPU_DEVICES, device)
        log.info("removed the GPUDevice of a card that is gone", node=look.name, card=meta.name)
        return True

    def _tell(self, look: Look, news: Iterable[News]) -> None:
        for one in news:
            about = events.about(GPU_DEVICES, look.devices[one.id])
            weight: Literal["Normal", "Warning"] = "Warning" if one.warning else "Normal"
            self._recorder.record(about, one.reason, one.note, action="Look", type=weight)


def _counted(cards: Iterable[Placed]) -> str:
    """`8 x NVIDIA-H100-80GB-HBM3`."""
    counts = Counter(one.card.product or "a card of unknown model" for one in cards)
    return ", ".join(f"{number} x {product}" for product, number in sorted(counts.items()))
