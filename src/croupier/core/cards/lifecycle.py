"""The lifecycle of a card as a transition table.

Every row has the start phases, the end phase, the owning component and a rule. The first row whose rule holds
is applied, and again until no row applies. One reconcile can take several steps; one Event reports the whole
path. docs/cards.md is generated from this table, and no other code changes the phase of a card.

A card joins or leaves a pool only when its occupancy is Withdrawn: the ledger allocates nothing of it and no
pod holds a part of it. Until then the card keeps its pool.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

CardPhase: TypeAlias = Literal[
    "Discovered", "Validating", "Ready", "PendingAssignment", "Assigned", "Reserved", "InUse", "Faulted"
]
CardState: TypeAlias = Literal["Unassigned", "Reserved", "Assigned", "Faulted"]
PhaseOwner: TypeAlias = Literal[
    "gpu-inventory-controller", "gpu-bootstrap-controller", "gpupool-controller", "croupier-ledger"
]
Occupancy: TypeAlias = Literal["Free", "Withdrawn", "Reserved", "InUse", "Unknown"]

INVENTORY: Final[PhaseOwner] = "gpu-inventory-controller"
BOOTSTRAP: Final[PhaseOwner] = "gpu-bootstrap-controller"
POOL: Final[PhaseOwner] = "gpupool-controller"
LEDGER: Final[PhaseOwner] = "croupier-ledger"

STATES: Final[dict[CardPhase, CardState]] = {
    "Discovered": "Unassigned",
    "Validating": "Unassigned",
    "Ready": "Unassigned",
    "PendingAssignment": "Unassigned",
    "Assigned": "Assigned",
    "Reserved": "Reserved",
    "InUse": "Reserved",
    "Faulted": "Faulted",
}
CLEAN: Final = 3
"""Consecutive heartbeats without a fault after which a faulted card recovers."""


@dataclass(frozen=True, slots=True)
class CardTrouble:
    """Why a card or its node cannot serve: `reason` for a condition, `sentence` for its message."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class CardFacts:
    """The inputs of the lifecycle of a card."""

    managed: bool = True
    ignored: bool = False
    checked: bool = False
    """The bootstrap controller has validated the node."""
    prepared: bool = False
    """Driver, toolkit and monitoring of the node are known to work."""
    trouble: CardTrouble | None = None
    """Why driver, toolkit or monitoring of the node fail."""
    fault: CardTrouble | None = None
    """Why the card itself is unhealthy."""
    clean: int = 0
    """Consecutive heartbeats without a fault."""
    incomplete: str = ""
    """Why the inventory of the node is incomplete, as a sentence; it keeps cards from joining pools."""
    matched: bool = False
    """The selector of at least one pool matches the card."""
    wanted: str = ""
    """The pool the card should join."""
    pool: str = ""
    """The pool the card is in now."""
    occupancy: Occupancy = "Unknown"

    @property
    def set_aside(self) -> bool:
        return self.ignored or not self.managed

    @property
    def held(self) -> bool:
        return self.occupancy in ("Reserved", "InUse")

    @property
    def why(self) -> str:
        """Why the card cannot serve, as a sentence."""
        if self.set_aside:
            return "it carries the ignore label" if self.ignored else "its node is not managed"
        cause = self.fault or self.trouble
        return cause.sentence if cause is not None else ""

    @property
    def goal(self) -> str:
        """The desired pool. A card that is set aside has none, whatever its annotation says."""
        return "" if self.set_aside else self.wanted


