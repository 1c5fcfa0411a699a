"""Decides the next phase and pool of every card of a node, from pool assignment and the card lifecycle.

The pool assignment is decided first; its result is an input of the transition table in
core/cards/lifecycle.py. The stored annotation counts, not the one that is about to be written: the ledger
withdraws a card only when it sees the annotation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from croupier.core.cards import lifecycle
from croupier.core.cards.lifecycle import CardFacts, CardPhase, TransitionTaken
from croupier.core.model import name_list
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.name_list import named
from croupier.core.pools import assignment
from croupier.core.pools.assignment import (
    Approval,
    AssignableCard,
    Assignment,
    AssignmentPool,
    PendingReason,
)

CONDITIONS: Final = ("ReadyForPooling", "ManagedDisabled", "Ignored", "Faulted")
"""The conditions of a card that are decided here."""
WAITING: Final[tuple[CardPhase, ...]] = ("Ready", "PendingAssignment")


@dataclass(frozen=True, slots=True)
class CurrentCard:
    """A card before the decision: `facts` without the pool assignment, `card` without an obstacle."""

    card: AssignableCard
    phase: CardPhase
    facts: CardFacts
    declined: bool = False
    """Its status has a declined assignment, so the ledger may offer the card."""


@dataclass(frozen=True, slots=True)
class DeclinedAssignment:
    """The pool in the annotation of the card does not take it: the card serves as without annotation."""

    pool: str
    reason: PendingReason
    message: str


@dataclass(frozen=True, slots=True)
class CardDecision:
    """The phase and pool of a card after the decision, with the transitions taken; `facts` are complete."""

    phase: CardPhase
    pool: str
    facts: CardFacts
    assignment: Assignment
    steps: tuple[TransitionTaken, ...] = ()
    obstacle: str = ""
    declined: DeclinedAssignment | None = None


def decide(
    cards: Sequence[CurrentCard],
    node_labels: Mapping[str, str],
    pools: Iterable[AssignmentPool],
    approval: Approval,
) -> dict[str, CardDecision]:
    """Decide for all cards of one node; the result is keyed by card id."""
    obstacles = {current.card.id: lifecycle.obstacle(current.phase, current.facts) for current in cards}
    asked = [replace(current.card, obstacle=obstacles[current.card.id]) for current in cards]
    answers = assignment.decide(asked, node_labels, pools, approval)
    return {
        current.card.id: _decide(current, answers[current.card.id], obstacles[current.card.id])
        for current in cards
    }


def _decide(current: CurrentCard, answer: Assignment, obstacle: str) -> CardDecision:
    declined = _declined(current, answer)
    facts = replace(
        current.facts,
        pool=current.card.pool,
        matched=bool(answer.pool)
        or any(pending.pool and pending.reason != "OutOfSelector" for pending in answer.pending),
        wanted=answer.pool if answer.annotation is None and declined is None else current.card.pool,
    )
    steps = lifecycle.advance(current.phase, facts)
    phase, pool = (steps[-1].end, steps[-1].pool) if steps else (current.phase, facts.pool)
    return CardDecision(phase, pool, facts, answer, steps, obstacle, declined)


def _declined(current: CurrentCard, answer: Assignment) -> DeclinedAssignment | None:
    """What the status says about the annotation.

    While it says that the card was declined, the ledger offers the card, and `Withdrawn` may date from
    before. So a card that is accepted now keeps its status until the ledger has reported it again.
    """
    card = current.card
    if (refused := assignment.refusal(card, answer)) is not None:
        return DeclinedAssignment(refused.pool, refused.reason, refused.sentence)
    accepted = answer.pool == card.annotation != "" and not card.pool and answer.annotation is None
    if not (accepted and current.declined and current.facts.occupancy == "Withdrawn"):
        return None
    message = f"pool {answer.pool} takes card {card.id} as soon as the ledger offers the card again"
    return DeclinedAssignment(answer.pool, "Declined", message)


def conditions(course: CardDecision) -> tuple[DesiredCondition, ...]:
    """The conditions of the card. An ignored card has only the condition Ignored."""
    facts = course.facts
    if facts.ignored:
        return (
            DesiredCondition(
                "Ignored", "True", "Label", "the card carries the label gpu.deckhouse.io/ignore=true"
            ),
        )
    return (
        _ready(course),
        DesiredCondition("ManagedDisabled", "False", "Managed", "the card is managed")
        if facts.managed
        else DesiredCondition(
            "ManagedDisabled", "True", "NodeLabel", "a label of the node disables its cards"
        ),
        DesiredCondition(
            "Ignored", "False", "NoLabel", "the card does not carry the label gpu.deckhouse.io/ignore"
        ),
        _faulted(course),
    )


def _ready(course: CardDecision) -> DesiredCondition:
    kind, facts = "ReadyForPooling", course.facts
    if not facts.managed:
        return DesiredCondition(kind, "False", "NotManaged", "the node of the card is not managed")
    if not course.obstacle:
        return DesiredCondition(kind, "True", "Ready", "a pool may take the card")
    if course.phase == "Faulted":
        return DesiredCondition(kind, "False", "Faulted", course.obstacle)
    reason = "InventoryIncomplete" if course.obstacle == facts.incomplete else "NotChecked"
    return DesiredCondition(kind, "False", reason, course.obstacle)


def _faulted(course: CardDecision) -> DesiredCondition:
    facts = course.facts
    if course.phase != "Faulted":
        return DesiredCondition("Faulted", "False", "Healthy", "the card is not faulted")
    cause = facts.fault or facts.trouble
    if cause is not None:
        return DesiredCondition("Faulted", "True", cause.reason, cause.sentence)
    message = f"the card needs {lifecycle.CLEAN} clean heartbeats in a row"
    return DesiredCondition("Faulted", "True", "Recovering", message)


def unassigned(courses: Mapping[str, CardDecision]) -> DesiredCondition:
    """Whether the node has cards that are ready and have no pool."""
    kind = "UnassignedDevice"
    idle = {name: card for name, card in courses.items() if card.phase in WAITING and not card.pool}
    if not idle:
        return DesiredCondition(kind, "False", "NoneUnassigned", "every card that is ready has a pool")
    reasons = {pending.reason for card in idle.values() for pending in card.assignment.pending}
    order = ("AwaitingApproval", "Declined", "OutOfSelector", "NoPoolMatched")
    reason = next((reason for reason in order if reason in reasons), "Joining")
    verb = "has" if len(idle) == 1 else "have"
    message = f"{name_list.part_of(len(idle), len(courses), 'card')} {verb} no pool: {named(idle)}"
    return DesiredCondition(kind, "True", reason, message)
