"""Which pool each card of a node belongs to, and what the others wait for.

The first that applies: the annotation on the card, which a person sets; the pool's own word that it takes
matching cards by itself; the module's, for pools that say neither. What the controller decides it writes
as the same annotation, so that from then on everybody reads one thing, and no later pool can take the card
away. A card that two pools would take by themselves goes to neither.

A card is only ever taken when it is free of a pool: one whose annotation is gone leaves first, and is
nobody's until it has left. Nothing here changes what runs.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from croupier.core.pools import selection
from croupier.core.pools.selection import ANYTHING, EVERY_CARD, Labelled, Selector, Traits

ANNOTATION: Final = "gpu.deckhouse.io/assignment"
_LAST: Final = 1 << 16
"""The turn of a card whose index nobody knows."""
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

Reason: TypeAlias = Literal["AwaitingApproval", "NoPoolMatched", "OutOfSelector", "Declined"]
ApprovalMode: TypeAlias = Literal["Manual", "Automatic", "Selector"]


@dataclass(frozen=True, slots=True)
class Approval:
    """The module's word for pools that have none of their own: setting `deviceApproval`."""

    mode: ApprovalMode = "Manual"
    selector: Labelled = ANYTHING
    """Of cards, by their labels; counts in mode Selector."""

    def approves(self, card: Traits) -> bool:
        if self.mode == "Selector":
            return selection.labelled(card.labels, self.selector)
        return self.mode == "Automatic"


NOBODY: Final = Approval()
"""Only a person gives a card to a pool."""


@dataclass(frozen=True, slots=True)
class Card:
    """One card of the node, as far as its pool depends on it."""

    traits: Traits
    annotation: str = ""
    """The pool that gpu.deckhouse.io/assignment names."""
    pool: str = ""
    """The pool it serves now (status.poolRef)."""
    obstacle: str = ""
    """Why no pool may take it now, as part of a sentence: `it is faulted`. Empty if one may."""
    excluded: bool = False
    """Ignored, or not managed: no pool, and it waits for none."""
    drained: bool = False
    """A person keeps it free: no pool takes it by itself."""
    busy: bool = False
    """Somebody holds something of it: when a pool has too many cards of a node, it is not the one to go."""
    known_profiles: bool = False
    """Whether it is known what it can be cut into."""

    @property
    def id(self) -> str:
        return self.traits.id


@dataclass(frozen=True, slots=True)
class Pool:
    name: str
    resource: str = ""
    created: datetime = LONG_AGO
    nodes: Labelled = ANYTHING
    devices: Selector = EVERY_CARD
    takes_all: bool = False
    """requireAnnotation: false."""
    takes: Labelled | None = None
    """autoApproveSelector, of cards by their labels."""
    most_per_node: int | None = None
    profiles: frozenset[str] = frozenset()
    """What its cards are cut into; empty unless its mode is MIG."""
    leaving: bool = False
    """It is being deleted: it takes no card, and keeps those it has until they are free."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What a card waits for. `hint` is the annotation a person would set; `sentence` says it to people."""

    reason: Reason
    sentence: str
    pool: str = ""
    hint: str = ""
    auto: bool = False
    """The pool takes it without a person, once nothing is in the way."""


@dataclass(frozen=True, slots=True)
class Assignment:
    pool: str = ""
    """The pool it shall serve; empty for none. It may be in another still: it leaves that one first."""
    annotation: str | None = None
    """What the annotation must become: None leaves it, empty removes it."""
    auto: bool = False
    """A pool takes it, or would, without a person (status.autoAttach)."""
    pending: tuple[Pending, ...] = ()
    """One for each pool that could take it; nothing for a card that has its pool or is excluded."""
    mismatch: str = ""
    """Why the annotation cannot be followed and is removed (Event GPUAnnotationMismatch)."""
    contested: tuple[str, ...] = ()
    """Pools that all would take it by themselves, so that none does."""


def decide(
    cards: Sequence[Card],
    node_labels: Mapping[str, str],
    pools: Iterable[Pool],
    approval: Approval = NOBODY,
) -> dict[str, Assignment]:
    """By the id of the card, for all cards of one node."""
    node = _Node({pool.name: pool for pool in pools}, node_labels, approval)
    leaving = Counter(card.pool for card in cards if card.pool and card.annotation != card.pool)
    seats: Counter[str] = Counter()
    found: dict[str, Assignment] = {}
    for card in sorted(cards, key=_turn):
        taken = seats if _is_member(card) else seats + leaving
        found[card.id] = node.judge(card, taken)
        seats[found[card.id].pool] += 1
    return {card.id: found[card.id] for card in cards}


def _turn(card: Card) -> tuple[bool, bool, bool, int, str]:
    """Who is asked first: those a pool has, before all the busy ones; then those a person gives it."""
    index = card.traits.index if card.traits.index is not None else _LAST
    return (not _is_member(card), not card.annotation, not card.busy, index, card.id)


def _is_member(card: Card) -> bool:
    return card.pool != "" and card.annotation == card.pool


