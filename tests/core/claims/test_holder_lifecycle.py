"""Promotion, release and expiry of holders; the holder of a bound pod never expires."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.claims import holder_lifecycle
from croupier.core.claims.holder_lifecycle import ExpireHolder, FreeHolder, HolderStep, PromoteHolder
from croupier.core.ledger import ledger
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.pod_view import PodView
from tests.core import node_records
from tests.core.node_records import NODE, NOON, by_key, gpu, half_of, plugin_report, pod

HELD = HoldTerms(until=NOON)
SECOND = timedelta(seconds=1)


def book(holder: str = "ns/a/1", terms: HoldTerms = HELD) -> Ledger:
    given = ledger.give(Ledger(NODE, node_records.cards_of(plugin_report())), holder, half_of(gpu(0)), terms)
    assert isinstance(given, Ledger)
    return given


def steps(held: Ledger, *pods: PodView, now: datetime = NOON - SECOND) -> tuple[HolderStep, ...]:
    return holder_lifecycle.plan(held, by_key(*pods), now).steps


RESERVED = HoldTerms(until=NOON, reservation="rsv")
BOUND = HoldTerms(bound=True)
STEPS = {
    "held, its pod is pending: nothing": (book(), [pod(node="")], []),
    "held, its pod is bound here: Bound": (book(), [pod()], [PromoteHolder("ns/a/1", "ns/a/1")]),
    "held, its pod is bound elsewhere": (
        book(),
        [pod(node="node-2")],
        [FreeHolder("ns/a/1", "pod ns/a is bound to node node-2")],
    ),
    "held, its pod is not in the cache: verify": (
        book(),
        [],
        [FreeHolder("ns/a/1", "pod ns/a is gone", verify="pod")],
    ),
    "held, another pod with its name: verify": (
        book(),
        [pod(uid="2")],
        [FreeHolder("ns/a/1", "pod ns/a is gone", verify="pod")],
    ),
    "bound, its pod runs": (book(terms=BOUND), [pod()], []),
    "bound, its pod seems to be pending: the cache is behind": (book(terms=BOUND), [pod(node="")], []),
    "bound, its pod has ended": (
        book(terms=BOUND),
        [pod(finished=True)],
        [FreeHolder("ns/a/1", "pod ns/a has ended")],
    ),
    "a Reservation's, no pod yet": (book("ns/a", RESERVED), [], []),
    "a Reservation's, its pod is pending": (book("ns/a", RESERVED), [pod(node="")], []),
    "a Reservation's, its pod is bound": (book("ns/a", RESERVED), [pod()], [PromoteHolder("ns/a", "ns/a/1")]),
    "a Reservation's, its pod has ended": (book("ns/a", RESERVED), [pod(finished=True)], []),
    "a name's, its pod is bound": (book("ns/a"), [pod()], [PromoteHolder("ns/a", "ns/a/1")]),
}


def test_a_promotion_is_left_to_the_extender_until_the_hold_is_about_to_expire():
    patience = timedelta(seconds=60)
    early, late = NOON - timedelta(seconds=61), NOON - timedelta(seconds=60)

    waits = holder_lifecycle.plan(book(), by_key(pod()), early, patience=patience)
    assert waits.steps == ()
    assert waits.again == late
    assert holder_lifecycle.plan(book(), by_key(pod()), late, patience=patience).steps == (
        PromoteHolder("ns/a/1", "ns/a/1"),
    )


def test_a_bound_pod_takes_over_the_hold_of_its_reservation_at_once():
    held = book("ns/a", RESERVED)
    early = NOON - timedelta(hours=1)

    assert holder_lifecycle.plan(held, by_key(pod()), early, patience=SECOND).steps == (
        PromoteHolder("ns/a", "ns/a/1"),
    )


@pytest.mark.parametrize(("held", "pods", "expected"), STEPS.values(), ids=STEPS)
def test_steps_before_the_expiry(held, pods, expected):
    assert list(steps(held, *pods)) == expected


LATE = {
    "expired, its pod is pending": (book(), [pod(node="")], [ExpireHolder("ns/a/1", NOON)]),
    "expired, its pod is not in the cache": (book(), [], [ExpireHolder("ns/a/1", NOON)]),
    "expired, but its pod is bound": (book(), [pod()], [PromoteHolder("ns/a/1", "ns/a/1")]),
    "bound": (book(terms=BOUND), [pod()], []),
    "without expiry": (book(terms=HoldTerms()), [pod(node="")], []),
    "a name's": (book("ns/a"), [], [ExpireHolder("ns/a", NOON)]),
    "a Reservation's, which ends it itself": (book("ns/a", RESERVED), [], []),
    "a Reservation's that a pod took over": (
        book("ns/a/1", RESERVED),
        [pod(node="")],
        [ExpireHolder("ns/a/1", NOON)],
    ),
}


@pytest.mark.parametrize(("held", "pods", "expected"), LATE.values(), ids=LATE)
def test_steps_after_the_expiry(held, pods, expected):
    assert list(steps(held, *pods, now=NOON)) == expected


def test_the_next_check_is_at_the_next_expiry():
    two = ledger.give(book(), "ns/b/1", half_of(gpu(1)), HoldTerms(until=NOON + SECOND))
    assert isinstance(two, Ledger)

    assert holder_lifecycle.plan(two, {}, NOON - SECOND).again == NOON
    assert holder_lifecycle.plan(two, {}, NOON).again == NOON + SECOND
    assert holder_lifecycle.plan(book(terms=BOUND), {}, NOON).again is None


def test_a_hold_that_was_extended_or_bound_does_not_expire():
    expire = holder_lifecycle.as_change(ExpireHolder("ns/a/1", NOON))

    assert not expire(book()).holders()
    assert expire(ledger.extend(book(), "ns/a/1", NOON + SECOND)).holders()
    assert expire(ledger.extend(book(), "ns/a/1", NOON - SECOND)).holders(), (
        "another hold than the planned one"
    )
    assert expire(ledger.bind(book(), "ns/a/1")).holders()


def test_a_reservation_gets_its_hold_back_from_a_pod_that_was_not_bound():
    freed = holder_lifecycle.free(book("ns/a/1", RESERVED), "ns/a/1")

    assert freed.held == {"ns/a": NOON}
    assert freed.reservations == {"ns/a": "rsv"}
    assert holder_lifecycle.free(book("ns/a/1", replace(RESERVED, bound=True)), "ns/a/1").holders() == set()


def test_a_pod_with_a_grant_does_not_take_over_the_hold_of_its_name():
    both = ledger.give(book("ns/a", RESERVED), "ns/a/1", half_of(gpu(1)), BOUND)

    assert isinstance(both, Ledger)
    assert steps(both, pod()) == ()


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    held = Ledger(NODE, node_records.cards_of(plugin_report()))
    for name in node_records.NAMES:
        holder = draw(st.sampled_from([f"ns/{name}", f"ns/{name}/1", f"ns/{name}/2"]))
        terms = HoldTerms(
            bound=draw(st.booleans()),
            until=draw(st.sampled_from([None, NOON - SECOND, NOON, NOON + SECOND])),
            reservation=draw(st.sampled_from(["", "rsv"])),
        )
        given = ledger.give(held, holder, half_of(gpu(draw(st.integers(0, 3))), share=20), terms)
        assert isinstance(given, Ledger)
        held = given
    return held


def test_a_hold_whose_pod_is_bound_here_is_shown_as_bound():
    assert holder_lifecycle.with_bound_pods(book(), by_key(pod())) == book(terms=BOUND)
    assert holder_lifecycle.with_bound_pods(book(), by_key(pod(node=""))) == book()
    assert holder_lifecycle.with_bound_pods(book(), by_key(pod(node="node-2"))) == book()
    assert holder_lifecycle.with_bound_pods(book(), by_key(pod(uid="2"))) == book()


@given(ledgers(), node_records.many_pods())
def test_showing_bound_pods_keeps_every_share_and_holder(held, pods):
    shown = holder_lifecycle.with_bound_pods(held, by_key(*pods))

    assert [(card.id, card.used, len(card.holders)) for card in shown.cards] == [
        (card.id, card.used, len(card.holders)) for card in held.cards
    ]
    here = {view.holder for view in pods if view.node == NODE and not view.finished}
    assert here.isdisjoint(shown.held)
    assert shown.held.keys() <= held.held.keys()


@given(ledgers(), node_records.many_pods(), st.timedeltas(timedelta(hours=-2), timedelta(hours=2)))
def test_cards_of_a_live_pod_are_never_released(held, pods, skew):
    settlement = holder_lifecycle.plan(held, by_key(*pods), NOON + skew)
    certain = [holder_lifecycle.as_change(step) for step in settlement.steps if step.verify == "none"]
    after = holder_lifecycle.apply_all(held, certain)

    assert ledger.invariant_violations(after) == []
    for view in pods:
        if view.node == NODE and not view.finished and (held.grant(view.holder) or held.grant(view.key)):
            assert after.grant(view.holder)
            assert view.holder not in after.held
    gone = {holder for holder in held.holders() if not after.grant(holder)}
    assert all(held.grant(holder) for holder in gone)
    again = holder_lifecycle.plan(after, by_key(*pods), NOON + skew).steps
    assert [step for step in again if step.verify == "none"] == [], "the steps are idempotent"
