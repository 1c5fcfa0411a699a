"""Simulated cards with state in files and faults on demand.

They refuse what real hardware refuses: MIG devices that overlap or start at an invalid slice, and a change of
MIG mode while the card has MIG devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import msgspec

from croupier.core.cards import card_health, catalogue
from croupier.core.cards.card_health import HealthReadings
from croupier.core.cards.catalogue import CardModel
from croupier.core.model import mig
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.core.model.mig import MigPlacement, MigProfile
from croupier.core.model.refusal import Refusal
from croupier.kube.client.clock import Clock
from croupier.node.cards import simulated_state as state
from croupier.node.cards.card_driver import (
    CardError,
    ContainerEdits,
    DeviceNode,
    DriverSnapshot,
    HeldDevice,
)
from croupier.node.cards.cdi import CdiFile
from croupier.node.cards.simulated_faults import Fault, Faults, FaultsFile
from croupier.node.cards.simulated_spec import SimulatedNodeSpec
from croupier.node.cards.simulated_state import SimulatedCardState, SimulatedState

SLOWDOWN_TEMPERATURE: Final = 92
"""The slowdown temperature of simulated cards in degrees Celsius."""

_IDLE_TEMPERATURE: Final = 34
_IDLE_METRICS: Final = {"powerWatts": "62", "utilizationPercent": "0", "memoryUsedMiB": "0"}
_POLL_INTERVAL: Final = 0.5
_PCIE_GENERATION: Final = 4
_PCIE_WIDTH: Final = 16


@dataclass(frozen=True, slots=True)
class SimulatedFiles:
    """The files of simulated cards. Without them, state is only in memory."""

    state: Path | None = None
    """The file with the MIG partitioning of the cards."""
    faults: Path | None = None
    """The file with injected faults."""
    cdi: Path | None = None
    """The folder in which container runtimes read CDI specifications."""


class SimulatedCards:
    source = "simulated"

    def __init__(
        self, node: str, plan: SimulatedNodeSpec, *, clock: Clock, files: SimulatedFiles | None = None
    ) -> None:
        files = files or SimulatedFiles()
        self._node = node
        self._plan = plan
        self._clock = clock
        self._path = files.state
        self._faults = FaultsFile(files.faults)
        self._cdi = CdiFile(files.cdi) if files.cdi is not None else None
        self._memory: SimulatedState | None = None
        self._steps: dict[str, tuple[Fault, int]] = {}
        self._stamp: object = None

    async def open(self) -> None:
        self._memory = SimulatedState(self._node, self._plan, self._path)

    async def close(self) -> None:
        self._memory = None
        if self._cdi is not None:
            self._cdi.remove()

    async def inspect(self) -> DriverSnapshot:
        self._stamp = self._faults.stamp()
        faults = self._now()
        if not faults.driver:
            raise CardError(
                "there is no NVIDIA driver on this node (simulated by the faults file); install one"
            )
        seen: list[GpuCard] = []
        for number, card in enumerate(tuple(self._cards.values())):
            fault = faults.of(number, card.address)
            if not fault.gone:
                seen.append(self._seen(len(seen), self._drifted(card, fault), fault))
        if self._cdi is not None:
            self._cdi.show(seen)
        return DriverSnapshot(
            self._plan.driver,
            self._plan.cuda,
            faults.toolkit,
            tuple(seen),
            nvidia_default=faults.nvidia_default,
            accepts_variable=faults.nvidia_default or None,
        )

    async def users(self) -> dict[str, frozenset[str]]:
        """Only of cards for which the faults file says it."""
        faults = self._now()
        users = {address: faults.of(number, address).users for number, address in enumerate(self._cards)}
        return {address: frozenset(names) for address, names in users.items() if names is not None}

    async def changed(self, seconds: float) -> None:
        if not self._faults.is_watched:
            await self._clock.sleep(seconds)
            return
        until = self._clock.monotonic() + seconds
        while self._faults.stamp() == self._stamp and (left := until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, _POLL_INTERVAL))

    async def enable_mig(self, address: str, on: bool) -> None:
        card = await self._step(address)
        if not _model(card).mig_capable:
            raise CardError(f"{_model(card).product} has no MIG mode")
        if card.slots:
            raise CardError("MIG mode cannot change while the card has MIG devices")
        self._memory_now.put(msgspec.structs.replace(card, mig_enabled=on))

    async def create(self, address: str, placement: MigPlacement) -> str:
        card = await self._step(address)
        kind = next((kind for kind in _model(card).kinds if kind.name == placement.profile), None)
        if not card.mig_enabled:
            raise CardError("MIG mode is disabled")
        if kind is None or placement.start not in kind.starts or placement.size != kind.memory_slices:
            raise CardError(
                f"{placement.profile} cannot start at slice {placement.start} with size {placement.size}"
            )
        if (conflict := _conflict(card, placement, kind)) is not None:
            raise CardError(f"there is no space for {placement.id}: {conflict}")
        card, uuid = state.with_mig_device(self._node, card, placement)
        self._memory_now.put(card)
        return uuid

    async def destroy(self, address: str, uuid: str) -> None:
        card = await self._step(address)
        left = tuple(slot for slot in card.slots if slot.uuid != uuid)
        if len(left) == len(card.slots):
            raise CardError(f"the card has no MIG device {uuid}")
        self._memory_now.put(msgspec.structs.replace(card, slots=left))

    def container_edits(self, held: Sequence[HeldDevice]) -> ContainerEdits:
        node = self._plan.device_node
        indexes = sorted({device.card.index for device in held}) if node else []
        return ContainerEdits(
            env={"NVIDIA_VISIBLE_DEVICES": ",".join(device.uuid for device in held) or "void"},
            device_nodes=tuple(DeviceNode(node, f"/dev/nvidia{index}") for index in indexes),
            cdi=self._cdi.names(held) if self._cdi is not None else (),
        )

    @property
    def _memory_now(self) -> SimulatedState:
        if self._memory is None:
            raise CardError("the simulated cards are not open")
        return self._memory

    @property
    def _cards(self) -> dict[str, SimulatedCardState]:
        return self._memory_now.cards

    def _now(self) -> Faults:
        return self._faults.read().on(self._node)

    def _fault(self, address: str) -> Fault:
        number = list(self._cards).index(address)
        return self._now().of(number, address)

    async def _step(self, address: str) -> SimulatedCardState:
        """The card at the time at which a step takes effect. A step may be slow or fail."""
        if address not in self._cards:
            raise CardError(f"there is no card at {address}")
        fault = self._fault(address)
        known, done = self._steps.get(address, (fault, 0))
        count = done + 1 if known == fault else 1
        self._steps[address] = (fault, count)
        if fault.slow:
            await self._clock.sleep(fault.slow)
        if fault.lost or fault.gone:
            raise CardError("the card does not answer")
        if fault.fails(count):
            raise CardError(
                f"the driver refused: in use by another client (step {count}, simulated by the faults file)"
            )
        return self._cards[address]

    def _drifted(self, card: SimulatedCardState, fault: Fault) -> SimulatedCardState:
        """Apply a simulated change from outside once, so that it can be repaired."""
        if fault.cut == card.drifted:
            return card
        card = msgspec.structs.replace(card, drifted=fault.cut)
        layout = mig.parse(fault.cut) if fault.cut else None
        if layout is not None and not isinstance(layout, Refusal):
            placed = mig.place(_model(card).kinds, layout)
            card = card if isinstance(placed, Refusal) else state.repartition(self._node, card, placed)
        self._memory_now.put(card)
        return card

    def _seen(self, index: int, card: SimulatedCardState, fault: Fault) -> GpuCard:
        model = _model(card)
        half = (len(self._plan.cards) + 1) // 2
        return GpuCard(
            index=index,
            uuid=state.card_uuid(self._node, card.address, fault.replaced),
            address=card.address,
            vendor=catalogue.NVIDIA,
            device=model.pci_device,
            class_=catalogue.CLASS_3D_CONTROLLER,
            product=model.product,
            memory_mib=model.memory_mib,
            compute_major=model.compute_major,
            compute_minor=model.compute_minor,
            numa_node=index // half,
            pcie_generation=_PCIE_GENERATION,
            pcie_width=_PCIE_WIDTH,
            mig_capable=model.mig_capable,
            mig_enabled=card.mig_enabled,
            kinds=model.kinds,
            slots=card.slots,
            health=_health(fault),
        )


def _health(fault: Fault) -> CardHealth:
    temperature = (
        fault.temperature
        if fault.temperature is not None
        else (SLOWDOWN_TEMPERATURE if fault.hot else _IDLE_TEMPERATURE)
    )
    readings = HealthReadings(
        lost="it is lost (simulated by the faults file)" if fault.lost else "",
        xid=fault.xid,
        ecc_errors=fault.ecc,
        temperature_c=temperature,
        slowdown_c=SLOWDOWN_TEMPERATURE,
    )
    health = card_health.diagnose(readings)
    return health if fault.lost else replace(health, metrics=_IDLE_METRICS)


def _model(card: SimulatedCardState) -> CardModel:
    return catalogue.find(card.model)


def _conflict(card: SimulatedCardState, placement: MigPlacement, kind: MigProfile) -> str | None:
    """Why the MIG device does not fit, for example `it overlaps 3g.30gb-4`. None if it fits."""
    for slot in card.slots:
        if set(slot.placement.slices) & set(placement.slices):
            return f"it overlaps {slot.id}"
    compute = {other.name: other.compute_slices for other in _model(card).kinds}
    used = sum(compute[slot.profile] for slot in card.slots)
    if used + kind.compute_slices > max(compute.values()):
        return "no compute slices are left"
    if sum(slot.profile == placement.profile for slot in card.slots) >= kind.most:
        return f"a card can have at most {kind.most} of {kind.name}"
    return None
