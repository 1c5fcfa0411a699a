"""What an intended change of cards would do: which cards change now, later or not, and what pools gain.

The change is written to values as it would be written to the objects, and the functions of the controllers
decide about it (core/explanation/fleet.py). So a preview says exactly what the controllers will say.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from croupier.core.explanation import card_outcomes
from croupier.core.explanation import fleet as fleets
from croupier.core.explanation.card_outcomes import CardMove, CardsAction, Outcome
from croupier.core.explanation.fleet import Fleet, FleetCard, FleetNode, SettledNode
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.model.withheld import BY_HAND
from croupier.core.pools.capacity import Capacity


@dataclass(frozen=True, slots=True)
class CardEffect:
    """What the action does to one card. `sentence` has the card as its subject."""

    card: str
    node: str
    outcome: Outcome
    sentence: str
    held: LedgerCard | None = None
    """The card in the ledger, if a pod holds a part of it."""


@dataclass(frozen=True, slots=True)
class PoolEffect:
    """The capacity of a pool: now, after the action, and once the holders of the cards have ended."""

    pool: str
    unit: str
    before: Capacity
    after: Capacity
    later: Capacity
    unit_after: str = ""
    """The unit of `after` and `later` if it differs."""


@dataclass(frozen=True, slots=True)
class CardsEffects:
    cards: tuple[CardEffect, ...]
    pools: tuple[PoolEffect, ...]
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    """The ledgers after the action, of the nodes that it changes."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _NodeEffect:
    node: FleetNode
    settled: SettledNode
    after: Mapping[str, FleetCard]
    ledger: Ledger
    later: Mapping[str, FleetCard]
    ledger_later: Ledger
    others: tuple[str, ...]
    """Cards that the action does not name and that change their pool because of it."""


def preview(fleet: Fleet, action: CardsAction) -> CardsEffects:
    names = set(action.cards)
    nodes = [_on_node(fleet, node, action) for node in fleet.nodes.values() if names & node.cards.keys()]
    by_card = {name: effect for effect in nodes for name in effect.node.cards}
    return CardsEffects(
        cards=tuple(_card_effect(fleet, by_card[name], name, action) for name in action.cards),
        pools=tuple(_pool_effect(fleet, name, nodes) for name in _affected_pools(fleet, nodes, action)),
        ledgers={effect.node.name: effect.ledger for effect in nodes if effect.ledger != effect.node.ledger},
        notes=tuple(note for effect in nodes for note in _notes(effect)),
    )


def _on_node(fleet: Fleet, node: FleetNode, action: CardsAction) -> _NodeEffect:
    mine = set(action.cards) & node.cards.keys()
    intended = {name: applied(card, action) if name in mine else card for name, card in node.cards.items()}
    base, settled = fleets.settle(fleet, node, node.cards), fleets.settle(fleet, node, intended)
    ended = fleets.settle(fleet, node, intended, mine)
    others = {
        name
        for name in node.cards.keys() - mine
        if not settled.cards[name].pool == ended.cards[name].pool == base.cards[name].pool
    }
    after = _changed(node, settled, mine | others)
    later = _changed(node, ended, mine | others)
    return _NodeEffect(
        node,
        settled,
        after,
        fleets.ledger_after(fleet, node, after),
        later,
        fleets.ledger_after(fleet, node, later, mine),
        tuple(sorted(others)),
    )


def _changed(node: FleetNode, settled: SettledNode, names: Collection[str]) -> dict[str, FleetCard]:
    return {name: settled.cards[name] if name in names else card for name, card in node.cards.items()}


def applied(card: FleetCard, action: CardsAction) -> FleetCard:
    """The card with the annotations and labels that the action writes."""
    match action.verb:
        case "assign":
            return card if card_outcomes.in_other_pool(card, action) else card.annotated(action.pool)
        case "unassign":
            return card.annotated("")
        case "drain":
            drained = replace(card.card, drained=True)
            return replace(card, card=drained, drain=action.reason or BY_HAND, drained_by_pool=False)
        case "undrain":
            given_back = replace(card, card=replace(card.card, drained=False), drain=None)
            return card if card.drained_by_pool else given_back
        case "retire":
            return replace(
                card,
                card=replace(card.card, annotation="", excluded=True),
                retired=True,
                retired_for=action.reason or BY_HAND,
            )
        case "unretire":
            return replace(
                card, card=replace(card.card, excluded=not card.managed), retired=False, retired_for=""
            )


def _affected_pools(fleet: Fleet, nodes: Iterable[_NodeEffect], action: CardsAction) -> list[str]:
    names = {action.pool} if action.verb == "assign" else set()
    for effect in nodes:
        for name, card in effect.node.cards.items():
            after, later = effect.after[name], effect.later[name]
            if card != after or card != later:
                names |= {card.pool, after.pool, later.pool}
    return sorted(names & fleet.pools.keys())


def _pool_effect(fleet: Fleet, name: str, nodes: Iterable[_NodeEffect]) -> PoolEffect:
    listed = list(nodes)
    touched = {effect.node.name for effect in listed}
    rest = [(node.cards, node.ledger) for node in fleet.nodes.values() if node.name not in touched]
    return PoolEffect(
        name,
        fleet.pools[name].unit,
        fleets.capacity(fleet, name, [*rest, *((each.node.cards, each.node.ledger) for each in listed)]),
        fleets.capacity(fleet, name, [*rest, *((each.after, each.ledger) for each in listed)]),
        fleets.capacity(fleet, name, [*rest, *((each.later, each.ledger_later) for each in listed)]),
    )


def capacity_now(fleet: Fleet, name: str) -> Capacity:
    return fleets.capacity(fleet, name, [(node.cards, node.ledger) for node in fleet.nodes.values()])


def _notes(effect: _NodeEffect) -> Iterable[str]:
    for name in effect.others:
        old, new = effect.node.cards[name].pool, effect.settled.cards[name].pool
        when = ""
        if new == old:
            new, when = effect.later[name].pool, " later"
        moves = f"leaves pool {old}" if not new else f"joins pool {new}"
        yield f"card {name} {moves}{when} because of this change"


def _card_effect(fleet: Fleet, effect: _NodeEffect, name: str, action: CardsAction) -> CardEffect:
    move = CardMove(
        effect.node.cards[name],
        effect.settled.cards[name],
        effect.later[name],
        effect.settled.answers[name],
        effect.settled.mismatches.get(name, ""),
        effect.node.held(name),
        fleet,
    )
    outcome, sentence = card_outcomes.decide(move, action)
    return CardEffect(name, effect.node.name, outcome, sentence, move.held)
