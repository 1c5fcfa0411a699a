"""The interface to the cards of a node.

It has two implementations: NVML (node/cards/nvml.py) and simulated cards (node/cards/simulated.py). All other
code, from health to device plugins, is the same for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from croupier.core.model import mig
from croupier.core.model.mig import Layout, MigPlacement, MigProfile


class CardError(Exception):
    """An inspection or change of a card failed. The message says what, where and what to do."""


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One MIG device of a card."""

    profile: str
    start: int
    size: int
    uuid: str = ""

    @property
    def placement(self) -> MigPlacement:
        return MigPlacement(self.profile, self.start, self.size)

    @property
    def id(self) -> str:
        """The id of the slot in the ledger, for example `1g.10gb-0`."""
        return self.placement.id


@dataclass(frozen=True, slots=True)
class ObservedHealth:
    """The health of a card. `reason` is one word, `message` a sentence; both are empty if it is healthy."""

    healthy: bool = True
    reason: str = ""
    message: str = ""
    xid: int | None = None
    """The last XID error, critical or not."""
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    temperature_c: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ObservedCard:
    """One card, as reported by its driver."""

    index: int
    uuid: str
    address: str
    """The PCI address, for example 0000:65:00.0. It stays the same when index or UUID changes."""
    vendor: str = "10de"
    device: str = ""
    class_: str = "0302"
    product: str = ""
    memory_mib: int = 0
    compute: tuple[int, int] = (0, 0)
    """The CUDA compute capability: major and minor."""
    numa: int | None = None
    pcie: tuple[int, int] | None = None
    """PCIe generation and number of lanes."""
    mig_capable: bool = False
    mig_enabled: bool = False
    kinds: tuple[MigProfile, ...] = ()
    slots: tuple[MigDevice, ...] = ()
    """The MIG devices, sorted by their first memory slice."""
    health: ObservedHealth = field(default_factory=ObservedHealth)
    minor: int | None = None
    """The minor number of its device node. None if it has none."""

    @property
    def layout(self) -> Layout:
        """The current MIG layout."""
        return mig.layout_of(slot.profile for slot in self.slots)


@dataclass(frozen=True, slots=True)
class DriverSnapshot:
    """The result of one inspection of the driver. `cards` is sorted by index."""

    driver: str = ""
    cuda: str = ""
    toolkit: bool = False
    """Whether containers can use the cards."""
    cards: tuple[ObservedCard, ...] = ()

    def at(self, address: str) -> ObservedCard | None:
        return next((card for card in self.cards if card.address == address), None)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A card or one of its MIG devices, allocated to a container."""

    card: ObservedCard
    slot: MigDevice | None = None

    @property
    def uuid(self) -> str:
        return self.slot.uuid if self.slot is not None else self.card.uuid


@dataclass(frozen=True, slots=True)
class DeviceNode:
    host: str
    container: str
    permissions: str = "rw"


@dataclass(frozen=True, slots=True)
class ContainerMount:
    host: str
    container: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """The changes to a container that make its devices available."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[ContainerMount, ...] = ()
    cdi: tuple[str, ...] = ()
    """Fully qualified CDI device names, for runtimes that support CDI."""


class CardDriver(Protocol):
    """Calls may take seconds and raise CardError. `address` is always the PCI address of the card."""

    source: str
    """`nvml` or `simulated`."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def inspect(self) -> DriverSnapshot:
        """The current cards. A known card that does not answer is reported as unhealthy or left out."""
        ...

    async def changed(self, seconds: float) -> None:
        """Returns when another inspection is worthwhile, at the latest after `seconds`."""
        ...

    async def enable_mig(self, address: str, on: bool) -> None: ...

    async def create(self, address: str, placement: MigPlacement) -> str:
        """Create the MIG device and return its UUID."""
        ...

    async def destroy(self, address: str, uuid: str) -> None: ...

    def container_edits(self, held: Sequence[HeldDevice]) -> ContainerEdits: ...
