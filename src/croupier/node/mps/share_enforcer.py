"""Enforces the shares of a node's real cards: by MPS daemons, or by HAMi-core's library."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from croupier.core.model.enforcement import CardEnforcement
from croupier.core.model.gpu_card import GpuCard
from croupier.core.nodes import mps_daemon, plugin_devices, share_enforcement
from croupier.core.nodes.mps_daemon import CardClients, Off, Ready, Withhold
from croupier.core.nodes.plugin_devices import NodeCard
from croupier.kube.client.clock import Clock
from croupier.node.cards.card_driver import CardError, ContainerEdits, ContainerMount
from croupier.node.mps import static_partitions
from croupier.node.mps.mps_control import MpsError
from croupier.node.mps.mps_daemons import CardDaemon, MpsDaemons

ALLOCATE_TIMEOUT: Final = 12.0
"""Seconds that Allocate waits for a daemon to start or to end. No other pod is admitted in this time."""
POLL_INTERVAL: Final = 0.1
SHM: Final = "/dev/shm"  # noqa: S108  # the fixed path at which CUDA shares memory with the daemon
LIBRARY: Final = "libvgpu.so"
PRELOAD: Final = "ld.so.preload"
LIBRARY_FOLDER: Final = "/usr/local/vgpu"
"""Where ld.so.preload of HAMi expects its library in a container."""


@dataclass(frozen=True, slots=True)
class NodeShares:
    """What the enforcement of shares depends on, in one round of the agent."""

    cards: Mapping[str, NodeCard]
    uses: Callable[[], Mapping[str, CardClients] | None]
    """How the cards are used. None if the assignments of the kubelet are unknown."""
    cuda: str = ""
    pods: frozenset[str] = field(default_factory=frozenset)
    """The UIDs of the unfinished pods of the node."""


@dataclass(frozen=True, slots=True)
class AllocatedDevices:
    """The devices that a container is about to get. `pod` is the UID of its pod, empty if it is unknown."""

    pod: str
    ids: tuple[str, ...]


class ShareEnforcement(Protocol):
    """Enforces shares: for real cards, or for simulated ones, of which nothing is enforced."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` when the state of a card changed."""
        ...

    def owns(self, card: GpuCard) -> bool:
        """Whether an MPS daemon has the card or is about to; also known right after a restart."""
        ...

    def observe(self, shares: NodeShares) -> dict[str, CardEnforcement | None]: ...

    async def edits(self, allocated: AllocatedDevices) -> ContainerEdits:
        """What a container gets for its share. Raises CardError if the share cannot be enforced now."""
        ...


class SimulatedEnforcement:
    """For cards that only the agent simulates."""

    def watch(self, changed: Callable[[], None]) -> None:
        """Nothing changes."""

    def owns(self, card: GpuCard) -> bool:
        return False

    def observe(self, shares: NodeShares) -> dict[str, CardEnforcement | None]:
        return {card_id: share_enforcement.simulated(card) for card_id, card in shares.cards.items()}

    async def edits(self, allocated: AllocatedDevices) -> ContainerEdits:
        return ContainerEdits()


@dataclass(frozen=True, slots=True)
class HamiCore:
    """The operator's folder with HAMi-core's files: its path on the node, and where the agent sees it."""

    folder: Path | None = None
    seen_at: Path | None = None

    def trouble(self) -> str:
        """Why the library cannot be used. Empty if it can."""
        if self.folder is None or self.seen_at is None:
            return "the agent has no folder with HAMi-core's files; set --hami-core to the folder on the node"
        missing = [name for name in (LIBRARY, PRELOAD) if not (self.seen_at / name).is_file()]
        if not missing:
            return ""
        return f"{self.folder} on the node has no {' and no '.join(missing)}; copy HAMi-core's files there"

    def edits(self) -> ContainerEdits:
        if trouble := self.trouble():
            raise CardError(trouble)
        places = {LIBRARY: f"{LIBRARY_FOLDER}/{LIBRARY}", PRELOAD: f"/etc/{PRELOAD}"}
        return ContainerEdits(
            mounts=tuple(ContainerMount(f"{self.folder}/{name}", path) for name, path in places.items())
        )


