"""The agent of one node with cards. Each round inspects the cards, plans, serves devices and reports.

The decisions are in core/nodes/layout_plan (what happens to each card) and core/nodes/plugin_devices (which
devices are offered). The agent's memory may be lost at any time: the history of cards is in its last report.
A card is repartitioned concurrently with the rounds, so that a slow driver does not delay heartbeats, and
only after the report has announced it to the processes that allocate cards.
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
"""The timeout of each write of a round in seconds. A failed write is retried in the next round."""

log = structlog.get_logger(__name__)


class Serving(Protocol):
    """Offers devices to pods: through device plugins, or in the status of a Node without a kubelet."""

    async def serve(self, offer: Offer, cards: Mapping[str, Seen]) -> None: ...
    def service(self) -> Service: ...

    async def given(self) -> Sequence[Holding] | None:
        """The kubelet's device assignments. None if they cannot be read."""
        ...

    async def close(self) -> None: ...


class Check(Protocol):
    """Checks pods whose devices differ from their allocation."""

    async def look(self, picture: Picture, offer: Offer) -> float | None:
        """Returns the seconds until the next check is due, if any."""
        ...


class Gauge(Protocol):
    """`cut` counts applied, restored (failed and rolled back) or failed."""

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
    """A source of more readings than the driver provides."""

    async def read(self) -> Readings | None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """The components of an agent."""

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
    """Seconds between rounds if nothing happens."""
    beat: float = 10.0
    """Seconds between heartbeats."""
    boot: str = ""
    """The boot ID of the machine. Empty for simulated nodes."""
    turns: asyncio.Semaphore | None = None
    """Limits concurrent writes of many agents in one process, to protect a slow API server."""
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
        """Set after the first round."""
        self.report: AgentReport | None = None
        """The report of the last round."""

    @property
    def cards(self) -> Collection[str]:
        """The inventoryIDs of the known cards."""
        return self._memory.keys()

    def wake(self) -> None:
        """Start the next round at once."""
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
        """Open the driver and read the previous report. Retries until both succeed."""
        while not stop.is_set():
            try:
                await self._parts.cards.open()
                self._recall(await self._publisher.previous_report())
            except (CardError, KubeError) as error:
                log.warning("cannot start yet; retrying", node=self._node, error=str(error))
                await first(self._settings.every, stop.wait())
            else:
                return

    def _recall(self, last: AgentReport | None) -> None:
        for card in last.cards if last is not None else ():
            card_id = naming.inventory_id(self._node, card.address)
            self._memory[card_id] = node_plan.remembered(card.cut.state, card.cut.target)
        self._scars = past.scars(last, self._settings.boot, self._settings.clock.monotonic())

    async def _rest(self, stop: asyncio.Event) -> None:
        unpublished = self.report is None or not self._publisher.shown(self.report)
        waits = (self._settings.every, publishing.CALM if unpublished else None, self._check_in)
        seconds = min(wait for wait in waits if wait is not None)
        await first(seconds, stop.wait(), self._wake.wait(), self._parts.cards.changed(seconds))

    async def _end(self) -> None:
        """Interrupt a repartitioning in progress, like a crash would. The next agent continues it."""
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
                "the check of device assignments", lambda: self._checked(check, picture, offer)
            )
        await self._change(picture)

    async def _checked(self, check: Check, picture: Picture, offer: Offer) -> None:
        self._check_in = await check.look(picture, offer)

    def _offered(self, picture: Picture) -> Offer:
        """The offer. It is reused if the cards are unchanged, because it has a hundred devices per card."""
        cards = picture.offered()
        if cards != self._cards:
            self._cards, self._offer = cards, devices.offer(cards, self._offer.resources)
        return self._offer

    async def _now(self) -> Now:
        given = await self._parts.serving.given()
        while True:
            before = self._cuts
            seen = await self._looked()
            if before == self._cuts:  # else a repartitioning ended, and this snapshot may be older
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
            log.warning("cannot inspect the cards", node=self._node, error=str(error))
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
        sources = self._parts.cards.source, self._monitor
        context = Telling(self._node, *sources, service, self._pulse, troubles, self._settings.boot)
        report = reporting.report(context, picture.seen, picture.cards, picture.steps)
        self.report, conditions = report, picture.standing(service)
        labels = features.labels(report, picture.mig_state(), picture.wants.text)
        if not await self._written("the Lease", lambda: self._publisher.live(report)):
            self._settings.gauge.unheard()
        await self._written("labels", lambda: self._publisher.apply_labels(labels))
        await self._written("conditions", lambda: self._publisher.apply_conditions(conditions))

    def _complain(self, refused: str) -> None:
        """Report each refused layout once."""
        if refused and refused != self._refused:
            log.warning("the MIG layout is refused", node=self._node, why=refused)
            self._event("MIGLayoutRefused", refused, warning=True)
        self._refused = refused

    def _turn(self) -> AbstractAsyncContextManager[Any]:
        return self._settings.turns or contextlib.nullcontext()

    async def _written(self, what: str, work: Callable[[], Awaitable[Any]]) -> bool:
        """Write and return whether it succeeded. The next round retries."""
        try:
            async with self._turn(), asyncio.timeout(WRITE_WITHIN):
                await work()
        except (KubeError, TimeoutError) as error:
            log.warning(f"writing {what} failed", node=self._node, error=str(error) or "timeout")
            return False
        return True

    async def _change(self, picture: Picture) -> None:
        """Repartition the next card whose change is announced and which has no devices in use."""
        if self._busy is not None:
            return
        steps = (step for step in picture.steps.values() if step.acts and self._known(step, picture))
        step = next(steps, None)
        if step is None:
            return
        # The kubelet may have allocated devices of the card since the list was read.
        given = await self._parts.serving.given()
        if given is None or step.card in {card for card, _ in agent_picture.in_use(given)}:
            return
        self._busy = replace(step, recut=None, recover=False)
        self._cutting = asyncio.create_task(self._carry_out(step, picture.cards[step.card]))

    def _known(self, step: Step, picture: Picture) -> bool:
        """Whether the published report announces the change."""
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
        except Exception as bug:  # one card must not end the agent of all cards
            log.exception("unexpected error while repartitioning a card", node=self._node, card=step.card)
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
            target = step.target or "its previous layout"
            self._event("GPURecutFailed", f"{what} was not repartitioned to {target}: {why}", warning=True)
            log.warning("repartitioning failed", node=self._node, card=step.card, target=step.target, why=why)
            return
        self._settings.gauge.cut("applied")
        after = step.target or "the layout before the interrupted change"
        self._event("GPURecut", f"{what} was repartitioned from {before} to {after}")
        log.info("a card was repartitioned", node=self._node, card=step.card, target=after, before=before)

    def _event(self, reason: str, note: str, *, warning: bool = False) -> None:
        node = self._parts.window.node()
        if node is not None:
            kind: Any = "Warning" if warning else "Normal"
            self._parts.recorder.record(events.about(NODES, node), reason, note, action="Cut", type=kind)


async def first(seconds: float, *waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of them is done, or for `seconds`."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
