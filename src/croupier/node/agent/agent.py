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
from prometheus_client import CollectorRegistry

from croupier.api import convert_pod
from croupier.api.gpu import convert_report
from croupier.api.gpu.agent_report import READY_HEARTBEATS, AgentReport
from croupier.api.kinds import NODES
from croupier.core.cards.card_health import CarriedFault
from croupier.core.model import card_name as naming
from croupier.core.model import mig
from croupier.core.model.enforcement import CardEnforcement
from croupier.core.model.gpu_card import GpuCard
from croupier.core.nodes import layout_plan as node_plan
from croupier.core.nodes import plugin_devices
from croupier.core.nodes.bootstrap import DCGM
from croupier.core.nodes.kubelet_assignments import BoundPod, KubeletAssignment
from croupier.core.nodes.layout_plan import CardHistory, LayoutStep
from croupier.core.nodes.node_conditions import DevicePluginState
from croupier.core.nodes.plugin_devices import NodeCard, ServedResources
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import KubeError
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from croupier.node.agent import gpu_labels, previous_report, publishing, reporting
from croupier.node.agent import round_state as agent_picture
from croupier.node.agent.card_users import CardUseTracker
from croupier.node.agent.metrics import NodeAgentMetrics
from croupier.node.agent.publishing import Publisher
from croupier.node.agent.repartitioning import Repartitioner, RepartitionFailed, RepartitionResult
from croupier.node.agent.reporting import HeartbeatCounters, ReportContext
from croupier.node.agent.round_state import RoundInputs, RoundState
from croupier.node.cards import dcgm_exporter
from croupier.node.cards.card_driver import CardDriver, CardError, DriverSnapshot
from croupier.node.cards.dcgm_exporter import DcgmExporter
from croupier.node.kubelet.allocation_mismatch import MismatchRepair
from croupier.node.mps.share_enforcer import ShareEnforcement, SimulatedEnforcement
from croupier.node.node_informers import NodeInformers

WRITE_TIMEOUT: Final = 10.0
"""The timeout of each write of a round in seconds. A failed write is retried in the next round."""

log = structlog.get_logger(__name__)


