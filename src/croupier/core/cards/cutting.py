"""The steps that repartition a card, from any state it may be in.

MIG devices that are already in place stay. So an interrupted change continues where it stopped, and a
finished change needs no steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from croupier.core.cards import mig
from croupier.core.cards.mig import Piece


@dataclass(frozen=True, slots=True)
class Made:
    """A MIG device that exists on a card."""

    piece: Piece
    uuid: str


@dataclass(frozen=True, slots=True)
class Cut:
    """The MIG mode and MIG devices of a card."""

    enabled: bool = False
    """MIG mode is on."""
    made: tuple[Made, ...] = ()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(made.piece for made in self.made)


@dataclass(frozen=True, slots=True)
class Mode:
    """Turn MIG mode on or off. The card must not have MIG devices."""

    on: bool

    def __str__(self) -> str:
        return f"turn MIG mode {'on' if self.on else 'off'}"


@dataclass(frozen=True, slots=True)
class Destroy:
    made: Made

    def __str__(self) -> str:
        return f"destroy {self.made.piece.id}"


@dataclass(frozen=True, slots=True)
class Create:
    piece: Piece

    def __str__(self) -> str:
        return f"create {self.piece.id}"


Step: TypeAlias = Mode | Destroy | Create


def is_cut(now: Cut, wanted: Sequence[Piece]) -> bool:
    """Whether the card has the wanted profiles. Their placement does not matter."""
    have = mig.of(piece.profile for piece in now.pieces)
    return have == mig.of(piece.profile for piece in wanted) and now.enabled == bool(wanted)


def steps(now: Cut, wanted: Sequence[Piece]) -> tuple[Step, ...]:
    """The steps to take in this order; none if the card already has the wanted profiles."""
    if is_cut(now, wanted):
        return ()
    return towards(now, enabled=bool(wanted), wanted=wanted)


def towards(now: Cut, *, enabled: bool, wanted: Sequence[Piece]) -> tuple[Step, ...]:
    """The steps to exactly these placements."""
    missing = list(wanted)
    destroyed: list[Step] = []
    for made in now.made:
        if made.piece in missing:
            missing.remove(made.piece)
        else:
            destroyed.append(Destroy(made))
    mode: list[Step] = [Mode(enabled)] if enabled != now.enabled else []
    return (*destroyed, *mode, *(Create(piece) for piece in missing))
