"""Summaries of a ledger: the free capacity of a node and its holders."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from croupier.core.ledgers.ledger import Card, Grant, Ledger


@dataclass(frozen=True, slots=True)
class Amount:
    free: int = 0
    total: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.free + other.free, self.total + other.total)

    def __str__(self) -> str:
        return f"{self.free}/{self.total}" if self.total else "-"


@dataclass(frozen=True, slots=True)
class Summary:
    """The totals of one node. Unhealthy cards have no free capacity."""

    node: str
    cards: Amount
    """Healthy cards without holders, and all cards."""
    percent: Amount
    slices: Amount
    slots: dict[str, Amount] = field(default_factory=dict)
    """MIG devices by profile."""
    sick: int = 0
    holders: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class Holding:
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


def summary(ledger: Ledger) -> Summary:
    slots: dict[str, Amount] = {}
    for card in ledger.cards:
        for slot in card.slots:
            amount = Amount(int(card.healthy and not slot.holder), 1)
            slots[slot.profile] = slots.get(slot.profile, Amount()) + amount
    return Summary(
        node=ledger.node,
        cards=Amount(sum(_is_spare(card) for card in ledger.cards), len(ledger.cards)),
        percent=_sum(ledger, "Percent", "Exclusive"),
        slices=_sum(ledger, "TimeSlice"),
        slots=dict(sorted(slots.items())),
        sick=sum(not card.healthy for card in ledger.cards),
        holders=len(ledger.holders()),
        held=len(ledger.held),
    )


def _is_spare(card: Card) -> bool:
    return card.healthy and card.is_free


def _sum(ledger: Ledger, *modes: str) -> Amount:
    cards = [card for card in ledger.cards if card.mode in modes]
    return Amount(sum(card.free for card in cards), sum(card.capacity for card in cards))


def holdings(ledger: Ledger) -> Iterator[Holding]:
    """All holders, sorted by name."""
    for holder in sorted(ledger.holders()):
        namespace, name, *uid = holder.split("/")
        yield Holding(
            pod=f"{namespace}/{name}",
            uid=uid[0] if uid else "",
            node=ledger.node,
            grant=ledger.grant(holder),
            held=holder in ledger.held,
            until=ledger.held.get(holder),
            reservation=ledger.reservations.get(holder, ""),
        )
