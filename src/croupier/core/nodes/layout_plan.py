"""Decides which cards of a node the agent repartitions.

A card is changed only if no pod has a part of it and none can get one: on a node with GPUDevices the ledger
must have withdrawn the card after it saw the planned change; otherwise only the pods of the node are checked.
If a card no longer has a layout that was applied before, it has drifted: another program repartitioned it.
A failed change is retried with backoff.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from croupier.core.cards.mig_annotation import ANNOTATION
from croupier.core.model import mig
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import Layout
from croupier.core.model.name_list import named
from croupier.core.model.refusal import Refusal
from croupier.core.model.sharing import Sharing

LayoutStepState: TypeAlias = Literal["Applied", "Waiting", "Changing", "Failed", "Drifted"]

FIRST_RETRY: Final = 30.0
LAST_RETRY: Final = 600.0
"""Seconds until a failed change is retried: the first and the longest delay."""
_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The cards of a pool, and how the pool shares them."""

    name: str
    cards: frozenset[str]
    sharing: Sharing


@dataclass(frozen=True, slots=True)
class LayoutTarget:
    """The desired layout of a card, and where it comes from."""

    layout: Layout
    source: str
    refused: str = ""
    """Why the layout is impossible for the card; `layout` is then unused."""
    text: str = ""

    @property
    def layout_text(self) -> str:
        return self.text or mig.layout_text(self.layout)


@dataclass(frozen=True, slots=True)
class LayoutFailure:
    target: str
    sentence: str
    tries: int
    again_at: float


@dataclass(frozen=True, slots=True)
class CardHistory:
    """The past of a card; a restarted agent takes it from its last report."""

    applied: str = ""
    """The text of the target that was applied last."""
    failure: LayoutFailure | None = None
    unfinished: bool = False
    """A change of the card was interrupted."""


@dataclass(frozen=True, slots=True)
class ChangeBlockers:
    """What blocks a change of a card."""

    withdrawn: bool | None = None
    """The ledger allocates nothing of the card and no pod holds a part of it; None without a ledger."""
    acknowledged: bool = True
    """Every component that could allocate the card knows about the planned change."""
    holders: tuple[str, ...] = ()
    """Pods on the node that have a part of the card."""
    assignments_unknown: bool = False
    """The assignments of the kubelet are unknown."""
    daemon: bool = False
    """An MPS daemon owns the card. It ends when no pod uses shares of the card."""

    @property
    def free(self) -> bool:
        if self.holders or self.assignments_unknown or self.daemon:
            return False
        return self.withdrawn is None or (self.withdrawn and self.acknowledged)


@dataclass(frozen=True, slots=True)
class LayoutStep:
    """The decision for one card."""

    card: str
    state: LayoutStepState = "Applied"
    target: str = ""
    message: str = ""
    history: CardHistory = field(default_factory=CardHistory)
    new_layout: Layout | None = None
    """Repartition the card to this layout now."""
    recover: bool = False
    """Restore the state before an interrupted change."""

    @property
    def acts(self) -> bool:
        return self.new_layout is not None or self.recover


def targets(
    cards: Mapping[str, GpuCard], pools: Sequence[PoolLayout], annotated: Mapping[int, Layout]
) -> dict[str, LayoutTarget]:
    """The target of each card that has one: from its pool, else from the node's annotation (by index)."""
    result = {}
    for card_id, card in cards.items():
        pool = next((pool for pool in pools if card_id in pool.cards), None)
        if pool is not None:
            result[card_id] = pool_target(card, pool)
        elif card.index in annotated:
            result[card_id] = LayoutTarget(annotated[card.index], f"annotation {ANNOTATION}")
    return result


