"""The interface to the cards of a node.

It has two implementations: NVML (node/cards/nvml.py) and simulated cards (node/cards/simulated.py). All other
code, from health to device plugins, is the same for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import MigDevice, MigPlacement


class CardError(Exception):
    """An inspection or change of a card failed. The message says what, where and what to do."""


@dataclass(frozen=True, slots=True)
class DriverSnapshot:
    """The result of one inspection of the driver. `cards` is sorted by index."""

    driver: str = ""
    cuda: str = ""
    toolkit: bool = False
    """Whether containers can use the cards."""
    cards: tuple[GpuCard, ...] = ()
    nvidia_default: bool | None = None
    """Whether NVIDIA's container runtime is the node's default. None if unknown."""
    accepts_variable: bool | None = None
    """Whether it accepts NVIDIA_VISIBLE_DEVICES from unprivileged containers. None if unknown."""

    def at(self, address: str) -> GpuCard | None:
        return next((card for card in self.cards if card.address == address), None)


@dataclass(frozen=True, slots=True)
class HeldDevice:
    """A card or one of its MIG devices, allocated to a container."""

    card: GpuCard
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

    def with_more(self, more: "ContainerEdits") -> "ContainerEdits":
        return ContainerEdits(
            {**self.env, **more.env},
            (*self.device_nodes, *more.device_nodes),
            (*self.mounts, *more.mounts),
            (*self.cdi, *more.cdi),
        )


class CardDriver(Protocol):
    """Calls may take seconds and raise CardError. `address` is always the PCI address of the card."""

    source: str
    """`nvml` or `simulated`."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...

    async def inspect(self) -> DriverSnapshot:
        """The current cards. A known card that does not answer is reported as unhealthy or left out."""
        ...

    async def users(self) -> Mapping[str, frozenset[str]]:
        """Who runs processes on each card, by address; a card whose driver cannot tell is left out.

        A user is the UID of a pod, or the name of a process that belongs to no pod.
        """
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
