"""One GPU card: its identity, its hardware, its MIG devices and its health.

The driver reports all of it. The report of an agent and the labels of a node describe a part; what is unknown
keeps its default.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from croupier.core.model import mig
from croupier.core.model.mig import Layout, MigDevice, MigProfile


@dataclass(frozen=True, slots=True)
class CardHealth:
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
class GpuCard:
    index: int
    address: str = ""
    """The PCI address, for example 0000:65:00.0. It stays the same when index or UUID changes."""
    uuid: str = ""
    vendor: str = ""
    device: str = ""
    class_: str = ""
    product: str = ""
    memory_mib: int = 0
    compute_major: int = 0
    compute_minor: int = 0
    numa_node: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    """The number of PCIe lanes."""
    mig_capable: bool = False
    mig_enabled: bool = False
    """MIG mode is on: the card cannot be used as a whole, even without MIG devices."""
    kinds: tuple[MigProfile, ...] = ()
    """The MIG profiles that the card supports."""
    slots: tuple[MigDevice, ...] = ()
    """The MIG devices, sorted by their first memory slice."""
    health: CardHealth = field(default_factory=CardHealth)
    minor: int | None = None
    """The minor number of its device node. None if it has none."""

    @property
    def layout(self) -> Layout:
        """The current MIG layout."""
        return mig.layout_of(slot.profile for slot in self.slots)

    def without_readings(self) -> "GpuCard":
        """Without the values that change at every inspection."""
        return replace(self, health=CardHealth(self.health.healthy))
