"""A claim for cards of a node, and its decision.

Claims are idempotent: a holder that already has a grant gets the same grant, at most with a later expiry.
A pod with a Reservation takes over the Reservation's grant and cannot claim more cards in addition;
otherwise the Reservation would count twice.
"""

from dataclasses import dataclass

from croupier.core.ledger import holder, totals
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model import card_request
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardRequest
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement, refusal_reasons
from croupier.core.placement.placement import Rank, Strategy

ALREADY_HOLDS: Rank = ()
"""Rank of a node on which the holder already has a grant: better than every other node."""


@dataclass(frozen=True, slots=True)
class CardClaim:
    holder: str
    """`namespace/pod/uid`, or `namespace/pod` for a Reservation whose pod does not exist yet."""
    wants: CardRequest
    terms: HoldTerms
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Granted:
    ledger: Ledger
    """The same object if nothing changed."""
    grant: Grant


def decide(ledger: Ledger, claim: CardClaim, strategy: Strategy) -> Granted | Refusal:
    if current := ledger.grant(claim.holder):
        return Granted(_extended(ledger, claim), current)
    waiting = holder.reservation_holder(claim.holder)
    if waiting and (reserved := ledger.grant(waiting)):
        return _take_over(ledger, claim, waiting, reserved)
    grant = placement.choose(ledger, claim.wants, strategy)
    if isinstance(grant, Refusal):
        return grant
    given = ledger_ops.give(ledger, claim.holder, grant, claim.terms)
    return given if isinstance(given, Refusal) else Granted(given, grant)


def rank(ledger: Ledger, claim: CardClaim, strategy: Strategy) -> Rank | Refusal:
    """The rank of the node for the claim, consistent with `decide`."""
    if ledger.grant(claim.holder):
        return ALREADY_HOLDS
    waiting = holder.reservation_holder(claim.holder)
    if waiting and (reserved := ledger.grant(waiting)):
        return _reservation_conflict(ledger, claim, waiting, reserved) or ALREADY_HOLDS
    return placement.rank(ledger, claim.wants, strategy)


def _extended(ledger: Ledger, claim: CardClaim) -> Ledger:
    """Extend the hold to the expiry of the repeated claim, so that a pending expiry does not apply.

    A hold is never shortened, and a hold without expiry stays without one.
    """
    until, requested = ledger.held.get(claim.holder), claim.terms.until
    if until is None or requested is None or requested <= until or claim.terms.bound:
        return ledger
    return ledger_ops.extend(ledger, claim.holder, requested)


def _take_over(ledger: Ledger, claim: CardClaim, waiting: str, reserved: Grant) -> Granted | Refusal:
    if (objection := _reservation_conflict(ledger, claim, waiting, reserved)) is not None:
        return objection
    renamed = ledger_ops.rename(ledger, waiting, claim.holder)
    kept = ledger_ops.bind(renamed, claim.holder) if claim.terms.bound else _extended(renamed, claim)
    return Granted(kept, reserved)


def _reservation_conflict(ledger: Ledger, claim: CardClaim, waiting: str, reserved: Grant) -> Refusal | None:
    name = ledger.reservations.get(waiting, "")
    reservation = f"Reservation {name}" if name else "a reservation"
    if claim.wants and not totals.matches(ledger, reserved, claim.wants):
        return Refusal(
            f"{reservation} holds {totals.describe(ledger, reserved)} for the pod,"
            f" which asks for {card_request.describe(claim.wants)}; they must be equal"
        )
    cards = (ledger.card(part.card) for part in reserved)
    unusable = [card for card in cards if card is not None and not card.healthy]
    if unusable:
        detail = ", ".join(f"card {card.index} {card.obstacle}" for card in unusable)
        withheld = refusal_reasons.withheld_cards(unusable)
        kind = "a card that takes no new pods" if withheld else "an unhealthy card"
        return Refusal(f"{reservation} holds {kind} for the pod{withheld}", detail)
    return None
