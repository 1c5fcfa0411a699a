"""Decides which cards of a node a pod gets, and ranks the node for the pod.

A pod gets its whole request on one node, or nothing. Its shares are on different cards: two shares of one
card would be one larger share. Unhealthy cards are never allocated, and cards of a pool only to pods that
request the pool.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, Grant, LedgerCard
from croupier.core.model.card_request import (
    CardRequest,
    CardRequestItem,
    CardShares,
    MigDevices,
    PoolUnits,
    TimeSlices,
)
from croupier.core.model.node_request import MIG, WHOLE_OR_PART, NodeRequest
from croupier.core.model.refusal import Refusal
from croupier.core.placement import card_selection, refusal_reasons
from croupier.core.placement.card_selection import Rank, Strategy
from croupier.core.pods import pool_units

__all__ = ["PlacementPlan", "Rank", "Strategy", "choose", "plan", "rank"]


@dataclass(frozen=True, slots=True)
class PlacementPlan:
    grant: Grant
    rank: Rank
    """Lower is better; comparable between nodes for the same request and strategy."""


def choose(ledger: Ledger, wants: CardRequest, strategy: Strategy) -> Grant | Refusal:
    """The grant for a new holder; `ledger.give` accepts it."""
    made = plan(ledger, wants, strategy)
    return made if isinstance(made, Refusal) else made.grant


def rank(ledger: Ledger, wants: CardRequest, strategy: Strategy) -> Rank | Refusal:
    """The rank of the node; between equal nodes choose the first by name."""
    made = plan(ledger, wants, strategy)
    return made if isinstance(made, Refusal) else made.rank


def plan(ledger: Ledger, wants: CardRequest, strategy: Strategy) -> PlacementPlan | Refusal:
    """The grant and its rank."""
    answer: PlacementPlan | Refusal = Refusal("asks for no cards")
    readings = _interpretations(ledger, wants) if wants else ()
    if isinstance(readings, Refusal):
        return readings
    for demands in readings:
        answer = _place_all(ledger, demands, strategy)
        if isinstance(answer, PlacementPlan):
            break
    return answer


def _interpretations(ledger: Ledger, wants: CardRequest) -> Iterable[tuple[NodeRequest, ...]] | Refusal:
    """The possible meanings of `wants` here; several only while a pool changes its mode card by card."""
    if len(wants) == 1 and isinstance(wants[0], CardShares):  # the common case
        return ((NodeRequest(wants[0], WHOLE_OR_PART),),)
    meanings = []
    for want in _merged(wants):
        demands = _node_requests(ledger, want)
        if isinstance(demands, Refusal):
            return demands
        meanings.append(demands)
    return (tuple(sorted(choice, key=_hardest_first)) for choice in product(*meanings))


def _merged(wants: CardRequest) -> CardRequest:
    """Units of the same pool are added up, unless annotations divide them over cards."""
    units: dict[str, int] = {}
    others = []
    for want in wants:
        if isinstance(want, PoolUnits) and want.spread is None:
            units[want.pool] = units.get(want.pool, 0) + want.count
        else:
            others.append(want)
    return *others, *(PoolUnits(pool, count) for pool, count in units.items())


def _hardest_first(demand: NodeRequest) -> int:
    """Larger shares are placed first because fewer cards fit them.

    Units of a pool, which fit on any of its devices, are already last.
    """
    return -demand.want.percent if isinstance(demand.want, CardShares) else 0


def _node_requests(ledger: Ledger, want: CardRequestItem) -> list[NodeRequest] | Refusal:
    if isinstance(want, CardShares):
        return [NodeRequest(want, WHOLE_OR_PART)]
    if isinstance(want, MigDevices):
        return [NodeRequest(want, MIG)]
    modes = sorted({card.mode for card in ledger.cards if card.pool == want.pool})
    meanings = [pool_units.interpret(want, mode) for mode in modes]
    readable = [demand for demand in meanings if isinstance(demand, NodeRequest)]
    refused = [demand for demand in meanings if isinstance(demand, Refusal)]
    return readable or next(iter(refused), refusal_reasons.no_cards(ledger, want.pool))


def _place_all(
    ledger: Ledger, demands: tuple[NodeRequest, ...], strategy: Strategy
) -> PlacementPlan | Refusal:
    if len(demands) == 1:
        return _place_one(ledger, demands[0], strategy)
    plans: list[PlacementPlan] = []
    world, shared = ledger, set[str]()
    for number, demand in enumerate(demands):
        made = _place_one(world, demand, strategy, shared)
        if isinstance(made, Refusal):
            return made
        plans.append(made)
        shared |= {part.card for part in made.grant if part.share}
        if isinstance(demand.want, MigDevices):  # the next item may need other slots of the same card
            given = ledger_ops.give(world, f"demand-{number}", made.grant, HoldTerms(bound=True))
            if isinstance(given, Refusal):
                return given
            world = given
    grant = _joined(ledger, [part for made in plans for part in made.grant])
    return PlacementPlan(grant, tuple(map(sum, zip(*(made.rank for made in plans), strict=True))))


def _place_one(
    ledger: Ledger, demand: NodeRequest, strategy: Strategy, shared: Collection[str] = ()
) -> PlacementPlan | Refusal:
    want, modes = demand.want, demand.modes
    pool = want.pool
    cards = [c for c in ledger.cards if c.pool == pool and c.mode in modes and c.id not in shared]
    if isinstance(want, CardShares):
        picked = card_selection.shares(cards, count=want.cards, percent=want.percent, strategy=strategy)
    elif isinstance(want, TimeSlices):
        picked = card_selection.slices(cards, count=want.count, strategy=strategy)
    else:
        picked = card_selection.slots(cards, profile=want.profile, count=want.count, strategy=strategy)
    if picked is None:
        return refusal_reasons.explain(ledger, demand, shared)
    return PlacementPlan(_joined(ledger, picked.parts), picked.rank)


def _joined(ledger: Ledger, parts: Sequence[CardGrant]) -> Grant:
    """One part per card, in the order of the ledger."""
    if len(parts) == 1 and len(parts[0].slots) < 2:  # the common case
        return (parts[0],)
    by_card: dict[str, CardGrant] = {}
    for part in parts:
        known = by_card.get(part.card)
        by_card[part.card] = part if known is None else replace(known, slots=known.slots + part.slots)
    return tuple(_in_order(card, by_card[card.id]) for card in ledger.cards if card.id in by_card)


def _in_order(card: LedgerCard, part: CardGrant) -> CardGrant:
    if len(part.slots) < 2:
        return part
    return replace(part, slots=tuple(slot.id for slot in card.slots if slot.id in part.slots))
