"""Claims are idempotent; a pod with a Reservation gets exactly the cards of the Reservation."""

from datetime import timedelta

import pytest

from croupier.core.ledgers import claim, recut, tally
from croupier.core.ledgers.claim import HOLDS, Claim, Taken
from croupier.core.ledgers.ledger import Ledger, Part, Refused, Terms
from croupier.core.pods.want import Shares, Slots, Units
from tests.core.worlds import BOUND, NOON, cut, exclusive, given, node, place, shared, sliced

POD = "ns/pod/uid"
RESERVED = Terms(until=NOON, reservation="mine")


def reserved() -> Ledger:
    """A Reservation for the pod holds half of the first card."""
    return given(node(shared(0), shared(1)), "ns/pod", (Part(place(0), 50),), RESERVED)


def test_a_claim_is_granted_on_its_terms():
    answer = claim.decide(node(shared(0)), Claim(POD, (Shares(1, 30),), RESERVED), "BinPack")

    assert isinstance(answer, Taken)
    assert answer.grant == answer.ledger.grant(POD) == (Part(place(0), 30),)
    assert answer.ledger.held == {POD: NOON}
    assert answer.ledger.reservations == {POD: "mine"}


def test_a_repeated_claim_changes_nothing_even_for_another_request():
    ledger = given(node(shared(0)), POD, (Part(place(0), 30),))

    answer = claim.decide(ledger, Claim(POD, (Shares(1, 100),), RESERVED), "Spread")

    assert answer == Taken(ledger, (Part(place(0), 30),))
    assert claim.rank(ledger, Claim(POD, (Shares(1, 100),), BOUND), "Spread") == HOLDS


LATER = NOON + timedelta(minutes=1)
LASTS = {
    "a later expiry extends": (NOON, Terms(until=LATER), LATER),
    "an earlier expiry does not shorten": (LATER, Terms(until=NOON), LATER),
    "a hold without expiry stays so": (None, Terms(until=NOON), None),
    "a claim without expiry changes nothing": (NOON, Terms(), NOON),
}


@pytest.mark.parametrize(("until", "terms", "expected"), LASTS.values(), ids=LASTS)
@pytest.mark.parametrize("holder", [POD, "ns/pod"], ids=["its own hold", "a Reservation's"])
def test_the_expiry_of_a_repeated_claim(holder, until, terms, expected):
    ledger = given(node(shared(0)), holder, (Part(place(0), 30),), Terms(until=until))

    answer = claim.decide(ledger, Claim(POD, (Shares(1, 30),), terms), "Spread")

    assert isinstance(answer, Taken)
    assert answer.ledger.held == {POD: expected}
    assert claim.decide(answer.ledger, Claim(POD, (Shares(1, 30),), terms), "Spread") == answer


@pytest.mark.parametrize("wants", [(), (Shares(1, 50),)], ids=["empty request", "same request"])
def test_the_pod_takes_over_the_hold_of_its_reservation(wants):
    ledger = reserved()

    answer = claim.decide(ledger, Claim(POD, wants, Terms()), "BinPack")

    assert isinstance(answer, Taken)
    assert answer.ledger.grant(POD) == answer.grant == (Part(place(0), 50),)
    assert answer.ledger.holders() == {POD}
    assert answer.ledger.held == {POD: NOON}
    assert claim.rank(ledger, Claim(POD, wants, Terms()), "BinPack") == HOLDS


def test_a_pod_that_is_bound_takes_over_as_bound():
    answer = claim.decide(reserved(), Claim(POD, (), BOUND), "BinPack")

    assert isinstance(answer, Taken)
    assert not answer.ledger.held


def test_a_pod_with_another_request_is_refused():
    asked = Claim(POD, (Shares(2, 50),), Terms())
    why = (
        "Reservation mine holds 50 % of 1 card for the pod, which asks for 50 % of 2 cards;"
        " they must be equal"
    )

    assert claim.decide(reserved(), asked, "BinPack") == Refused(why)
    assert claim.rank(reserved(), asked, "BinPack") == Refused(why)


def test_a_reservation_of_an_unhealthy_card_is_refused():
    ledger = recut.recut(reserved(), [shared(0, healthy=False), shared(1)])

    answer = claim.decide(ledger, Claim(POD, (), Terms()), "BinPack")

    assert answer == Refused("Reservation mine holds an unhealthy card for the pod", "card 0 is not healthy")


def test_other_pods_and_the_reservation_itself_take_over_nothing():
    ledger = reserved()

    other = claim.decide(ledger, Claim("ns/pod-2/uid", (Shares(1, 50),), BOUND), "BinPack")
    itself = claim.decide(ledger, Claim("ns/pod", (Shares(1, 50),), BOUND), "BinPack")

    assert isinstance(other, Taken)
    assert other.ledger.holders() == {"ns/pod", "ns/pod-2/uid"}
    assert itself == Taken(ledger, (Part(place(0), 50),))


def test_an_empty_request_without_reservation_is_refused():
    assert claim.decide(node(shared(0)), Claim(POD, (), Terms()), "Spread") == Refused("asks for no cards")


LEDGER = node(
    shared(0),
    shared(1),
    exclusive(2, pool="red"),
    sliced(3, pool="blue"),
    cut(4, "mixed"),
    shared(5, pool="mps"),
)
HALF, OTHER_HALF = Part(place(0), 50), Part(place(1), 50)
ANSWERS = {
    "the shares": ((HALF, OTHER_HALF), (Shares(2, 50),), True),
    "the shares, as two items": ((HALF, OTHER_HALF), (Shares(1, 50), Shares(1, 50)), True),
    "too few cards": ((HALF,), (Shares(2, 50),), False),
    "too many cards": ((HALF, OTHER_HALF), (Shares(1, 50),), False),
    "another share": ((HALF,), (Shares(1, 60),), False),
    "another pool": ((HALF,), (Shares(1, 50, "red"),), False),
    "the slots": (
        (Part(place(4), slots=("1g.10gb-4", "2g.20gb-6")),),
        (Slots("1g.10gb", 1), Slots("2g.20gb", 1)),
        True,
    ),
    "other slots": ((Part(place(4), slots=("1g.10gb-4",)),), (Slots("2g.20gb", 1),), False),
    "a card of the pool": ((Part(place(2), 100),), (Units("red", 1),), True),
    "slices of the pool": ((Part(place(3), 3),), (Units("blue", 1), Units("blue", 2)), True),
    "percent of the pool": ((Part(place(5), 30),), (Units("mps", 30),), True),
    "nothing of the pool": ((), (Units("red", 1),), False),
    "more of the pool": ((Part(place(3), 3),), (Units("blue", 2),), False),
    "the pool and another card": ((HALF, Part(place(2), 100)), (Units("red", 1),), False),
}


@pytest.mark.parametrize(("grant", "wants", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_a_grant_matches_the_request_or_not(grant, wants, expected):
    assert tally.answers(LEDGER, grant, wants) is expected


def test_a_grant_is_described():
    grant = (HALF, OTHER_HALF, Part(place(3), 2), Part(place(4), slots=("1g.10gb-4", "1g.10gb-5")))

    assert tally.sentence(LEDGER, grant) == (
        "50 % of 2 cards and 2 time slices of pool blue and 2 × MIG 1g.10gb"
    )
