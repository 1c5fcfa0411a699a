"""The status of each Reservation of a node, derived from the ledger.

A refusal says what is missing and which other nodes have enough free capacity. These figures
change with every pod, so the message of a refusal is updated only after a debounce period.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from croupier.core.claims import claim, reservation
from croupier.core.claims.reservation_inputs import (
    LastReservationStatus,
    ReservationInputs,
    ReservationOutcome,
    ReservationRequest,
)
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import card_request
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement
from croupier.core.placement.placement import Strategy

MESSAGE_DEBOUNCE: Final = timedelta(seconds=10)
"""Minimum time between two updates of the same refusal."""
RECHECK_INTERVAL: Final = 60.0
"""Seconds after which a refused Reservation is checked again."""
POLL_INTERVAL: Final = 5.0
"""Seconds between checks while another controller must act first."""
MAX_NODES_NAMED: Final = 3
"""Maximum number of alternative nodes in a refusal."""


@dataclass(frozen=True, slots=True)
class ReservationDecisions:
    outcomes: Mapping[str, ReservationOutcome]
    """By `namespace/name`; other Reservations keep their status."""
    free: frozenset[str] = frozenset()
    """Deleted Reservations that hold nothing, so that their finalizer can be removed."""
    requeue_after: float | None = None


def decide(
    ledger: Ledger | None, scene: ReservationInputs, elsewhere: Mapping[str, Ledger], strategy: Strategy
) -> ReservationDecisions:
    """Call it after `reservation.apply`; `elsewhere` are the ledgers of the other nodes."""
    outcomes, free, looks = {}, set(), []
    holding = reservation.by_reservation(ledger)
    rooms = _Alternatives(elsewhere, strategy)
    for asked in scene.reservations:
        holder = holding.get(asked.key)
        if asked.deleted:
            free |= {asked.key} if holder is None else set()
            continue
        outcome = _outcome(ledger, holder, asked, scene) or _refusal(ledger, asked, scene, rooms)
        if outcome is not None and _should_publish(outcome, asked.last_status, scene.now):
            outcomes[asked.key] = outcome
        looks.append(_requeue_after(outcome, asked, scene))
    soonest = min((look for look in looks if look is not None), default=None)
    return ReservationDecisions(outcomes, frozenset(free), soonest)


def _outcome(
    ledger: Ledger | None, holder: str | None, asked: ReservationRequest, scene: ReservationInputs
) -> ReservationOutcome | None:
    """The outcome unless it is a refusal for lack of capacity; None also if the status stays unchanged."""
    if ledger is not None and holder is not None:
        grant = ledger.grant(holder)
        message = f"holds {reservation.describe_grant(grant)} of {ledger.node}"
        if holder not in ledger.held:
            return ReservationOutcome("PodBound", message, grant, holder_names.uid(holder))
        return ReservationOutcome(
            "Granted", f"{message}{_unusable(ledger, grant)}", grant, holder_names.uid(holder)
        )
    if asked.last_status.phase == "Released" or _ledger_pending(ledger, asked, scene):
        return None
    if scene.ended(asked) or scene.left(asked):
        return ReservationOutcome("PodEnded", f"pod {asked.pod} has ended")
    if asked.until is not None and scene.expired(asked):
        waited = int((asked.until - asked.created).total_seconds())
        return ReservationOutcome("Expired", f"expired after {waited} s without a bound pod")
    return reservation.obstacle(ledger, asked, scene)


def _unusable(ledger: Ledger, grant: Grant) -> str:
    """A clause about cards on which the pod could not start now."""
    cards = (ledger.card(part.card) for part in grant)
    unusable = [f"{card.id} {card.obstacle}" for card in cards if card is not None and not card.healthy]
    return f"; the pod waits, because {' and '.join(unusable)}" if unusable else ""


def _refusal(
    ledger: Ledger | None, asked: ReservationRequest, scene: ReservationInputs, rooms: "_Alternatives"
) -> ReservationOutcome | None:
    if asked.last_status.phase == "Released" or _ledger_pending(ledger, asked, scene):
        return None
    if not scene.exists:
        return ReservationOutcome(
            "UnknownNode", f"node {scene.node} does not exist; {rooms.named(asked.want)}"
        )
    if ledger is None or not ledger.cards:
        if scene.expected:
            return _awaiting(asked, scene)
        return ReservationOutcome("NoCards", f"{scene.node} has no cards; {rooms.named(asked.want)}")
    refused = claim.decide(ledger, reservation.claim_of(asked, scene), rooms.strategy)
    if not isinstance(refused, Refusal):
        return None
    short = f"{scene.node} cannot provide {card_request.describe((asked.want,))}: {refused}"
    return ReservationOutcome("InsufficientCapacity", f"{short}; {rooms.named(asked.want)}")


def _awaiting(asked: ReservationRequest, scene: ReservationInputs) -> ReservationOutcome | None:
    """A decision would be made without the cards: a new Reservation says so, others keep their status."""
    if asked.last_status.phase != "Pending":
        return None
    message = f"waiting for the cards of {scene.node}, which are not in its ledger yet"
    return ReservationOutcome("AwaitingCards", message)


def _ledger_pending(ledger: Ledger | None, asked: ReservationRequest, scene: ReservationInputs) -> bool:
    """The ledger of the node will be rebuilt from this status, so it must not change now."""
    return ledger is None and scene.exists and asked.last_status.phase == "Reserved"


def _should_publish(outcome: ReservationOutcome, last_status: LastReservationStatus, now: datetime) -> bool:
    """Whether to publish the outcome; a refusal with new figures only is debounced."""
    if outcome.phase != "Failed" or (last_status.phase, last_status.reason) != (
        outcome.phase,
        outcome.reason,
    ):
        return True
    return (
        last_status.since is None
        or last_status.message == outcome.message
        or last_status.since + MESSAGE_DEBOUNCE <= now
    )


def _requeue_after(
    outcome: ReservationOutcome | None, asked: ReservationRequest, scene: ReservationInputs
) -> float | None:
    """Seconds until the next check if nothing changes; None: no check."""
    if outcome is None:
        return None if asked.last_status.phase == "Released" else POLL_INTERVAL
    if outcome.phase == "Released" or outcome.reason == "PodBound":
        return None
    if outcome.phase == "Pending":
        return POLL_INTERVAL
    left = None if asked.until is None else (asked.until - scene.now).total_seconds()
    if left is not None and left <= 0:
        return POLL_INTERVAL  # a bind is in progress: the holder controller fences it and ends the hold
    if outcome.phase != "Failed":
        return left
    recheck = (
        RECHECK_INTERVAL if outcome.message == asked.last_status.message else MESSAGE_DEBOUNCE.total_seconds()
    )
    return recheck if left is None else min(left, recheck)


@dataclass(frozen=True, slots=True)
class _Alternatives:
    """The other nodes that could provide a request, cached per request."""

    ledgers: Mapping[str, Ledger]
    strategy: Strategy
    known: dict[CardShares, str] = field(default_factory=dict)

    def named(self, wanted: CardShares) -> str:
        if wanted not in self.known:
            self.known[wanted] = self._look(wanted)
        return self.known[wanted]

    def _look(self, wanted: CardShares) -> str:
        nodes: list[str] = []
        for node in sorted(self.ledgers):
            if not isinstance(placement.choose(self.ledgers[node], (wanted,), self.strategy), Refusal):
                nodes.append(node)
            if len(nodes) == MAX_NODES_NAMED:
                break
        return f"available on {', '.join(nodes)}" if nodes else "not available on any other node"
