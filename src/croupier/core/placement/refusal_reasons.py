"""The messages that say why a node cannot satisfy a request.

The reason names neither node nor card, so that kube-scheduler can count equal reasons:
"0/5 nodes are available: 3 needs 2 cards with 50 % free but has 1". The detail names the cards.
"""

from collections.abc import Collection, Iterable, Sequence

from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.totals import RequestUnit
from croupier.core.model import name_list, smallest_share
from croupier.core.model import withheld as withheld_model
from croupier.core.model.card import LedgerCard
from croupier.core.model.card_request import (
    WHOLE_CARD,
    CardShares,
    MigDevices,
    TimeSlices,
    of_pool,
)
from croupier.core.model.node_request import NodeRequest
from croupier.core.model.refusal import Refusal


def no_cards(ledger: Ledger, pool: str) -> Refusal:
    if not ledger.cards:
        return Refusal("has no cards")
    return Refusal(f"has no card of pool {pool}" if pool else "has no card outside pools")


def explain(ledger: Ledger, demand: NodeRequest, shared: Collection[str] = ()) -> Refusal:
    """`shared` are cards that another part of the same request uses."""
    want = demand.want
    cards = [card for card in ledger.cards if card.pool == want.pool]
    if not cards:
        return no_cards(ledger, want.pool)
    suitable = [card for card in cards if card.mode in demand.modes and _suits(card, want)]
    if not suitable:
        return Refusal(_no_suitable_card(want))
    if isinstance(want, CardShares):
        smallest = min(card.smallest for card in suitable)
        if (too_small := smallest_share.refusal(want.percent, smallest, want.pool)) is not None:
            return too_small
    short = ", ".join(words for card in suitable if (words := _of_card(card, want, shared)))
    detail = short or f"the node has only {_cards(len(suitable))} for it"
    withheld = withheld_cards(suitable)
    if any(card.healthy for card in suitable):
        return Refusal(f"{_too_little(suitable, want, shared)}{withheld}", detail)
    usable = "card that takes new pods" if withheld else "healthy card"
    return Refusal(f"has no {usable}{of_pool(want.pool)}{withheld}", detail)


def withheld_cards(cards: Iterable[LedgerCard]) -> str:
    """` (2 cards are drained: the fan is loud)`: what a person or a change took away; empty if nothing."""
    reasons = (card.withheld for card in cards if not card.healthy and card.withheld is not None)
    words = withheld_model.of_cards(reason for reason in reasons if reason.state != "Unhealthy")
    return f" ({words})" if words else ""


def _suits(card: LedgerCard, want: RequestUnit) -> bool:
    if isinstance(want, CardShares):
        return card.mode == "Percent" or want.percent == WHOLE_CARD
    if isinstance(want, MigDevices):
        return any(want.profile in ("", slot.profile) for slot in card.slots)
    return True


def _no_suitable_card(want: RequestUnit) -> str:
    if isinstance(want, MigDevices):
        return f"has no {_mig(want)}{of_pool(want.pool)}"
    if isinstance(want, TimeSlices):
        return f"has no card{of_pool(want.pool)} that is shared by time"
    how = "allocated whole" if want.percent == WHOLE_CARD else "shared by percent"
    return f"has no card{of_pool(want.pool)} that is {how}"


def _too_little(cards: Sequence[LedgerCard], want: RequestUnit, shared: Collection[str]) -> str:
    pool = of_pool(want.pool)
    if isinstance(want, MigDevices):
        have = sum(len(card.free_slots(want.profile)) for card in cards)
        return f"needs {want.count} free {_mig(want)}{pool} but has {have}"
    if isinstance(want, TimeSlices):
        return f"needs {want.count} free time slices{pool} but has {sum(card.free for card in cards)}"
    have = sum(card.free >= want.percent >= card.smallest and card.id not in shared for card in cards)
    if want.percent == WHOLE_CARD:
        return f"needs {_cards(want.cards, 'free ')}{pool} but has {have}"
    return f"needs {_cards(want.cards)}{pool} with {want.percent} % free but has {have}"


def _of_card(card: LedgerCard, want: RequestUnit, shared: Collection[str]) -> str:
    if card.obstacle:
        return f"card {card.index} {card.obstacle}"
    if card.id in shared:
        return f"card {card.index} is used by another part of the request"
    if isinstance(want, MigDevices):
        total = sum(want.profile in ("", slot.profile) for slot in card.slots)
        return f"card {card.index} has {len(card.free_slots(want.profile))} of {total} free"
    if isinstance(want, TimeSlices):
        return f"card {card.index} has {card.free} of {card.capacity} slices free"
    if want.percent < card.smallest:
        return f"card {card.index} gives at least {card.smallest} %"
    return ledger_ops.shortfall(card, want.percent) if card.free < want.percent else ""


def _cards(count: int, kind: str = "") -> str:
    return name_list.counted(count, f"{kind}card")


def _mig(want: MigDevices) -> str:
    return f"MIG {want.profile}" if want.profile else "MIG devices"
