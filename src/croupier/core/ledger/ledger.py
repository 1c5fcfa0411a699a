"""The ledger of one node: the capacity of its cards, their holders, and every change of them.

Each change is a pure function from a ledger to the next one. No change can overcommit a card: a
request that does not fit is refused with a message for the user. Every change is keyed by holder
and therefore idempotent. core/ledger/change_layout.py changes the cards themselves.

A holder is named `namespace/pod/uid`, or `namespace/pod` while a Reservation waits for its pod.
A holder is Held until its pod is bound, then Bound; only Held holders can expire.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import pairwise
from typing import TypeVar

from croupier.core.model import name_list
from croupier.core.model.card import MAX_HOLDERS, CardGrant, Grant, LedgerCard
from croupier.core.model.refusal import Refusal

V = TypeVar("V")


MAX_HELD = 512
"""Maximum number of Held holders of one node, and of holders that come from a Reservation."""


@dataclass(frozen=True, slots=True)
class Ledger:
    node: str
    cards: tuple[LedgerCard, ...] = ()
    held: Mapping[str, datetime | None] = field(default_factory=dict)
    """Expiry of each holder whose pod is not bound yet; None: until released. All others are Bound."""
    reservations: Mapping[str, str] = field(default_factory=dict)
    """Name of the Reservation, in the pod's namespace, of each holder that has one."""

    def card(self, card_id: str) -> LedgerCard | None:
        return next((card for card in self.cards if card.id == card_id), None)

    def grant(self, holder: str) -> Grant:
        """The grant of `holder`; empty if it holds nothing."""
        return tuple(part for card in self.cards if (part := _grant_of_card(card, holder)) is not None)

    def holders(self) -> set[str]:
        return {holder for card in self.cards for holder in _holders(card)}


def _holders(card: LedgerCard) -> Iterator[str]:
    yield from card.holders
    yield from (slot.holder for slot in card.slots if slot.holder)


def _grant_of_card(card: LedgerCard, holder: str) -> CardGrant | None:
    share = card.holders.get(holder, 0)
    slots = tuple(slot.id for slot in card.slots if slot.holder == holder)
    return CardGrant(card.id, share, slots) if share or slots else None


@dataclass(frozen=True, slots=True)
class HoldTerms:
    """Whether a holder is Bound, or Held `until` a time (None: until released)."""

    bound: bool = False
    until: datetime | None = None
    reservation: str = ""


def give(ledger: Ledger, holder: str, grant: Grant, terms: HoldTerms) -> Ledger | Refusal:
    """Add `holder` with exactly `grant`. A holder that already has a grant keeps it."""
    if ledger.grant(holder):
        return ledger
    parts = {part.card: part for part in grant}
    if len(parts) != len(grant) or not parts:
        return Refusal("a grant must name at least one card, and each card only once")
    if unknown := parts.keys() - {card.id for card in ledger.cards}:
        return Refusal("a card does not exist any more", ", ".join(sorted(unknown)))
    if (full := _holder_limit_reached(ledger, terms)) is not None:
        return full
    cards = []
    for card in ledger.cards:
        part = parts.get(card.id)
        given = card if part is None else _give_part(card, holder, part)
        if isinstance(given, Refusal):
            return given
        cards.append(given)
    return _with_terms(replace(ledger, cards=tuple(cards)), holder, terms)


def _holder_limit_reached(ledger: Ledger, terms: HoldTerms) -> Refusal | None:
    if not terms.bound and len(ledger.held) >= MAX_HELD:
        return Refusal(f"the node already has {MAX_HELD} holders that wait for their pods")
    if terms.reservation and len(ledger.reservations) >= MAX_HELD:
        return Refusal(f"the node already has {MAX_HELD} Reservations that hold cards")
    return None


def _with_terms(ledger: Ledger, holder: str, terms: HoldTerms) -> Ledger:
    held, reservations = ledger.held, ledger.reservations
    if not terms.bound:
        held = {**held, holder: terms.until}
    if terms.reservation:
        reservations = {**reservations, holder: terms.reservation}
    return replace(ledger, held=held, reservations=reservations)


def _give_part(card: LedgerCard, holder: str, part: CardGrant) -> LedgerCard | Refusal:
    if card.obstacle:
        return Refusal(f"a card {card.obstacle}", f"card {card.index}")
    if card.mode == "MIG":
        return _give_slots(card, holder, part)
    if part.slots or part.share < 1:
        return Refusal(f"a card in mode {card.mode} is allocated by share, not by slot", f"card {card.index}")
    if card.mode == "Exclusive" and part.share != card.capacity:
        return Refusal("an exclusive card can only be allocated whole", f"card {card.index}")
    if part.share > card.free:
        return Refusal("a card has too little capacity left", shortfall(card, part.share))
    return replace(card, holders={**card.holders, holder: part.share})


def _give_slots(card: LedgerCard, holder: str, part: CardGrant) -> LedgerCard | Refusal:
    slot_ids = set(part.slots)
    if part.share or not slot_ids:
        return Refusal("a card in mode MIG is allocated by slot, not by share", f"card {card.index}")
    if missing := slot_ids - {slot.id for slot in card.free_slots()}:
        return Refusal("a MIG slot is not free", f"card {card.index}: {', '.join(sorted(missing))}")
    slots = tuple(replace(slot, holder=holder) if slot.id in slot_ids else slot for slot in card.slots)
    return replace(card, slots=slots)


