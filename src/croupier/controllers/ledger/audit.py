"""The audit: at start and every minute, compares the ledgers with the pods and the reports of nodes.

A divergence is checked again after some seconds, because a pod that has just ended or a bind in flight look
like errors. If it persists, it is verified against the API server. A divergence with a safe repair is
repaired; the others are reported as metric, as Event on the Node and in the NodeReservation's status.
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
"""Seconds after which a divergence is checked again."""

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
    """The caller fences `api` if there is leader election. `notes` are the findings without a safe repair."""

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
                log.warning("the audit failed, will retry", error=str(error))
            pause = self._settings.every * (0.9 + 0.2 * self._settings.chance())
            await first(stop, self._settings.clock.sleep(pause))

    async def look_around(self) -> None:
        """Check every node once, and nodes with divergences twice."""
        suspects = {}
        for node in tuple(self._book.nodes()):
            if (divergences := self.look(node)) or self.notes.of(node):
                suspects[node] = divergences
            await asyncio.sleep(0)  # yield to the event loop between nodes
        if any(suspects.values()):
            await self._settings.clock.sleep(self._settings.second_look)
        for node, divergences in suspects.items():
            await self._judge(node, divergences)
        for node in self.notes.every().keys() - set(self._book.nodes()):
            self.notes.write(node, ())
        left = (finding.kind for findings in self.notes.every().values() for finding in findings)
        self._settings.gauge.left(Counter(left))

    def look(self, node: str) -> tuple[Divergence, ...]:
        """The divergences of a node according to the caches."""
        held = self._book.ledger(node)
        return () if held is None else audit.look(self._sight.world(held))

    async def confirmed(self, node: str, before: Iterable[Divergence]) -> tuple[Divergence, ...]:
        """The divergences that still exist, verified against the API server."""
        held = self._book.ledger(node)
        if held is None:
            return ()
        world = self._sight.world(held)
        seen = audit.confirmed(before, audit.look(world))
        return audit.confirmed(seen, audit.look(await self._live(world, seen))) if seen else ()

    async def repair(self, node: str, seen: Iterable[Divergence]) -> list[Divergence]:
        """Repair the divergences with a safe repair; return those that were repaired."""
        repairable = [divergence for divergence in seen if divergence.repair is not None]
        done: list[Divergence] = []

        def change(newest: Ledger) -> Ledger:
            done.clear()  # the change may be applied again to a newer ledger
            for divergence in repairable:
                repair = divergence.repair
                if repair is not None and (repaired := audit.apply(newest, repair)) != newest:
                    newest = repaired
                    done.append(divergence)
            return newest

        if repairable:
            with suppress(UnknownNode):
                await self._book.amend(node, change)
        return done

    async def _judge(self, node: str, before: Iterable[Divergence]) -> None:
        confirmed = await self.confirmed(node, before)
        for divergence in await self.repair(node, confirmed):
            self._settings.gauge.repaired(divergence.finding.kind)
            self._tell(node, divergence, f"{divergence.finding.message}; repaired")
        self._name(node, [divergence for divergence in confirmed if divergence.repair is None])

    async def _live(self, world: World, seen: Sequence[Divergence]) -> World:
        """`world` with the affected pods and Reservations read from the API server."""
        holders = {divergence.finding.holder for divergence in seen if divergence.finding.holder}
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
        """The Reservation of a holder, if there is one."""
        namespace, name = holder.partition("/")[0], held.reservations.get(holder)
        if name is None:
            return None
        try:
            return (await self._api.get(RESERVATIONS, name, namespace=namespace)).metadata.key
        except NotFound:
            return None

    def _name(self, node: str, left: Sequence[Divergence]) -> None:
        known = {(finding.kind, finding.card, finding.holder) for finding in self.notes.of(node)}
        for divergence in left:
            if divergence.identity not in known:
                self._tell(node, divergence, divergence.finding.message)
        self.notes.write(node, (divergence.finding for divergence in left))

    def _tell(self, node: str, divergence: Divergence, note: str) -> None:
        kind = divergence.finding.kind
        log.warning(note, finding=kind, node=node)
        if (node_object := self._sight.node(node)) is not None:
            about = events.about(NODES, node_object)
            note = f"{kind}: {note}"
            self._recorder.record(about, "GPULedgerDivergence", note, action="Audit", type="Warning")
