"""Summaries of a ledger: the free capacity of a node and its holders."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import get_args

from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import withheld
from croupier.core.model.card import Grant, LedgerCard
from croupier.core.model.withheld import WithheldState
from croupier.core.pods import request_parser


@dataclass(frozen=True, slots=True)
class FreeOfTotal:
    free: int = 0
    total: int = 0

    def __add__(self, other: "FreeOfTotal") -> "FreeOfTotal":
        return FreeOfTotal(self.free + other.free, self.total + other.total)

    def __str__(self) -> str:
        return f"{self.free}/{self.total}" if self.total else "-"


@dataclass(frozen=True, slots=True)
class LedgerSummary:
    """The totals of one node. Cards that take no new pods have nothing free; retired cards do not count."""

    node: str
    cards: FreeOfTotal
    """Healthy cards without holders, and all cards that are not retired."""
    percent: FreeOfTotal
    slices: FreeOfTotal
    slots: dict[str, FreeOfTotal] = field(default_factory=dict)
    """MIG devices by profile."""
    withheld: Mapping[WithheldState, int] = field(default_factory=dict)
    """How many cards take no new pods, by the reason."""
    holders: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class HolderSummary:
    """One holder of one node, and its grant."""

    pod: str
    """`namespace/name`."""
    uid: str
    """Empty while a Reservation waits for its pod."""
    node: str
    grant: Grant
    held: bool = False
    until: datetime | None = None
    reservation: str = ""


def summary(ledger: Ledger) -> LedgerSummary:
    slots: dict[str, FreeOfTotal] = {}
    cards = [card for card in ledger.cards if not card.is_retired]
    for card in cards:
        for slot in card.slots:
            amount = FreeOfTotal(int(card.healthy and not slot.holder), 1)
            slots[slot.profile] = slots.get(slot.profile, FreeOfTotal()) + amount
    return LedgerSummary(
        node=ledger.node,
        cards=FreeOfTotal(sum(_is_allocatable(card) for card in cards), len(cards)),
        percent=_sum(cards, "Percent", "Exclusive"),
        slices=_sum(cards, "TimeSlice"),
        slots=dict(sorted(slots.items())),
        withheld=withheld_counts(ledger.cards),
        holders=len(ledger.holders()),
        held=len(ledger.held),
    )


def withheld_counts(cards: Iterable[LedgerCard]) -> dict[WithheldState, int]:
    """How many cards take no new pods, by the reason, in the order of the reasons."""
    closed = (card.withheld for card in cards if not card.healthy)
    states = Counter(why.state if why is not None else "Unhealthy" for why in closed)
    return {state: states[state] for state in get_args(WithheldState) if state in states}


def withheld_words(sums: LedgerSummary) -> str:
    """`1 drained, 2 not healthy`; empty if all cards take new pods."""
    return ", ".join(f"{count} {withheld.WORDS[state]}" for state, count in sums.withheld.items())


def free_amounts(ledger: Ledger) -> dict[str, int]:
    """The free units of every resource by which the cards can be requested.

    A free card without a pool counts as one whole card and as a hundred percent: it is free in both ways, and
    can be requested in one of them only. Resources whose cards have nothing free are included with 0.
    """
    free: dict[str, int] = {}
    for card in ledger.cards:
        for resource, units in _free_of_card(card):
            free[resource] = free.get(resource, 0) + units
    return free


def _free_of_card(card: LedgerCard) -> Iterator[tuple[str, int]]:
    whole = int(_is_allocatable(card))
    if card.pool:
        shared = len(card.free_slots()) if card.mode == "MIG" else card.free
        yield request_parser.POOL + card.pool, whole if card.mode == "Exclusive" else shared
    elif card.mode == "MIG":
        for profile in {slot.profile for slot in card.slots}:
            yield request_parser.mig_resource(profile), len(card.free_slots(profile))
    else:
        yield request_parser.GPU, whole
        yield request_parser.PERCENT, card.free


def _is_allocatable(card: LedgerCard) -> bool:
    return card.healthy and card.is_free


def _sum(cards: Iterable[LedgerCard], *modes: str) -> FreeOfTotal:
    listed = [card for card in cards if card.mode in modes]
    return FreeOfTotal(sum(card.free for card in listed), sum(card.capacity for card in listed))


def holder_summaries(ledger: Ledger) -> Iterator[HolderSummary]:
    """All holders, sorted by name."""
    for holder in sorted(ledger.holders()):
        yield holder_summary(ledger, holder)


def holder_summary(ledger: Ledger, holder: str) -> HolderSummary:
    return HolderSummary(
        pod=holder_names.pod_key(holder),
        uid=holder_names.uid(holder),
        node=ledger.node,
        grant=ledger.grant(holder),
        held=holder in ledger.held,
        until=ledger.held.get(holder),
        reservation=ledger.reservations.get(holder, ""),
    )
