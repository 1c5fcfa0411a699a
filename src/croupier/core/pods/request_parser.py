"""Parses a pod's card request from its effective requests and its annotations.

An invalid request is refused with a message that its owner can act on. Nothing is guessed,
because a wrong guess would allocate the wrong cards.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from croupier.core.model.card import MAX_CARDS
from croupier.core.model.card_request import (
    WHOLE_CARD,
    CardRequest,
    CardRequestItem,
    CardShares,
    MigDevices,
    PoolUnits,
)
from croupier.core.model.name_list import printable, quoted
from croupier.core.model.refusal import Refusal
from croupier.core.pods.effective_requests import Amounts
from croupier.core.quantity import NANO, Quantity

GPU: Final = "nvidia.com/gpu"
MIG: Final = "nvidia.com/mig-"
POOL: Final = "gpu.deckhouse.io/"
PERCENT: Final = "gpu.mps.io/percent"
LEDGER: Final = "gpu.mps.io/ledger"
EXTENDER_RESOURCES: Final = (LEDGER, PERCENT)
"""Resources that kube-scheduler leaves to the extender: a node need not have them."""
CARDS: Final = "gpu.mps.io/cards"
RATIO: Final = "gpu.mps.io/ratio"

_ONE: Final = Quantity(NANO)
_NUMBER: Final = re.compile("[1-9][0-9]{0,2}")
_PROFILE: Final = re.compile(r"(?P<size>(?:[1-7]c\.)?[1-7]g\.[0-9]+gb)(?:\.(?P<extra>[a-z.]+))?")


class _InvalidRequestError(Exception):
    """Carries the message for the user to `read`."""


@dataclass(frozen=True, slots=True)
class _Annotated:
    """The request of the two annotations."""

    cards: int
    percent: int

    @property
    def total(self) -> int:
        return self.cards * self.percent

    def __str__(self) -> str:
        return f"{CARDS} {self.cards} × {RATIO} {self.percent}"


def is_card_resource(resource: str) -> bool:
    """Whether the resource requests cards, or is `gpu.mps.io/ledger`."""
    return resource in (GPU, PERCENT, LEDGER) or resource.startswith((MIG, POOL))


def profile(resource: str) -> str | None:
    """The MIG profile of a resource: `nvidia.com/mig-1g.10gb.me` is `1g.10gb+me`."""
    match = _PROFILE.fullmatch(resource.removeprefix(MIG)) if resource.startswith(MIG) else None
    if match is None:
        return None
    return f"{match['size']}+{match['extra']}" if match["extra"] else match["size"]


def mig_resource(profile: str) -> str:
    """The resource of a MIG profile: `1g.10gb+me` is `nvidia.com/mig-1g.10gb.me`."""
    return MIG + profile.replace("+", ".")


def read(requests: Amounts, annotations: Mapping[str, str]) -> CardRequest | Refusal:
    """The card request in a fixed order; empty if the pod requests no cards.

    Annotations alone are a request, too, for clusters without the webhook. Where quotas count, the policy of
    admission/mark_policy.py refuses a pod whose annotations were not converted to a resource.
    """
    try:
        counts = _counts(requests)
        whole: CardRequest = (CardShares(counts[GPU]),) if GPU in counts else ()
        return (*whole, *_slots(counts), *_shared(counts, _annotated(annotations)))
    except _InvalidRequestError as unreadable:
        return Refusal(str(unreadable))


def _counts(requests: Amounts) -> dict[str, int]:
    """Number of each card resource; Kubernetes counts devices in whole numbers."""
    counts = {name: amount for name, amount in sorted(requests.items()) if amount and is_card_resource(name)}
    for name, amount in counts.items():
        if amount.nanos < 0 or not amount.is_multiple_of(_ONE):
            raise _InvalidRequestError(
                f"the request of {printable(name)} is {amount}; it must be a whole number, not below 0"
            )
    return {name: amount.whole for name, amount in counts.items()}


def _slots(counts: Mapping[str, int]) -> CardRequest:
    wants = []
    for name, count in counts.items():
        if not name.startswith(MIG):
            continue
        named = profile(name)
        if named is None:
            raise _InvalidRequestError(
                f"the pod asks for {printable(name)}, which names no MIG profile;"
                f" write one such as {MIG}1g.10gb"
            )
        wants.append(MigDevices(named, count))
    return tuple(wants)


def _annotated(annotations: Mapping[str, str]) -> _Annotated | None:
    """Without a ratio, cards are whole cards; without cards, the ratio is for one card."""
    if CARDS not in annotations and RATIO not in annotations:
        return None
    cards = _number(CARDS, annotations.get(CARDS, "1"), most=MAX_CARDS, such_as=2)
    return _Annotated(
        cards, _number(RATIO, annotations.get(RATIO, str(WHOLE_CARD)), most=WHOLE_CARD, such_as=50)
    )


def _number(annotation: str, written: str, *, most: int, such_as: int) -> int:
    number = int(written) if _NUMBER.fullmatch(written) else 0
    if not 1 <= number <= most:
        raise _InvalidRequestError(
            f"annotation {annotation} is {quoted(written)}: "
            f'it must be a whole number from 1 to {most}, in digits only, such as "{such_as}"'
        )
    return number


def _shared(counts: Mapping[str, int], annotated: _Annotated | None) -> CardRequest:
    """The part of the request for a pool, or in percent."""
    pools = [name.removeprefix(POOL) for name in counts if name.startswith(POOL)]
    percent = counts.get(PERCENT, 0)
    if len(pools) > 1:
        raise _InvalidRequestError(
            f"MixedPoolRequest: the pod asks for pools {', '.join(pools[:-1])} and {pools[-1]}; "
            "all its containers together may ask for one pool"
        )
    if pools and percent:
        raise _InvalidRequestError(
            f"the pod asks for {POOL}{pools[0]} and for {PERCENT}; a share is either of a pool or of any card"
        )
    if pools:
        return (_of_pool(pools[0], counts[POOL + pools[0]], annotated),)
    return _without_pool(percent, annotated)


def _of_pool(pool: str, count: int, annotated: _Annotated | None) -> CardRequestItem:
    """A pool counts in percent or in whole cards; the annotations must match the count in one of them."""
    if annotated is None:
        return PoolUnits(pool, count)
    as_cards = annotated.cards if annotated.percent == WHOLE_CARD else None
    if count not in (annotated.total, as_cards):
        raise _InvalidRequestError(
            f"the pod asks for {count} of {POOL}{pool}, but its annotations say "
            f"{annotated} = {annotated.total}; they must agree"
        )
    return PoolUnits(pool, count, CardShares(annotated.cards, annotated.percent, pool))


def _without_pool(percent: int, annotated: _Annotated | None) -> CardRequest:
    if annotated is not None:
        if percent not in (0, annotated.total):
            raise _InvalidRequestError(
                f"the pod asks for {percent} of {PERCENT}, but its annotations say "
                f"{annotated} = {annotated.total}; they must agree"
            )
        return (CardShares(annotated.cards, annotated.percent),)
    if percent <= WHOLE_CARD:
        return (CardShares(1, percent),) if percent else ()
    if percent % WHOLE_CARD or percent > MAX_CARDS * WHOLE_CARD:
        raise _InvalidRequestError(
            f"the pod asks for {percent} of {PERCENT}, which does not say of how many cards: "
            f"ask for up to {WHOLE_CARD} (one card), for whole cards ({2 * WHOLE_CARD}, {3 * WHOLE_CARD} ... "
            f"{MAX_CARDS * WHOLE_CARD}), or set the annotations {CARDS} and {RATIO}"
        )
    return (CardShares(percent // WHOLE_CARD),)
