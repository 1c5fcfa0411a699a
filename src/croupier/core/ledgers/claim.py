"""A claim for cards of a node, and its decision.

Claims are idempotent: a holder that already has a grant gets the same grant, at most with a later expiry.
A pod with a Reservation takes over the Reservation's grant and cannot claim more cards in addition;
otherwise the Reservation would count twice.
"""

from dataclasses import dataclass

from croupier.core.ledgers import ledger as ledger_ops
from croupier.core.ledgers import tally
from croupier.core.ledgers.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placing import placement
from croupier.core.placing.placement import Rank, Strategy
from croupier.core.pods import want
from croupier.core.pods.want import Wants

HOLDS: Rank = ()
"""Rank of a node on which the holder already has a grant: better than every other node."""


@dataclass(frozen=True, slots=True)
class Claim:
    holder: str
    """`namespace/pod/uid`, or `namespace/pod` for a Reservation whose pod does not exist yet."""
    wants: Wants
    terms: Terms
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    ledger: Ledger
    """The same object if nothing changed."""
    grant: Grant


def decide(ledger: Ledger, claim: Claim, strategy: Strategy) -> Taken | Refused:
    if current := ledger.grant(claim.holder):
        return Taken(_prolonged(ledger, claim), current)
    waiting = reserved_as(claim.holder)
    if waiting and (reserved := ledger.grant(waiting)):
        return _take_over(ledger, claim, waiting, reserved)
    grant = placement.choose(ledger, claim.wants, strategy)
    if isinstance(grant, Refused):
        return grant
    given = ledger_ops.give(ledger, claim.holder, grant, claim.terms)
    return given if isinstance(given, Refused) else Taken(given, grant)


def rank(ledger: Ledger, claim: Claim, strategy: Strategy) -> Rank | Refused:
    """The rank of the node for the claim, consistent with `decide`."""
    if ledger.grant(claim.holder):
        return HOLDS
    waiting = reserved_as(claim.holder)
    if waiting and (reserved := ledger.grant(waiting)):
        return _objection(ledger, claim, waiting, reserved) or HOLDS
    return placement.rank(ledger, claim.wants, strategy)


def reserved_as(holder: str) -> str:
    """The holder name that a Reservation uses for this pod; empty if `holder` has no UID."""
    pod_key, _, uid = holder.rpartition("/")
    return pod_key if uid and "/" in pod_key else ""


def _prolonged(ledger: Ledger, claim: Claim) -> Ledger:
    """Extend the hold to the expiry of the repeated claim, so that a pending expiry does not apply.

    A hold is never shortened, and a hold without expiry stays without one.
    """
    until, requested = ledger.held.get(claim.holder), claim.terms.until
    if until is None or requested is None or requested <= until or claim.terms.bound:
        return ledger
    return ledger_ops.prolong(ledger, claim.holder, requested)


def _take_over(ledger: Ledger, claim: Claim, waiting: str, reserved: Grant) -> Taken | Refused:
    if (objection := _objection(ledger, claim, waiting, reserved)) is not None:
        return objection
    renamed = ledger_ops.rename(ledger, waiting, claim.holder)
    kept = ledger_ops.bind(renamed, claim.holder) if claim.terms.bound else _prolonged(renamed, claim)
    return Taken(kept, reserved)


def _objection(ledger: Ledger, claim: Claim, waiting: str, reserved: Grant) -> Refused | None:
    name = ledger.reservations.get(waiting, "")
    reservation = f"Reservation {name}" if name else "a reservation"
    if claim.wants and not tally.answers(ledger, reserved, claim.wants):
        return Refused(
            f"{reservation} holds {tally.sentence(ledger, reserved)} for the pod,"
            f" which asks for {want.sentence(claim.wants)}; they must be equal"
        )
    cards = (ledger.card(part.card) for part in reserved)
    unhealthy = [card for card in cards if card is not None and not card.healthy]
    if unhealthy:
        detail = ", ".join(f"card {card.index} is not healthy" for card in unhealthy)
        return Refused(f"{reservation} holds an unhealthy card for the pod", detail)
    return None
