"""Decides which pool each card of a node belongs to, and why a card has none.

The first applicable rule wins: the assignment annotation of the card, which a user sets; automatic approval
by the pool; the module setting `deviceApproval` for pools without their own rule. An automatic decision is
stored in the same annotation, so that all components read one source and a newer pool cannot take the card
away. A card that two pools would take automatically goes to neither.

A card joins a pool only when it is in none: a card whose annotation is removed must leave its pool first.
Running pods are not affected.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from croupier.core.model import name_list
from croupier.core.model.sharing import Sharing
from croupier.core.pools import mig_support, selection
from croupier.core.pools.mig_support import UNKNOWN_SUPPORT, MigSupport, SelectedCards
from croupier.core.pools.selection import ANYTHING, EVERY_CARD, CardSelector, CardTraits, LabelMatch

ASSIGNMENT: Final = "gpu.deckhouse.io/assignment"
_UNKNOWN_INDEX: Final = 1 << 16
"""The sort key of a card without a known index."""
WHOLE_CARDS: Final = Sharing("Exclusive")
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

PendingReason: TypeAlias = Literal["AwaitingApproval", "NoPoolMatched", "OutOfSelector", "Declined"]
ApprovalMode: TypeAlias = Literal["Manual", "Automatic", "Selector"]


@dataclass(frozen=True, slots=True)
class Approval:
    """The module setting `deviceApproval`, for pools without their own approval rule."""

    mode: ApprovalMode = "Manual"
    selector: LabelMatch = ANYTHING
    """The card labels to match in mode Selector."""

    def approves(self, card: CardTraits) -> bool:
        if self.mode == "Selector":
            return selection.matches_labels(card.labels, self.selector)
        return self.mode == "Automatic"


MANUAL_APPROVAL: Final = Approval()
"""Only a user assigns cards to pools."""


@dataclass(frozen=True, slots=True)
class AssignableCard:
    """One card of the node, as far as its assignment depends on it."""

    traits: CardTraits
    annotation: str = ""
    """The pool in the annotation gpu.deckhouse.io/assignment."""
    pool: str = ""
    """The current pool (status.poolRef)."""
    obstacle: str = ""
    """Why no pool may take the card now, as a clause such as `it is faulted`; empty if one may."""
    excluded: bool = False
    """The card is ignored or not managed: it gets no pool."""
    drained: bool = False
    """A user drained the card: no pool takes it automatically."""
    busy: bool = False
    """A pod holds a part of the card: a pool with too many cards of the node gives up other cards first."""
    mig: MigSupport = UNKNOWN_SUPPORT
    restored: bool = False
    """Pods hold the card in `pool`, but its record was created again: it gets its annotation back."""

    @property
    def id(self) -> str:
        return self.traits.id


@dataclass(frozen=True, slots=True)
class AssignmentPool:
    name: str
    resource: str = ""
    created: datetime = LONG_AGO
    nodes: LabelMatch = ANYTHING
    devices: CardSelector = EVERY_CARD
    auto_assign_all: bool = False
    """requireAnnotation: false."""
    auto_assign_selector: LabelMatch | None = None
    """autoApproveSelector, of cards by their labels."""
    max_per_node: int | None = None
    sharing: Sharing = WHOLE_CARDS
    """How the pool shares its cards (spec.allocation)."""
    deleting: bool = False
    """The pool is being deleted: it takes no cards, and keeps its cards until they are free."""


@dataclass(frozen=True, slots=True)
class PendingAssignment:
    """Why a card has no pool. `hint` is the annotation that a user would set."""

    reason: PendingReason
    sentence: str
    pool: str = ""
    hint: str = ""
    auto: bool = False
    """The pool takes the card automatically once the obstacle is gone."""
    joins_when_ready: bool = False
    """Only the card is not ready: it joins by itself once it is."""


@dataclass(frozen=True, slots=True)
class Assignment:
    pool: str = ""
    """The desired pool; empty for none. A card in another pool leaves that pool first."""
    annotation: str | None = None
    """The new annotation: None keeps it, empty removes it."""
    auto: bool = False
    """A pool takes the card automatically, or would (status.autoAttach)."""
    pending: tuple[PendingAssignment, ...] = ()
    """One entry for each pool that could take the card; empty if it has a pool or is excluded."""
    mismatch: str = ""
    """Why the annotation is invalid and removed (Event GPUAnnotationMismatch)."""
    contested: tuple[str, ...] = ()
    """Pools that would all take the card automatically, so that none does."""


def decide(
    cards: Sequence[AssignableCard],
    node_labels: Mapping[str, str],
    pools: Iterable[AssignmentPool],
    approval: Approval = MANUAL_APPROVAL,
) -> dict[str, Assignment]:
    """Decide for all cards of one node; the result is keyed by card id."""
    node = _Node({pool.name: pool for pool in pools}, node_labels, approval)
    leaving = Counter(card.pool for card in cards if card.pool and card.annotation != card.pool)
    seats: Counter[str] = Counter()
    assignments: dict[str, Assignment] = {}
    for card in sorted(cards, key=_order):
        taken = seats if _is_member(card) else seats + leaving
        answer = node.judge(card, taken)
        if card.restored and answer.pool == card.pool and answer.annotation is None:
            answer = replace(answer, annotation=card.pool)
        assignments[card.id] = answer
        seats[answer.pool] += 1
    return {card.id: assignments[card.id] for card in cards}


def _order(card: AssignableCard) -> tuple[bool, bool, bool, int, str]:
    """The sort key: members of a pool first, then annotated cards; in each group busy cards first."""
    index = card.traits.index if card.traits.index is not None else _UNKNOWN_INDEX
    return (not _is_member(card), not card.annotation, not card.busy, index, card.id)


def _is_member(card: AssignableCard) -> bool:
    return card.pool != "" and card.annotation == card.pool


@dataclass(frozen=True, slots=True)
class _Node:
    """The inputs that all cards of a node share."""

    pools: Mapping[str, AssignmentPool]
    labels: Mapping[str, str]
    approval: Approval

    def judge(self, card: AssignableCard, taken: Mapping[str, int]) -> Assignment:
        if card.excluded:
            return Assignment()
        if card.annotation:
            return self._annotated(card, taken)
        if card.pool:
            return Assignment()  # it leaves its pool; no other pool takes it before
        return self._free(card, taken)

    def _annotated(self, card: AssignableCard, taken: Mapping[str, int]) -> Assignment:
        pool = self.pools.get(card.annotation)
        if pool is None:
            return _mismatched(card, f"pool {card.annotation} does not exist")
        if pool.deleting and not _is_member(card):
            return _mismatched(card, f"pool {pool.name} is being deleted")
        auto = self._takes(pool, card)
        pending = self._refusal(pool, card, taken, auto=auto)
        if pending is None:
            return Assignment(pool.name, auto=auto)
        # Removing the annotation tells all components that the card must leave its pool.
        gone = "" if _is_member(card) else None
        return Assignment(annotation=gone, auto=auto, pending=(pending,))

    def _refusal(
        self, pool: AssignmentPool, card: AssignableCard, taken: Mapping[str, int], *, auto: bool
    ) -> PendingAssignment | None:
        """Why `pool` does not take or keep the card that is annotated with it."""
        if pool.deleting:
            return None
        if not self._matches(pool, card):
            sentence = f"card {card.id} does not match the nodeSelector or deviceSelector of pool {pool.name}"
            return PendingAssignment("OutOfSelector", sentence, pool.name, hint(pool.name), auto)
        why = _full(pool, taken) or ("" if _is_member(card) else self._misfit(pool, card))
        if why:
            return _declined(pool, card, why, auto=auto)
        if _is_member(card) or not card.obstacle:
            return None
        return replace(_declined(pool, card, card.obstacle, auto=auto), joins_when_ready=True)

    def _obstacle(self, pool: AssignmentPool, card: AssignableCard) -> str:
        """Why a new card cannot join the pool; such an obstacle does not remove a member."""
        return self._misfit(pool, card) or card.obstacle

    def _misfit(self, pool: AssignmentPool, card: AssignableCard) -> str:
        """Why the card cannot join the pool, whether it is ready or not."""
        if self._has_elder_twin(pool):
            return f"an older pool has the same resource {pool.resource}"
        return mig_support.obstacle(card.mig, pool.sharing, "the card")

    def _free(self, card: AssignableCard, taken: Mapping[str, int]) -> Assignment:
        matching = [
            pool for _, pool in sorted(self.pools.items()) if self._matches(pool, card) and not pool.deleting
        ]
        if not matching:
            sentence = f"no pool selects card {card.id}"
            return Assignment(pending=(PendingAssignment("NoPoolMatched", sentence),))
        claiming = self._claiming(matching, card)
        if len(claiming) > 1:
            return _contested(card, claiming)
        if not claiming:
            return Assignment(pending=tuple(self._waiting(pool, card, taken) for pool in matching))
        pool = claiming[0]
        drained = "the card is drained (annotation gpu.deckhouse.io/drain)" if card.drained else ""
        why = drained or _full(pool, taken) or self._obstacle(pool, card)
        if why:
            return Assignment(auto=True, pending=(_declined(pool, card, why, auto=True),))
        return Assignment(pool.name, annotation=pool.name, auto=True)

    def _waiting(
        self, pool: AssignmentPool, card: AssignableCard, taken: Mapping[str, int]
    ) -> PendingAssignment:
        if why := _full(pool, taken) or self._obstacle(pool, card):
            return _declined(pool, card, why, auto=False)
        sentence = (
            f"card {card.id} matches pool {pool.name}; to assign it, annotate it with {hint(pool.name)}"
        )
        return PendingAssignment("AwaitingApproval", sentence, pool.name, hint(pool.name))

    def _matches(self, pool: AssignmentPool, card: AssignableCard) -> bool:
        return matches(pool, card, self.labels)

    def _claiming(self, matching: Iterable[AssignmentPool], card: AssignableCard) -> list[AssignmentPool]:
        """The pools that take the card automatically: by their own rule, or else by the module setting."""
        able = [pool for pool in matching if not self._has_elder_twin(pool)]
        by_own_rule = [pool for pool in able if _has_own_rule(pool) and self._takes(pool, card)]
        return by_own_rule or [pool for pool in able if self._takes(pool, card)]

    def _takes(self, pool: AssignmentPool, card: AssignableCard) -> bool:
        if pool.auto_assign_all:
            return True
        if pool.auto_assign_selector is not None:
            return selection.matches_labels(card.traits.labels, pool.auto_assign_selector)
        return self.approval.approves(card.traits)

    def _has_elder_twin(self, pool: AssignmentPool) -> bool:
        return older_duplicate(pool, self.pools.values()) is not None


def refusal(card: AssignableCard, answer: Assignment) -> PendingAssignment | None:
    """The refusal of the pool that the card is annotated with. The card then serves as if it had none.

    A card that is only not ready is not refused: it is kept for its pool.
    """
    if card.pool or card.excluded or not card.annotation or answer.annotation is not None:
        return None
    own = (entry for entry in answer.pending if entry.pool == card.annotation)
    return next((entry for entry in own if not entry.joins_when_ready), None)


def matches(pool: AssignmentPool, card: AssignableCard, node_labels: Mapping[str, str]) -> bool:
    """The selectors of the pool match the card."""
    return selection.matches_labels(node_labels, pool.nodes) and selection.selects(pool.devices, card.traits)


def selected(
    pool: AssignmentPool, cards: Iterable[AssignableCard], node_labels: Mapping[str, str]
) -> SelectedCards:
    """The cards of a node that the pool has or selects, and those that cannot be shared as it specifies."""
    mine = [card for card in cards if is_selected(pool, card, node_labels)]
    names = ((card, card.traits.product or f"card {card.id}") for card in mine)
    reasons = (mig_support.obstacle(card.mig, pool.sharing, name) for card, name in names)
    found = [reason for reason in reasons if reason]
    return SelectedCards(len(mine), len(found), tuple(sorted(set(found))))


def is_selected(pool: AssignmentPool, card: AssignableCard, node_labels: Mapping[str, str]) -> bool:
    """The card is in the pool, or may be used and matches its selectors."""
    return card.pool == pool.name or (not card.excluded and matches(pool, card, node_labels))


def _has_own_rule(pool: AssignmentPool) -> bool:
    return pool.auto_assign_all or pool.auto_assign_selector is not None


def _full(pool: AssignmentPool, taken: Mapping[str, int]) -> str:
    if pool.max_per_node is None or taken.get(pool.name, 0) < pool.max_per_node:
        return ""
    cards = name_list.counted(pool.max_per_node, "card")
    return f"the pool takes at most {cards} of a node (allocation.maxDevicesPerNode)"


def _declined(pool: AssignmentPool, card: AssignableCard, why: str, *, auto: bool) -> PendingAssignment:
    sentence = f"pool {pool.name} does not take card {card.id} now: {why}"
    return PendingAssignment("Declined", sentence, pool.name, hint(pool.name), auto)


def _contested(card: AssignableCard, claiming: Sequence[AssignmentPool]) -> Assignment:
    names = tuple(pool.name for pool in claiming)
    return Assignment(
        auto=True,
        pending=tuple(_declined(pool, card, contest_message(card.id, names), auto=True) for pool in claiming),
        contested=names,
    )


def _mismatched(card: AssignableCard, why: str) -> Assignment:
    sentence = f"card {card.id} is annotated {hint(card.annotation)}, but {why}; the annotation is removed"
    return Assignment(annotation="", mismatch=sentence)


def hint(pool: str) -> str:
    """The annotation that assigns a card to `pool`."""
    return f"{ASSIGNMENT}={pool}"


def contest_message(card: str, pools: Sequence[str]) -> str:
    named = f"{', '.join(pools[:-1])} and {pools[-1]}"
    return f"pools {named} would all take card {card} automatically, so none does; narrow their selectors"


def older_duplicate(pool: AssignmentPool, pools: Iterable[AssignmentPool]) -> str | None:
    """The oldest other pool with the same resource, if it is older; the name breaks ties."""
    duplicates = [other for other in pools if other.resource == pool.resource and other.resource]
    oldest = min(duplicates, key=lambda other: (other.created, other.name), default=pool)
    return oldest.name if oldest.name != pool.name else None
