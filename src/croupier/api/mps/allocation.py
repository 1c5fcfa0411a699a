"""The allocation of a pod, as the annotation that travels with its Binding.

It is the durable record of who holds which card while no NodeReservation is written,
and the node side follows it. So it says all a reader needs without the ledger: the
card, its number on the node, and the share of it.
"""

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from croupier.api.meta import ObjectMeta
from croupier.api.mps.reservation import CardID, Percent
from croupier.api.wire import Wire
from croupier.core.ledgers.ledger import Card, Grant, Ledger, Part
from croupier.core.pods import request

ALLOCATION: Final = "gpu.mps.io/allocation"
CONTAINER: Final = "gpu.mps.io/container"
HOLD_EXPIRED: Final = "gpu.mps.io/hold-expired"
"""Written before a hold is given up, so that a Binding prepared for it meets another resourceVersion."""
LOOK_AGAIN: Final = "gpu.mps.io/look-again"
"""Written to make the scheduler try a pod again that would fit by now."""
CARDS: Final = request.CARDS
RATIO: Final = request.RATIO
PERCENT: Final = request.PERCENT
MARK: Final = request.MARK

MOST: Final = 32 * 1024
"""Characters of an allocation; 32 cards with eight slots each need fewer."""

SlotID: TypeAlias = Annotated[str, Meta(min_length=1, max_length=63)]


class Entry(Wire, frozen=True, kw_only=True):
    """What the pod has of one card: percent, time slices, or MIG slots."""

    card: CardID
    """The card's inventoryID."""
    index: Annotated[int, Meta(ge=0, le=255)]
    """The number the driver gave it on its node when it was allocated."""
    percent: Percent | None = None
    slices: Annotated[int, Meta(ge=1, le=64)] | None = None
    slots: Annotated[tuple[SlotID, ...], Meta(max_length=8)] = ()


_ENTRIES: Final = msgspec.json.Decoder(Annotated[tuple[Entry, ...], Meta(max_length=32)])


def fence(pod: ObjectMeta, moment: datetime) -> dict[str, Any]:
    """A merge patch that raises the pod's resourceVersion, if it is still the one that was read.

    To the microsecond: a patch that changes nothing would raise nothing.
    """
    written = {HOLD_EXPIRED: moment.isoformat(timespec="microseconds")}
    return {"metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": written}}


def look_again(uid: str, moment: datetime) -> dict[str, Any]:
    """A merge patch of that very pod: the scheduler tries one again that has changed."""
    return {"metadata": {"uid": uid, "annotations": {LOOK_AGAIN: moment.isoformat(timespec="seconds")}}}


def encode(grant: Grant, ledger: Ledger) -> str:
    """`[{"card":"node-1-0000-65-00-0","index":0,"percent":50}]`."""
    cards = {card.id: card for card in ledger.cards}
    if strangers := [part.card for part in grant if part.card not in cards]:
        raise ValueError(f"node {ledger.node} has no card {', '.join(strangers)} to write an allocation of")
    return msgspec.json.encode([_entry(part, cards[part.card]) for part in grant]).decode()


def _entry(part: Part, card: Card) -> Entry:
    if card.mode == "MIG":
        return Entry(card=card.id, index=card.index, slots=part.slots)
    if card.mode == "TimeSlice":
        return Entry(card=card.id, index=card.index, slices=part.share)
    return Entry(card=card.id, index=card.index, percent=part.share)


def decode(text: str) -> Grant:
    """The grant an annotation tells of. ValueError says what is wrong with one that tells nothing."""
    return grant(entries(text))


def entries(text: str) -> tuple[Entry, ...]:
    """What the annotation says, card by card; raises like `decode`."""
    if len(text) > MOST:
        raise ValueError(f"annotation {ALLOCATION} has {len(text)} characters; {MOST} are the most")
    try:
        found: tuple[Entry, ...] = _ENTRIES.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"annotation {ALLOCATION} is no list of cards as we write it: {error}") from error
    _check(found)
    return found


def grant(entries: tuple[Entry, ...]) -> Grant:
    return tuple(Part(entry.card, entry.percent or entry.slices or 0, entry.slots) for entry in entries)


def _check(entries: tuple[Entry, ...]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.card in seen:
            raise ValueError(f"annotation {ALLOCATION} names card {entry.card} twice")
        seen.add(entry.card)
        if (entry.percent is not None) + (entry.slices is not None) + bool(entry.slots) != 1:
            raise ValueError(
                f"annotation {ALLOCATION} must give card {entry.card} either percent, slices or slots"
            )
        if len(set(entry.slots)) != len(entry.slots):
            raise ValueError(f"annotation {ALLOCATION} names a slot of card {entry.card} twice")
