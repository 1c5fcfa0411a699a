"""Keeps one MPS control daemon per card that needs one, through the supervisor of the node.

The next step of each card is decided in core/nodes/mps_daemon.py. Steps run concurrently with the rounds of
the agent, because a daemon that hangs takes seconds to be noticed. Nothing is remembered that is not in the
folder of the card: a restarted agent finds running daemons by their files and by what answers on the pipe.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.nodes import mps_daemon
from croupier.core.nodes.mps_daemon import (
    Act,
    CardClients,
    ComputeMode,
    DaemonAction,
    DaemonDecision,
    DaemonRequest,
    DaemonView,
    Off,
    Ready,
    Withhold,
)
from croupier.core.nodes.plugin_devices import NodeCard
from croupier.kube.client.clock import Clock
from croupier.kube.client.concurrency import wait_or_stop
from croupier.node.cards.card_driver import CardError
from croupier.node.mps.mps_control import MpsControl, MpsError
from croupier.node.mps.mps_folder import CardFolder, MpsFolder
from croupier.node.mps.static_partitions import StaticPartitions

EVERY: Final = 2.0
"""Seconds between two checks of a daemon."""
CLAIM_SECONDS: Final = 30.0
"""How long a new allocation counts although neither the kubelet nor the pod's grant shows it."""
_MAX_STEPS: Final = 8
"""Steps of one card without a pause."""

log = structlog.get_logger(__name__)


class ComputeModes(Protocol):
    """The compute modes of cards, by PCI address. Calls may raise CardError."""

    async def compute_mode(self, address: str) -> ComputeMode: ...
    async def set_compute_mode(self, address: str, mode: ComputeMode) -> None: ...


@dataclass(slots=True)
class CardDaemon:
    """One card: its last decision, and what the agent remembers since it started."""

    card: NodeCard
    folder: CardFolder
    static: bool = False
    """Whether the driver can partition the card; a running daemon keeps the kind it was started with."""
    use: CardClients | None = None
    claims: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Shares of recent allocations by pod, and when they were made."""
    decision: DaemonDecision = field(default_factory=Off)
    step_at: float = float("-inf")
    failures: int = 0
    failed_generation: int = 0
    retry_at: float = float("-inf")
    percentage: float | None = None
    """The daemon's limit of clients without their own, at the last check."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def current_use(self, now: float) -> CardClients | None:
        """The use of the card with recent allocations."""
        self.claims = {pod: claim for pod, claim in self.claims.items() if now - claim[1] < CLAIM_SECONDS}
        recent = {pod: share for pod, (share, _) in self.claims.items()}
        if self.use is None:
            return CardClients(recent) if recent else None
        return replace(self.use, shares={**recent, **self.use.shares})

    @property
    def is_static(self) -> bool:
        """Whether the daemon has static partitions, or will have them."""
        request = self.folder.request()
        return request.static if request is not None and request.run else self.static


