"""The life of a card, from being found to being used, as one table.

Every row says where it leads from and to, whose word it is, and when it holds; the first row that holds is
gone, and so on until the card rests. A look may be late, so several steps can be due at once: the path is
told as a whole. docs/cards.md draws this table, and nobody else changes a card's phase.

A card joins or leaves a pool only when the ledger says that it gives nothing of it and nobody holds
anything (Withdrawn). Until then it stays where it is, whatever anybody wishes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

Phase: TypeAlias = Literal[
    "Discovered", "Validating", "Ready", "PendingAssignment", "Assigned", "Reserved", "InUse", "Faulted"
]
State: TypeAlias = Literal["Unassigned", "Reserved", "Assigned", "Faulted"]
Owner: TypeAlias = Literal[
    "gpu-inventory-controller", "gpu-bootstrap-controller", "gpupool-controller", "croupier-ledger"
]
Occupancy: TypeAlias = Literal["Free", "Withdrawn", "Reserved", "InUse", "Unknown"]

INVENTORY: Final[Owner] = "gpu-inventory-controller"
BOOTSTRAP: Final[Owner] = "gpu-bootstrap-controller"
POOL: Final[Owner] = "gpupool-controller"
LEDGER: Final[Owner] = "croupier-ledger"

STATES: Final[dict[Phase, State]] = {
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
"""Heartbeats without a fault in a row that bring a faulted card back."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """`reason` is one word, `sentence` what a person reads."""

    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class CardFacts:
    """All that a card's phase depends on."""

    managed: bool = True
    ignored: bool = False
    checked: bool = False
    """The validator has looked at the node."""
    prepared: bool = False
    """Driver, toolkit and monitoring of the node are known to be right."""
    trouble: Trouble | None = None
    """Driver, toolkit or monitoring of the node are known to be wrong."""
    fault: Trouble | None = None
    """The card itself is broken."""
    clean: int = 0
    """Heartbeats without a fault in a row."""
    incomplete: str = ""
    """Why the node's inventory cannot be relied on, in a sentence; it keeps cards from joining pools."""
    matched: bool = False
    """At least one pool would take it."""
    wanted: str = ""
    """The pool it shall serve."""
    pool: str = ""
    """The pool it serves now."""
    occupancy: Occupancy = "Unknown"

    @property
    def set_aside(self) -> bool:
        return self.ignored or not self.managed

    @property
    def held(self) -> bool:
        return self.occupancy in ("Reserved", "InUse")

    @property
    def why(self) -> str:
        """What keeps it from serving, in a sentence."""
        if self.set_aside:
            return "it carries the ignore label" if self.ignored else "its node is not managed"
        found = self.fault or self.trouble
        return found.sentence if found is not None else ""

    @property
    def goal(self) -> str:
        """What is set aside serves no pool, whatever its annotation says."""
        return "" if self.set_aside else self.wanted


When: TypeAlias = Callable[[CardFacts], bool]


@dataclass(frozen=True, slots=True)
class Rule:
    """When a change is due: in words for the docs, and as the condition itself."""

    words: str
    holds: When


@dataclass(frozen=True, slots=True)
class Row:
    """`end` None: the phase stays as it is. `says` may name the {pool}, the {goal} and {why}."""

    starts: tuple[Phase, ...]
    end: Phase | None
    owner: Owner
    rule: Rule
    reason: str
    says: str
    pool: Literal["stays", "joins", "leaves"] = "stays"
    """What becomes of the card's pool."""
    grave: bool = False
    """Its Event is a Warning."""


@dataclass(frozen=True, slots=True)
class Step:
    """One row, gone."""

    start: Phase
    end: Phase
    row: Row
    sentence: str
    pool: str
    """The pool of the card after it."""

    @property
    def owner(self) -> Owner:
        return self.row.owner

    @property
    def reason(self) -> str:
        return self.row.reason


_LEAVES: Final = Rule(
    "its assignment was removed or changed, and the ledger has withdrawn it",
    lambda facts: facts.pool not in ("", facts.goal) and facts.occupancy == "Withdrawn",
)
_POOLLESS: Final = Rule("it is in no pool after all", lambda facts: not facts.pool)
_SET_ASIDE: Final = Rule("it carries the ignore label, or its node is not managed", lambda f: f.set_aside)
_BROKEN: Final = Rule(
    "the card itself is broken: a critical XID, memory errors, heat, or it does not answer",
    lambda facts: facts.fault is not None and not facts.set_aside,
)
_UNFIT: Final = Rule(
    "driver, toolkit or monitoring of the node fail",
    lambda facts: facts.trouble is not None and not facts.set_aside,
)
_UNFIT_FREE: Final = Rule(
    "driver, toolkit or monitoring of the node fail, and nobody holds it",
    lambda facts: facts.trouble is not None and not facts.set_aside and not facts.held,
)
_RECOVERED: Final = Rule(
    f"{CLEAN} clean heartbeats in a row, and driver, toolkit and monitoring do not fail",
    lambda facts: facts.fault is None and facts.trouble is None and facts.clean >= CLEAN,
)
_CHECKED: Final = Rule(
    "the validator has looked at its node", lambda facts: facts.checked and not facts.set_aside
)
_PREPARED: Final = Rule(
    "driver, toolkit and monitoring are right", lambda facts: facts.prepared and facts.trouble is None
)
_MATCHED: Final = Rule("a pool's selector matches", lambda facts: facts.matched or bool(facts.goal))
_UNMATCHED: Final = Rule("no pool's selector matches any more", lambda f: not f.matched and not f.goal)
_JOINS: Final = Rule(
    "it was assigned by annotation or approval, its node's inventory is complete,"
    " and the ledger has withdrawn it",
    lambda facts: (
        bool(facts.goal) and not facts.pool and not facts.incomplete and facts.occupancy == "Withdrawn"
    ),
)
_RETURNS: Final = Rule("it has a pool already", lambda facts: bool(facts.goal) and facts.pool == facts.goal)
_HELD: Final = Rule("the ledger holds some of it for a pod", lambda facts: facts.held)
_RUNS: Final = Rule("a pod that holds some of it is bound", lambda facts: facts.occupancy == "InUse")
_UNHELD: Final = Rule(
    "nobody holds anything of it: the hold was dropped or expired",
    lambda facts: facts.occupancy in ("Free", "Withdrawn"),
)
_ENDED: Final = Rule(
    "no pod that holds some of it is bound any more",
    lambda facts: facts.occupancy in ("Free", "Withdrawn", "Reserved"),
)

