"""Where the cards of a node go from here: what pools say and what the card's own life says, put together.

Pools are asked only about cards that could join; the table of a card's life (core/cards/lifecycle.py) is
walked with their answer. What stands in the annotation counts, not what is about to be written into it: the
ledger withdraws a card when it sees the annotation, so only from then on is a withdrawn card withdrawn for
that.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from croupier.core.cards import lifecycle
from croupier.core.cards.lifecycle import CardFacts, Phase, Step
from croupier.core.nodes.bootstrap import Judged, named
from croupier.core.pools import assignment
from croupier.core.pools.assignment import Approval, Assignment, Card, Pool

CONDITIONS: Final = ("ReadyForPooling", "ManagedDisabled", "Ignored", "Faulted")
"""The conditions of a card that are judged here."""
WAITING: Final[tuple[Phase, ...]] = ("Ready", "PendingAssignment")


@dataclass(frozen=True, slots=True)
class Standing:
    """A card as it stands; `facts` without what pools say, `card` without an obstacle."""

    card: Card
    phase: Phase
    facts: CardFacts


@dataclass(frozen=True, slots=True)
class Course:
    """Where a card goes, and by which steps; `facts` are complete."""

    phase: Phase
    pool: str
    facts: CardFacts
    assignment: Assignment
    steps: tuple[Step, ...] = ()
    obstacle: str = ""


def decide(
    cards: Sequence[Standing], node_labels: Mapping[str, str], pools: Iterable[Pool], approval: Approval
) -> dict[str, Course]:
    """By the id of the card, for all cards of one node."""
    obstacles = {one.card.id: lifecycle.obstacle(one.phase, one.facts) for one in cards}
    asked = [replace(one.card, obstacle=obstacles[one.card.id]) for one in cards]
    answers = assignment.decide(asked, node_labels, pools, approval)
    return {one.card.id: _course(one, answers[one.card.id], obstacles[one.card.id]) for one in cards}


def _course(standing: Standing, answer: Assignment, obstacle: str) -> Course:
    facts = replace(
        standing.facts,
        pool=standing.card.pool,
        matched=bool(answer.pool)
        or any(one.pool and one.reason != "OutOfSelector" for one in answer.pending),
        wanted=answer.pool if answer.annotation is None else standing.card.pool,
    )
    steps = lifecycle.walk(standing.phase, facts)
    phase, pool = (steps[-1].end, steps[-1].pool) if steps else (standing.phase, facts.pool)
    return Course(phase, pool, facts, answer, steps, obstacle)


def conditions(course: Course) -> tuple[Judged, ...]:
    """What is said of the card. One that is ignored is left alone: nothing else is said of it."""
    facts = course.facts
    if facts.ignored:
        return (
            Judged("Ignored", "True", "Label", "the card carries the label gpu.deckhouse.io/ignore=true"),
        )
    return (
        _ready(course),
        Judged("ManagedDisabled", "False", "Managed", "the card is managed")
        if facts.managed
        else Judged("ManagedDisabled", "True", "NodeLabel", "the node's label says to leave its cards alone"),
        Judged("Ignored", "False", "NoLabel", "the card does not carry the label gpu.deckhouse.io/ignore"),
        _faulted(course),
    )


def _ready(course: Course) -> Judged:
    said, facts = "ReadyForPooling", course.facts
    if not facts.managed:
        return Judged(said, "False", "NotManaged", "its node is not managed")
    if not course.obstacle:
        return Judged(said, "True", "Ready", "a pool may take the card")
    if course.phase == "Faulted":
        return Judged(said, "False", "Faulted", course.obstacle)
    reason = "InventoryIncomplete" if course.obstacle == facts.incomplete else "NotChecked"
    return Judged(said, "False", reason, course.obstacle)


def _faulted(course: Course) -> Judged:
    facts = course.facts
    if course.phase != "Faulted":
        return Judged("Faulted", "False", "Healthy", "the card is not faulted")
    found = facts.fault or facts.trouble
    if found is not None:
        return Judged("Faulted", "True", found.reason, found.sentence)
    waits = f"the card needs {lifecycle.CLEAN} clean heartbeats in a row"
    return Judged("Faulted", "True", "Recovering", waits)


def unassigned(courses: Mapping[str, Course]) -> Judged:
    """Whether cards of the node are ready and serve nobody."""
    said = "UnassignedDevice"
    idle = {name: one for name, one in courses.items() if one.phase in WAITING and not one.pool}
    if not idle:
        return Judged(said, "False", "NoneUnassigned", "no card that could serve is without a pool")
    pending = [line for one in idle.values() for line in one.assignment.pending]
    reasons = {line.reason for line in pending}
    order = ("AwaitingApproval", "Declined", "OutOfSelector", "NoPoolMatched")
    reason = next((one for one in order if one in reasons), "Joining")
    message = f"{len(idle)} of {len(courses)} cards serve no pool: {named(idle)}"
    return Judged(said, "True", reason, message)