def shortfall(card: LedgerCard, share: int) -> str:
    """`card 0 is short by 20 %`."""
    if len(card.holders) >= MAX_HOLDERS:
        return f"card {card.index} has {len(card.holders)} holders, which is the maximum"
    missing = share - card.free
    unit = " %" if card.mode != "TimeSlice" else " slice" if missing == 1 else " slices"
    return f"card {card.index} is short by {missing}{unit}"


def release(ledger: Ledger, holder: str) -> Ledger:
    """Free everything that `holder` has."""
    if not ledger.grant(holder):
        return ledger
    cards = tuple(_without(card, holder) if card.holds(holder) else card for card in ledger.cards)
    return replace(
        ledger,
        cards=cards,
        held=_without_key(ledger.held, holder),
        reservations=_without_key(ledger.reservations, holder),
    )


def _without(card: LedgerCard, holder: str) -> LedgerCard:
    slots = tuple(replace(slot, holder="") if slot.holder == holder else slot for slot in card.slots)
    return replace(card, holders=_without_key(card.holders, holder), slots=slots)


def _without_key(entries: Mapping[str, V], holder: str) -> Mapping[str, V]:
    return {key: value for key, value in entries.items() if key != holder} if holder in entries else entries


def bind(ledger: Ledger, holder: str) -> Ledger:
    """Make a Held holder Bound: it no longer expires."""
    return replace(ledger, held=_without_key(ledger.held, holder)) if holder in ledger.held else ledger


def extend(ledger: Ledger, holder: str, until: datetime | None) -> Ledger:
    """Change the expiry of a Held holder; a holder that is Bound or unknown is left unchanged."""
    if holder not in ledger.held or ledger.held[holder] == until:
        return ledger
    return replace(ledger, held={**ledger.held, holder: until})


def expired(ledger: Ledger, now: datetime) -> tuple[str, ...]:
    """Held holders past their expiry, sorted."""
    return tuple(sorted(h for h, until in ledger.held.items() if until is not None and until <= now))


def rename(ledger: Ledger, old: str, new: str) -> Ledger:
    """Move the grant of `old` to `new`, which must hold nothing: the pod of a Reservation has appeared."""
    if not ledger.grant(old) or ledger.grant(new):
        return ledger
    cards = tuple(_renamed(card, old, new) if card.holds(old) else card for card in ledger.cards)
    return replace(
        ledger,
        cards=cards,
        held=_with_renamed_key(ledger.held, old, new),
        reservations=_with_renamed_key(ledger.reservations, old, new),
    )


def _renamed(card: LedgerCard, old: str, new: str) -> LedgerCard:
    slots = tuple(replace(slot, holder=new) if slot.holder == old else slot for slot in card.slots)
    return replace(card, holders=_with_renamed_key(card.holders, old, new), slots=slots)


def _with_renamed_key(entries: Mapping[str, V], old: str, new: str) -> Mapping[str, V]:
    return {new if key == old else key: value for key, value in entries.items()}


def invariant_violations(ledger: Ledger) -> list[str]:
    """All violated invariants as messages; empty for every ledger that this module produces."""
    ids = Counter(card.id for card in ledger.cards)
    violations = [f"{count} cards have the name {card}" for card, count in sorted(ids.items()) if count > 1]
    violations += [violation for card in ledger.cards for violation in _card_violations(card)]
    holders = ledger.holders()
    violations += [f"{h} is Held but holds no card" for h in sorted(ledger.held.keys() - holders)]
    violations += [
        f"{h} comes from a Reservation but holds no card"
        for h in sorted(ledger.reservations.keys() - holders)
    ]
    return violations


def _card_violations(card: LedgerCard) -> Iterator[str]:
    if card.mode == "MIG" and card.holders:
        yield f"card {card.id} is in mode MIG but has holders of shares"
    if card.mode != "MIG" and card.slots:
        yield f"card {card.id} is not in mode MIG but has slots"
    if card.used > card.capacity:
        yield f"card {card.id} is overcommitted: {card.used} of {card.capacity}"
    if any(share < 1 for share in card.holders.values()):
        yield f"card {card.id} has holders with an empty share"
    if len(card.holders) > MAX_HOLDERS:
        yield f"card {card.id} has {len(card.holders)} holders, more than {MAX_HOLDERS}"
    if card.mode == "Exclusive" and (len(card.holders) > 1 or card.used not in (0, card.capacity)):
        holders = name_list.counted(len(card.holders), "holder")
        yield f"card {card.id} is exclusive but has {holders} of {card.used} %"
    spans = sorted((slot.start, slot.start + slot.size) for slot in card.slots)
    if any(end > start for (_, end), (start, _) in pairwise(spans)):
        yield f"card {card.id} has overlapping slots"
    if len({slot.id for slot in card.slots}) < len(card.slots):
        yield f"card {card.id} has two slots with the same name"
