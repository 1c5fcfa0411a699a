"""The agent of one node with cards: looks, decides, serves, tells, cuts; again and again.

It decides little itself: core/nodes/plan says what becomes of each card, core/nodes/devices what is offered
of it. What it remembers may be lost at any moment: a card's past stands in the agent's own last report. A
change of a card runs beside the rounds, so that a slow driver never silences the agent; and before it
begins everybody who could give the card away has read that it will.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import structlog

from croupier.api.gpu.agent_report import BEATS, AgentReport
from croupier.api.kinds import NODES
from croupier.core.cards import card as naming
from croupier.core.cards import mig
from croupier.core.cards.vitality import Scar
from croupier.core.nodes import devices
from croupier.core.nodes import plan as node_plan
from croupier.core.nodes.bootstrap import DCGM
from croupier.core.nodes.devices import NodeCard, Offer
from croupier.core.nodes.handed import Holding
from croupier.core.nodes.plan import Memory, Step
from croupier.core.nodes.state import Service
from croupier.kube import events
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import KubeError
from croupier.kube.events import Recorder
from croupier.node.agent import features, past, publishing, reporting
from croupier.node.agent import picture as agent_picture
from croupier.node.agent.picture import Now, Picture
from croupier.node.agent.publishing import Publisher
from croupier.node.agent.recutting import Failed, Outcome, Recutter
from croupier.node.agent.reporting import Pulse, Telling
from croupier.node.agent.sight import Window
from croupier.node.cards import exporter
from croupier.node.cards.cards import CardError, Cards, Seen, Sighting
from croupier.node.cards.exporter import Readings

WRITE_WITHIN: Final = 10.0
"""Seconds for what one round writes; what was not written is tried again."""

log = structlog.get_logger(__name__)


class Serving(Protocol):
    """How the offer reaches pods: device plugins, or the status of a Node that has no kubelet."""

    async def serve(self, offer: Offer, cards: Mapping[str, Seen]) -> None: ...
    def service(self) -> Service: ...

    async def given(self) -> Sequence[Holding] | None:
        """What pods have now, as the kubelet knows it; None while it does not tell."""
        ...

    async def close(self) -> None: ...


class Check(Protocol):
    """Looks after pods whose devices are not those of their allocation."""

    async def look(self, picture: Picture, offer: Offer) -> float | None:
        """In how many seconds it should look again, if that is known."""
        ...


class Gauge(Protocol):
    """`cut` hears applied, restored (failed, and as before) or failed."""

    def looked(self, seconds: float) -> None: ...
    def offered(self, node: str, offer: Offer) -> None: ...
    def left(self, node: str) -> None: ...
    def cut(self, outcome: str) -> None: ...
    def unheard(self) -> None: ...


class Unmeasured:
    def looked(self, seconds: float) -> None: ...
    def offered(self, node: str, offer: Offer) -> None: ...
    def left(self, node: str) -> None: ...
    def cut(self, outcome: str) -> None: ...
    def unheard(self) -> None: ...


class Monitor(Protocol):
    """Somebody who reads more of the cards than their driver tells us."""

    async def read(self) -> Readings | None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What an agent is made of."""

    window: Window
    cards: Cards
    serving: Serving
    cutter: Recutter
    recorder: Recorder
    check: Check | None = None
    monitor: Monitor | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    namespace: str
    every: float = 3.0
    """Seconds between looks, when nothing happens,"""
    beat: float = 10.0
    """and between heartbeats."""
    boot: str = ""
    """Which boot of the machine this is; empty for machines that never boot."""
    turns: asyncio.Semaphore | None = None
    """For those who share a process with many others: a slow API server is not given all at once."""
    clock: Clock = field(default_factory=SystemClock)
    gauge: Gauge = field(default_factory=Unmeasured)


