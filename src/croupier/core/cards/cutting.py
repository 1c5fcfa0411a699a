"""The steps from how a card is cut to how it shall be, from any state it may be found in.

What is already in its place stays. So a change that was interrupted goes on where it stopped, and one that
is done is none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from croupier.core.cards import mig
from croupier.core.cards.mig import Piece


@dataclass(frozen=True, slots=True)
class Made:
    """A MIG device there is."""

    piece: Piece
    uuid: str


@dataclass(frozen=True, slots=True)
class Cut:
    """How a card is cut."""

    enabled: bool = False
    """Whether MIG mode is on."""
    made: tuple[Made, ...] = ()

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return tuple(made.piece for made in self.made)


@dataclass(frozen=True, slots=True)
class Mode:
    """Turn MIG mode on or off; only a card without MIG devices can."""

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
    """Whether the card is as wanted; where its devices are does not matter, only which they are."""
    have = mig.of(piece.profile for piece in now.pieces)
    return have == mig.of(piece.profile for piece in wanted) and now.enabled == bool(wanted)


def steps(now: Cut, wanted: Sequence[Piece]) -> tuple[Step, ...]:
    """What to do in this order; nothing when the card is as wanted."""
    if is_cut(now, wanted):
        return ()
    return towards(now, enabled=bool(wanted), wanted=wanted)


def towards(now: Cut, *, enabled: bool, wanted: Sequence[Piece]) -> tuple[Step, ...]:
    """To exactly this state, devices at exactly these places."""
    spare = list(wanted)
    gone: list[Step] = []
    for made in now.made:
        if made.piece in spare:
            spare.remove(made.piece)
        else:
            gone.append(Destroy(made))
    mode: list[Step] = [Mode(enabled)] if enabled != now.enabled else []
    return (*gone, *mode, *(Create(piece) for piece in spare))
