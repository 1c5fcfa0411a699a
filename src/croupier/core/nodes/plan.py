"""Decides which cards of a node the agent repartitions.

A card is changed only if no pod has a part of it and none can get one: on a node with GPUDevices the ledger
must have withdrawn the card after it saw the planned change; otherwise only the pods of the node are checked.
If a card no longer has a layout that was applied before, it has drifted: another program repartitioned it.
A failed change is retried with backoff.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from croupier.core.cards import mig
from croupier.core.cards.mig import Kind, Layout
from croupier.core.ledgers.ledger import Refused

State: TypeAlias = Literal["Applied", "Waiting", "Changing", "Failed", "Drifted"]
Sharing: TypeAlias = Literal["Exclusive", "MIG", "TimeSlice", "MPS"]

FIRST_RETRY: Final = 30.0
LAST_RETRY: Final = 600.0
"""Seconds until a failed change is retried: the first and the longest delay."""
ANNOTATION: Final = "run.ai/mig.config"
_NAMED: Final = 3
"""The largest number of pods that a message names."""


@dataclass(frozen=True, slots=True)
class Card:
    """A card as the driver reports it now."""

    id: str
    index: int
    layout: Layout = mig.WHOLE
    enabled: bool = False
    """MIG mode is on."""
    kinds: tuple[Kind, ...] = ()
    healthy: bool = True
    unfinished: bool = False
    """A change of the card was interrupted."""


@dataclass(frozen=True, slots=True)
class Pool:
    """The cards of a pool, and the layout that the pool specifies."""

    name: str
    cards: frozenset[str]
    sharing: Sharing
    slices: int = 8
    profile: str = ""
    layout: Layout = mig.WHOLE


@dataclass(frozen=True, slots=True)
class Target:
    """The desired layout of a card, and where it comes from."""

    layout: Layout
    source: str
    refused: str = ""
    """Why the layout is impossible for the card; `layout` is then unused."""
    text: str = ""

    @property
    def spelled(self) -> str:
        return self.text or mig.spelled(self.layout)


@dataclass(frozen=True, slots=True)
class Failure:
    target: str
    sentence: str
    tries: int
    again_at: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The past of a card; a restarted agent takes it from its last report."""

    applied: str = ""
    """The text of the target that was applied last."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Ties:
    """What blocks a change of a card."""

    withdrawn: bool | None = None
    """The ledger allocates nothing of the card and no pod holds a part of it; None without a ledger."""
    acknowledged: bool = True
    """Every component that could allocate the card knows about the planned change."""
    holders: tuple[str, ...] = ()
    """Pods on the node that have a part of the card."""
    untold: bool = False
    """The assignments of the kubelet are unknown."""

    @property
    def free(self) -> bool:
        if self.holders or self.untold:
            return False
        return self.withdrawn is None or (self.withdrawn and self.acknowledged)


@dataclass(frozen=True, slots=True)
class Step:
    """The decision for one card."""

    card: str
    state: State = "Applied"
    target: str = ""
    message: str = ""
    memory: Memory = field(default_factory=Memory)
    recut: Layout | None = None
    """Repartition the card to this layout now."""
    recover: bool = False
    """Restore the state before an interrupted change."""

    @property
    def acts(self) -> bool:
        return self.recut is not None or self.recover


def targets(cards: Iterable[Card], pools: Sequence[Pool], wished: Mapping[int, Layout]) -> dict[str, Target]:
    """The target of each card that has one: from its pool, else from the node's annotation (by index)."""
    result = {}
    for card in cards:
        pool = next((pool for pool in pools if card.id in pool.cards), None)
        if pool is not None:
            result[card.id] = of_pool(card, pool)
        elif card.index in wished:
            result[card.id] = Target(wished[card.index], f"annotation {ANNOTATION}")
    return result


def of_pool(card: Card, pool: Pool) -> Target:
    source = f"pool {pool.name}"
    if pool.sharing != "MIG":
        return Target(mig.WHOLE, source)
    layout = pool.layout or mig.fill(card.kinds, pool.profile)
    if isinstance(layout, Refused):
        return Target(mig.WHOLE, source, str(layout), pool.profile)
    placed = mig.place(card.kinds, layout)
    return Target(layout, source, str(placed) if isinstance(placed, Refused) else "")


def reached(card: Card, layout: Layout) -> bool:
    return card.layout == layout and (bool(layout) or not card.enabled)


def step(card: Card, target: Target | None, memory: Memory, *, ties: Ties, now: float) -> Step:
    if target is None:
        return _left_alone(card, memory, ties, now)
    if target.refused:
        return Step(card.id, "Failed", target.spelled, f"{target.source}: {target.refused}", memory)
    if reached(card, target.layout):
        return Step(card.id, "Applied", target.spelled, memory=Memory(applied=target.spelled))
    failure = memory.failure if memory.failure and memory.failure.target == target.spelled else None
    drifted = memory.applied == target.spelled
    kept = replace(memory, failure=failure)
    if failure is not None and now < failure.again_at:
        return Step(card.id, "Failed", target.spelled, failure.sentence, kept)
    if card.healthy and ties.free:
        message = f"the card is being repartitioned to the layout of {target.source}"
        return Step(card.id, "Changing", target.spelled, message, kept, target.layout)
    state: State = "Failed" if failure else "Drifted" if drifted else "Waiting"
    return Step(card.id, state, target.spelled, _waiting(card, target, ties, drifted=drifted), kept)


def _left_alone(card: Card, memory: Memory, ties: Ties, now: float) -> Step:
    """The card has no target: only an interrupted change is undone."""
    if not card.unfinished:
        return Step(card.id)
    failure = memory.failure
    if failure is not None and now < failure.again_at:
        return Step(card.id, "Failed", message=failure.sentence, memory=memory)
    if card.healthy and ties.free:
        return Step(
            card.id, "Changing", message="an interrupted change is being undone", memory=memory, recover=True
        )
    message = "an interrupted change cannot be undone yet"
    return Step(card.id, "Failed" if failure else "Waiting", message=message, memory=memory)


def _waiting(card: Card, target: Target, ties: Ties, *, drifted: bool) -> str:
    what = f"the layout is {mig.spelled(card.layout)}, and {target.source} requires {target.spelled}"
    if drifted:
        what = f"another program repartitioned the card: {what}"
    if not card.healthy:
        return f"{what}; the card is unhealthy"
    if ties.holders:
        return f"{what}; waiting for {_listed(ties.holders)}"
    if ties.untold:
        return f"{what}; waiting for the device assignments of the kubelet"
    return f"{what}; waiting for the ledger to withdraw the card"


def _listed(names: Sequence[str]) -> str:
    shown = sorted(names)[:_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def failed(memory: Memory, target: str, sentence: str, now: float) -> Memory:
    """The history after a failed change."""
    before = memory.failure
    tries = before.tries + 1 if before is not None and before.target == target else 1
    wait = min(FIRST_RETRY * 2 ** (tries - 1), LAST_RETRY)
    return replace(memory, failure=Failure(target, sentence, tries, now + wait))


def remembered(state: str, target: str) -> Memory:
    """The history of a card from the report of the previous agent."""
    return Memory(applied=target if state in ("Applied", "Drifted") else "")
