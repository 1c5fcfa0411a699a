"""The occupancy of a card, published by the ledger for controllers that wait until a card is free.

Withdrawn guarantees that the card has no holder and gets none. It is set only if both the ledger and the
node's report mark the card unhealthy; otherwise the next sync would make the card allocatable again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard

CardOccupancy: TypeAlias = Literal["Free", "Withdrawn", "Reserved", "InUse"]


@dataclass(frozen=True, slots=True)
class OccupancyInputs:
    """The ledger of one node and the cards it should have."""

    held: Ledger | None = None
    """None: the node has no ledger, so nothing was allocated on it."""
    reported: Mapping[str, LedgerCard] = field(default_factory=dict)
    """The cards of the node's report, by name."""
    named: Collection[str] = ()
    """Cards in the allocations of live pods of the node; used for a node without a ledger."""


def decide(card_id: str, scene: OccupancyInputs) -> CardOccupancy | None:
    """The occupancy of the card; None if it is not known yet."""
    held = scene.held.card(card_id) if scene.held is not None else None
    reported = scene.reported.get(card_id)
    if held is not None and scene.held is not None and not held.is_free:
        return _held_state(held, scene.held)
    if held is None and reported is not None:
        return None  # the ledger has not added the card yet
    if held is None:
        return None if card_id in scene.named else "Withdrawn"
    if held.healthy:
        return "Free"
    return "Withdrawn" if reported is None or not reported.healthy else None


def _held_state(card: LedgerCard, ledger: Ledger) -> CardOccupancy:
    holders = {*card.holders, *(slot.holder for slot in card.slots if slot.holder)}
    return "Reserved" if holders <= ledger.held.keys() else "InUse"
