"""How much a node lacks for a request, and the largest smaller request that would fit.

This tells the owner of a pending pod what to change: fewer cards, or a smaller share.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import Grant, LedgerCard
from croupier.core.model.card_request import (
    WHOLE_CARD,
    CardRequest,
    CardRequestItem,
    CardShares,
    MigDevices,
    PoolUnits,
    of_pool,
)
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement
from croupier.core.placement.card_selection import Strategy

_MISSING_CARD = 2 * WHOLE_CARD
"""A missing card counts more than a full one."""


@dataclass(frozen=True, slots=True)
class SmallerRequest:
    """A smaller request, and a node on which it fits."""

    wants: CardRequest
    node: str
    grant: Grant


def shortfall(ledger: Ledger, wants: CardRequest) -> int:
    """How much the node lacks, in percent of cards or devices; only for comparing nodes."""
    return sum(_shortfall(ledger, want) for want in wants)


def _shortfall(ledger: Ledger, want: CardRequestItem) -> int:
    if isinstance(want, PoolUnits) and want.spread is not None:
        want = want.spread
    if isinstance(want, CardShares):
        free = _shares(ledger, want.pool)[: want.cards]
        missing = want.cards - len(free)
        return sum(max(0, want.percent - percent) for percent in free) + missing * _MISSING_CARD
    have = _devices(ledger, want)
    return max(0, want.count - have) * WHOLE_CARD


def _shares(ledger: Ledger, pool: str) -> list[int]:
    """Free percent of each card that is shared by percent or whole, largest first."""
    shared = (card for card in ledger.cards if card.pool == pool and card.mode in ("Percent", "Exclusive"))
    return sorted((card.free for card in shared if not card.is_retired), reverse=True)


def _devices(ledger: Ledger, want: MigDevices | PoolUnits) -> int:
    cards = [card for card in ledger.cards if card.pool == want.pool]
    if isinstance(want, MigDevices):
        return sum(len(card.free_slots(want.profile)) for card in cards)
    return sum(_units(card) for card in cards)


def _units(card: LedgerCard) -> int:
    if card.mode == "Exclusive":
        return int(card.free > 0)
    return len(card.free_slots()) if card.mode == "MIG" else card.free


def never_fits(ledgers: Iterable[Ledger], wants: CardRequest) -> str:
    """Why no node could satisfy the request even if it were empty; empty if one could."""
    known = list(ledgers)
    for want in wants:
        if isinstance(want, CardShares):
            largest = max((len(_shares(ledger, want.pool)) for ledger in known), default=0)
            if 0 < largest < want.cards:
                return (
                    f"no node has {want.cards} cards{of_pool(want.pool)}, the largest has {largest}: "
                    "the pod cannot start even if all cards are free"
                )
    return ""


def smaller_requests(
    ledgers: Mapping[str, Ledger], wants: CardRequest, strategy: Strategy
) -> tuple[SmallerRequest, ...]:
    """The largest smaller request in each dimension; only for a request with a single item."""
    if len(wants) != 1:
        return ()
    candidates = (_fitting_node(ledgers, smaller, strategy) for smaller in _smaller_items(ledgers, wants[0]))
    return tuple(request for request in candidates if request is not None)


def _smaller_items(ledgers: Mapping[str, Ledger], want: CardRequestItem) -> list[CardRequestItem]:
    if isinstance(want, PoolUnits) and want.spread is not None:
        want = want.spread
    if isinstance(want, CardShares):
        return _smaller_shares(ledgers, want)
    most = max((_devices(ledger, want) for ledger in ledgers.values()), default=0)
    return [replace(want, count=min(most, want.count - 1))] if most and want.count > 1 else []


def _smaller_shares(ledgers: Mapping[str, Ledger], want: CardShares) -> list[CardRequestItem]:
    free = [_shares(ledger, want.pool) for ledger in ledgers.values()]
    cards = max((sum(percent >= want.percent for percent in node) for node in free), default=0)
    percent = max((node[want.cards - 1] for node in free if len(node) >= want.cards), default=0)
    fewer = [replace(want, cards=cards)] if 0 < cards < want.cards else []
    less = [replace(want, percent=percent)] if 0 < percent < want.percent else []
    return [*fewer, *less]


def _fitting_node(
    ledgers: Mapping[str, Ledger], want: CardRequestItem, strategy: Strategy
) -> SmallerRequest | None:
    """The best node for it, by the function that decides real placements."""
    plans = ((name, placement.plan(ledger, (want,), strategy)) for name, ledger in ledgers.items())
    fits = [(plan.rank, name, plan.grant) for name, plan in plans if not isinstance(plan, Refusal)]
    if not fits:
        return None
    _, name, grant = min(fits)
    return SmallerRequest((want,), name, grant)
