"""Whether a change of a card takes effect now, after its holders have ended, or not, in one sentence."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from croupier.core.explanation import fleet as fleets
from croupier.core.explanation.fleet import Fleet, FleetCard
from croupier.core.ledger import holder as holder_names
from croupier.core.model import name_list
from croupier.core.model.card import LedgerCard
from croupier.core.model.withheld import BY_HAND
from croupier.core.pools.assignment import Assignment
from croupier.core.pools.capacity import MAX_LISTED

CardVerb: TypeAlias = Literal["assign", "unassign", "drain", "undrain", "retire", "unretire"]
Outcome: TypeAlias = Literal["now", "later", "declined", "unchanged"]

HIDDEN: Final = "hidden/_"
"""The start of the holder names that replace those of other namespaces."""


@dataclass(frozen=True, slots=True)
class CardsAction:
    verb: CardVerb
    cards: tuple[str, ...]
    pool: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CardMove:
    before: FleetCard
    after: FleetCard
    later: FleetCard
    """Once the holders of the cards have ended."""
    answer: Assignment
    mismatch: str
    """Why the controllers reject the annotation that the action writes; empty if they do not."""
    held: LedgerCard | None
    fleet: Fleet

    @property
    def end(self) -> str:
        """`when team/job and 2 pods of other namespaces have ended`."""
        return f"when {named_holders(fleets.holders(self.held) if self.held else ())} ended"


def decide(move: CardMove, action: CardsAction) -> tuple[Outcome, str]:
    """The outcome and a sentence with the card as its subject."""
    return _DECISIONS[action.verb](move, action)


def in_other_pool(card: FleetCard, action: CardsAction) -> bool:
    """The card must be unassigned before it can be assigned: two steps."""
    return action.verb == "assign" and card.card.annotation not in ("", action.pool)


def _assign(move: CardMove, action: CardsAction) -> tuple[Outcome, str]:
    before, pool = move.before, action.pool
    if in_other_pool(before, action):
        other = before.card.annotation
        return "later", (
            f"is assigned to pool {other}, so this takes two steps: unassign it and wait until it is "
            f"Unassigned, then assign it to pool {pool}"
        )
    if why := _excluded(before):
        return "declined", why
    if before.pool == move.after.pool == pool == before.card.annotation:
        return "unchanged", f"is in pool {pool} already"
    if move.after.pool == move.answer.pool == pool:
        return "now", f"joins pool {pool} now{_remarks(move)}"
    if move.answer.pool == pool and move.held is not None:
        first = f"leaves pool {before.pool} and " if before.pool else ""
        return "later", f"{first}joins pool {pool} {move.end}{_remarks(move)}"
    why = next((entry.sentence for entry in move.answer.pending if entry.pool == pool), "")
    return "declined", why or move.mismatch or f"does not join pool {pool}"


def _excluded(card: FleetCard) -> str:
    if not card.managed:
        return "is not managed: a label of its node disables its cards, so it joins no pool"
    if card.retired:
        return f"is retired, so it joins no pool: first run `croupier retire --undo {card.id}`"
    return ""


def _remarks(move: CardMove) -> str:
    pool = move.fleet.pools[move.answer.pool]
    sharing = pool.reported.sharing
    cut = move.before.reported.cut
    changes = sharing.mode == "MIG" or bool(cut)
    parts = f" and is partitioned for {sharing}" if changes and cut is not None else ""
    drained = ", but gets no pods because it is drained" if move.after.drain is not None else ""
    closed = (
        f"; it gets no pods until the pool opens: {pool.reported.withheld.reason}"
        if pool.reported.withheld
        else ""
    )
    return parts + (drained or closed)


def _unassign(move: CardMove, action: CardsAction) -> tuple[Outcome, str]:
    before, after, later = move.before, move.after, move.later
    if not before.pool and not before.card.annotation:
        return "unchanged", "is in no pool"
    left = before.pool or before.card.annotation
    if later.pool == left:
        return "declined", (
            f"leaves its pool, and pool {left} takes it again: the pool takes matching cards "
            "automatically; change its deviceSelector or deviceAssignment first"
        )
    taken = f", and pool {later.pool} takes it automatically" if later.pool else ""
    if after.pool != left:
        return "now", f"leaves pool {left} now{taken}"
    return "later", f"gets no new pods now, and leaves pool {left} {move.end}{taken}"


def _drain(move: CardMove, action: CardsAction) -> tuple[Outcome, str]:
    if move.before.drain == (action.reason or BY_HAND):
        return "unchanged", "is drained for this reason already"
    if move.held is None:
        return "now", "gets no new pods; no pod holds it"
    return "later", f"gets no new pods now, and is free {move.end}"


def _undrain(move: CardMove, action: CardsAction) -> tuple[Outcome, str]:
    if move.before.drain is None:
        return "unchanged", "is not drained"
    if move.before.drained_by_pool:
        return "declined", f"is not drained: pool {move.before.pool} changes it, and gives it back itself"
    if why := move.after.idle_reason:
        return "now", f"is not drained any more, but gets no pods: {why}"
    return "now", "gets new pods again"


def _retire(move: CardMove, action: CardsAction) -> tuple[Outcome, str]:
    before = move.before
    if before.retired and not before.pool:
        if action.reason in ("", before.retired_for):
            return "unchanged", "is retired already"
        return "now", "is retired already, and gets this reason"
    leaves = f"leaves pool {before.pool} and " if before.pool else ""
    if move.held is not None:
        return "later", f"gets no new pods now, and {leaves}counts as no capacity {move.end}"
    return "now", f"{leaves}counts as no capacity any more"


def _unretire(move: CardMove, action: CardsAction) -> tuple[Outcome, str]:
    if not move.before.retired:
        return "unchanged", "is not retired"
    if not move.before.managed:
        return "now", "is not retired any more, but stays unused: a label of its node disables its cards"
    if move.later.pool:
        return "now", f"is used again, and pool {move.later.pool} takes it automatically"
    if move.after.pool:
        return "later", f"is used again, and leaves pool {move.after.pool} {move.end}"
    return "now", "is used again; assign it to a pool"


_DECISIONS: Final = {
    "assign": _assign,
    "unassign": _unassign,
    "drain": _drain,
    "undrain": _undrain,
    "retire": _retire,
    "unretire": _unretire,
}


def named_holders(holders: Iterable[str]) -> str:
    """`team/job and 2 pods of other namespaces have`; without holders `its pods have`."""
    listed = list(dict.fromkeys(holders))
    visible = sorted({holder_names.pod_key(holder) for holder in listed if not holder.startswith(HIDDEN)})
    hidden = sum(1 for holder in listed if holder.startswith(HIDDEN))
    names = [name_list.shortened(visible, MAX_LISTED)] if visible else []
    if hidden:
        names.append(name_list.pods_elsewhere(hidden))
    verb = "has" if len(visible) + hidden == 1 else "have"
    return f"{' and '.join(names) or 'its pods'} {verb}"
