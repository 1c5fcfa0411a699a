"""What a ledger amounts to: the numbers that `kubectl get nodereservations` shows.

A printer column cannot count or add. So the process that changes the ledger computes the summary, and writes
it together with the cards and holders.
"""

from collections import Counter
from collections.abc import Iterable

from croupier.api.mps.ledger import CapacitySummary, FreeCapacity, NodeReservationSpec
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard


def is_current(spec: NodeReservationSpec, ledger: Ledger) -> bool:
    """Whether `spec`, which decodes to `ledger`, has its summary."""
    return spec.summary == summary(ledger)


def summary(ledger: Ledger) -> CapacitySummary:
    return CapacitySummary(
        cards=sum(not card.is_retired for card in ledger.cards),
        holders=len(ledger.holders()),
        free=_free(ledger.cards),
    )


def _free(cards: Iterable[LedgerCard]) -> FreeCapacity:
    healthy = [card for card in cards if card.healthy]
    shared = [card.free for card in healthy if card.mode == "Percent"]
    slices = [card.free for card in healthy if card.mode == "TimeSlice"]
    whole = [card.is_free for card in healthy if card.mode in ("Percent", "Exclusive")]
    return FreeCapacity(
        percent=sum(shared) if shared else None,
        cards=sum(whole) if whole else None,
        slots=dict(sorted(Counter(slot.profile for card in healthy for slot in card.free_slots()).items())),
        slices=sum(slices) if slices else None,
    )
