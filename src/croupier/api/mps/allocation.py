"""The allocation of a pod, stored in an annotation that is set with its Binding.

It is the durable record of the pod's cards when the ledger is in memory, and the node agent uses it. So it
contains everything that a reader without the ledger needs: the card, its index on the node, and the share.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta

from croupier.api.meta import ObjectMeta
from croupier.api.mps.reservation import CardID, Percent
from croupier.api.wire import Wire
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import CardGrant, Grant
from croupier.core.pods import request_parser

ALLOCATION: Final = "gpu.mps.io/allocation"
HOLD_EXPIRED: Final = "gpu.mps.io/hold-expired"
"""Set before a hold is released, so that a Binding prepared for it fails with a resourceVersion conflict."""
RETRY: Final = "gpu.mps.io/look-again"
"""Set to make the scheduler retry an unschedulable pod that would fit now."""
CARDS: Final = request_parser.CARDS
RATIO: Final = request_parser.RATIO
MARK: Final = request_parser.LEDGER

MAX_LENGTH: Final = 32 * 1024
"""The largest length of an allocation in characters. 32 cards with eight slots each need fewer."""

SlotID: TypeAlias = Annotated[str, Meta(min_length=1, max_length=63)]


class AllocationEntry(Wire, frozen=True, kw_only=True):
    """The pod's share of one card: percent, time slices, or MIG slots."""

    card: CardID
    """The inventoryID of the card."""
    index: Annotated[int, Meta(ge=0, le=255)]
    """The index of the card on its node at the time of allocation."""
    percent: Percent | None = None
    slices: Annotated[int, Meta(ge=1, le=64)] | None = None
    slots: Annotated[tuple[SlotID, ...], Meta(max_length=8)] = ()


_ENTRIES: Final = msgspec.json.Decoder(Annotated[tuple[AllocationEntry, ...], Meta(max_length=32)])


def fence_patch(pod: ObjectMeta, moment: datetime) -> dict[str, Any]:
    """A merge patch that changes the pod's resourceVersion if the pod is unchanged since it was read.

    The time has microseconds because a patch that changes nothing would keep the resourceVersion.
    """
    written = {HOLD_EXPIRED: moment.isoformat(timespec="microseconds")}
    return {"metadata": {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": written}}


def retry_patch(uid: str, moment: datetime) -> dict[str, Any]:
    """A merge patch of the pod with this UID. The scheduler retries a pod that has changed."""
    return {"metadata": {"uid": uid, "annotations": {RETRY: moment.isoformat(timespec="seconds")}}}


def encode(grant: Grant, ledger: Ledger) -> str:
    """`[{"card":"node-1-0000-65-00-0","index":0,"percent":50}]`."""
    cards = {card.id: (card.index, card.mode == "TimeSlice") for card in ledger.cards}
    if unknown := [part.card for part in grant if part.card not in cards]:
        raise ValueError(f"cannot encode the allocation: node {ledger.node} has no card {', '.join(unknown)}")
    return encode_for(grant, cards)


def encode_for(grant: Grant, cards: Mapping[str, tuple[int, bool]]) -> str:
    """The annotation. `cards` has, for each card of the grant, its index and whether it is time-sliced."""
    return msgspec.json.encode([_entry(part, *cards[part.card]) for part in grant]).decode()


def _entry(part: CardGrant, index: int, time_sliced: bool) -> AllocationEntry:
    if part.slots:
        return AllocationEntry(card=part.card, index=index, slots=part.slots)
    if time_sliced:
        return AllocationEntry(card=part.card, index=index, slices=part.share)
    return AllocationEntry(card=part.card, index=index, percent=part.share)


def decode(text: str) -> Grant:
    """Decode the annotation. ValueError explains why it is invalid."""
    return grant(entries(text))


def entries(text: str) -> tuple[AllocationEntry, ...]:
    """The entries of the annotation, one per card. ValueError explains why it is invalid."""
    if len(text) > MAX_LENGTH:
        raise ValueError(
            f"annotation {ALLOCATION} has {len(text)} characters; at most {MAX_LENGTH} are allowed"
        )
    try:
        decoded: tuple[AllocationEntry, ...] = _ENTRIES.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"annotation {ALLOCATION} is not a valid list of cards: {error}") from error
    _check(decoded)
    return decoded


def grant(entries: tuple[AllocationEntry, ...]) -> Grant:
    return tuple(CardGrant(entry.card, entry.percent or entry.slices or 0, entry.slots) for entry in entries)


def _check(entries: tuple[AllocationEntry, ...]) -> None:
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
