"""Whether cards can have the MIG devices of a sharing, as far as their profiles are known.

The agents report how many devices of each profile fit on an empty card. So an impossible allocation is known
before a card is withdrawn for it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from croupier.core.ledger import reported_cards
from croupier.core.model import name_list
from croupier.core.model.sharing import Sharing

_MAX_MODELS: Final = 3
"""The largest number of card models that a sentence explains."""


@dataclass(frozen=True, slots=True)
class MigSupport:
    """The MIG profiles of a card."""

    known: bool = False
    """The profiles of the card are known; a card that does not support MIG has none."""
    profiles: Collection[str] = ()
    fits: Mapping[str, int] | None = None
    """How many devices of a profile fit on the empty card, as far as that is known."""


UNKNOWN_SUPPORT: Final = MigSupport()


@dataclass(frozen=True, slots=True)
class SelectedCards:
    """The cards that the selectors of a pool match, on one or several nodes."""

    number: int = 0
    impossible: int = 0
    """Cards that cannot have the sharing of the pool."""
    reasons: tuple[str, ...] = ()
    """Why they cannot, once for each model."""


NO_CARDS: Final = SelectedCards()


def obstacle(card: MigSupport, sharing: Sharing, subject: str) -> str:
    """Why the card, named `subject`, cannot be shared so; empty if it can, or if that is unknown."""
    if sharing.mode != "MIG" or not card.known:
        return ""
    wanted, fits = dict(sharing.layout) or {sharing.profile: 1}, card.fits or {}
    if missing := [name for name in sorted(wanted) if name not in card.profiles]:
        return f"{subject} does not support the MIG profiles {', '.join(missing)}"
    if not all(fits.get(name) for name in wanted):
        return ""  # it is unknown how many devices fit
    too_many = any(number > fits[name] for name, number in wanted.items())
    if too_many or not reported_cards.planned_slots(sharing, fits):
        return f"{sharing} does not fit on {subject}"
    return ""


def together(found: Iterable[SelectedCards]) -> SelectedCards:
    listed = tuple(found)
    return SelectedCards(
        sum(cards.number for cards in listed),
        sum(cards.impossible for cards in listed),
        tuple(sorted({reason for cards in listed for reason in cards.reasons})),
    )


def impossible(cards: SelectedCards) -> str:
    """Why no card that the pool selects can be shared as it specifies. Empty if one can, or without cards."""
    if not cards.number or cards.impossible < cards.number:
        return ""
    why = name_list.shortened(cards.reasons, _MAX_MODELS)
    number = "the only card" if cards.number == 1 else f"none of the {cards.number} cards"
    can = "cannot" if cards.number == 1 else "can"
    return (
        f"{number} that the pool selects {can} have its allocation: {why};"
        " change spec.allocation or the selectors of the pool"
    )
