"""What the agent of a node does about how its cards are cut.

A card is changed only when nobody has anything of it and nobody will get any: where the node has GPUDevices,
the ledger must have withdrawn it, and must have done so knowing what we are about to do; where it has none,
the pods of the node are all there is to ask. A target that was reached once and is not there any more is
drift: somebody else cut the card. What failed is tried again, later and later.
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
"""Seconds until a change that failed is tried again."""
ANNOTATION: Final = "run.ai/mig.config"
_NAMED: Final = 3
"""Holders that a message names."""


@dataclass(frozen=True, slots=True)
class Card:
    """As it is seen now."""

    id: str
    index: int
    layout: Layout = mig.WHOLE
    enabled: bool = False
    """MIG mode is on."""
    kinds: tuple[Kind, ...] = ()
    healthy: bool = True
    unfinished: bool = False
    """A change of it was cut off."""


@dataclass(frozen=True, slots=True)
class Pool:
    """How a pool wants its cards, and which they are."""

    name: str
    cards: frozenset[str]
    sharing: Sharing
    slices: int = 8
    profile: str = ""
    layout: Layout = mig.WHOLE


@dataclass(frozen=True, slots=True)
class Target:
    """How a card shall be cut, and who says so."""

    layout: Layout
    source: str
    refused: str = ""
    """Why it cannot be cut so; the layout then means nothing."""
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
    """What of the past matters for a card; an agent that starts anew takes it from its last report."""

    applied: str = ""
    """The target that was reached last, as it is spelled."""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Ties:
    """What keeps a card as it is."""

    withdrawn: bool | None = None
    """The ledger gives it to nobody and nobody has anything of it; None where there is no ledger to ask."""
    acknowledged: bool = True
    """The change we are about to make is known to all who could give the card away."""
    holders: tuple[str, ...] = ()
    """Pods on the node that have something of it."""
    untold: bool = False
    """The kubelet does not tell who has what."""

    @property
    def free(self) -> bool:
        if self.holders or self.untold:
            return False
        return self.withdrawn is None or (self.withdrawn and self.acknowledged)


@dataclass(frozen=True, slots=True)
class Step:
    """What becomes of one card now."""

    card: str
    state: State = "Applied"
    target: str = ""
    message: str = ""
    memory: Memory = field(default_factory=Memory)
    recut: Layout | None = None
    """Cut it so, at once;"""
    recover: bool = False
    """or put it back to how it was before a change that was cut off."""

    @property
    def acts(self) -> bool:
        return self.recut is not None or self.recover


def targets(cards: Iterable[Card], pools: Sequence[Pool], wished: Mapping[int, Layout]) -> dict[str, Target]:
    """For each card that somebody names: its pool, else the annotation of the node (by index)."""
    found = {}
    for card in cards:
        pool = next((one for one in pools if card.id in one.cards), None)
        if pool is not None:
            found[card.id] = of_pool(card, pool)
        elif card.index in wished:
            found[card.id] = Target(wished[card.index], f"annotation {ANNOTATION}")
    return found


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
        message = f"being cut as {target.source} says"
        return Step(card.id, "Changing", target.spelled, message, kept, target.layout)
    state: State = "Failed" if failure else "Drifted" if drifted else "Waiting"
    return Step(card.id, state, target.spelled, _waiting(card, target, ties, drifted=drifted), kept)


def _left_alone(card: Card, memory: Memory, ties: Ties, now: float) -> Step:
    """Nobody asks for anything; but half a change is nothing that anybody ever asked for."""
    if not card.unfinished:
        return Step(card.id)
    failure = memory.failure
    if failure is not None and now < failure.again_at:
        return Step(card.id, "Failed", message=failure.sentence, memory=memory)
    if card.healthy and ties.free:
        return Step(
            card.id, "Changing", message="a change was cut off: it is undone", memory=memory, recover=True
        )
    message = "a change was cut off, and it cannot be undone yet"
    return Step(card.id, "Failed" if failure else "Waiting", message=message, memory=memory)


def _waiting(card: Card, target: Target, ties: Ties, *, drifted: bool) -> str:
    what = f"it is cut {mig.spelled(card.layout)}, and {target.source} says {target.spelled}"
    if drifted:
        what = f"somebody else has cut it: {what}"
    if not card.healthy:
        return f"{what}; it is not healthy"
    if ties.holders:
        return f"{what}; waits for {_listed(ties.holders)}"
    if ties.untold:
        return f"{what}; waits until the kubelet tells who has what"
    return f"{what}; waits until the ledger has withdrawn it"


def _listed(names: Sequence[str]) -> str:
    shown = sorted(names)[:_NAMED]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def failed(memory: Memory, target: str, sentence: str, now: float) -> Memory:
    """A change did not work out."""
    before = memory.failure
    tries = before.tries + 1 if before is not None and before.target == target else 1
    wait = min(FIRST_RETRY * 2 ** (tries - 1), LAST_RETRY)
    return replace(memory, failure=Failure(target, sentence, tries, now + wait))


def remembered(state: str, target: str) -> Memory:
    """From what an agent before us reported of the card."""
    return Memory(applied=target if state in ("Applied", "Drifted") else "")
