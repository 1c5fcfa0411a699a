"""Who holds a card, in one word: what the ledger tells those who wait for a card to be free.

Withdrawn is a promise: nobody holds anything of the card, and nobody will be given any. It is given only when
the ledger itself has the card ill, and what is reported of it still says so: else the ledger would
mend it in the next moment.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from croupier.core.ledgers.ledger import Card, Ledger

Occupied: TypeAlias = Literal["Free", "Withdrawn", "Reserved", "InUse"]


@dataclass(frozen=True, slots=True)
class Scene:
    """One node as the ledger has it and as its cards shall be."""

    held: Ledger | None = None
    """None: nobody has been given anything there, and no ledger was opened."""
    reported: Mapping[str, Card] = field(default_factory=dict)
    """The cards that the node's report makes, by name."""
    named: Collection[str] = ()
    """Cards that live pods of the node carry in their allocation; for a node without a ledger."""


def judge(card_id: str, scene: Scene) -> Occupied | None:
    """None: nothing certain can be said yet."""
    held = scene.held.card(card_id) if scene.held is not None else None
    given = scene.reported.get(card_id)
    if held is not None and scene.held is not None and not held.is_free:
        return _holding(held, scene.held)
    if held is None and given is not None:
        return None  # the ledger has yet to take it in
    if held is None:
        return None if card_id in scene.named else "Withdrawn"
    if held.healthy:
        return "Free"
    return "Withdrawn" if given is None or not given.healthy else None


def _holding(card: Card, ledger: Ledger) -> Occupied:
    holders = {*card.holders, *(slot.holder for slot in card.slots if slot.holder)}
    return "Reserved" if holders <= ledger.held.keys() else "InUse"
