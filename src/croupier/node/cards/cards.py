"""The cards of a node, whatever drives them: what can be seen of them and done to them.

Two adapters fit it, the driver's library (node/cards/nvml.py) and simulated cards (node/cards/simulated.py).
Everything above, from health to device plugins, is the same code for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from croupier.core.cards import mig
from croupier.core.cards.mig import Kind, Layout, Piece


class CardError(Exception):
    """What could not be seen or done, in a sentence that says where and what to do."""


@dataclass(frozen=True, slots=True)
class MigDevice:
    """One MIG device that a card is cut into."""

    profile: str
    start: int
    size: int
    uuid: str = ""

    @property
    def piece(self) -> Piece:
        return Piece(self.profile, self.start, self.size)

    @property
    def id(self) -> str:
        """`1g.10gb-0`: what the ledger calls it."""
        return self.piece.id


@dataclass(frozen=True, slots=True)
class Vital:
    """How a card fares; `reason` is one word, `message` a sentence, both empty while it is healthy."""

    healthy: bool = True
    reason: str = ""
    message: str = ""
    xid: int | None = None
    """The last one seen, whether it was critical or not."""
    ecc_errors: int | None = None
    """Uncorrected ones since the driver was loaded."""
    temperature_c: int | None = None
    metrics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """One card as its driver tells of it."""

    index: int
    uuid: str
    address: str
    """On the PCI bus, such as 0000:65:00.0; it stays when index and uuid change."""
    vendor: str = "10de"
    device: str = ""
    class_: str = "0302"
    product: str = ""
    memory_mib: int = 0
    compute: tuple[int, int] = (0, 0)
    """CUDA compute capability, major and minor."""
    numa: int | None = None
    pcie: tuple[int, int] | None = None
    """Generation and lanes."""
    mig_capable: bool = False
    mig_enabled: bool = False
    kinds: tuple[Kind, ...] = ()
    slots: tuple[MigDevice, ...] = ()
    """By their first slice."""
    health: Vital = field(default_factory=Vital)
    minor: int | None = None
    """The number of its device node; None where there is none."""

    @property
    def layout(self) -> Layout:
        """How it is cut now."""
        return mig.of(slot.profile for slot in self.slots)


@dataclass(frozen=True, slots=True)
class Sighting:
    """Everything seen at one look; `cards` by index."""

    driver: str = ""
    cuda: str = ""
    toolkit: bool = False
    """Whether containers can reach the cards."""
    cards: tuple[Seen, ...] = ()

    def at(self, address: str) -> Seen | None:
        return next((card for card in self.cards if card.address == address), None)


@dataclass(frozen=True, slots=True)
class Held:
    """What a container was given: a card, or one MIG device of it."""

    card: Seen
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
class Mount:
    host: str
    container: str
    read_only: bool = True


@dataclass(frozen=True, slots=True)
class Edits:
    """What a container needs so that it sees what it was given."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    cdi: tuple[str, ...] = ()
    """Fully qualified CDI device names, for runtimes that know them."""


class Cards(Protocol):
    """Calls may take seconds and raise CardError. `address` names the card everywhere."""

    source: str
    """`nvml` or `simulated`."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def look(self) -> Sighting:
        """All cards now. A card that was there and does not answer is told as unhealthy, or is left out."""
        ...

    async def changed(self, seconds: float) -> None:
        """Returns when something happened that is worth another look, or the time is up."""
        ...

    async def enable_mig(self, address: str, on: bool) -> None: ...

    async def create(self, address: str, piece: Piece) -> str:
        """Makes the MIG device and returns its UUID."""
        ...

    async def destroy(self, address: str, uuid: str) -> None: ...

    def container_edits(self, held: Sequence[Held]) -> Edits: ...
