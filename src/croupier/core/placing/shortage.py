"""The messages that say why a node cannot satisfy a request.

The reason names neither node nor card, so that kube-scheduler can count equal reasons:
"0/5 nodes are available: 3 needs 2 cards with 50 % free but has 1". The detail names the cards.
"""

from collections.abc import Collection, Sequence
from typing import TypeAlias

from croupier.core.ledgers import ledger as ledger_ops
from croupier.core.ledgers.ledger import Card, Ledger, Refused
from croupier.core.pods.demand import Demand
from croupier.core.pods.want import WHOLE, Shares, Slices, Slots, Units

_Want: TypeAlias = Shares | Slices | Slots


def unreadable(want: Units) -> Refused:
    return Refused(
        f"{want.count} % is neither a part of one card nor a number of whole cards;"
        " set gpu.mps.io/cards to the number of cards and gpu.mps.io/ratio to the percent of each"
    )


def no_cards(ledger: Ledger, pool: str) -> Refused:
    if not ledger.cards:
        return Refused("has no cards")
    return Refused(f"has no card of pool {pool}" if pool else "has no card outside pools")


def explain(ledger: Ledger, demand: Demand, shared: Collection[str] = ()) -> Refused:
    """`shared` are cards that another part of the same request uses."""
    want = demand.want
    cards = [card for card in ledger.cards if card.pool == want.pool]
    if not cards:
        return no_cards(ledger, want.pool)
    suitable = [card for card in cards if card.mode in demand.modes and _suits(card, want)]
    if not suitable:
        return Refused(_nothing_like(want))
    detail = ", ".join(words for card in suitable if (words := _of_card(card, want, shared)))
    if not any(card.healthy for card in suitable):
        return Refused(f"has no healthy card{_of(want.pool)}", detail)
    return Refused(_too_little(suitable, want, shared), detail)


def _suits(card: Card, want: _Want) -> bool:
    if isinstance(want, Shares):
        return card.mode == "Percent" or want.percent == WHOLE
    if isinstance(want, Slots):
        return any(want.profile in ("", slot.profile) for slot in card.slots)
    return True


def _nothing_like(want: _Want) -> str:
    if isinstance(want, Slots):
        return f"has no {_mig(want)}{_of(want.pool)}"
    if isinstance(want, Slices):
        return f"has no card{_of(want.pool)} that is shared by time"
    how = "allocated whole" if want.percent == WHOLE else "shared by percent"
    return f"has no card{_of(want.pool)} that is {how}"


def _too_little(cards: Sequence[Card], want: _Want, shared: Collection[str]) -> str:
    pool = _of(want.pool)
    if isinstance(want, Slots):
        have = sum(len(card.free_slots(want.profile)) for card in cards)
        return f"needs {want.count} free {_mig(want)}{pool} but has {have}"
    if isinstance(want, Slices):
        return f"needs {want.count} free time slices{pool} but has {sum(card.free for card in cards)}"
    have = sum(card.free >= want.percent and card.id not in shared for card in cards)
    noun = "card" if want.cards == 1 else "cards"
    if want.percent == WHOLE:
        return f"needs {want.cards} free {noun}{pool} but has {have}"
    return f"needs {want.cards} {noun}{pool} with {want.percent} % free but has {have}"


def _of_card(card: Card, want: _Want, shared: Collection[str]) -> str:
    if not card.healthy:
        return f"card {card.index} is not healthy"
    if card.id in shared:
        return f"card {card.index} is used by another part of the request"
    if isinstance(want, Slots):
        total = sum(want.profile in ("", slot.profile) for slot in card.slots)
        return f"card {card.index} has {len(card.free_slots(want.profile))} of {total} free"
    if isinstance(want, Slices):
        return f"card {card.index} has {card.free} of {card.capacity} slices free"
    return ledger_ops.short(card, want.percent) if card.free < want.percent else ""


def _mig(want: Slots) -> str:
    return f"MIG {want.profile}" if want.profile else "MIG devices"


def _of(pool: str) -> str:
    return f" of pool {pool}" if pool else ""
