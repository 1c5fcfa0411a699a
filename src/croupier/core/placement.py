"""Which cards of a node a pod gets, and how good that node is for it.

A pod gets everything it wants on one node, or nothing. What it wants of shares is of different
cards: two shares of one card would be one larger share. A card that is not healthy is never given, and
a card of a pool only to those who name the pool.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TypeAlias

from croupier.core import ledger as book
from croupier.core import picking, shortage
from croupier.core.ledger import Card, Grant, Ledger, Mode, Part, Refused, Terms
from croupier.core.picking import Picked, Rank, Strategy
from croupier.core.want import WHOLE, Shares, Slices, Slots, Units, Want, Wants

__all__ = ["Plan", "Rank", "Strategy", "choose", "plan", "rank"]

_Demand: TypeAlias = Shares | Slices | Slots


@dataclass(frozen=True, slots=True)
class Plan:
    grant: Grant
    rank: Rank
    """Lower is better; comparable between nodes for the same wants and strategy."""


def choose(ledger: Ledger, wants: Wants, strategy: Strategy) -> Grant | Refused:
    """What a new holder would get; `ledger.give` accepts it."""
    made = plan(ledger, wants, strategy)
    return made if isinstance(made, Refused) else made.grant


def rank(ledger: Ledger, wants: Wants, strategy: Strategy) -> Rank | Refused:
    """How good the node is for it; between equals, take the first by name."""
    made = plan(ledger, wants, strategy)
    return made if isinstance(made, Refused) else made.rank


def plan(ledger: Ledger, wants: Wants, strategy: Strategy) -> Plan | Refused:
    if not wants:
        return Refused("asks for no cards")
    refused: Refused | None = None
    for demands in _readings(ledger, wants):
        answer = _place(ledger, demands, strategy) if isinstance(demands, tuple) else demands
        if isinstance(answer, Plan):
            return answer
        refused = refused or answer
    assert refused is not None  # noqa: S101 - there is always a reading
    return refused


def _readings(ledger: Ledger, wants: Wants) -> Iterator[tuple[_Demand, ...] | Refused]:
    """What `wants` can mean here; more than one thing only while a pool changes its mode card by card."""
    meanings = [_meanings(ledger, want) for want in _merged(wants)]
    for refused in meanings:
        if isinstance(refused, Refused):
            yield refused
            return
    for demands in product(*(m for m in meanings if not isinstance(m, Refused))):
        yield tuple(sorted(demands, key=_hardest_first)) if len(demands) > 1 else demands


def _merged(wants: Wants) -> Wants:
    """Units of one pool add up, like the resources they come from."""
    if len(wants) == 1:
        return wants
    units: dict[str, int] = {}
    for want in wants:
        if isinstance(want, Units):
            units[want.pool] = units.get(want.pool, 0) + want.count
    return (
        *(want for want in wants if not isinstance(want, Units)),
        *(Units(pool, count) for pool, count in units.items()),
    )


def _hardest_first(demand: _Demand) -> tuple[int, int]:
    """Whatever large shares take, small ones could not do without; a named profile before any profile."""
    if isinstance(demand, Shares):
        return 0, -demand.percent
    return 1, isinstance(demand, Slots) and not demand.profile


def _meanings(ledger: Ledger, want: Want) -> list[_Demand] | Refused:
    if not isinstance(want, Units):
        return [want]
    modes: dict[Mode, None] = {card.mode: None for card in ledger.cards if card.pool == want.pool}
    if not modes:
        return shortage.no_cards(ledger, want.pool)
    meanings = [_meaning(want, mode) for mode in sorted(modes)]
    readable = [m for m in meanings if not isinstance(m, Refused)]
    return readable or next(m for m in meanings if isinstance(m, Refused))


def _meaning(want: Units, mode: Mode) -> _Demand | Refused:
    if mode == "Exclusive":
        return Shares(want.count, WHOLE, want.pool)
    if mode == "MIG":
        return Slots("", want.count, want.pool)
    if mode == "TimeSlice":
        return Slices(want.count, want.pool)
    if want.count <= WHOLE:
        return Shares(1, want.count, want.pool)
    if want.count % WHOLE == 0:
        return Shares(want.count // WHOLE, WHOLE, want.pool)
    return shortage.unreadable(want)


def _place(ledger: Ledger, demands: tuple[_Demand, ...], strategy: Strategy) -> Plan | Refused:
    if len(demands) == 1:
        return _place_one(ledger, demands[0], strategy, ())
    picks: list[Plan] = []
    world, shared = ledger, set[str]()
    for number, demand in enumerate(demands):
        picked = _place_one(world, demand, strategy, shared)
        if isinstance(picked, Refused):
            return picked
        picks.append(picked)
        shared |= {part.card for part in picked.grant if part.share}
        given = book.give(world, f"demand/{number}", picked.grant, Terms(bound=True))
        if isinstance(given, Refused):
            return given
        world = given
    return Plan(
        _joined(ledger, [part for pick in picks for part in pick.grant]),
        tuple(map(sum, zip(*(pick.rank for pick in picks), strict=True))),
    )


def _joined(ledger: Ledger, parts: list[Part]) -> Grant:
    """One part per card, in the order of the ledger."""
    by_card: dict[str, Part] = {}
    for part in parts:
        known = by_card.get(part.card)
        by_card[part.card] = part if known is None else replace(known, slots=known.slots + part.slots)
    return tuple(_in_order(card, by_card[card.id]) for card in ledger.cards if card.id in by_card)


def _in_order(card: Card, part: Part) -> Part:
    if len(part.slots) < 2:
        return part
    return replace(part, slots=tuple(slot.id for slot in card.slots if slot.id in part.slots))


def _place_one(
    ledger: Ledger, demand: _Demand, strategy: Strategy, shared: set[str] | tuple[()]
) -> Plan | Refused:
    picked: Picked | None
    if isinstance(demand, Shares):
        cards = [c for c in _of(ledger, demand) if c.mode in ("Percent", "Exclusive") and c.id not in shared]
        picked = picking.shares(cards, count=demand.cards, percent=demand.percent, strategy=strategy)
    elif isinstance(demand, Slices):
        cards = [card for card in _of(ledger, demand) if card.mode == "TimeSlice"]
        picked = picking.slices(cards, count=demand.count, strategy=strategy)
    else:
        cards = [card for card in _of(ledger, demand) if card.mode == "MIG"]
        picked = picking.slots(cards, profile=demand.profile, count=demand.count, strategy=strategy)
    if picked is None:
        return shortage.explain(ledger, demand, shared)
    parts = picked.parts
    return Plan(parts if len(parts) == 1 else _joined(ledger, list(parts)), picked.rank)


def _of(ledger: Ledger, demand: _Demand) -> Sequence[Card]:
    pool = demand.pool
    return [card for card in ledger.cards if card.pool == pool]