CardPredicate: TypeAlias = Callable[[CardFacts], bool]


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """When a transition applies: `words` for the documentation, `holds` as the predicate."""

    words: str
    holds: CardPredicate


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the table. `end` None keeps the phase. `says` may use {pool}, {goal} and {why}."""

    starts: tuple[CardPhase, ...]
    end: CardPhase | None
    owner: PhaseOwner
    rule: TransitionRule
    reason: str
    message: str
    pool: Literal["stays", "joins", "leaves"] = "stays"
    """The effect on the pool of the card."""
    is_warning: bool = False
    """The type of its Event is Warning."""


@dataclass(frozen=True, slots=True)
class TransitionTaken:
    """One transition that was taken."""

    start: CardPhase
    end: CardPhase
    row: Transition
    sentence: str
    pool: str
    """The pool of the card after the transition."""

    @property
    def owner(self) -> PhaseOwner:
        return self.row.owner

    @property
    def reason(self) -> str:
        return self.row.reason


_LEAVES: Final = TransitionRule(
    "its assignment was removed or changed, and the ledger has withdrawn it",
    lambda facts: facts.pool not in ("", facts.goal) and facts.occupancy == "Withdrawn",
)
_WITHOUT_POOL: Final = TransitionRule("it is in no pool", lambda facts: not facts.pool)
_SET_ASIDE: Final = TransitionRule(
    "it carries the ignore label, or its node is not managed", lambda f: f.set_aside
)
_BROKEN: Final = TransitionRule(
    "the card itself is unhealthy: a critical XID, memory errors, overheating, or no response",
    lambda facts: facts.fault is not None and not facts.set_aside,
)
_NODE_FAILING: Final = TransitionRule(
    "driver, toolkit or monitoring of the node fail",
    lambda facts: facts.trouble is not None and not facts.set_aside,
)
_NODE_FAILING_FREE: Final = TransitionRule(
    "driver, toolkit or monitoring of the node fail, and no pod holds a part of it",
    lambda facts: facts.trouble is not None and not facts.set_aside and not facts.held,
)
_RECOVERED: Final = TransitionRule(
    f"{CLEAN} clean heartbeats in a row, and driver, toolkit and monitoring do not fail",
    lambda facts: facts.fault is None and facts.trouble is None and facts.clean >= CLEAN,
)
_CHECKED: Final = TransitionRule(
    "its node has been validated", lambda facts: facts.checked and not facts.set_aside
)
_PREPARED: Final = TransitionRule(
    "driver, toolkit and monitoring work", lambda facts: facts.prepared and facts.trouble is None
)
_MATCHED: Final = TransitionRule("a pool's selector matches", lambda facts: facts.matched or bool(facts.goal))
_UNMATCHED: Final = TransitionRule(
    "no pool's selector matches any more", lambda f: not f.matched and not f.goal
)
_JOINS: Final = TransitionRule(
    "it was assigned by annotation or approval, its node's inventory is complete,"
    " and the ledger has withdrawn it",
    lambda facts: (
        bool(facts.goal) and not facts.pool and not facts.incomplete and facts.occupancy == "Withdrawn"
    ),
)
_RETURNS: Final = TransitionRule(
    "it is in that pool already", lambda facts: bool(facts.goal) and facts.pool == facts.goal
)
_HELD: Final = TransitionRule("the ledger holds a part of it for a pod", lambda facts: facts.held)
_RUNS: Final = TransitionRule(
    "a pod that holds a part of it is bound", lambda facts: facts.occupancy == "InUse"
)
_UNHELD: Final = TransitionRule(
    "no pod holds a part of it: the hold was released or expired",
    lambda facts: facts.occupancy in ("Free", "Withdrawn"),
)
_ENDED: Final = TransitionRule(
    "no pod that holds a part of it is bound any more",
    lambda facts: facts.occupancy in ("Free", "Withdrawn", "Reserved"),
)

TABLE: Final[tuple[Transition, ...]] = (
    Transition(("Assigned",), "Ready", POOL, _LEAVES, "GPUUnassigned", "left the pool {pool}", pool="leaves"),
    Transition(
        ("Discovered", "Validating", "Ready", "PendingAssignment", "Faulted"),
        None,
        POOL,
        _LEAVES,
        "GPUUnassigned",
        "left the pool {pool}",
        pool="leaves",
    ),
    Transition(
        ("Assigned", "Reserved", "InUse"), "Ready", POOL, _WITHOUT_POOL, "GPUUnassigned", "is in no pool"
    ),
    Transition(
        ("Validating", "Ready", "PendingAssignment", "Faulted"),
        "Discovered",
        INVENTORY,
        _SET_ASIDE,
        "GPUSetAside",
        "is set aside: {why}",
    ),
    Transition(
        ("Discovered", "Validating", "Ready", "PendingAssignment", "Assigned", "Reserved", "InUse"),
        "Faulted",
        BOOTSTRAP,
        _BROKEN,
        "GPUDeviceDegraded",
        "{why}",
        is_warning=True,
    ),
    Transition(
        ("Discovered", "Validating"),
        "Faulted",
        BOOTSTRAP,
        _NODE_FAILING,
        "GPUDeviceDegraded",
        "{why}",
        is_warning=True,
    ),
    Transition(
        ("Ready", "PendingAssignment", "Assigned"),
        "Faulted",
        BOOTSTRAP,
        _NODE_FAILING_FREE,
        "GPUDeviceDegraded",
        "{why}",
        is_warning=True,
    ),
    Transition(
        ("Faulted",),
        "Validating",
        BOOTSTRAP,
        _RECOVERED,
        "GPURecovered",
        f"had {CLEAN} clean heartbeats in a row",
    ),
    Transition(("Discovered",), "Validating", BOOTSTRAP, _CHECKED, "GPUValidating", "is being validated"),
    Transition(
        ("Validating",), "Ready", BOOTSTRAP, _PREPARED, "GPUReady", "driver, toolkit and monitoring work"
    ),
    Transition(("Ready",), "PendingAssignment", POOL, _MATCHED, "GPUPendingAssignment", "matches a pool"),
    Transition(("PendingAssignment",), "Ready", POOL, _UNMATCHED, "GPUUnmatched", "matches no pool any more"),
    Transition(("PendingAssignment",), "Assigned", POOL, _RETURNS, "GPUAssigned", "serves the pool {goal}"),
    Transition(
        ("PendingAssignment",),
        "Assigned",
        POOL,
        _JOINS,
        "GPUAssigned",
        "serves the pool {goal}",
        pool="joins",
    ),
    Transition(("Assigned",), "Reserved", LEDGER, _HELD, "GPUReserved", "is held for a pod"),
    Transition(("Reserved",), "InUse", LEDGER, _RUNS, "GPUInUse", "is used by a pod"),
    Transition(("Reserved",), "Assigned", LEDGER, _UNHELD, "GPUReleased", "is not held for a pod any more"),
    Transition(("InUse",), "Assigned", LEDGER, _ENDED, "GPUReleased", "is used by no pod any more"),
)


def advance(phase: CardPhase, facts: CardFacts) -> tuple[TransitionTaken, ...]:
    """The transitions to take, in order; none if no row of the table applies."""
    return tuple(_steps(phase, facts))


def _steps(phase: CardPhase, facts: CardFacts) -> Iterator[TransitionTaken]:
    while (row := _due(phase, facts)) is not None:
        end = row.end or phase
        pool = {"stays": facts.pool, "joins": facts.goal, "leaves": ""}[row.pool]
        yield TransitionTaken(phase, end, row, _sentence(row, facts), pool)
        phase, facts = end, replace(facts, pool=pool)


def _due(phase: CardPhase, facts: CardFacts) -> Transition | None:
    return next((row for row in TABLE if phase in row.starts and row.rule.holds(facts)), None)


def _sentence(row: Transition, facts: CardFacts) -> str:
    return row.message.format(pool=facts.pool, goal=facts.goal, why=facts.why)


def event_note(steps: tuple[TransitionTaken, ...]) -> str:
    """The note of one Event: the path of phases and the sentence of the last transition."""
    path = [steps[0].start, *(step.end for step in steps if step.end != step.start)]
    return f"{' -> '.join(path)}: {steps[-1].sentence}"


def obstacle(phase: CardPhase, facts: CardFacts) -> str:
    """Why no pool may take the card, as a sentence: from the phase it would have without any pool."""
    steps = advance(phase, replace(facts, matched=False, wanted=facts.pool))
    final = steps[-1].end if steps else phase
    if final == "Faulted":
        return (
            f"it is faulted: {facts.why}" if facts.why else "it is faulted and has too few clean heartbeats"
        )
    if final in ("Discovered", "Validating"):
        return "its node is still being validated"
    return facts.incomplete
