"""Claims are idempotent; a pod with a Reservation gets exactly the cards of the Reservation."""

from dataclasses import replace
from datetime import timedelta

import pytest

from croupier.core.claims import claim
from croupier.core.claims.claim import ALREADY_HOLDS, CardClaim, Granted
from croupier.core.ledger import change_layout, totals
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant
from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import Withheld
from tests.core.ledger_builders import (
    BOUND,
    NOON,
    card_id,
    exclusive,
    mig,
    node,
    shared,
    time_sliced,
    with_holder,
)

POD = "ns/pod/uid"
RESERVED = HoldTerms(until=NOON, reservation="mine")


def reserved() -> Ledger:
    """A Reservation for the pod holds half of the first card."""
    return with_holder(node(shared(0), shared(1)), "ns/pod", (CardGrant(card_id(0), 50),), RESERVED)


def test_a_claim_is_granted_on_its_terms():
    answer = claim.decide(node(shared(0)), CardClaim(POD, (CardShares(1, 30),), RESERVED), "BinPack")

    assert isinstance(answer, Granted)
    assert answer.grant == answer.ledger.grant(POD) == (CardGrant(card_id(0), 30),)
    assert answer.ledger.held == {POD: NOON}
    assert answer.ledger.reservations == {POD: "mine"}


def test_a_repeated_claim_changes_nothing_even_for_another_request():
    ledger = with_holder(node(shared(0)), POD, (CardGrant(card_id(0), 30),))

    answer = claim.decide(ledger, CardClaim(POD, (CardShares(1, 100),), RESERVED), "Spread")

    assert answer == Granted(ledger, (CardGrant(card_id(0), 30),))
    assert claim.rank(ledger, CardClaim(POD, (CardShares(1, 100),), BOUND), "Spread") == ALREADY_HOLDS


LATER = NOON + timedelta(minutes=1)
LASTS = {
    "a later expiry extends": (NOON, HoldTerms(until=LATER), LATER),
    "an earlier expiry does not shorten": (LATER, HoldTerms(until=NOON), LATER),
    "a hold without expiry stays so": (None, HoldTerms(until=NOON), None),
    "a claim without expiry changes nothing": (NOON, HoldTerms(), NOON),
}


@pytest.mark.parametrize(("until", "terms", "expected"), LASTS.values(), ids=LASTS)
@pytest.mark.parametrize("holder", [POD, "ns/pod"], ids=["its own hold", "a Reservation's"])
def test_the_expiry_of_a_repeated_claim(holder, until, terms, expected):
    ledger = with_holder(node(shared(0)), holder, (CardGrant(card_id(0), 30),), HoldTerms(until=until))

    answer = claim.decide(ledger, CardClaim(POD, (CardShares(1, 30),), terms), "Spread")

    assert isinstance(answer, Granted)
    assert answer.ledger.held == {POD: expected}
    assert claim.decide(answer.ledger, CardClaim(POD, (CardShares(1, 30),), terms), "Spread") == answer


@pytest.mark.parametrize("wants", [(), (CardShares(1, 50),)], ids=["empty request", "same request"])
def test_the_pod_takes_over_the_hold_of_its_reservation(wants):
    ledger = reserved()

    answer = claim.decide(ledger, CardClaim(POD, wants, HoldTerms()), "BinPack")

    assert isinstance(answer, Granted)
    assert answer.ledger.grant(POD) == answer.grant == (CardGrant(card_id(0), 50),)
    assert answer.ledger.holders() == {POD}
    assert answer.ledger.held == {POD: NOON}
    assert claim.rank(ledger, CardClaim(POD, wants, HoldTerms()), "BinPack") == ALREADY_HOLDS


def test_a_pod_that_is_bound_takes_over_as_bound():
    answer = claim.decide(reserved(), CardClaim(POD, (), BOUND), "BinPack")

    assert isinstance(answer, Granted)
    assert not answer.ledger.held


def test_a_pod_with_another_request_is_refused():
    asked = CardClaim(POD, (CardShares(2, 50),), HoldTerms())
    why = (
        "Reservation mine holds 50 % of 1 card for the pod, which asks for 50 % of 2 cards;"
        " they must be equal"
    )

    assert claim.decide(reserved(), asked, "BinPack") == Refusal(why)
    assert claim.rank(reserved(), asked, "BinPack") == Refusal(why)


