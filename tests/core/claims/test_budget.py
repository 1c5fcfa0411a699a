"""Pods and Reservations of a namespace together never exceed its quotas, in whatever order they come."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.claims import budget, reservation
from croupier.core.claims.budget import (
    SHARES,
    WHOLE_CARDS,
    Charge,
    NamespaceBudget,
    NamespaceHoldings,
    NamespaceQuota,
    QuotaScope,
    ReservationLimits,
)
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, LedgerCard
from croupier.core.model.card_request import CardShares
from croupier.core.pods.quota import QuotaUsage
from croupier.core.quantity import NANO, Quantity
from tests.core.reservation_builders import NOON, after_noon, cards, inputs, reservation_request


def amount(number: int) -> Quantity:
    return Quantity(number * NANO)


def quota(hard: dict[str, int], used: dict[str, int] | None = None, *scopes: QuotaScope) -> NamespaceQuota:
    usage = QuotaUsage(
        {name: amount(number) for name, number in hard.items()},
        {name: amount(number) for name, number in (used or {}).items()},
    )
    return NamespaceQuota("cards", usage, scopes)


def held(reservations: int = 0, cards: int = 0, **charge: int) -> NamespaceHoldings:
    names = {"percent": SHARES, "gpu": WHOLE_CARDS}
    return NamespaceHoldings(reservations, cards, {names[key]: number for key, number in charge.items()})


HALVES = CardShares(2, 50)
WHOLE = CardShares(1, 100)

REFUSED = {
    "no quota and no limit": (NamespaceBudget(), HALVES, ""),
    "within the quota": (NamespaceBudget((quota({SHARES: 100}),)), HALVES, ""),
    "above the quota": (
        NamespaceBudget((quota({SHARES: 99}),)),
        HALVES,
        "exceeds ResourceQuota cards: it asks for 100 of gpu.mps.io/percent, and of 99 pods use 0 and "
        "Reservations hold 0; ask for less, or delete a pod or a Reservation",
    ),
    "pods count": (NamespaceBudget((quota({SHARES: 150}, {SHARES: 60}),)), HALVES, "pods use 60"),
    "Reservations count": (
        NamespaceBudget((quota({SHARES: 150}),), holdings=held(percent=60)),
        HALVES,
        "Reservations hold 60",
    ),
    "whole cards are charged as cards": (
        NamespaceBudget((quota({WHOLE_CARDS: 0}),)),
        WHOLE,
        "it asks for 1 of nvidia.com/gpu",
    ),
    "whole cards are charged in percent if no quota counts cards": (
        NamespaceBudget((quota({SHARES: 50}),)),
        WHOLE,
        "it asks for 100 of gpu.mps.io/percent",
    ),
    "a quota on cards does not count shares": (NamespaceBudget((quota({WHOLE_CARDS: 0}),)), HALVES, ""),
    "the number": (
        NamespaceBudget(limits=ReservationLimits(max_per_namespace=2), holdings=held(2)),
        HALVES,
        "the setting reservations.maxPerNamespace allows 2",
    ),
    "the cards": (
        NamespaceBudget(limits=ReservationLimits(max_cards_per_namespace=3), holdings=held(1, 2)),
        HALVES,
        "the setting reservations.maxCardsPerNamespace allows 3",
    ),
}


@pytest.mark.parametrize(("limited", "want", "sentence"), REFUSED.values(), ids=REFUSED)
def test_refusals(limited, want, sentence):
    refused = limited.refusal(want)

    assert sentence in refused.message if sentence else refused is None


HIGH = QuotaScope("PriorityClass", "In", frozenset({"high"}))
SCOPES = {
    "its class": (HIGH, "high", True),
    "another class": (HIGH, "low", False),
    "no class": (HIGH, "", False),
    "not its class": (replace(HIGH, operator="NotIn"), "low", True),
    "any class": (QuotaScope("PriorityClass"), "low", True),
    "without a class": (QuotaScope("PriorityClass", "DoesNotExist"), "", True),
    "pods without an end": (QuotaScope("NotTerminating"), "", True),
    "pods with an end": (QuotaScope("Terminating"), "", False),
}


@pytest.mark.parametrize(("scope", "name", "covered"), SCOPES.values(), ids=SCOPES)
def test_scopes_of_a_quota(scope, name, covered):
    limited = NamespaceBudget((quota({SHARES: 1}, {}, scope),))

    assert (limited.refusal(HALVES, name) is not None) is covered


def test_a_pod_is_refused_only_for_what_reservations_hold():
    limited = NamespaceBudget((quota({SHARES: 100}, {SHARES: 90}),))

    assert limited.pod_refusal({SHARES: 50}) is None  # the API server refuses it by itself
    together = replace(limited, holdings=held(percent=5))
    assert "Reservations hold 5" in str(together.pod_refusal({SHARES: 10}))
    assert together.pod_refusal({SHARES: 5}) is None
    assert together.pod_refusal({WHOLE_CARDS: 8}) is None


WANTS = st.builds(CardShares, st.integers(1, 4), st.sampled_from([3, 50, 100]))
STEPS = st.lists(st.tuples(st.sampled_from(["reserve", "pod", "take over"]), WANTS), max_size=25)


@given(STEPS, st.integers(0, 5), st.integers(0, 500), st.booleans())
def test_no_order_of_pods_and_reservations_exceeds_a_quota(steps, gpus, percent, counts_cards):
    """Pods pass the quota of the API server and our rule; Reservations pass our rule."""
    hard = {SHARES: percent} | ({WHOLE_CARDS: gpus} if counts_cards else {})
    used = dict.fromkeys(hard, 0)
    reserved: list[CardShares] = []
    for step, want in steps:
        now = NamespaceBudget((quota(hard, used),))
        for each in reserved:
            now = now.granted(each)
        charge = now.charge(want)
        if step == "reserve" and now.refusal(want) is None:
            reserved.append(want)
        if step == "pod" and now.pod_refusal(charge) is None:
            _create_pod(charge, used, hard)
        if step == "take over" and reserved:
            taken = now.charge(reserved[-1])
            if _create_pod(taken, used, hard):
                reserved.pop()
        total = NamespaceBudget((quota(hard, used),))
        for each in reserved:
            total = total.granted(each)
        assert all(used[name] + total.holdings.charge.get(name, 0) <= hard[name] for name in hard)


def _create_pod(charge: Charge, used: dict[str, int], hard: dict[str, int]) -> bool:
    if any(used[name] + number > hard[name] for name, number in charge.items()):
        return False
    for name, number in charge.items():
        used[name] += number
    return True


def given_to(ledger: Ledger, holder: str, *shares: int, **terms) -> Ledger:
    grant = tuple(CardGrant(card.id, share) for card, share in zip(ledger.cards, shares, strict=False))
    made = ledger_ops.give(ledger, holder, grant, HoldTerms(**terms))
    assert isinstance(made, Ledger)
    return made


def test_what_a_namespace_holds_beyond_its_pods():
    ledger = given_to(cards(), "default/waits", 30, 30, reservation="a")
    ledger = given_to(ledger, "default/runs/u1", 20, bound=True, reservation="b")
    ledger = given_to(ledger, "default/asks/u2", 10, bound=True)
    ledger = given_to(ledger, "default-2/other", 40, reservation="c")
    requests = {"default/asks/u2": (CardShares(1, 10),)}

    found = budget.holdings([ledger], "default", NamespaceBudget(), lambda holder: requests.get(holder, ()))

    assert found == NamespaceHoldings(1, 2, {SHARES: 80})


def test_cards_of_a_pool_are_charged_to_the_pool():
    ledger = Ledger("n", (LedgerCard("a", 0, "Exclusive", pool="team"),))
    ledger = given_to(ledger, "default/pod", 100)

    found = budget.holdings([ledger], "default", NamespaceBudget(), lambda _holder: ())

    assert found.charge == {"requests.gpu.deckhouse.io/team": 1}


ENDS = {
    "the default counts from the first decision": (None, None, {"default_ttl": 60}, after_noon(70)),
    "without a default it has no end": (None, None, {}, None),
    "a recorded end stays": (None, after_noon(5), {"default_ttl": 60}, after_noon(5)),
    "its own time counts from the creation": (30, None, {"default_ttl": 60}, after_noon(30)),
    "at most the longest": (300, None, {"max_ttl": 100}, after_noon(100)),
    "a recorded end beyond the longest stays": (300, after_noon(200), {"max_ttl": 100}, after_noon(200)),
}


@pytest.mark.parametrize(("ttl", "recorded", "limits", "end"), ENDS.values(), ids=ENDS)
def test_the_end_without_a_pod(ttl, recorded, limits, end):
    now = NOON + timedelta(seconds=10)

    assert budget.end(NOON, ttl, recorded=recorded, now=now, limits=ReservationLimits(**limits)) == end


def test_a_ttl_beyond_the_longest_is_refused():
    limits = ReservationLimits(max_ttl=60)

    assert budget.ttl_refusal(60, limits) is None
    assert budget.ttl_refusal(None, limits) is None
    assert "ttlSeconds is 61" in str(budget.ttl_refusal(61, limits))


def test_a_reservation_that_waits_for_capacity_uses_up_no_budget():
    first = reservation_request("wide", 3, 50, pod="default/wide", age=60)
    second = reservation_request("small", 1, 50, pod="default/small")
    scene = inputs(first, second)
    budgets = {"default": NamespaceBudget((quota({SHARES: 150}),))}

    decided = budget.decide(cards(2), scene, "BinPack", budgets=budgets, is_charged=lambda _asked: False)

    assert decided.refused == {}
    assert decided.granted == frozenset({"default/small"})


WANTED = st.lists(st.tuples(WANTS, st.integers(-1, 2)), max_size=8)


@given(WANTED, st.integers(0, 300))
def test_grants_of_one_decision_stay_within_the_quota(wanted, percent):
    asked = tuple(
        reservation_request(f"r{n}", want.cards, want.percent, pod=f"default/p{n}", priority=priority)
        for n, (want, priority) in enumerate(wanted)
    )
    budgets = {"default": NamespaceBudget((quota({SHARES: percent}),))}

    scene = budget.decide(
        cards(4), inputs(*asked), "BinPack", budgets=budgets, is_charged=lambda _asked: False
    )
    after = reservation.apply(cards(8), scene, "BinPack")  # a ledger with more room than was decided on

    assert sum(card.used for card in after.cards) <= percent
