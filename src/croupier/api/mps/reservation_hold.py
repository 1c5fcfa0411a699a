"""Convert a Reservation's status to the hold that the ledger must contain."""

from croupier.api.mps.reservation import MIRROR, Reservation
from croupier.core.ledger.reservation_hold import ReservationHold
from croupier.core.model.card import CardGrant


def hold_of(reservation: Reservation) -> ReservationHold | None:
    """The hold of a Reservation in phase Reserved for a pod in its namespace. None for others and mirrors."""
    spec, status, meta = reservation.spec, reservation.status, reservation.metadata
    if status.phase != "Reserved" or not status.cards or MIRROR in meta.labels:
        return None
    if spec.pod_key.partition("/")[0] != meta.namespace:
        return None
    return ReservationHold(
        name=meta.name,
        pod=spec.pod_key,
        node=spec.node_name,
        grant=tuple(CardGrant(card.id, card.percent) for card in status.cards),
        since=meta.creation_timestamp,
        ttl=spec.ttl_seconds,
    )