class ShareEnforcer:
    """`static` allows static partitions where the driver has them."""

    def __init__(self, daemons: MpsDaemons, hami: HamiCore, clock: Clock, *, static: bool = True) -> None:
        self._daemons = daemons
        self._hami = hami
        self._clock = clock
        self._static = static
        self._cards: Mapping[str, NodeCard] = {}
        self._pods: frozenset[str] = frozenset()

    def watch(self, changed: Callable[[], None]) -> None:
        self._daemons.changed = changed

    def owns(self, card: GpuCard) -> bool:
        return self._daemons.owns(card.uuid)

    async def run(self, stop: asyncio.Event) -> None:
        await self._daemons.run(stop)

    def observe(self, shares: NodeShares) -> dict[str, CardEnforcement | None]:
        self._cards, self._pods = shares.cards, shares.pods
        self._daemons.observe(shares.cards, shares.uses(), self._static_cards(shares))
        return {card_id: self._state(card) for card_id, card in shares.cards.items()}

    def _static_cards(self, shares: NodeShares) -> Collection[str]:
        return {
            card_id
            for card_id, card in shares.cards.items()
            if self._static and mps_daemon.has_static_partitions(shares.cuda, card.gpu.compute_major)
        }

    def _state(self, card: NodeCard) -> CardEnforcement | None:
        daemon = self._daemons.state(card.id)
        owned = self.owns(card.gpu)
        idle = daemon is None or (isinstance(daemon.decision, Off) and not owned)
        if daemon is None or (idle and not share_enforcement.uses_mps(card)):
            return share_enforcement.by_mode(card, self._hami.trouble())
        decision = daemon.decision
        if idle and card.pool is None and not self._daemons.is_supervised:
            decision = mps_daemon.NO_SUPERVISOR
        return share_enforcement.with_daemon(card, decision, static=daemon.is_static, owned=owned)

    async def edits(self, allocated: AllocatedDevices) -> ContainerEdits:
        units = [plugin_devices.parse_unit(device) for device in allocated.ids]
        cards = sorted({unit.card for unit in units})
        if not all(unit.is_percent for unit in units):
            for card_id in cards:
                await self._until_vacant(card_id)
            return ContainerEdits()
        card = self._cards[cards[0]]
        if card.pool is not None and card.pool.sharing.enforcement != "MPS":
            return self._hami.edits() if card.pool.sharing.enforcement == "HAMiCore" else ContainerEdits()
        return await self._client(card.id, allocated)  # several cards were refused before

    async def _until_vacant(self, card_id: str) -> None:
        """Wait until no daemon owns the card."""
        until = self._clock.monotonic() + ALLOCATE_TIMEOUT
        while (daemon := await self._daemons.vacate(card_id)) and not isinstance(daemon.decision, Off):
            self._wait_or_refuse(daemon, until)
            await self._clock.sleep(POLL_INTERVAL)

    async def _client(self, card_id: str, allocated: AllocatedDevices) -> ContainerEdits:
        until = self._clock.monotonic() + ALLOCATE_TIMEOUT
        share = len(allocated.ids)
        while not isinstance(
            (daemon := await self._daemons.claim(card_id, allocated.pod, share)).decision, Ready
        ):
            self._wait_or_refuse(daemon, until)
            await self._clock.sleep(POLL_INTERVAL)
        folder, env = daemon.folder, {}
        if daemon.is_static:
            env[static_partitions.VARIABLE] = await self._partition(daemon, allocated)
        mounts = [(folder.pipe, str(folder.pipe)), (folder.log, str(folder.log)), (folder.shm, SHM)]
        return ContainerEdits(
            env={**folder.environment, **env},
            mounts=tuple(ContainerMount(str(host), path, read_only=False) for host, path in mounts),
        )

    async def _partition(self, daemon: CardDaemon, allocated: AllocatedDevices) -> str:
        try:
            async with daemon.lock:
                if self._pods:
                    await self._daemons.partitions.release(daemon.folder, {*self._pods, allocated.pod})
                return await self._daemons.partitions.take(daemon.folder, allocated.pod, allocated.ids)
        except MpsError as error:
            raise CardError(f"the share has no static partition of the card: {error}") from error

    def _wait_or_refuse(self, daemon: CardDaemon, until: float) -> None:
        reason = daemon.decision.reason if isinstance(daemon.decision, Withhold) else "its MPS daemon changes"
        failed = isinstance(daemon.decision, Withhold) and daemon.decision.failed
        if failed or self._clock.monotonic() > until:
            raise CardError(f"card {daemon.card.id}: {reason}")
