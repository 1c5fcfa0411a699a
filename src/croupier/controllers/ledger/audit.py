"""The audit: at start and every minute, ledger against pods against what nodes report.

A suspicion is looked at again after some seconds, because a pod that just ended and a bind on its way
look like mistakes; what is still there is checked against the API server itself; what then has a safe
repair gets it, and the rest is named: metric, Event on the Node, status of the NodeReservation.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from croupier.api import pods
from croupier.api.kinds import NODES, PODS, RESERVATIONS
from croupier.book.manager import CapacityManager, UnknownNode
from croupier.controllers.ledger.notes import Notes
from croupier.controllers.ledger.sight import Sight
from croupier.core.ledgers import audit, claim
from croupier.core.ledgers.audit import Divergence, World
from croupier.core.ledgers.ledger import Ledger
from croupier.core.pods.pod import PodView
from croupier.kube import events
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import KubeError, NotFound
from croupier.kube.events import Recorder
from croupier.kube.shift import ANYONE, Authority
from croupier.kube.together import first

EVERY: Final = 60.0
SECOND_LOOK: Final = 5.0
"""Seconds a suspicion gets to go away by itself."""

log = structlog.get_logger(__name__)


class Gauge(Protocol):
    def left(self, by_class: Counter[str]) -> None: ...
    def repaired(self, kind: str) -> None: ...


class Unmeasured:
    def left(self, by_class: Counter[str]) -> None: ...
    def repaired(self, kind: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Settings:
    every: float = EVERY
    second_look: float = SECOND_LOOK
    clock: Clock = field(default_factory=SystemClock)
    chance: Callable[[], float] = random.random
    gauge: Gauge = field(default_factory=Unmeasured)


class Audit:
    """`api` is fenced by the caller, where there is an election. `notes` are what is left to people."""

    def __init__(
        self,
        sight: Sight,
        api: Client,
        *,
        book: CapacityManager,
        recorder: Recorder,
        settings: Settings | None = None,
    ) -> None:
        self._sight = sight
        self._api = api
        self._book = book
        self._recorder = recorder
        self._settings = settings or Settings()
        self.notes = Notes()

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        await first(stop, self._sight.complete())
        while not stop.is_set() and authority.held():
            try:
                await self.look_around()
            except KubeError as error:
                log.warning("the audit was cut short", error=str(error))
            pause = self._settings.every * (0.9 + 0.2 * self._settings.chance())
            await first(stop, self._settings.clock.sleep(pause))

    async def look_around(self) -> None:
        """Every node once, the suspicious ones twice."""
        suspects = {}
        for node in tuple(self._book.nodes()):
            if (found := self.look(node)) or self.notes.of(node):
                suspects[node] = found
            await asyncio.sleep(0)  # others get their turn between nodes
        if any(suspects.values()):
            await self._settings.clock.sleep(self._settings.second_look)
        for node, found in suspects.items():
            await self._judge(node, found)
        for node in self.notes.every().keys() - set(self._book.nodes()):
            self.notes.write(node, ())
        left = (finding.kind for findings in self.notes.every().values() for finding in findings)
        self._settings.gauge.left(Counter(left))

    def look(self, node: str) -> tuple[Divergence, ...]:
        """What seems to differ, as far as our caches show."""
        held = self._book.ledger(node)
        return () if held is None else audit.look(self._sight.world(held))

    async def confirmed(self, node: str, before: Iterable[Divergence]) -> tuple[Divergence, ...]:
        """What still differs, now that the API server itself was asked."""
        held = self._book.ledger(node)
        if held is None:
            return ()
        world = self._sight.world(held)
        seen = audit.confirmed(before, audit.look(world))
        return audit.confirmed(seen, audit.look(await self._live(world, seen))) if seen else ()

    async def repair(self, node: str, seen: Iterable[Divergence]) -> list[Divergence]:
        """Those of `seen` that were put right."""
        able = [one for one in seen if one.repair is not None]
        done: list[Divergence] = []

        def change(newest: Ledger) -> Ledger:
            done.clear()  # it may run again on a newer ledger
            for one in able:
                if one.repair is not None and (mended := audit.apply(newest, one.repair)) != newest:
                    newest = mended
                    done.append(one)
            return newest

        if able:
            with suppress(UnknownNode):
                await self._book.amend(node, change)
        return done

    async def _judge(self, node: str, before: Iterable[Divergence]) -> None:
        seen = await self.confirmed(node, before)
        for one in await self.repair(node, seen):
            self._settings.gauge.repaired(one.finding.kind)
            self._tell(node, one, f"{one.finding.message}; repaired")
        self._name(node, [one for one in seen if one.repair is None])

    async def _live(self, world: World, seen: Sequence[Divergence]) -> World:
        """What the API server itself says of the pods and Reservations in question."""
        holders = {one.finding.holder for one in seen if one.finding.holder}
        keys = {claim.reserved_as(holder) or holder for holder in holders}
        world = audit.with_pods(world, {key: await self._pod(key) for key in sorted(keys)})
        kept = {name for holder in holders if (name := await self._kept(world.ledger, holder))}
        return replace(world, reservations=frozenset({*world.reservations, *kept}))

    async def _pod(self, key: str) -> PodView | None:
        namespace, _, name = key.partition("/")
        try:
            return pods.view(await self._api.get(PODS, name, namespace=namespace))
        except NotFound:
            return None

    async def _kept(self, held: Ledger, holder: str) -> str | None:
        """The Reservation behind a holder, if there is one."""
        namespace, name = holder.partition("/")[0], held.reservations.get(holder)
        if name is None:
            return None
        try:
            return (await self._api.get(RESERVATIONS, name, namespace=namespace)).metadata.key
        except NotFound:
            return None

    def _name(self, node: str, left: Sequence[Divergence]) -> None:
        known = {(finding.kind, finding.card, finding.holder) for finding in self.notes.of(node)}
        for one in left:
            if one.identity not in known:
                self._tell(node, one, one.finding.message)
        self.notes.write(node, (one.finding for one in left))

    def _tell(self, node: str, one: Divergence, note: str) -> None:
        log.warning(note, finding=one.finding.kind, node=node)
        if (found := self._sight.node(node)) is not None:
            about = events.about(NODES, found)
            note = f"{one.finding.kind}: {note}"
            self._recorder.record(about, "GPULedgerDivergence", note, action="Audit", type="Warning")
