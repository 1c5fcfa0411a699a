"""Cards, pools and ledgers as an intended change needs them, and how the controllers would react to it.

A change is applied to these values as it would be written to the objects. Then the functions of the
controllers decide: core/pools/assignment.py the pool of each card, core/ledger the entry of each card. A card
moves between pools only while no pod holds it, as in core/cards/lifecycle.py.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from croupier.core.ledger import change_layout, reported_cards
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard, ReportedPool
from croupier.core.model import withheld
from croupier.core.model.card import LedgerCard
from croupier.core.model.sharing import Sharing
from croupier.core.model.withheld import NOT_MANAGED, Withheld
from croupier.core.pools import assignment
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools.assignment import (
    MANUAL_APPROVAL,
    Approval,
    AssignableCard,
    Assignment,
    AssignmentPool,
)
from croupier.core.pools.capacity import Capacity, CountedCard

_MAX_ROUNDS: Final = 8
"""Reconciles after which a node has settled: a card is annotated, leaves a pool, and joins another."""


@dataclass(frozen=True, slots=True)
class FleetCard:
    """A card with everything that its pool, its ledger entry and its capacity depend on."""

    card: AssignableCard
    reported: ReportedCard
    retired: bool = False
    """It carries the label gpu.deckhouse.io/ignore."""
    retired_for: str = ""
    """The reason that a person gave for it."""
    managed: bool = True
    drain: str | None = None
    """The reason of its drain; None if it is not drained."""
    drained_by_pool: bool = False
    """A change of its pool drained it, and would drain it again."""
    blocked: Withheld | None = None
    """Why it gets no new holders, apart from what a person did to it, and from its assignment."""
    defect: str = ""
    """Why the card or its node fails."""
    declined: bool = False
    """The pool in its annotation does not take it, so it serves as without annotation."""

    @property
    def id(self) -> str:
        return self.card.id

    @property
    def pool(self) -> str:
        return self.card.pool

    @property
    def excluded(self) -> bool:
        return self.retired or not self.managed

    @property
    def withheld(self) -> Withheld | None:
        """Why the ledger gives nothing of the card to new holders, apart from faults; None if it does."""
        if self.retired:
            return withheld.by_person("Retired", self.retired_for)
        if self.drain is not None:
            changing = self.drained_by_pool
            return Withheld("Changing", self.drain) if changing else withheld.by_person("Drained", self.drain)
        if self.blocked is not None or self.card.annotation == self.pool:
            return self.blocked
        if self.declined and not self.pool:
            return None
        leaves = f"it is leaving pool {self.pool}"
        return Withheld("Changing", leaves if self.pool else f"it is joining pool {self.card.annotation}")

    @property
    def idle_reason(self) -> str:
        """Why the card serves no pods; empty if it does."""
        found = self.withheld
        return self.defect or ("" if self.managed else NOT_MANAGED) or (found.sentence if found else "")

    def annotated(self, pool: str) -> "FleetCard":
        kept = self.declined and pool == self.card.annotation
        return replace(self, card=replace(self.card, annotation=pool), declined=kept)

    def moved(self, pool: str) -> "FleetCard":
        return replace(self, card=replace(self.card, pool=pool))


@dataclass(frozen=True, slots=True)
class FleetPool:
    assignment: AssignmentPool
    reported: ReportedPool
    unit: str = ""
    closed: bool = False
    """It is in Maintenance or misconfigured: cards that only wait for it to open count."""
    booked: int = 0

    @property
    def name(self) -> str:
        return self.assignment.name


@dataclass(frozen=True, slots=True)
class FleetNode:
    name: str
    ledger: Ledger
    cards: Mapping[str, FleetCard] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False

    def held(self, card_id: str) -> LedgerCard | None:
        """The card in the ledger, if a pod holds a part of it."""
        card = self.ledger.card(card_id)
        return None if card is None or card.is_free else card


@dataclass(frozen=True, slots=True)
class Fleet:
    """The nodes of the cards to change, and all pools."""

    nodes: Mapping[str, FleetNode]
    pools: Mapping[str, FleetPool]
    elsewhere: Mapping[str, Capacity] = field(default_factory=dict)
    """By pool: the capacity of its cards on other nodes."""
    approval: Approval = MANUAL_APPROVAL


@dataclass(frozen=True, slots=True)
class SettledNode:
    """The cards after the controllers have reacted, with their last decisions."""

    cards: Mapping[str, FleetCard]
    answers: Mapping[str, Assignment]
    mismatches: Mapping[str, str] = field(default_factory=dict)
    """By card: why its annotation was rejected and removed."""


def settle(
    fleet: Fleet, node: FleetNode, cards: Mapping[str, FleetCard], freed: Collection[str] = ()
) -> SettledNode:
    """Let the controllers decide about `cards` until nothing changes; the holders of `freed` have ended."""
    pools = [pool.assignment for pool in fleet.pools.values()]
    busy = {card.id for card in node.ledger.cards if not card.is_free} - set(freed)
    answers: dict[str, Assignment] = {}
    mismatches: dict[str, str] = {}
    for _ in range(_MAX_ROUNDS):
        answers = assignment.decide(
            [card.card for card in cards.values()], node.labels, pools, fleet.approval
        )
        mismatches |= {name: why for name, card in cards.items() if (why := _rejection(card, answers[name]))}
        moved = {name: _next(card, answers[name], busy=name in busy) for name, card in cards.items()}
        if moved == cards:
            break
        cards = moved
    return SettledNode(cards, answers, mismatches)


def _rejection(card: FleetCard, answer: Assignment) -> str:
    """Why the annotation of the card is removed; empty if it is not."""
    pool = card.card.annotation
    if not pool or answer.annotation != "":
        return answer.mismatch
    return answer.mismatch or next((entry.sentence for entry in answer.pending if entry.pool == pool), "")


def _next(card: FleetCard, answer: Assignment, *, busy: bool) -> FleetCard:
    if answer.annotation is not None and answer.annotation != card.card.annotation:
        return card.annotated(answer.annotation)
    declined = assignment.refusal(card.card, answer) is not None
    if card.pool == answer.pool or busy:
        return replace(card, declined=declined)
    return replace(card, declined=declined).moved("" if card.pool else answer.pool)


def ledger_after(
    fleet: Fleet, node: FleetNode, cards: Mapping[str, FleetCard], freed: Collection[str] = ()
) -> Ledger:
    """The ledger of the node once it has these cards; the holders of `freed` have ended."""
    ledger = _without_holders(node.ledger, freed)
    changed = [card for name, card in cards.items() if card != node.cards[name]]
    if not changed:
        return ledger
    names = {card.id for card in changed}
    indexes = {card.id: card.index for card in ledger.cards}
    report = NodeCardReport(
        node.name,
        devices=tuple(
            replace(
                _reported(fleet, node.cards[card.id], card), index=indexes.get(card.id, card.reported.index)
            )
            for card in changed
        ),
        pools={name: pool.reported for name, pool in fleet.pools.items()},
        silent=node.silent,
    )
    new = reported_cards.from_report(report).cards
    return change_layout.apply_report(ledger, [*(c for c in ledger.cards if c.id not in names), *new])


def _without_holders(ledger: Ledger, cards: Collection[str]) -> Ledger:
    for holder in {holder for card in ledger.cards if card.id in cards for holder in holders(card)}:
        ledger = ledger_ops.release(ledger, holder)
    return ledger


def holders(card: LedgerCard) -> Iterator[str]:
    yield from card.holders
    yield from (slot.holder for slot in card.slots if slot.holder)


def _reported(fleet: Fleet, before: FleetCard, card: FleetCard) -> ReportedCard:
    """The card as its node will report it; a card that joins a pool has the layout of the pool."""
    report = replace(card.reported, pool=card.pool, unmanaged=not card.managed, withheld=card.withheld)
    if card.pool == before.pool or not card.pool:
        return report
    return with_sharing(report, fleet.pools[card.pool].reported.sharing)


def with_sharing(card: ReportedCard, sharing: Sharing) -> ReportedCard:
    """The card after its agent has applied the sharing."""
    if card.cut is None:
        return replace(card, ahead=None)
    cut = reported_cards.planned_slots(sharing, card.fits) if sharing.mode == "MIG" else ()
    return replace(card, ahead=None, cut=cut)


def capacity(fleet: Fleet, name: str, nodes: Iterable[tuple[Mapping[str, FleetCard], Ledger]]) -> Capacity:
    """The capacity of a pool, as the pool controller counts it."""
    pool, other = fleet.pools[name], fleet.elsewhere.get(name, Capacity())
    lines = (line for cards, ledger in nodes for line in _counted(pool, cards, ledger))
    here = pool_capacity.count(lines, pool.reported.sharing.mode)
    return Capacity(other.total + here.total, other.used + here.used, pool.booked)


def _counted(pool: FleetPool, cards: Mapping[str, FleetCard], ledger: Ledger) -> Iterator[CountedCard]:
    for entry in ledger.cards:
        card = cards.get(entry.id)
        if card is not None and card.pool == pool.name == entry.pool:
            yield CountedCard(entry, serves=not card.idle_reason and (entry.healthy or pool.closed))