@dataclass(frozen=True, slots=True)
class _Node:
    """What is the same for all cards of a node."""

    pools: Mapping[str, Pool]
    labels: Mapping[str, str]
    approval: Approval

    def judge(self, card: Card, taken: Mapping[str, int]) -> Assignment:
        if card.excluded:
            return Assignment()
        if card.annotation:
            return self._annotated(card, taken)
        if card.pool:
            return Assignment()  # it leaves; nobody takes it before it has left
        return self._free(card, taken)

    def _annotated(self, card: Card, taken: Mapping[str, int]) -> Assignment:
        pool = self.pools.get(card.annotation)
        if pool is None:
            return _mismatched(card, f"there is no pool {card.annotation}")
        if pool.leaving and not _is_member(card):
            return _mismatched(card, f"pool {pool.name} is being deleted")
        auto = self._takes(pool, card)
        pending = self._refusal(pool, card, taken, auto=auto)
        if pending is None:
            return Assignment(pool.name, auto=auto)
        # Of a card that is in, only its annotation shows everybody that it must go.
        gone = "" if _is_member(card) else None
        return Assignment(annotation=gone, auto=auto, pending=(pending,))

    def _refusal(self, pool: Pool, card: Card, taken: Mapping[str, int], *, auto: bool) -> Pending | None:
        """Why `pool` does not take or keep the card its annotation gives to it."""
        if pool.leaving:
            return None
        if not self._matches(pool, card):
            sentence = f"card {card.id} is outside the nodeSelector or deviceSelector of pool {pool.name}"
            return Pending("OutOfSelector", sentence, pool.name, hint(pool.name), auto)
        why = _full(pool, taken) or ("" if _is_member(card) else self._obstacle(pool, card))
        return _declined(pool, card, why, auto=auto) if why else None

    def _obstacle(self, pool: Pool, card: Card) -> str:
        """What keeps a card from coming in that would not drive it out."""
        if self._has_elder_twin(pool):
            return f"an older pool has the resource {pool.resource} too"
        if card.known_profiles and (missing := pool.profiles - card.traits.profiles):
            return f"it cannot be cut into {', '.join(sorted(missing))}"
        return card.obstacle

    def _free(self, card: Card, taken: Mapping[str, int]) -> Assignment:
        matching = [
            pool for _, pool in sorted(self.pools.items()) if self._matches(pool, card) and not pool.leaving
        ]
        if not matching:
            sentence = f"no pool selects card {card.id}"
            return Assignment(pending=(Pending("NoPoolMatched", sentence),))
        claiming = self._claiming(matching, card)
        if len(claiming) > 1:
            return _contested(card, claiming)
        if not claiming:
            return Assignment(pending=tuple(self._waiting(pool, card, taken) for pool in matching))
        pool = claiming[0]
        drained = "a person keeps it free (annotation gpu.deckhouse.io/drain)" if card.drained else ""
        why = drained or _full(pool, taken) or self._obstacle(pool, card)
        if why:
            return Assignment(auto=True, pending=(_declined(pool, card, why, auto=True),))
        return Assignment(pool.name, annotation=pool.name, auto=True)

    def _waiting(self, pool: Pool, card: Card, taken: Mapping[str, int]) -> Pending:
        if why := _full(pool, taken) or self._obstacle(pool, card):
            return _declined(pool, card, why, auto=False)
        sentence = (
            f"card {card.id} matches pool {pool.name} and waits for a person to annotate it {hint(pool.name)}"
        )
        return Pending("AwaitingApproval", sentence, pool.name, hint(pool.name))

    def _matches(self, pool: Pool, card: Card) -> bool:
        return matches(pool, card, self.labels)

    def _claiming(self, matching: Iterable[Pool], card: Card) -> list[Pool]:
        """Who takes the card without a person: pools by their own word, or else by the module's."""
        able = [pool for pool in matching if not self._has_elder_twin(pool)]
        by_word = [pool for pool in able if _speaks(pool) and self._takes(pool, card)]
        return by_word or [pool for pool in able if self._takes(pool, card)]

    def _takes(self, pool: Pool, card: Card) -> bool:
        if pool.takes_all:
            return True
        if pool.takes is not None:
            return selection.labelled(card.traits.labels, pool.takes)
        return self.approval.approves(card.traits)

    def _has_elder_twin(self, pool: Pool) -> bool:
        return elder_twin(pool, self.pools.values()) is not None


def matches(pool: Pool, card: Card, node_labels: Mapping[str, str]) -> bool:
    """The pool's selectors take the card, whatever else stands in the way."""
    return selection.labelled(node_labels, pool.nodes) and selection.selects(pool.devices, card.traits)


def _speaks(pool: Pool) -> bool:
    return pool.takes_all or pool.takes is not None


def _full(pool: Pool, taken: Mapping[str, int]) -> str:
    if pool.most_per_node is None or taken.get(pool.name, 0) < pool.most_per_node:
        return ""
    return f"the pool takes {pool.most_per_node} cards of a node at most (allocation.maxDevicesPerNode)"


def _declined(pool: Pool, card: Card, why: str, *, auto: bool) -> Pending:
    sentence = f"pool {pool.name} does not take card {card.id} now: {why}"
    return Pending("Declined", sentence, pool.name, hint(pool.name), auto)


def _contested(card: Card, claiming: Sequence[Pool]) -> Assignment:
    names = tuple(pool.name for pool in claiming)
    return Assignment(
        auto=True,
        pending=tuple(_declined(pool, card, contest(card.id, names), auto=True) for pool in claiming),
        contested=names,
    )


def _mismatched(card: Card, why: str) -> Assignment:
    sentence = f"card {card.id} is annotated {hint(card.annotation)}, but {why}; the annotation is removed"
    return Assignment(annotation="", mismatch=sentence)


def hint(pool: str) -> str:
    """The annotation that gives a card to `pool`."""
    return f"{ANNOTATION}={pool}"


def contest(card: str, pools: Sequence[str]) -> str:
    named = f"{', '.join(pools[:-1])} and {pools[-1]}"
    return f"pools {named} would all take card {card} by themselves, so none does; narrow their selectors"


def elder_twin(pool: Pool, pools: Iterable[Pool]) -> str | None:
    """The oldest other pool of the same resource, if it is older: of equal age the first by name is."""
    twins = [one for one in pools if one.resource == pool.resource and one.resource]
    eldest = min(twins, key=lambda one: (one.created, one.name), default=pool)
    return eldest.name if eldest.name != pool.name else None
