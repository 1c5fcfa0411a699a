"""Explanations repeat the refusals of placement, count them, and suggest only requests that fit."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.explanation import explain, nearest_fit, what_if
from croupier.core.explanation.explain import SchedulingInputs
from croupier.core.ledger import ledger, overview
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.overview import FreeOfTotal
from croupier.core.model.card import CardGrant, LedgerCard, MigSlot
from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import Withheld, WithheldState
from croupier.core.placement import placement
from croupier.core.pods.scheduler_filters import CandidateNode, NodeConstraints

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def node(name: str, *free: int) -> Ledger:
    """A node whose cards have these percentages free."""
    cards = (
        LedgerCard(f"{name}-{index}", index, holders={"x/old/u0": 100 - left} if left < 100 else {})
        for index, left in enumerate(free)
    )
    return Ledger(name, tuple(cards))


def world(*ledgers: Ledger, bare: tuple[str, ...] = (), closed: tuple[str, ...] = ()) -> SchedulingInputs:
    names = [*(ledger_.node for ledger_ in ledgers), *bare, *closed]
    return SchedulingInputs(
        {name: CandidateNode(name, cordoned=name in closed) for name in names},
        {ledger_.node: ledger_ for ledger_ in ledgers},
        "BinPack",
    )


def pod(*wants, **changes) -> PodView:
    return replace(PodView("team/job", "u1", wants=wants, marked=True), **changes)


def test_equal_reasons_are_counted_together_as_the_scheduler_does():
    seen = world(node("a", 20), node("b", 30), bare=("c",), closed=("d",))

    explanation = explain.explain(pod(CardShares(1, 50)), NodeConstraints(), seen)

    assert explanation.state == "Pending"
    assert explanation.sentence == (
        "0/4 nodes are available: 1 node(s) were unschedulable, 1 the node has no cards in the ledger, "
        "2 needs 1 card with 50 % free but has 0."
    )
    assert explanation.refusals[0].nodes == ("a", "b")
    assert [(miss.node, miss.detail) for miss in explanation.nearest] == [
        ("b", "card 0 is short by 20 %"),
        ("a", "card 0 is short by 30 %"),
    ]
    assert [(str(smaller.wants[0]), smaller.node) for smaller in explanation.instead] == [
        ("30 % of 1 card", "b")
    ]


def test_the_nearest_node_is_the_one_that_lacks_least_even_if_all_its_cards_are_free():
    seen = world(node("a", 100, 10, 100, 100), node("b", *[100] * 8))

    explanation = explain.explain(pod(CardShares(12, 80)), NodeConstraints(), seen)

    assert [(miss.node, miss.detail) for miss in explanation.nearest] == [
        ("b", "the node has only 8 cards for it"),
        ("a", "card 1 is short by 70 %"),
    ]
    assert explanation.notes == (
        "no node has 12 cards, the largest has 8: the pod cannot start even if all cards are free",
    )


def test_a_pod_that_fits_when_others_end_is_not_said_to_be_impossible():
    explanation = explain.explain(pod(CardShares(2, 80)), NodeConstraints(), world(node("a", 100, 10)))

    assert (explanation.state, explanation.notes) == ("Pending", ())


def test_a_pod_that_fits_lists_the_best_node_first():
    explanation = explain.explain(
        pod(CardShares(1, 50)), NodeConstraints(), world(node("a", 100), node("b", 60))
    )

    assert (explanation.state, explanation.fits) == ("Fits", ("b", "a"))


SAID = {
    "bad annotations": (pod(trouble="annotation x is bad"), "Unreadable", "annotation x is bad"),
    "without gpu.mps.io/ledger": (
        pod(CardShares(1), marked=False),
        "Unmarked",
        "the pod asks for 1 card; it does not request",
    ),
    "finished": (pod(CardShares(1), finished=True), "Finished", "has finished"),
    "only gpu.mps.io/ledger": (pod(), "Pending", "requests gpu.mps.io/ledger but asks for no cards"),
    "bound without cards": (pod(node="a", marked=False), "NoCards", "asks for no cards"),
    "bound, not in the ledger": (pod(CardShares(1), node="a"), "Bound", "the ledger has no cards for it"),
}


@pytest.mark.parametrize(("asked", "state", "said"), SAID.values(), ids=SAID)
def test_explanations_of_other_pods(asked, state, said):
    explanation = explain.explain(asked, NodeConstraints(), world(node("a", 100)))

    assert explanation.state == state
    assert said in explanation.sentence


def test_the_explanation_of_a_bound_pod_names_its_cards_and_reservation():
    given_to = ledger.give(
        node("a", 100, 100),
        "team/job/u1",
        (CardGrant("a-0", 50), CardGrant("a-1", 50)),
        HoldTerms(True, None, "mine"),
    )
    assert isinstance(given_to, Ledger)

    explanation = explain.explain(pod(CardShares(2, 50), node="a"), NodeConstraints(), world(given_to))

    assert explanation.sentence == "the pod is bound to a and holds 50 % of card 0 and 50 % of card 1"
    assert explanation.seat is not None
    assert (explanation.seat.reservation, explanation.seat.held) == ("mine", False)


def test_a_reservation_restricts_the_pod_to_its_node():
    waits = ledger.give(node("a", 100), "team/job", (CardGrant("a-0", 50),), HoldTerms(False, NOON, "mine"))
    assert isinstance(waits, Ledger)
    seen = world(waits, node("b", 100))

    explanation = explain.explain(pod(CardShares(1, 50)), NodeConstraints(), seen)
    other = explain.explain(pod(CardShares(1, 40)), NodeConstraints(), seen)

    assert (explanation.state, explanation.fits) == ("Fits", ("a",))
    assert explanation.seat is not None
    assert (explanation.seat.held, explanation.seat.until) == (True, NOON)
    assert other.state == "Pending"
    assert "1 a Reservation holds cards of a for the pod" in other.sentence
    assert (
        "1 Reservation mine holds 50 % of 1 card for the pod, which asks for 40 % of 1 card" in other.sentence
    )


MIG = LedgerCard(
    "a-2", 2, "MIG", slots=tuple(MigSlot(f"s{n}", "1g.10gb", n, 1, "x/y/z" * (n < 2)) for n in range(7))
)
SMALLER = {
    "fewer cards": (CardShares(3), node("a", 100, 100, 20), ["2 cards", "20 % of 3 cards"]),
    "a smaller share": (CardShares(1, 80), node("a", 70), ["70 % of 1 card"]),
    "fewer MIG devices": (MigDevices("1g.10gb", 6), Ledger("a", (MIG,)), ["5 × MIG 1g.10gb"]),
    "nothing at all": (CardShares(1, 50), node("a", 0), []),
    "no pool of that name": (PoolUnits("p", 2), node("a", 100), []),
}


@pytest.mark.parametrize(("want", "has", "smaller"), SMALLER.values(), ids=SMALLER)
def test_the_largest_smaller_request_that_fits(want, has, smaller):
    explanation = nearest_fit.smaller_requests({"a": has}, (want,), "BinPack")

    assert [str(request.wants[0]) for request in explanation] == smaller


def test_copies_fill_the_cluster_and_the_next_one_is_explained():
    played = what_if.simulate(
        pod(CardShares(1, 50)), NodeConstraints(), world(node("a", 60), node("b", 100, 40)), 5
    )

    assert [(place.node, place.grant[0].card) for place in played.places] == [
        ("a", "a-0"),
        ("b", "b-0"),
        ("b", "b-0"),
    ]
    assert played.stopped is not None
    assert played.stopped.sentence == "0/2 nodes are available: 2 needs 1 card with 50 % free but has 0."


def test_the_first_copy_takes_the_cards_of_the_reservation():
    waits = ledger.give(node("a", 100), "team/job", (CardGrant("a-0", 50),), HoldTerms(False, NOON, "mine"))
    assert isinstance(waits, Ledger)

    played = what_if.simulate(pod(CardShares(1, 50)), NodeConstraints(), world(waits), 3)

    assert [place.grant for place in played.places] == [(CardGrant("a-0", 50),)] * 2
    assert played.stopped is not None


WORLDS = st.lists(st.lists(st.integers(0, 100), max_size=4), max_size=5).map(
    lambda nodes: world(*(node(f"n{number}", *free) for number, free in enumerate(nodes)), bare=("bare",))
)
WANTS = st.builds(CardShares, st.integers(1, 3), st.integers(1, 100))


@given(WORLDS, WANTS, st.integers(1, 12))
def test_a_simulation_never_overcommits_and_stops_only_when_nothing_fits(seen, want, copies):
    played = what_if.simulate(pod(want), NodeConstraints(), seen, copies)

    ledgers = dict(seen.ledgers)
    for number, place in enumerate(played.places):
        after = ledger.give(ledgers[place.node], f"t/p/{number}", place.grant, HoldTerms(bound=True))
        assert isinstance(after, Ledger), after
        ledgers[place.node] = after
    assert all(not ledger.invariant_violations(after) for after in ledgers.values())
    full = all(isinstance(placement.choose(after, (want,), "BinPack"), Refusal) for after in ledgers.values())
    assert (played.stopped is not None) == (len(played.places) < copies)
    assert played.stopped is None or full


@given(WORLDS, WANTS)
def test_explanations_agree_with_placement(seen, want):
    explanation = explain.explain(pod(want), NodeConstraints(), seen)

    fits = {
        n
        for n, node_ledger in seen.ledgers.items()
        if not isinstance(placement.choose(node_ledger, (want,), "BinPack"), Refusal)
    }
    assert set(explanation.fits) == fits
    assert {name for group in explanation.refusals for name in group.nodes} == seen.nodes.keys() - fits
    for smaller in explanation.instead:
        assert not isinstance(placement.choose(seen.ledgers[smaller.node], smaller.wants, "BinPack"), Refusal)
        assert smaller.wants != (want,)


def test_a_retired_card_will_never_start_a_pod_and_a_drained_one_may():
    def without_card_0(state: WithheldState) -> Ledger:
        first, second = node("a", 100, 100).cards
        return Ledger("a", (replace(first, healthy=False, withheld=Withheld(state, "fan")), second))

    two = pod(CardShares(2))
    retired = explain.explain(two, NodeConstraints(), world(without_card_0("Retired")))
    drained = explain.explain(two, NodeConstraints(), world(without_card_0("Drained")))

    assert retired.notes == (
        "no node has 2 cards, the largest has 1: the pod cannot start even if all cards are free",
    )
    assert drained.notes == ()
    assert drained.sentence == (
        "0/1 nodes are available: 1 needs 2 free cards but has 1 (1 card is drained: fan)."
    )


def test_a_summary_counts_by_mode():
    cards = (
        LedgerCard("a", 0, holders={"x/y/z": 60}),
        LedgerCard("b", 1),
        MIG,
        LedgerCard("d", 3, "TimeSlice", capacity=8, holders={"x/s/u": 3}),
        LedgerCard("e", 4, healthy=False),
    )
    sums = overview.summary(Ledger("n", cards, held={"x/s/u": None}))

    assert (sums.cards, sums.percent, sums.slices) == (
        FreeOfTotal(1, 5),
        FreeOfTotal(140, 300),
        FreeOfTotal(5, 8),
    )
    assert sums.slots == {"1g.10gb": FreeOfTotal(5, 7)}
    assert (sums.withheld, sums.holders, sums.held) == ({"Unhealthy": 1}, 2, 1)
