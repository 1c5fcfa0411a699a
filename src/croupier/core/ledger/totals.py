"""The totals of a grant, independent of its cards.

They are used to compare a grant with a request and to describe both in the same words.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeAlias

from croupier.core.ledger.ledger import Ledger
from croupier.core.model import card_request
from croupier.core.model.card import CardGrant, Grant, LedgerCard
from croupier.core.model.card_request import CardRequest, CardShares, MigDevices, PoolUnits, TimeSlices

RequestUnit: TypeAlias = CardShares | TimeSlices | MigDevices
"""A single share, slice or slot."""


def matches(ledger: Ledger, grant: Grant, wants: CardRequest) -> bool:
    """Whether `grant` is exactly what `wants` requests."""
    left = _counted(pieces := list(_card_parts(ledger, grant)))
    units: Counter[str] = Counter()
    for item in wants:
        if isinstance(item, PoolUnits):
            units[item.pool] += item.count
        elif isinstance(item, CardShares):
            left[replace(item, cards=1)] -= item.cards
        else:
            left[replace(item, count=1)] -= item.count
    if units:  # the rest of the pool's grant must match the requested units
        return _matches_units(pieces, units) and all(
            not left[unit] for unit in left if unit.pool not in units
        )
    return not any(left.values())


def _matches_units(pieces: list[tuple[LedgerCard, CardGrant]], units: Counter[str]) -> bool:
    held: Counter[str] = Counter()
    for card, part in pieces:
        if card.pool in units:
            held[card.pool] += card.units(part)
    return held == units


def describe(ledger: Ledger, grant: Grant) -> str:
    """`50 % of 2 cards and 1 × MIG 1g.10gb`."""
    counted = _counted(list(_card_parts(ledger, grant)))
    return card_request.describe(tuple(_multiplied(unit, count) for unit, count in counted.items()))


def _multiplied(unit: RequestUnit, count: int) -> RequestUnit:
    return replace(unit, cards=count) if isinstance(unit, CardShares) else replace(unit, count=count)


def _card_parts(ledger: Ledger, grant: Grant) -> Iterator[tuple[LedgerCard, CardGrant]]:
    return ((card, part) for part in grant if (card := ledger.card(part.card)) is not None)


def _counted(pieces: list[tuple[LedgerCard, CardGrant]]) -> Counter[RequestUnit]:
    counted: Counter[RequestUnit] = Counter()
    for card, part in pieces:
        if card.mode == "TimeSlice":
            counted[TimeSlices(1, card.pool)] += part.share
        elif part.share:
            counted[CardShares(1, part.share, card.pool)] += 1
        profiles = {slot.id: slot.profile for slot in card.slots}
        counted.update(MigDevices(profiles[slot], 1, card.pool) for slot in part.slots if slot in profiles)
    return counted
