"""Writes the condition Occupied of every GPUDevice: how the card is held according to the ledger.

The components that change cards wait for the reason Withdrawn. So Withdrawn, and its end, are written
without rate limit, but Withdrawn only after it has been stable for a moment, because a ledger write in
flight could still contradict it. All other reasons are informative and rate limited, so that they do not
delay the placement of hundreds of pods.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from croupier.api.gpu import GPUDevice
from croupier.api.gpu.device import OCCUPIED
from croupier.api.kinds import GPU_DEVICES
from croupier.book.manager import CapacityManager
from croupier.controllers import conditions
from croupier.controllers.ledger import sight
from croupier.controllers.ledger.sight import Sight
from croupier.core.ledgers import capacity, occupancy, refit
from croupier.core.ledgers.occupancy import Occupied, Scene
from croupier.core.nodes.bootstrap import Judged
from croupier.kube import together
from croupier.kube.bucket import Bucket, Rate
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.errors import NotFound
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured

NAME: Final = "occupancy"
FIELD_MANAGER: Final = "croupier-ledger"
MARGIN: Final = 0.01
GATHERED: Final = 0.1
"""Seconds to collect changes of a ledger: pods are often placed on a node together."""

_JUDGED: Final = {
    "Free": Judged(OCCUPIED, "False", "Free", "no pod holds the card"),
    "Withdrawn": Judged(OCCUPIED, "False", "Withdrawn", "no pod holds the card, and none can get it"),
    "Reserved": Judged(OCCUPIED, "True", "Reserved", "the card is held for pods that are not bound yet"),
    "InUse": Judged(OCCUPIED, "True", "InUse", "bound pods hold the card or parts of it"),
}


@dataclass(frozen=True, slots=True)
class Settings:
    calm: float = 0.5
    """Seconds for which a card must have been withdrawn before Withdrawn is written."""
    patience: float = 1.0
    """Seconds that other reasons are delayed: most placements are Reserved for less."""
    rate: Rate = field(default_factory=lambda: Rate(per_second=40, burst=100))
    """The rate limit of informative writes."""
    options: Options = field(default_factory=lambda: Options(workers=8))
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class Occupancy:
    """The key is the node. The caller fences `api` if there is leader election."""

    def __init__(
        self, sight_: Sight, api: Client, *, book: CapacityManager, settings: Settings | None = None
    ) -> None:
        self._sight = sight_
        self._api = api
        self._book = book
        self._settings = settings or Settings()
        self._bucket = Bucket(self._settings.rate)
        self._since: dict[str, tuple[Occupied, float]] = {}
        """By card: the reason to write, and since when."""
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, gauge=self._settings.gauge
        )
        sources = sight_.sources
        self.controller.watch(sources.devices.store, sources.devices.cache, sight.node_of_device)
        # The report of a node depends on these: their caches must have synced, but they enqueue no key.
        self.controller.watch(sources.nodes.store, sources.nodes.cache, lambda _: ())
        self.controller.watch(sources.pools.store, sources.pools.cache, lambda _: ())
        self.controller.watch(sources.pods.store, sources.pods.cache, lambda _: ())
        self.controller.watch(sources.inventories.store, sources.inventories.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        self._since.clear()
        unsubscribe = self._book.subscribe(lambda node: self.controller.add(node, within=GATHERED))
        try:
            await self.controller.run(stop, authority)
        finally:
            unsubscribe()

    async def reconcile(self, node: str) -> Result:
        devices = self._sight.devices_of(node)
        scene = self._scene(node) if devices else Scene()
        later: list[float] = []
        due: list[tuple[GPUDevice, Judged]] = []
        for device in devices:
            reason = occupancy.judge(device.metadata.name, scene)
            wait = self._wait(device, reason)
            if wait is None or reason is None:
                continue
            if wait > 0:
                later.append(wait)
                continue
            due.append((device, _JUDGED[reason]))
        await together.all_of(self._write(node, device, condition) for device, condition in due)
        return Result(again_after=min(later) + MARGIN) if later else DONE

    def _scene(self, node: str) -> Scene:
        held, report = self._book.ledger(node), self._sight.report(node)
        in_use = refit.in_use(held) if held is not None else ()
        reported = {card.id: card for card in capacity.count(report, in_use).cards}
        if held is not None:  # the ledger has the holders of every card, by their current names
            return Scene(held, reported)
        pods = self._sight.pods_on(node)
        named = {part.card for pod in pods if not pod.finished for part in pod.grant}
        return Scene(held, reported, named)

    def _wait(self, device: GPUDevice, reason: Occupied | None) -> float | None:
        """Seconds until the reason may be written; None if it need not be written."""
        name, now = device.metadata.name, self._settings.clock.monotonic()
        conditions_ = device.status.conditions
        written = next((condition.reason for condition in conditions_ if condition.type == OCCUPIED), "")
        if reason is None or reason == written:
            self._since.pop(name, None)
            return None
        before = self._since.get(name)
        if before is None or before[0] != reason:
            before = self._since[name] = (reason, now)
        if written == "Withdrawn":
            return 0.0
        lasted = now - before[1]
        if reason == "Withdrawn":
            return max(0.0, self._settings.calm - lasted)
        if lasted < self._settings.patience and written:
            return self._settings.patience - lasted
        return 0.0 if self._bucket.allows(now) else 1 / self._settings.rate.per_second

    async def _write(self, node: str, device: GPUDevice, judged: Judged) -> None:
        meta, now = device.metadata, self._settings.clock.now()
        (condition,) = conditions.kept([judged], device.status.conditions, now)
        status = {"conditions": [msgspec.to_builtins(condition)]}
        body = {"metadata": {"name": meta.name, "uid": meta.uid}, "status": status}
        with suppress(NotFound):
            written = await self._api.apply(
                GPU_DEVICES, body, field_manager=FIELD_MANAGER, subresource="status", force=True
            )
            self.controller.wrote(node, GPU_DEVICES, written)