class MpsDaemons:
    def __init__(self, folder: MpsFolder, control: MpsControl, modes: ComputeModes, clock: Clock) -> None:
        self._folder = folder
        self._control = control
        self._modes = modes
        self._clock = clock
        self.partitions = StaticPartitions(control)
        self._cards: dict[str, CardDaemon] = {}
        self._wake = asyncio.Event()
        self.changed: Callable[[], None] = lambda: None
        """Called when the state of a card changed."""

    def observe(
        self, cards: Mapping[str, NodeCard], uses: Mapping[str, CardClients] | None, static: Collection[str]
    ) -> None:
        """The cards of the node, how they are used, and which can have static partitions."""
        for card_id, card in cards.items():
            if not card.gpu.uuid:
                continue
            known = self._cards.get(card_id)
            if known is None or known.folder.uuid != card.gpu.uuid:
                known = self._cards[card_id] = CardDaemon(card, self._folder.card(card.gpu.uuid))
            use = uses.get(card_id, CardClients()) if uses is not None else None
            if (card, use) != (known.card, known.use):
                self._wake.set()
            known.card, known.use, known.static = card, use, card_id in static
        for gone in self._cards.keys() - cards.keys():
            del self._cards[gone]

    @property
    def is_supervised(self) -> bool:
        return self._folder.is_supervised()

    def owns(self, uuid: str) -> bool:
        return bool(uuid) and self._folder.card(uuid).request() is not None

    def state(self, card_id: str) -> CardDaemon | None:
        return self._cards.get(card_id)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self._wake.clear()
            await asyncio.gather(*(self._advance(daemon) for daemon in list(self._cards.values())))
            await wait_or_stop(stop, self._clock_or_wake())

    async def _clock_or_wake(self) -> None:
        wake = asyncio.ensure_future(self._wake.wait())
        await asyncio.wait({wake}, timeout=EVERY)
        wake.cancel()

    async def claim(self, card_id: str, pod: str, share: int) -> CardDaemon:
        """A container is about to get a share: the daemon is needed now, and its limit at least this."""
        daemon = self._cards[card_id]
        daemon.claims[pod] = share, self._clock.monotonic()
        await self._advance(daemon)
        return daemon

    async def vacate(self, card_id: str) -> CardDaemon | None:
        """A container is about to get the whole card, so no pod has shares of it."""
        daemon = self._cards.get(card_id)
        if daemon is not None:
            daemon.claims.clear()
            daemon.use = replace(daemon.use or CardClients(), shares={})
            await self._advance(daemon)
        return daemon

    async def _advance(self, daemon: CardDaemon) -> None:
        """Take the steps of a card that can be taken now."""
        async with daemon.lock:
            before = daemon.decision
            for _ in range(_MAX_STEPS):
                daemon.decision = decision = await self._next(daemon)
                if not isinstance(decision, Act):
                    break
            if isinstance(daemon.decision, Ready):
                daemon.decision = await self._tend(daemon)
            if daemon.decision != before:
                self.changed()

    async def _next(self, daemon: CardDaemon) -> DaemonDecision:
        try:
            decision = mps_daemon.decide(await self._view(daemon))
            if isinstance(decision, Act):
                await self._apply(daemon, decision.action)
                daemon.step_at = self._clock.monotonic()
        except (CardError, MpsError, OSError) as error:
            log.warning(
                f"the MPS daemon of card {daemon.card.id} cannot be changed",
                card=daemon.card.id,
                error=str(error),
            )
            return Withhold(f"its MPS daemon cannot be changed: {error}", failed=True)
        return decision

    async def _view(self, daemon: CardDaemon) -> DaemonView:
        now, folder = self._clock.monotonic(), daemon.folder
        use = daemon.current_use(now)
        wanted, request = mps_daemon.is_wanted(daemon.card, use), folder.request()
        if not wanted and request is None:
            return DaemonView(wanted=False)
        record = folder.record()
        answered_by = None
        if record is not None and record.alive:
            answered_by = await self._answered_by(daemon, record.pid)
        elif record is not None and request is not None and request.run:
            self._note_failure(daemon, record.generation, request.generation)
        return DaemonView(
            wanted=wanted,
            use=use,
            mode=await self._modes.compute_mode(daemon.card.gpu.address),
            request=request,
            record=record,
            answered_by=answered_by,
            supervised=self._folder.is_supervised(),
            since_step=self._clock.monotonic() - daemon.step_at,
            retry_in=daemon.retry_at - now,
        )

    async def _answered_by(self, daemon: CardDaemon, pid: int) -> int | None:
        try:
            daemon.percentage = await self._control.default_percentage(daemon.folder)
        except MpsError as error:
            log.debug(
                f"the MPS daemon of card {daemon.card.id} does not answer",
                card=daemon.card.id,
                error=str(error),
            )
            return None
        return daemon.folder.answering_pid() or pid

    def _note_failure(self, daemon: CardDaemon, ended: int, requested: int) -> None:
        """A daemon that ended by itself is started again after a delay that grows."""
        if ended == requested and daemon.failed_generation != ended:
            daemon.failed_generation = ended
            daemon.failures += 1
            daemon.retry_at = self._clock.monotonic() + mps_daemon.retry_delay(daemon.failures)

    async def _apply(self, daemon: CardDaemon, action: DaemonAction) -> None:
        folder, address = daemon.folder, daemon.card.gpu.address
        request = folder.request() or DaemonRequest()
        log.info(
            f"the MPS daemon of card {daemon.card.id} takes the step {action}",
            card=daemon.card.id,
            step=action,
        )
        match action:
            case "Prepare":
                folder.prepare()
                folder.write_request(request)
            case "SetExclusive":
                await self._modes.set_compute_mode(address, "ExclusiveProcess")
            case "Start":
                folder.write_partitions({})
                folder.write_request(DaemonRequest(request.generation + 1, run=True, static=daemon.static))
            case "Quit":
                await self._control.send(folder, "quit")
            case "Kill":
                folder.write_request(replace(request, run=False))
            case "SetDefault":
                await self._modes.set_compute_mode(address, "Default")
            case "Forget":
                folder.remove()

    async def _tend(self, daemon: CardDaemon) -> DaemonDecision:
        """Adjust the limits of a daemon that answers. It stays ready only if that succeeds."""
        daemon.failures = 0
        use = daemon.current_use(self._clock.monotonic())
        wanted = mps_daemon.client_limit(use.shares.values()) if use is not None else None
        try:
            if wanted is not None and wanted != daemon.percentage:
                memory = daemon.card.gpu.memory_mib * wanted // WHOLE_CARD
                await self._control.limit(daemon.folder, wanted, memory)
                daemon.percentage = wanted
        except MpsError as error:
            return Withhold(f"its MPS daemon did not take its limits: {error}", failed=True)
        return Ready()