def test_a_reservation_of_an_unhealthy_card_is_refused():
    ledger = change_layout.apply_report(reserved(), [shared(0, healthy=False), shared(1)])

    answer = claim.decide(ledger, CardClaim(POD, (), HoldTerms()), "BinPack")

    assert answer == Refusal("Reservation mine holds an unhealthy card for the pod", "card 0 is not healthy")


def test_a_reservation_of_a_drained_card_is_refused_with_the_reason():
    drained = replace(shared(0, healthy=False), withheld=Withheld("Drained", "swap the fan"))
    ledger = change_layout.apply_report(reserved(), [drained, shared(1)])

    answer = claim.decide(ledger, CardClaim(POD, (), HoldTerms()), "BinPack")

    assert answer == Refusal(
        "Reservation mine holds a card that takes no new pods for the pod (1 card is drained: swap the fan)",
        "card 0 is drained: swap the fan",
    )


def test_other_pods_and_the_reservation_itself_take_over_nothing():
    ledger = reserved()

    other = claim.decide(ledger, CardClaim("ns/pod-2/uid", (CardShares(1, 50),), BOUND), "BinPack")
    itself = claim.decide(ledger, CardClaim("ns/pod", (CardShares(1, 50),), BOUND), "BinPack")

    assert isinstance(other, Granted)
    assert other.ledger.holders() == {"ns/pod", "ns/pod-2/uid"}
    assert itself == Granted(ledger, (CardGrant(card_id(0), 50),))


def test_an_empty_request_without_reservation_is_refused():
    assert claim.decide(node(shared(0)), CardClaim(POD, (), HoldTerms()), "Spread") == Refusal(
        "asks for no cards"
    )


LEDGER = node(
    shared(0),
    shared(1),
    exclusive(2, pool="red"),
    time_sliced(3, pool="blue"),
    mig(4, "mixed"),
    shared(5, pool="mps"),
)
HALF, OTHER_HALF = CardGrant(card_id(0), 50), CardGrant(card_id(1), 50)
ANSWERS = {
    "the shares": ((HALF, OTHER_HALF), (CardShares(2, 50),), True),
    "the shares, as two items": ((HALF, OTHER_HALF), (CardShares(1, 50), CardShares(1, 50)), True),
    "too few cards": ((HALF,), (CardShares(2, 50),), False),
    "too many cards": ((HALF, OTHER_HALF), (CardShares(1, 50),), False),
    "another share": ((HALF,), (CardShares(1, 60),), False),
    "another pool": ((HALF,), (CardShares(1, 50, "red"),), False),
    "the slots": (
        (CardGrant(card_id(4), slots=("1g.10gb-4", "2g.20gb-6")),),
        (MigDevices("1g.10gb", 1), MigDevices("2g.20gb", 1)),
        True,
    ),
    "other slots": ((CardGrant(card_id(4), slots=("1g.10gb-4",)),), (MigDevices("2g.20gb", 1),), False),
    "a card of the pool": ((CardGrant(card_id(2), 100),), (PoolUnits("red", 1),), True),
    "slices of the pool": ((CardGrant(card_id(3), 3),), (PoolUnits("blue", 1), PoolUnits("blue", 2)), True),
    "percent of the pool": ((CardGrant(card_id(5), 30),), (PoolUnits("mps", 30),), True),
    "nothing of the pool": ((), (PoolUnits("red", 1),), False),
    "more of the pool": ((CardGrant(card_id(3), 3),), (PoolUnits("blue", 2),), False),
    "the pool and another card": ((HALF, CardGrant(card_id(2), 100)), (PoolUnits("red", 1),), False),
}


@pytest.mark.parametrize(("grant", "wants", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_a_grant_matches_the_request_or_not(grant, wants, expected):
    assert totals.matches(LEDGER, grant, wants) is expected


def test_a_grant_is_described():
    grant = (
        HALF,
        OTHER_HALF,
        CardGrant(card_id(3), 2),
        CardGrant(card_id(4), slots=("1g.10gb-4", "1g.10gb-5")),
    )

    assert totals.describe(LEDGER, grant) == (
        "50 % of 2 cards and 2 time slices of pool blue and 2 × MIG 1g.10gb"
    )
