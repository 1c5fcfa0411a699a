"""The steps that repartition a card, from any state it may be in.

MIG devices that are already in place stay. So an interrupted change continues where it stopped, and a
finished change needs no steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from croupier.core.model import mig
from croupier.core.model.mig import MigDevice, MigPlacement


@dataclass(frozen=True, slots=True)
class MigState:
    """The MIG mode and MIG devices of a card."""

    enabled: bool = False
    """MIG mode is on."""
    made: tuple[MigDevice, ...] = ()

    @property
    def placements(self) -> tuple[MigPlacement, ...]:
        return tuple(made.placement for made in self.made)


@dataclass(frozen=True, slots=True)
class SetMigMode:
    """Turn MIG mode on or off. The card must not have MIG devices."""

    on: bool

    def __str__(self) -> str:
        return f"turn MIG mode {'on' if self.on else 'off'}"


@dataclass(frozen=True, slots=True)
class DestroyDevice:
    made: MigDevice

    def __str__(self) -> str:
        return f"destroy {self.made.placement.id}"


@dataclass(frozen=True, slots=True)
class CreateDevice:
    placement: MigPlacement

    def __str__(self) -> str:
        return f"create {self.placement.id}"


PartitionStep: TypeAlias = SetMigMode | DestroyDevice | CreateDevice


def is_partitioned(now: MigState, wanted: Sequence[MigPlacement]) -> bool:
    """Whether the card has the wanted profiles. Their placement does not matter."""
    have = mig.layout_of(piece.profile for piece in now.placements)
    return have == mig.layout_of(piece.profile for piece in wanted) and now.enabled == bool(wanted)


def steps(now: MigState, wanted: Sequence[MigPlacement]) -> tuple[PartitionStep, ...]:
    """The steps to take in this order; none if the card already has the wanted profiles."""
    if is_partitioned(now, wanted):
        return ()
    return steps_to(now, enabled=bool(wanted), wanted=wanted)


def steps_to(now: MigState, *, enabled: bool, wanted: Sequence[MigPlacement]) -> tuple[PartitionStep, ...]:
    """The steps to exactly these placements."""
    missing = list(wanted)
    destroyed: list[PartitionStep] = []
    for made in now.made:
        if made.placement in missing:
            missing.remove(made.placement)
        else:
            destroyed.append(DestroyDevice(made))
    mode: list[PartitionStep] = [SetMigMode(enabled)] if enabled != now.enabled else []
    return (*destroyed, *mode, *(CreateDevice(piece) for piece in missing))
