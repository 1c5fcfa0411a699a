"""Why a node cannot give what is wanted, in the words a person reads.

The reason names neither node nor card, so that kube-scheduler can count equal ones together:
"0/5 nodes are available: 3 needs 2 cards with 50 % free but has 1". Which cards, and by how
much, is the detail.
"""

from collections.abc import Collection, Sequence

from croupier.core import ledger as book
from croupier.core.ledger import Card, Ledger, Refused
from croupier.core.want import WHOLE, Shares, Slices, Slots, Units


def unreadable(want: Units) -> Refused:
    return Refused(
        f"{want.count} % is neither at most one card nor whole cards;"
        " ask for cards with gpu.mps.io/cards and for percent of each with gpu.mps.io/ratio"
    )


def no_cards(ledger: Ledger, pool: str) -> Refused:
    if not ledger.cards:
        return Refused("has no cards")
    return Refused(f"has no card of pool {pool}" if pool else "has no card outside pools")


def explain(ledger: Ledger, demand: Shares | Slices | Slots, shared: Collection[str] = ()) -> Refused:
    """`shared` are cards that go to another part of the same request."""
    cards = [card for card in ledger.cards if card.pool == demand.pool]
    if not cards:
        return no_cards(ledger, demand.pool)
    suitable = [card for card in cards if _suits(card, demand)]
    if not suitable:
        return Refused(_nothing_like(demand))
    if not any(card.healthy for card in suitable):
        return Refused(f"has no healthy card{_of(demand.pool)}", _detail(suitable, demand, shared))
    return Refused(_too_little(suitable, demand, shared), _detail(suitable, demand, shared))


def _suits(card: Card, demand: Shares | Slices | Slots) -> bool:
    if isinstance(demand, Shares):
        return card.mode == "Percent" or (card.mode == "Exclusive" and demand.percent == WHOLE)
    if isinstance(demand, Slices):
        return card.mode == "TimeSlice"
    return card.mode == "MIG" and any(demand.profile in ("", slot.profile) for slot in card.slots)


def _nothing_like(demand: Shares | Slices | Slots) -> str:
    if isinstance(demand, Slots):
        return f"has no {_mig(demand)}{_of(demand.pool)}"
    if isinstance(demand, Slices):
        return f"has no card{_of(demand.pool)} that is shared by time"
    how = "given whole" if demand.percent == WHOLE else "shared by percent"
    return f"has no card{_of(demand.pool)} that is {how}"


def _too_little(cards: Sequence[Card], demand: Shares | Slices | Slots, shared: Collection[str]) -> str:
    pool = _of(demand.pool)
    if isinstance(demand, Slots):
        have = sum(len(card.free_slots(demand.profile)) for card in cards)
        return f"needs {demand.count} free {_mig(demand)}{pool} but has {have}"
    if isinstance(demand, Slices):
        return f"needs {demand.count} free time slices{pool} but has {sum(card.free for card in cards)}"
    have = sum(card.free >= demand.percent and card.id not in shared for card in cards)
    noun = "card" if demand.cards == 1 else "cards"
    if demand.percent == WHOLE:
        return f"needs {demand.cards} free {noun}{pool} but has {have}"
    return f"needs {demand.cards} {noun}{pool} with {demand.percent} % free but has {have}"


def _detail(cards: Sequence[Card], demand: Shares | Slices | Slots, shared: Collection[str]) -> str:
    said = (_of_card(card, demand, shared) for card in cards)
    return ", ".join(words for words in said if words)


def _of_card(card: Card, demand: Shares | Slices | Slots, shared: Collection[str]) -> str:
    if not card.healthy:
        return f"card {card.index} is not healthy"
    if card.id in shared:
        return f"card {card.index} goes to another part of the request"
    if isinstance(demand, Slots):
        every = sum(demand.profile in ("", slot.profile) for slot in card.slots)
        return f"card {card.index} has {len(card.free_slots(demand.profile))} of {every} free"
    if isinstance(demand, Slices):
        return f"card {card.index} has {card.free} of {card.capacity} slices free"
    return book.short(card, demand.percent) if card.free < demand.percent else ""


def _mig(demand: Slots) -> str:
    return f"MIG {demand.profile}" if demand.profile else "MIG devices"


def _of(pool: str) -> str:
    return f" of pool {pool}" if pool else ""