class DeviceServing(Protocol):
    """Offers devices to pods: through device plugins, or in the status of a Node without a kubelet."""

    async def serve(self, offer: ServedResources, cards: Mapping[str, GpuCard]) -> None: ...
    def service(self) -> DevicePluginState: ...

    async def given(self) -> Sequence[KubeletAssignment] | None:
        """The kubelet's device assignments. None if they cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class NodeAgentParts:
    """The components of an agent."""

    informers: NodeInformers
    cards: CardDriver
    serving: DeviceServing
    repartitioner: Repartitioner
    recorder: EventRecorder
    enforcement: ShareEnforcement = field(default_factory=SimulatedEnforcement)
    check: MismatchRepair | None = None
    monitor: DcgmExporter | None = None


@dataclass(frozen=True, slots=True)
class NodeAgentOptions:
    namespace: str
    every: float = 3.0
    """Seconds between rounds if nothing happens."""
    beat: float = 10.0
    """Seconds between heartbeats."""
    boot: str = ""
    """The boot ID of the machine. Empty for simulated nodes."""
    write_slots: asyncio.Semaphore | None = None
    """Limits concurrent writes of many agents in one process, to protect a slow API server."""
    clock: Clock = field(default_factory=SystemClock)
    metrics: NodeAgentMetrics = field(default_factory=lambda: NodeAgentMetrics(CollectorRegistry()))


class NodeAgent:
    def __init__(self, parts: NodeAgentParts, api: Client, settings: NodeAgentOptions) -> None:
        self._parts = parts
        self._settings = settings
        self._node = parts.informers.name
        self._publisher = Publisher(
            api,
            publishing.PublisherOptions(
                self._node, settings.namespace, beat=settings.beat, clock=settings.clock
            ),
            parts.informers.node,
        )
        self._wake = asyncio.Event()
        self._snapshot = DriverSnapshot()
        self._monitor = parts.cards.source
        self._counters = HeartbeatCounters()
        self._memory: dict[str, CardHistory] = {}
        self._users = CardUseTracker(self._node, settings.namespace)
        self._carried_faults: Mapping[str, CarriedFault] = {}
        self._enforcement: Mapping[str, CardEnforcement | None] = {}
        self._cards: list[NodeCard] = []
        self._offer = ServedResources()
        self._repartitioning: asyncio.Task[None] | None = None
        self._busy: LayoutStep | None = None
        self._repartition_count = 0
        self._refused = ""
        self._check_in: float | None = None
        self.started = asyncio.Event()
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
        self._parts.enforcement.watch(self.wake)
        try:
            await self._begin(stop)
            while not stop.is_set():
                self._wake.clear()
                await self.round()
                self.started.set()
                await self._wait(stop)
        finally:
            await self._end()

    async def _begin(self, stop: asyncio.Event) -> None:
        """Open the driver and read the previous report. Retries until both succeed."""
        while not stop.is_set():
            try:
                await self._parts.cards.open()
                self._restore_history(await self._publisher.previous_report())
            except (CardError, KubeError) as error:
                log.warning(
                    f"the agent of node {self._node} cannot start yet and tries again: {error}",
                    node=self._node,
                    error=str(error),
                )
                await wait_first(self._settings.every, stop.wait())
            else:
                return

    def _restore_history(self, last: AgentReport | None) -> None:
        for card in last.cards if last is not None else ():
            card_id = naming.inventory_id(self._node, card.address)
            self._memory[card_id] = node_plan.history_from_report(card.cut.state, card.cut.target)
        self._users.restore(last)
        self._carried_faults = previous_report.carried_faults(
            last, self._settings.boot, self._settings.clock.monotonic()
        )

    async def _wait(self, stop: asyncio.Event) -> None:
        unpublished = self.report is None or not self._publisher.is_current(self.report)
        waits = (self._settings.every, publishing.MIN_WRITE_INTERVAL if unpublished else None, self._check_in)
        seconds = min(wait for wait in waits if wait is not None)
        await wait_first(seconds, stop.wait(), self._wake.wait(), self._parts.cards.changed(seconds))

    async def _end(self) -> None:
        """Interrupt a repartitioning in progress, like a crash would. The next agent continues it."""
        if self._repartitioning is not None:
            self._repartitioning.cancel()
            await asyncio.wait({self._repartitioning})
        self._settings.metrics.left(self._node)
        with contextlib.suppress(CardError):
            await self._parts.cards.close()

    async def round(self) -> None:
        picture = agent_picture.build(self._parts.informers, await self._now())
        self._memory = {card: step.history for card, step in picture.steps.items()}
        now = self._settings.clock.now().replace(microsecond=0)
        self._users.observe(picture, await self._card_users(), self._parts.informers.pods(), now)
        picture = self._enforced(picture)
        offer = self._offered(picture)
        async with self._turn():
            await self._parts.serving.serve(offer, picture.cards)
        self._settings.metrics.offered(self._node, offer)
        await self._publish(picture)
        await self._try_write("the check of device assignments", lambda: self._check(picture, offer))
        await self._repartition_next(picture)

    def _enforced(self, picture: RoundState) -> RoundState:
        """With what enforces shares of each card."""
        states = self._parts.enforcement.observe(picture.shares(self._pods))
        for card_id, state in states.items():
            before = self._enforcement.get(card_id)
            if state is not None and state.failed and (before is None or before.message != state.message):
                what = f"shares of card {picture.cards[card_id].index} ({card_id}) are withheld"
                log.warning(f"{what}: {state.message}", node=self._node, card=card_id)
                self._event("GPUSharesWithheld", f"{what}: {state.message}", warning=True)
        self._enforcement = states
        return replace(picture, enforcement=states)

    def _pods(self) -> list[BoundPod]:
        return [view for pod in self._parts.informers.pods() if (view := convert_pod.bound(pod)) is not None]

    async def _check(self, picture: RoundState, offer: ServedResources) -> None:
        self._check_in = None
        if self._parts.check is not None:
            self._check_in = await self._parts.check.inspect(
                picture.given, offer, without_ledger=picture.without_ledger
            )

    def _offered(self, picture: RoundState) -> ServedResources:
        """The offer. It is reused if the cards are unchanged, because it has a hundred devices per card."""
        cards = picture.offered()
        if cards != self._cards:
            self._cards, self._offer = cards, plugin_devices.served_resources(cards, self._offer.resources)
        return self._offer

    async def _now(self) -> RoundInputs:
        given = await self._parts.serving.given()
        while True:
            before = self._repartition_count
            seen = await self._inspected()
            if (
                before == self._repartition_count
            ):  # else a repartitioning ended, and this snapshot may be older
                break
        unfinished = self._parts.repartitioner.unfinished()
        at = self._settings.clock.monotonic()
        owned = frozenset(card.address for card in seen.cards if self._parts.enforcement.owns(card))
        return RoundInputs(seen, given, self._memory, self._busy, at, unfinished, owned)

    async def _inspected(self) -> DriverSnapshot:
        began = self._settings.clock.monotonic()
        try:
            seen = await self._monitored(await self._parts.cards.inspect())
            now = self._settings.clock.monotonic()
            self._snapshot = previous_report.with_carried_faults(seen, self._carried_faults, now)
            self._settings.metrics.driver_inspected(now - began)
        except CardError as error:
            log.warning(
                f"the cards of node {self._node} cannot be inspected: {error}",
                node=self._node,
                error=str(error),
            )
            self._counters = HeartbeatCounters()
            return reporting.driver_lost(self._snapshot, str(error))
        return self._snapshot

    async def _card_users(self) -> Mapping[str, frozenset[str]]:
        """The users of each card. None are known while the driver does not answer."""
        try:
            return await self._parts.cards.users()
        except CardError:
            return {}  # the inspection of this round reports the error

    async def _monitored(self, seen: DriverSnapshot) -> DriverSnapshot:
        readings = await self._parts.monitor.read() if self._parts.monitor is not None else None
        self._monitor = self._parts.cards.source if readings is None else DCGM
        return seen if readings is None else dcgm_exporter.with_readings(seen, readings)

    async def _publish(self, picture: RoundState) -> None:
        service = self._parts.serving.service()
        self._report_refusal(picture.wants.refused)
        if self._publisher.due and picture.seen.driver:
            self._counters = reporting.after_heartbeat(self._counters, picture.cards, READY_HEARTBEATS)
        else:
            self._counters = reporting.between_heartbeats(self._counters, picture.cards)
        refused = (picture.wants.refused,) if picture.wants.refused else ()
        troubles = reporting.troubles(picture.wants.troubles, refused, service.troubles)
        sources = self._parts.cards.source, self._monitor
        context = ReportContext(
            self._node,
            *sources,
            service,
            self._counters,
            troubles,
            self._settings.boot,
            picture.enforcement,
        )
        report = reporting.build_report(context, picture.seen, picture.cards, picture.steps)
        report = self._users.with_use(report, self._settings.clock.now())
        self.report, conditions = report, picture.conditions(service)
        labels = gpu_labels.labels(report, picture.mig_state(), picture.wants.text)
        if not await self._try_write("the Lease", lambda: self._publisher.heartbeat(report)):
            self._settings.metrics.heartbeat_failed()
        await self._try_write("labels", lambda: self._publisher.apply_labels(labels))
        await self._try_write("conditions", lambda: self._publisher.apply_conditions(conditions))

    def _report_refusal(self, refused: str) -> None:
        """Report each refused layout once."""
        if refused and refused != self._refused:
            log.warning(f"the MIG layout of node {self._node} is refused: {refused}", node=self._node)
            self._event("MIGLayoutRefused", refused, warning=True)
        self._refused = refused

    def _turn(self) -> AbstractAsyncContextManager[Any]:
        return self._settings.write_slots or contextlib.nullcontext()

    async def _try_write(self, what: str, work: Callable[[], Awaitable[Any]]) -> bool:
        """Write and return whether it succeeded. The next round retries."""
        try:
            async with self._turn(), asyncio.timeout(WRITE_TIMEOUT):
                await work()
        except (KubeError, TimeoutError) as error:
            log.warning(
                f"the agent of node {self._node} failed to write {what}",
                node=self._node,
                error=str(error) or "timeout",
            )
            return False
        return True

    async def _repartition_next(self, picture: RoundState) -> None:
        """Repartition the next card whose change is announced and which has no devices in use."""
        if self._busy is not None:
            return
        steps = (step for step in picture.steps.values() if step.acts and self._is_announced(step, picture))
        step = next(steps, None)
        if step is None:
            return
        # The kubelet may have allocated devices of the card since the list was read.
        given = await self._parts.serving.given()
        if given is None or step.card in {card for card, _ in agent_picture.in_use(given)}:
            return
        self._busy = replace(step, new_layout=None, recover=False)
        self._repartitioning = asyncio.create_task(self._repartition(step, picture.cards[step.card]))

    def _is_announced(self, step: LayoutStep, picture: RoundState) -> bool:
        """Whether the published report announces the change."""
        card = picture.cards[step.card]
        return self._publisher.is_published(card.address, convert_report.partitioning(card, step))

    async def _repartition(self, step: LayoutStep, card: GpuCard) -> None:
        cutter = self._parts.repartitioner
        try:
            if step.new_layout is not None:
                outcome = await cutter.apply(card, step.new_layout)
            else:
                outcome = await cutter.recover(card)
            self._record_result(step, card, outcome)
        except Exception as bug:  # one card must not end the agent of all cards
            log.exception(
                f"the agent of node {self._node} failed to repartition card {step.card}",
                node=self._node,
                card=step.card,
            )
            self._record_result(step, card, RepartitionFailed(repr(bug), restored=False))
        finally:
            self._busy = None
            self._repartition_count += 1
            self.wake()

    def _record_result(self, step: LayoutStep, card: GpuCard, outcome: RepartitionResult) -> None:
        what = f"card {card.index} ({step.card})"
        before = mig.layout_text(card.layout)
        if isinstance(outcome, RepartitionFailed):
            self._settings.metrics.cut("restored" if outcome.restored else "failed")
            now, why = self._settings.clock.monotonic(), outcome.sentence
            self._memory[step.card] = node_plan.with_failure(step.history, step.target, why, now)
            target = step.target or "its previous layout"
            note = f"{what} was not repartitioned to {target}: {why}"
            self._event("GPURecutFailed", note, warning=True)
            log.warning(note, node=self._node, card=step.card, target=step.target, reason="GPURecutFailed")
            return
        self._settings.metrics.cut("applied")
        after = step.target or "the layout before the interrupted change"
        self._event("GPURecut", f"{what} was repartitioned from {before} to {after}")
        log.info(
            f"{what} was repartitioned from {before} to {after}",
            node=self._node,
            card=step.card,
            target=after,
            before=before,
        )

    def _event(self, reason: str, note: str, *, warning: bool = False) -> None:
        node = self._parts.informers.node()
        if node is not None:
            kind: Any = "Warning" if warning else "Normal"
            self._parts.recorder.record(
                events.reference_to(NODES, node), reason, note, action="Cut", type=kind
            )


async def wait_first(seconds: float, *waits: Coroutine[Any, Any, Any]) -> None:
    """Wait until one of them is done, or for `seconds`."""
    tasks = {asyncio.ensure_future(wait) for wait in waits}
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