def pool_target(card: GpuCard, pool: PoolLayout) -> LayoutTarget:
    source, sharing = f"pool {pool.name}", pool.sharing
    if sharing.mode != "MIG":
        return LayoutTarget(mig.WHOLE, source)
    layout = mig.canonical(sharing.layout) or mig.fill(card.kinds, sharing.profile)
    if isinstance(layout, Refusal):
        return LayoutTarget(mig.WHOLE, source, str(layout), sharing.profile)
    placed = mig.place(card.kinds, layout)
    return LayoutTarget(layout, source, str(placed) if isinstance(placed, Refusal) else "")


def is_applied(card: GpuCard, layout: Layout) -> bool:
    return card.layout == layout and (bool(layout) or not card.mig_enabled)


def step(
    card_id: str,
    card: GpuCard,
    target: LayoutTarget | None,
    history: CardHistory,
    *,
    blockers: ChangeBlockers,
    now: float,
) -> LayoutStep:
    if target is None:
        return _without_target(card_id, card, history, blockers=blockers, now=now)
    if target.refused:
        return LayoutStep(
            card_id, "Failed", target.layout_text, f"{target.source}: {target.refused}", history
        )
    if is_applied(card, target.layout):
        return LayoutStep(
            card_id, "Applied", target.layout_text, history=CardHistory(applied=target.layout_text)
        )
    failure = history.failure if history.failure and history.failure.target == target.layout_text else None
    drifted = history.applied == target.layout_text
    kept = replace(history, failure=failure)
    if failure is not None and now < failure.again_at:
        return LayoutStep(card_id, "Failed", target.layout_text, failure.sentence, kept)
    if card.health.healthy and blockers.free:
        message = f"the card is being repartitioned to the layout of {target.source}"
        return LayoutStep(card_id, "Changing", target.layout_text, message, kept, target.layout)
    state: LayoutStepState = "Failed" if failure else "Drifted" if drifted else "Waiting"
    return LayoutStep(
        card_id, state, target.layout_text, _waiting(card, target, blockers, drifted=drifted), kept
    )


def _without_target(
    card_id: str, card: GpuCard, history: CardHistory, *, blockers: ChangeBlockers, now: float
) -> LayoutStep:
    """The card has no target: only an interrupted change is undone."""
    if not history.unfinished:
        return LayoutStep(card_id)
    failure = history.failure
    if failure is not None and now < failure.again_at:
        return LayoutStep(card_id, "Failed", message=failure.sentence, history=history)
    if card.health.healthy and blockers.free:
        return LayoutStep(
            card_id,
            "Changing",
            message="an interrupted change is being undone",
            history=history,
            recover=True,
        )
    message = "an interrupted change cannot be undone yet"
    return LayoutStep(card_id, "Failed" if failure else "Waiting", message=message, history=history)


def _waiting(card: GpuCard, target: LayoutTarget, blockers: ChangeBlockers, *, drifted: bool) -> str:
    what = f"the layout is {mig.layout_text(card.layout)}, and {target.source} requires {target.layout_text}"
    if drifted:
        what = f"another program repartitioned the card: {what}"
    if not card.health.healthy:
        return f"{what}; the card is unhealthy"
    if blockers.holders:
        return f"{what}; waiting for {named(blockers.holders, _MAX_NAMED)}"
    if blockers.assignments_unknown:
        return f"{what}; waiting for the device assignments of the kubelet"
    if blockers.daemon:
        return f"{what}; waiting for the end of its MPS daemon"
    return f"{what}; waiting for the ledger to withdraw the card"


def with_failure(history: CardHistory, target: str, sentence: str, now: float) -> CardHistory:
    """The history after a failed change."""
    before = history.failure
    tries = before.tries + 1 if before is not None and before.target == target else 1
    wait = min(FIRST_RETRY * 2 ** (tries - 1), LAST_RETRY)
    return replace(history, failure=LayoutFailure(target, sentence, tries, now + wait))


def history_from_report(state: str, target: str) -> CardHistory:
    """The history of a card from the report of the previous agent."""
    return CardHistory(applied=target if state in ("Applied", "Drifted") else "")
