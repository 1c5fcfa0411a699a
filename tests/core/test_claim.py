"""Who asks gets it once; a pod that was waited for gets what waits for it, and nothing else."""

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


def test_a_claim_is_given_on_its_terms():
    answer = claim.decide(node(shared(0)), Claim(POD, (Shares(1, 30),), RESERVED), "BinPack")

    assert isinstance(answer, Taken)
    assert answer.grant == answer.ledger.grant(POD) == (Part(place(0), 30),)
    assert answer.ledger.held == {POD: NOON}
    assert answer.ledger.reservations == {POD: "mine"}


def test_asking_again_changes_nothing_even_for_something_else():
    ledger = given(node(shared(0)), POD, (Part(place(0), 30),))

    answer = claim.decide(ledger, Claim(POD, (Shares(1, 100),), RESERVED), "Spread")

    assert answer == Taken(ledger, (Part(place(0), 30),))
    assert claim.rank(ledger, Claim(POD, (Shares(1, 100),), BOUND), "Spread") == HOLDS


LATER = NOON + timedelta(minutes=1)
LASTS = {
    "longer when asked for longer": (NOON, Terms(until=LATER), LATER),
    "not shorter": (LATER, Terms(until=NOON), LATER),
    "not shorter than for ever": (None, Terms(until=NOON), None),
    "as before when asked without an end": (NOON, Terms(), NOON),
}


@pytest.mark.parametrize(("until", "terms", "expected"), LASTS.values(), ids=LASTS)
@pytest.mark.parametrize("holder", [POD, "ns/pod"], ids=["its own hold", "a Reservation's"])
def test_how_long_a_hold_that_is_asked_for_again_lasts(holder, until, terms, expected):
    ledger = given(node(shared(0)), holder, (Part(place(0), 30),), Terms(until=until))

    answer = claim.decide(ledger, Claim(POD, (Shares(1, 30),), terms), "Spread")

    assert isinstance(answer, Taken)
    assert answer.ledger.held == {POD: expected}
    assert claim.decide(answer.ledger, Claim(POD, (Shares(1, 30),), terms), "Spread") == answer


@pytest.mark.parametrize("wants", [(), (Shares(1, 50),)], ids=["asks for nothing", "asks for the same"])
def test_the_pod_takes_over_what_waits_for_it(wants):
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


def test_the_pod_asks_for_something_else():
    asked = Claim(POD, (Shares(2, 50),), Terms())
    why = (
        "Reservation mine holds 50 % of 1 card for the pod, which asks for 50 % of 2 cards;"
        " they must be equal"
    )

    assert claim.decide(reserved(), asked, "BinPack") == Refused(why)
    assert claim.rank(reserved(), asked, "BinPack") == Refused(why)


def test_what_waits_for_the_pod_is_of_a_sick_card():
    ledger = recut.recut(reserved(), [shared(0, healthy=False), shared(1)])

    answer = claim.decide(ledger, Claim(POD, (), Terms()), "BinPack")

    assert answer == Refused(
        "Reservation mine holds a card for the pod that is not healthy", "card 0 is not healthy"
    )


def test_another_pod_and_the_reservation_itself_take_nothing_over():
    ledger = reserved()

    other = claim.decide(ledger, Claim("ns/pod-2/uid", (Shares(1, 50),), BOUND), "BinPack")
    itself = claim.decide(ledger, Claim("ns/pod", (Shares(1, 50),), BOUND), "BinPack")

    assert isinstance(other, Taken)
    assert other.ledger.holders() == {"ns/pod", "ns/pod-2/uid"}
    assert itself == Taken(ledger, (Part(place(0), 50),))


def test_nothing_waits_and_nothing_is_asked_for():
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
    "the shares, asked one by one": ((HALF, OTHER_HALF), (Shares(1, 50), Shares(1, 50)), True),
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
    "the pool and something beside it": ((HALF, Part(place(2), 100)), (Units("red", 1),), False),
}


@pytest.mark.parametrize(("grant", "wants", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_a_grant_is_what_was_asked_for_or_not(grant, wants, expected):
    assert tally.answers(LEDGER, grant, wants) is expected


def test_a_grant_in_words():
    grant = (HALF, OTHER_HALF, Part(place(3), 2), Part(place(4), slots=("1g.10gb-4", "1g.10gb-5")))

    assert tally.sentence(LEDGER, grant) == (
        "50 % of 2 cards and 2 time slices of pool blue and 2 × MIG 1g.10gb"
    )
