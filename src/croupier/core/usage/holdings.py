"""What the pods of a node hold, as shares of whole cards.

A share is an exact fraction: percent of 100, time slices of the card's slices, compute slices of a MIG device
of the card's compute slices. The shares of one card never sum to more than 1, because the ledger cannot be
overcommitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import blake2b
from typing import Final, TypeAlias

from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import mig
from croupier.core.model.card import CardMode, LedgerCard
from croupier.core.model.card_request import WHOLE_CARD

_ID_BYTES: Final = 8


@dataclass(frozen=True, slots=True, order=True)
class UsageKey:
    """What usage is counted by."""

    namespace: str
    pool: str
    """Empty for cards without a pool."""
    model: str
    """The product name of the card. Empty if it is not known."""
    mode: CardMode


@dataclass(frozen=True, slots=True)
class CardProduct:
    """What usage needs to know about a card that the ledger does not contain."""

    name: str = ""
    compute_slices: int = mig.COMPUTE_SLICES


UNKNOWN_PRODUCT: Final = CardProduct()

Holdings: TypeAlias = Mapping[UsageKey, Mapping[str, Fraction]]
"""The share of each pod, by the id of the pod (`pod_id`)."""


def holdings(ledger: Ledger, models: Mapping[str, CardProduct]) -> Holdings:
    """Everything that is held on a node, by pods that are bound or being placed, and by Reservations."""
    held: dict[UsageKey, dict[str, Fraction]] = {}
    for card in ledger.cards:
        model = models.get(card.id, UNKNOWN_PRODUCT)
        for holder, share in _shares(card, model.compute_slices):
            namespace = holder.partition("/")[0]
            pods = held.setdefault(UsageKey(namespace, card.pool, model.name, card.mode), {})
            pod = pod_id(holder)
            pods[pod] = pods.get(pod, Fraction()) + share
    return held


def pod_id(holder: str) -> str:
    """Identifies a pod by namespace and name, so that a pod that takes over its Reservation is the same."""
    return blake2b(holder_names.pod_key(holder).encode(), digest_size=_ID_BYTES).hexdigest()


def _shares(card: LedgerCard, compute_slices: int) -> list[tuple[str, Fraction]]:
    if card.mode != "MIG":
        whole = card.capacity if card.mode == "TimeSlice" else WHOLE_CARD
        return [(holder, Fraction(share, whole)) for holder, share in card.holders.items()]
    return [
        (slot.holder, Fraction(mig.compute_slices(slot.profile), compute_slices))
        for slot in card.slots
        if slot.holder
    ]
