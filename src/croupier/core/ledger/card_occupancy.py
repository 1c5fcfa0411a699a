"""The occupancy of a card, published by the ledger for controllers that wait until a card is free.

Withdrawn guarantees that the card has no holder and gets none. It is set only if both the ledger and the
node's report mark the card unhealthy; otherwise the next sync would make the card allocatable again.

A card that a person drained or retired has one more condition: False while pods hold the card, with their
names, and True once it is Withdrawn.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import name_list
from croupier.core.model.card import LedgerCard
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.withheld import Withheld

CardOccupancy: TypeAlias = Literal["Free", "Withdrawn", "Reserved", "InUse"]

MAX_NAMED: Final = 5
"""The largest number of pods that a sentence names."""


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
    return "Reserved" if _holders(card) <= ledger.held.keys() else "InUse"


def _holders(card: LedgerCard) -> set[str]:
    return {*card.holders, *(slot.holder for slot in card.slots if slot.holder)}


def waits_for(card: LedgerCard | None) -> str:
    """`waits for pods team-a/train-0, team-b/x and 3 more`; empty if no pod holds the card."""
    pods = sorted({holder_names.pod_key(holder) for holder in _holders(card)}) if card is not None else []
    if not pods:
        return ""
    return f"waits for {name_list.introduced('pod', pods, MAX_NAMED)}"


def withdrawal(
    why: Withheld | None, held: LedgerCard | None, occupancy: CardOccupancy | None
) -> DesiredCondition | None:
    """The condition Drained or Retired; None unless a person drained or retired the card."""
    if why is None or not why.is_by_person:
        return None
    if waiting := waits_for(held):
        return DesiredCondition(why.state, "False", "WaitingForPods", _message(why, waiting))
    if occupancy != "Withdrawn":
        return DesiredCondition(why.state, "False", "Withdrawing", _message(why, "waits for the ledger"))
    return DesiredCondition(why.state, "True", "NoPods", _message(why, "no pod holds the card"))


def _message(why: Withheld, now: str) -> str:
    return f"{why.reason}; {now}" if why.reason else now
