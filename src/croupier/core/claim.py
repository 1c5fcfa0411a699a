"""One who asks for cards of a node, and the answer.

Asking again is harmless: whoever holds something gets exactly that again. A pod for which a
person's Reservation waits takes over what the Reservation holds; it cannot take more beside it, or the
Reservation would count twice.
"""

from collections import Counter
from dataclasses import dataclass

from croupier.core import ledger as book
from croupier.core import placement
from croupier.core.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placement import Rank, Strategy
from croupier.core.want import Shares, Slots, Units, Wants, sentence

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
        return Taken(ledger, has)
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


def _take_over(ledger: Ledger, claim: Claim, waiting: str, reserved: Grant) -> Taken | Refused:
    if (objection := _objection(ledger, claim, waiting, reserved)) is not None:
        return objection
    taken = book.rename(ledger, waiting, claim.holder)
    return Taken(book.bind(taken, claim.holder) if claim.terms.bound else taken, reserved)


def _objection(ledger: Ledger, claim: Claim, waiting: str, reserved: Grant) -> Refused | None:
    name = ledger.reservations.get(waiting, "")
    reservation = f"Reservation {name}" if name else "a reservation"
    if claim.wants and not answers(ledger, reserved, claim.wants):
        return Refused(
            f"{reservation} holds something else for this pod than the {sentence(claim.wants)} it asks for;"
            " change one of the two"
        )
    if any((card := ledger.card(part.card)) is None or not card.healthy for part in reserved):
        return Refused(f"{reservation} holds a card for this pod that is not healthy")
    return None


def answers(ledger: Ledger, grant: Grant, wants: Wants) -> bool:
    """`grant` is exactly what `wants` asks for, on whichever cards."""
    return _amounts(ledger, grant) == _asked(ledger, grant, wants)


def _amounts(ledger: Ledger, grant: Grant) -> Counter[tuple[str, str]]:
    """How often each thing occurs: a share of so many percent, a slot of a profile; per pool."""
    amounts: Counter[tuple[str, str]] = Counter()
    for part in grant:
        card = ledger.card(part.card)
        if card is None:
            continue
        if card.mode == "TimeSlice":
            amounts[card.pool, "slices"] += part.share
        elif part.share:
            amounts[card.pool, f"{part.share} %"] += 1
        profiles = {slot.id: slot.profile for slot in card.slots}
        amounts.update((card.pool, profiles[slot]) for slot in part.slots if slot in profiles)
    return amounts


def _asked(ledger: Ledger, grant: Grant, wants: Wants) -> Counter[tuple[str, str]]:
    asked: Counter[tuple[str, str]] = Counter()
    for want in wants:
        if isinstance(want, Shares):
            asked[want.pool, f"{want.percent} %"] += want.cards
        elif isinstance(want, Slots):
            asked[want.pool, want.profile] += want.count
        elif isinstance(want, Units):
            asked += _units(ledger, grant, want)
    return asked


def _units(ledger: Ledger, grant: Grant, want: Units) -> Counter[tuple[str, str]]:
    """Units have no shape of their own: whatever of the pool is in the grant, if it is so many."""
    parts = tuple(p for p in grant if (card := ledger.card(p.card)) is not None and card.pool == want.pool)
    cards = [ledger.card(part.card) for part in parts]
    count = 0
    for part, card in zip(parts, cards, strict=True):
        if card is not None and card.mode == "Exclusive":
            count += 1
        else:
            count += part.share + len(part.slots)
    return _amounts(ledger, parts) if count == want.count else Counter({(want.pool, "units"): want.count})