class Agent:
    def __init__(self, parts: Parts, api: Client, settings: Settings) -> None:
        self._parts = parts
        self._settings = settings
        self._node = parts.window.name
        self._publisher = Publisher(
            api,
            publishing.Settings(self._node, settings.namespace, beat=settings.beat, clock=settings.clock),
            parts.window.node,
        )
        self._wake = asyncio.Event()
        self._seen = Sighting()
        self._monitor = parts.cards.source
        self._pulse = Pulse()
        self._memory: dict[str, Memory] = {}
        self._scars: Mapping[str, Scar] = {}
        self._cards: list[NodeCard] = []
        self._offer = Offer()
        self._cutting: asyncio.Task[None] | None = None
        self._busy: Step | None = None
        self._cuts = 0
        self._refused = ""
        self._check_in: float | None = None
        self.begun = asyncio.Event()
        """The first round is over."""
        self.report: AgentReport | None = None
        """Of the last round."""

    @property
    def cards(self) -> Collection[str]:
        """Their names, as far as they are known."""
        return self._memory.keys()

    def wake(self) -> None:
        """Something changed that is worth another round at once."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        try:
            await self._begin(stop)
            while not stop.is_set():
                self._wake.clear()
                await self.round()
                self.begun.set()
                await self._rest(stop)
        finally:
            await self._end()

    async def _begin(self, stop: asyncio.Event) -> None:
        """Open the driver and read where the agent before us stopped; try until both worked."""
        while not stop.is_set():
            try:
                await self._parts.cards.open()
                self._recall(await self._publisher.last())
            except (CardError, KubeError) as error:
                log.warning("cannot begin yet", node=self._node, error=str(error))
                await first(self._settings.every, stop.wait())
            else:
                return

    def _recall(self, last: AgentReport | None) -> None:
        for one in last.cards if last is not None else ():
            card_id = naming.inventory_id(self._node, one.address)
            self._memory[card_id] = node_plan.remembered(one.cut.state, one.cut.target)
        self._scars = past.scars(last, self._settings.boot, self._settings.clock.monotonic())

    async def _rest(self, stop: asyncio.Event) -> None:
        news = self.report is None or not self._publisher.shown(self.report)
        waits = (self._settings.every, publishing.CALM if news else None, self._check_in)
        seconds = min(one for one in waits if one is not None)
        await first(seconds, stop.wait(), self._wake.wait(), self._parts.cards.changed(seconds))

    async def _end(self) -> None:
        """A change that has begun is cut off, as a crash would: the next agent goes on with it."""
        if self._cutting is not None:
            self._cutting.cancel()
            await asyncio.wait({self._cutting})
        self._settings.gauge.left(self._node)
        await self._parts.serving.close()
        with contextlib.suppress(CardError):
            await self._parts.cards.close()

    async def round(self) -> None:
        picture = agent_picture.draw(self._parts.window, await self._now())
        self._memory = {card: step.memory for card, step in picture.steps.items()}
        offer = self._offered(picture)
        async with self._turn():
            await self._parts.serving.serve(offer, picture.cards)
        self._settings.gauge.offered(self._node, offer)
        await self._tell(picture)
        if (check := self._parts.check) is not None:
            self._check_in = None
            await self._written(
                "a look at what pods were given", lambda: self._checked(check, picture, offer)
            )
        await self._change(picture)

    async def _checked(self, check: Check, picture: Picture, offer: Offer) -> None:
        self._check_in = await check.look(picture, offer)

    def _offered(self, picture: Picture) -> Offer:
        """The same as before if the cards are: it has a hundred devices a card."""
        cards = picture.offered()
        if cards != self._cards:
            self._cards, self._offer = cards, devices.offer(cards, self._offer.resources)
        return self._offer

    async def _now(self) -> Now:
        given = await self._parts.serving.given()
        while True:
            before = self._cuts
            seen = await self._looked()
            if before == self._cuts:  # else a change ended meanwhile, and this look may be older
                break
        unfinished = self._parts.cutter.unfinished()
        at = self._settings.clock.monotonic()
        return Now(seen, given, self._memory, self._busy, at, unfinished)

    async def _looked(self) -> Sighting:
        began = self._settings.clock.monotonic()
        try:
            seen = await self._monitored(await self._parts.cards.look())
            now = self._settings.clock.monotonic()
            self._seen = past.scarred(seen, self._scars, now)
            self._settings.gauge.looked(now - began)
        except CardError as error:
            log.warning("the cards cannot be seen", node=self._node, error=str(error))
            self._pulse = Pulse()
            return reporting.blind(self._seen, str(error))
        return self._seen

    async def _monitored(self, seen: Sighting) -> Sighting:
        readings = await self._parts.monitor.read() if self._parts.monitor is not None else None
        self._monitor = self._parts.cards.source if readings is None else DCGM
        return seen if readings is None else exporter.enriched(seen, readings)

    async def _tell(self, picture: Picture) -> None:
        service = self._parts.serving.service()
        self._complain(picture.wants.refused)
        if self._publisher.due and picture.seen.driver:
            self._pulse = reporting.beaten(self._pulse, picture.cards, BEATS)
        else:
            self._pulse = reporting.between(self._pulse, picture.cards)
        refused = (picture.wants.refused,) if picture.wants.refused else ()
        troubles = reporting.troubles(picture.wants.troubles, refused, service.troubles)
        told_by = self._parts.cards.source, self._monitor
        telling = Telling(self._node, *told_by, service, self._pulse, troubles, self._settings.boot)
        self.report = reporting.report(telling, picture.seen, picture.cards, picture.steps)
        told, standing = self.report, picture.standing(service)
        labels = features.labels(told, picture.mig_state(), picture.wants.text)
        if not await self._written("the Lease", lambda: self._publisher.live(told)):
            self._settings.gauge.unheard()
        await self._written("labels", lambda: self._publisher.mark(labels))
        await self._written("conditions", lambda: self._publisher.state(standing))

    def _complain(self, refused: str) -> None:
        """Once for each layout that cannot be followed."""
        if refused and refused != self._refused:
            log.warning("the layout is refused", node=self._node, why=refused)
            self._event("MIGLayoutRefused", refused, warning=True)
        self._refused = refused

    def _turn(self) -> AbstractAsyncContextManager[Any]:
        return self._settings.turns or contextlib.nullcontext()

    async def _written(self, what: str, work: Callable[[], Awaitable[Any]]) -> bool:
        """Telling others may fail; the next round tries again."""
        try:
            async with self._turn(), asyncio.timeout(WRITE_WITHIN):
                await work()
        except (KubeError, TimeoutError) as error:
            log.warning(f"{what} failed", node=self._node, error=str(error) or "no answer in time")
            return False
        return True

    async def _change(self, picture: Picture) -> None:
        """Begin with the next card that is to be cut, if all know of it and none of it is in use."""
        if self._busy is not None:
            return
        step = next((one for one in picture.steps.values() if one.acts and self._known(one, picture)), None)
        if step is None:
            return
        # The kubelet may have given something of it between our look and the withdrawal of its devices.
        given = await self._parts.serving.given()
        if given is None or step.card in {card for card, _ in agent_picture.in_use(given)}:
            return
        self._busy = replace(step, recut=None, recover=False)
        self._cutting = asyncio.create_task(self._carry_out(step, picture.cards[step.card]))

    def _known(self, step: Step, picture: Picture) -> bool:
        """Others can read that it is about to change."""
        card = picture.cards[step.card]
        return self._publisher.told(card.address, reporting.cut(card, step))

    async def _carry_out(self, step: Step, card: Seen) -> None:
        cutter = self._parts.cutter
        try:
            if step.recut is not None:
                outcome = await cutter.apply(card, step.recut)
            else:
                outcome = await cutter.recover(card)
            self._settle(step, card, outcome)
        except Exception as bug:  # a card that cannot be cut must not end the agent of all
            log.exception("cutting a card failed in a way nobody thought of", node=self._node, card=step.card)
            self._settle(step, card, Failed(repr(bug), restored=False))
        finally:
            self._busy = None
            self._cuts += 1
            self.wake()

    def _settle(self, step: Step, card: Seen, outcome: Outcome) -> None:
        what = f"card {card.index} ({step.card})"
        before = mig.spelled(card.layout)
        if isinstance(outcome, Failed):
            self._settings.gauge.cut("restored" if outcome.restored else "failed")
            now, why = self._settings.clock.monotonic(), outcome.sentence
            self._memory[step.card] = node_plan.failed(step.memory, step.target, why, now)
            self._event("GPURecutFailed", f"{what} is not {step.target}: {why}", warning=True)
            log.warning("a card was not cut", node=self._node, card=step.card, target=step.target, why=why)
            return
        self._settings.gauge.cut("applied")
        after = step.target or "as before the change that was cut off"
        self._event("GPURecut", f"{what} is {after} now, it was {before}")
        log.info("a card was cut", node=self._node, card=step.card, target=after, before=before)

    def _event(self, reason: str, note: str, *, warning: bool = False) -> None:
        node = self._parts.window.node()
        if node is not None:
            kind: Any = "Warning" if warning else "Normal"
            self._parts.recorder.record(events.about(NODES, node), reason, note, action="Cut", type=kind)


async def first(seconds: float, *waits: Coroutine[Any, Any, Any]) -> None:
    """Until one of them is done, or the time is up."""
    tasks = {asyncio.ensure_future(one) for one in waits}
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)
