"""One who asks for cards of a node, and the answer.

Asking again is harmless: whoever holds something gets exactly that again, at most for longer. A pod for
which a person's Reservation waits takes over what the Reservation holds; it cannot take more beside it,
or the Reservation would count twice.
"""

from dataclasses import dataclass

from croupier.core.ledgers import ledger as book
from croupier.core.ledgers import tally
from croupier.core.ledgers.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placing import placement
from croupier.core.placing.placement import Rank, Strategy
from croupier.core.pods import want
from croupier.core.pods.want import Wants

HOLDS: Rank = ()
"""The rank of a node where the claimant holds something already: before every other."""


@dataclass(frozen=True, slots=True)
class Claim:
    holder: str
    """`namespace/pod/uid`, or `namespace/pod` for a Reservation whose pod is not there yet."""
    wants: Wants
    terms: Terms
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Taken:
    ledger: Ledger
    """The same object if nothing had to change."""
    grant: Grant


def decide(ledger: Ledger, claim: Claim, strategy: Strategy) -> Taken | Refused:
    if has := ledger.grant(claim.holder):
        return Taken(_prolonged(ledger, claim), has)
    waiting = reserved_as(claim.holder)
    if waiting and (reserved := ledger.grant(waiting)):
        return _take_over(ledger, claim, waiting, reserved)
    grant = placement.choose(ledger, claim.wants, strategy)
    if isinstance(grant, Refused):
        return grant
    given = book.give(ledger, claim.holder, grant, claim.terms)
    return given if isinstance(given, Refused) else Taken(given, grant)


def rank(ledger: Ledger, claim: Claim, strategy: Strategy) -> Rank | Refused:
    """How good the node is for the claimant, as `decide` would treat it."""
    if ledger.grant(claim.holder):
        return HOLDS
    waiting = reserved_as(claim.holder)
    if waiting and (reserved := ledger.grant(waiting)):
        return _objection(ledger, claim, waiting, reserved) or HOLDS
    return placement.rank(ledger, claim.wants, strategy)


def reserved_as(holder: str) -> str:
    """The name under which a Reservation holds for this pod; empty if it is that name already."""
    pod_key, _, uid = holder.rpartition("/")
    return pod_key if uid and "/" in pod_key else ""


def _prolonged(ledger: Ledger, claim: Claim) -> Ledger:
    """A hold that is claimed again lasts as long as the new claim says, so that whoever was about to end
    it sees that it is wanted; never shorter, and one without an end stays so."""
    until, wanted = ledger.held.get(claim.holder), claim.terms.until
    if until is None or wanted is None or wanted <= until or claim.terms.bound:
        return ledger
    return book.prolong(ledger, claim.holder, wanted)


def _take_over(ledger: Ledger, claim: Claim, waiting: str, reserved: Grant) -> Taken | Refused:
    if (objection := _objection(ledger, claim, waiting, reserved)) is not None:
        return objection
    taken = book.rename(ledger, waiting, claim.holder)
    kept = book.bind(taken, claim.holder) if claim.terms.bound else _prolonged(taken, claim)
    return Taken(kept, reserved)


def _objection(ledger: Ledger, claim: Claim, waiting: str, reserved: Grant) -> Refused | None:
    name = ledger.reservations.get(waiting, "")
    reservation = f"Reservation {name}" if name else "a reservation"
    if claim.wants and not tally.answers(ledger, reserved, claim.wants):
        return Refused(
            f"{reservation} holds {tally.sentence(ledger, reserved)} for the pod,"
            f" which asks for {want.sentence(claim.wants)}; they must be equal"
        )
    sick = [card for part in reserved if (card := ledger.card(part.card)) is not None and not card.healthy]
    if sick:
        detail = ", ".join(f"card {card.index} is not healthy" for card in sick)
        return Refused(f"{reservation} holds a card for the pod that is not healthy", detail)
    return None
