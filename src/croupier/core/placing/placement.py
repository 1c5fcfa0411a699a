"""Decides which cards of a node a pod gets, and ranks the node for the pod.

A pod gets its whole request on one node, or nothing. Its shares are on different cards: two shares of one
card would be one larger share. Unhealthy cards are never allocated, and cards of a pool only to pods that
request the pool.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from croupier.core.ledgers import ledger as ledger_ops
from croupier.core.ledgers.ledger import Card, Grant, Ledger, Mode, Part, Refused, Terms
from croupier.core.placing import picking, shortage
from croupier.core.placing.picking import Rank, Strategy
from croupier.core.pods.demand import EXCLUSIVE, MIG, PERCENT, TIME_SLICE, WHOLE_OR_PART, Demand
from croupier.core.pods.want import WHOLE, Shares, Slices, Slots, Units, Want, Wants

__all__ = ["Plan", "Rank", "Strategy", "choose", "plan", "rank"]


@dataclass(frozen=True, slots=True)
class Plan:
    grant: Grant
    rank: Rank
    """Lower is better; comparable between nodes for the same request and strategy."""


def choose(ledger: Ledger, wants: Wants, strategy: Strategy) -> Grant | Refused:
    """The grant for a new holder; `ledger.give` accepts it."""
    made = plan(ledger, wants, strategy)
    return made if isinstance(made, Refused) else made.grant


def rank(ledger: Ledger, wants: Wants, strategy: Strategy) -> Rank | Refused:
    """The rank of the node; between equal nodes choose the first by name."""
    made = plan(ledger, wants, strategy)
    return made if isinstance(made, Refused) else made.rank


def plan(ledger: Ledger, wants: Wants, strategy: Strategy) -> Plan | Refused:
    """The grant and its rank."""
    answer: Plan | Refused = Refused("asks for no cards")
    readings = _readings(ledger, wants) if wants else ()
    if isinstance(readings, Refused):
        return readings
    for demands in readings:
        answer = _place(ledger, demands, strategy)
        if isinstance(answer, Plan):
            break
    return answer


def _readings(ledger: Ledger, wants: Wants) -> Iterable[tuple[Demand, ...]] | Refused:
    """The possible meanings of `wants` here; several only while a pool changes its mode card by card."""
    if len(wants) == 1 and isinstance(wants[0], Shares):  # the common case
        return ((Demand(wants[0], WHOLE_OR_PART),),)
    meanings = []
    for want in _merged(wants):
        demands = _meanings(ledger, want)
        if isinstance(demands, Refused):
            return demands
        meanings.append(demands)
    return (tuple(sorted(choice, key=_hardest_first)) for choice in product(*meanings))


def _merged(wants: Wants) -> Wants:
    """Units of the same pool are added up."""
    units: dict[str, int] = {}
    for want in wants:
        if isinstance(want, Units):
            units[want.pool] = units.get(want.pool, 0) + want.count
    others = (want for want in wants if not isinstance(want, Units))
    return *others, *(Units(pool, count) for pool, count in units.items())


def _hardest_first(demand: Demand) -> int:
    """Larger shares are placed first because fewer cards fit them.

    Units of a pool, which fit on any of its devices, are already last.
    """
    return -demand.want.percent if isinstance(demand.want, Shares) else 0


def _meanings(ledger: Ledger, want: Want) -> list[Demand] | Refused:
    if isinstance(want, Shares):
        return [Demand(want, WHOLE_OR_PART)]
    if isinstance(want, Slots):
        return [Demand(want, MIG)]
    modes = sorted({card.mode for card in ledger.cards if card.pool == want.pool})
    meanings = [_meaning(want, mode) for mode in modes]
    readable = [demand for demand in meanings if isinstance(demand, Demand)]
    refused = [demand for demand in meanings if isinstance(demand, Refused)]
    return readable or next(iter(refused), shortage.no_cards(ledger, want.pool))


def _meaning(want: Units, mode: Mode) -> Demand | Refused:
    if mode == "Exclusive":
        return Demand(Shares(want.count, WHOLE, want.pool), EXCLUSIVE)
    if mode == "MIG":
        return Demand(Slots("", want.count, want.pool), MIG)
    if mode == "TimeSlice":
        return Demand(Slices(want.count, want.pool), TIME_SLICE)
    if want.count <= WHOLE:
        return Demand(Shares(1, want.count, want.pool), PERCENT)
    if want.count % WHOLE == 0:
        return Demand(Shares(want.count // WHOLE, WHOLE, want.pool), PERCENT)
    return shortage.unreadable(want)


def _place(ledger: Ledger, demands: tuple[Demand, ...], strategy: Strategy) -> Plan | Refused:
    if len(demands) == 1:
        return _place_one(ledger, demands[0], strategy)
    plans: list[Plan] = []
    world, shared = ledger, set[str]()
    for number, demand in enumerate(demands):
        made = _place_one(world, demand, strategy, shared)
        if isinstance(made, Refused):
            return made
        plans.append(made)
        shared |= {part.card for part in made.grant if part.share}
        if isinstance(demand.want, Slots):  # the next item may need other slots of the same card
            given = ledger_ops.give(world, f"demand-{number}", made.grant, Terms(bound=True))
            if isinstance(given, Refused):
                return given
            world = given
    grant = _joined(ledger, [part for made in plans for part in made.grant])
    return Plan(grant, tuple(map(sum, zip(*(made.rank for made in plans), strict=True))))


def _place_one(
    ledger: Ledger, demand: Demand, strategy: Strategy, shared: Collection[str] = ()
) -> Plan | Refused:
    want, modes = demand.want, demand.modes
    pool = want.pool
    cards = [c for c in ledger.cards if c.pool == pool and c.mode in modes and c.id not in shared]
    if isinstance(want, Shares):
        picked = picking.shares(cards, count=want.cards, percent=want.percent, strategy=strategy)
    elif isinstance(want, Slices):
        picked = picking.slices(cards, count=want.count, strategy=strategy)
    else:
        picked = picking.slots(cards, profile=want.profile, count=want.count, strategy=strategy)
    if picked is None:
        return shortage.explain(ledger, demand, shared)
    return Plan(_joined(ledger, picked.parts), picked.rank)


def _joined(ledger: Ledger, parts: Sequence[Part]) -> Grant:
    """One part per card, in the order of the ledger."""
    if len(parts) == 1 and len(parts[0].slots) < 2:  # the common case
        return (parts[0],)
    by_card: dict[str, Part] = {}
    for part in parts:
        known = by_card.get(part.card)
        by_card[part.card] = part if known is None else replace(known, slots=known.slots + part.slots)
    return tuple(_in_order(card, by_card[card.id]) for card in ledger.cards if card.id in by_card)


def _in_order(card: Card, part: Part) -> Part:
    if len(part.slots) < 2:
        return part
    return replace(part, slots=tuple(slot.id for slot in card.slots if slot.id in part.slots))