TABLE: Final[tuple[Row, ...]] = (
    Row(("Assigned",), "Ready", POOL, _LEAVES, "GPUUnassigned", "left the pool {pool}", pool="leaves"),
    Row(
        ("Discovered", "Validating", "Ready", "PendingAssignment", "Faulted"),
        None,
        POOL,
        _LEAVES,
        "GPUUnassigned",
        "left the pool {pool}",
        pool="leaves",
    ),
    Row(("Assigned", "Reserved", "InUse"), "Ready", POOL, _POOLLESS, "GPUUnassigned", "is in no pool"),
    Row(
        ("Validating", "Ready", "PendingAssignment", "Faulted"),
        "Discovered",
        INVENTORY,
        _SET_ASIDE,
        "GPUSetAside",
        "is set aside: {why}",
    ),
    Row(
        ("Discovered", "Validating", "Ready", "PendingAssignment", "Assigned", "Reserved", "InUse"),
        "Faulted",
        BOOTSTRAP,
        _BROKEN,
        "GPUDeviceDegraded",
        "{why}",
        grave=True,
    ),
    Row(("Discovered", "Validating"), "Faulted", BOOTSTRAP, _UNFIT, "GPUDeviceDegraded", "{why}", grave=True),
    Row(
        ("Ready", "PendingAssignment", "Assigned"),
        "Faulted",
        BOOTSTRAP,
        _UNFIT_FREE,
        "GPUDeviceDegraded",
        "{why}",
        grave=True,
    ),
    Row(
        ("Faulted",),
        "Validating",
        BOOTSTRAP,
        _RECOVERED,
        "GPURecovered",
        f"had {CLEAN} clean heartbeats in a row",
    ),
    Row(("Discovered",), "Validating", BOOTSTRAP, _CHECKED, "GPUValidating", "is being checked"),
    Row(
        ("Validating",), "Ready", BOOTSTRAP, _PREPARED, "GPUReady", "driver, toolkit and monitoring are right"
    ),
    Row(("Ready",), "PendingAssignment", POOL, _MATCHED, "GPUPendingAssignment", "matches a pool"),
    Row(("PendingAssignment",), "Ready", POOL, _UNMATCHED, "GPUUnmatched", "matches no pool any more"),
    Row(("PendingAssignment",), "Assigned", POOL, _RETURNS, "GPUAssigned", "serves the pool {goal}"),
    Row(
        ("PendingAssignment",),
        "Assigned",
        POOL,
        _JOINS,
        "GPUAssigned",
        "serves the pool {goal}",
        pool="joins",
    ),
    Row(("Assigned",), "Reserved", LEDGER, _HELD, "GPUReserved", "is held for a pod"),
    Row(("Reserved",), "InUse", LEDGER, _RUNS, "GPUInUse", "is used by a pod"),
    Row(("Reserved",), "Assigned", LEDGER, _UNHELD, "GPUReleased", "is held for nobody any more"),
    Row(("InUse",), "Assigned", LEDGER, _ENDED, "GPUReleased", "is used by no pod any more"),
)


def walk(phase: Phase, facts: CardFacts) -> tuple[Step, ...]:
    """The steps that are due, in their order; none when the card rests where it is."""
    return tuple(_steps(phase, facts))


def _steps(phase: Phase, facts: CardFacts) -> Iterator[Step]:
    while (row := _due(phase, facts)) is not None:
        end = row.end or phase
        pool = {"stays": facts.pool, "joins": facts.goal, "leaves": ""}[row.pool]
        yield Step(phase, end, row, _sentence(row, facts), pool)
        phase, facts = end, replace(facts, pool=pool)


def _due(phase: Phase, facts: CardFacts) -> Row | None:
    return next((row for row in TABLE if phase in row.starts and row.rule.holds(facts)), None)


def _sentence(row: Row, facts: CardFacts) -> str:
    return row.says.format(pool=facts.pool, goal=facts.goal, why=facts.why)


def told(steps: tuple[Step, ...]) -> str:
    """The path and its last sentence, for one Event."""
    path = [steps[0].start, *(step.end for step in steps if step.end != step.start)]
    return f"{' -> '.join(path)}: {steps[-1].sentence}"


def obstacle(phase: Phase, facts: CardFacts) -> str:
    """Why no pool may take the card, in a sentence: where it would rest if no pool had a word."""
    steps = walk(phase, replace(facts, matched=False, wanted=facts.pool))
    rests = steps[-1].end if steps else phase
    if rests == "Faulted":
        return (
            f"it is faulted: {facts.why}" if facts.why else "it is faulted and was not seen clean long enough"
        )
    if rests in ("Discovered", "Validating"):
        return "its node is still being checked"
    return facts.incomplete
