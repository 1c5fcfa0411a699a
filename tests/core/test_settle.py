"""Promotion, release and expiry of holders; the holder of a bound pod never expires."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.ledgers import ledger, settle
from croupier.core.ledgers.ledger import Ledger, Terms
from croupier.core.ledgers.settle import Expire, Free, Promote, Step
from croupier.core.pods.pod import PodView
from tests.core import stages
from tests.core.stages import NODE, NOON, by_key, gpu, half, plain, pod

HELD = Terms(until=NOON)
SECOND = timedelta(seconds=1)


def book(holder: str = "ns/a/1", terms: Terms = HELD) -> Ledger:
    given = ledger.give(Ledger(NODE, stages.cards_of(plain())), holder, half(gpu(0)), terms)
    assert isinstance(given, Ledger)
    return given


def steps(held: Ledger, *pods: PodView, now: datetime = NOON - SECOND) -> tuple[Step, ...]:
    return settle.settle(held, by_key(*pods), now).steps


RESERVED = Terms(until=NOON, reservation="rsv")
BOUND = Terms(bound=True)
STEPS = {
    "held, its pod is pending: nothing": (book(), [pod(node="")], []),
    "held, its pod is bound here: Bound": (book(), [pod()], [Promote("ns/a/1", "ns/a/1")]),
    "held, its pod is bound elsewhere": (
        book(),
        [pod(node="node-2")],
        [Free("ns/a/1", "pod ns/a is bound to node node-2")],
    ),
    "held, its pod is not in the cache: verify": (
        book(),
        [],
        [Free("ns/a/1", "pod ns/a is gone", doubt="pod")],
    ),
    "held, another pod with its name: verify": (
        book(),
        [pod(uid="2")],
        [Free("ns/a/1", "pod ns/a is gone", doubt="pod")],
    ),
    "bound, its pod runs": (book(terms=BOUND), [pod()], []),
    "bound, its pod seems to be pending: the cache is behind": (book(terms=BOUND), [pod(node="")], []),
    "bound, its pod has ended": (
        book(terms=BOUND),
        [pod(finished=True)],
        [Free("ns/a/1", "pod ns/a has ended")],
    ),
    "a Reservation's, no pod yet": (book("ns/a", RESERVED), [], []),
    "a Reservation's, its pod is pending": (book("ns/a", RESERVED), [pod(node="")], []),
    "a Reservation's, its pod is bound": (book("ns/a", RESERVED), [pod()], [Promote("ns/a", "ns/a/1")]),
    "a Reservation's, its pod has ended": (book("ns/a", RESERVED), [pod(finished=True)], []),
    "a name's, its pod is bound": (book("ns/a"), [pod()], [Promote("ns/a", "ns/a/1")]),
}


def test_a_promotion_is_left_to_the_extender_until_the_hold_is_about_to_expire():
    patience = timedelta(seconds=60)
    early, late = NOON - timedelta(seconds=61), NOON - timedelta(seconds=60)

    waits = settle.settle(book(), by_key(pod()), early, patience=patience)
    assert waits.steps == ()
    assert waits.again == late
    assert settle.settle(book(), by_key(pod()), late, patience=patience).steps == (
        Promote("ns/a/1", "ns/a/1"),
    )


def test_a_bound_pod_takes_over_the_hold_of_its_reservation_at_once():
    held = book("ns/a", RESERVED)
    early = NOON - timedelta(hours=1)

    assert settle.settle(held, by_key(pod()), early, patience=SECOND).steps == (Promote("ns/a", "ns/a/1"),)


@pytest.mark.parametrize(("held", "pods", "expected"), STEPS.values(), ids=STEPS)
def test_steps_before_the_expiry(held, pods, expected):
    assert list(steps(held, *pods)) == expected


LATE = {
    "expired, its pod is pending": (book(), [pod(node="")], [Expire("ns/a/1", NOON)]),
    "expired, its pod is not in the cache": (book(), [], [Expire("ns/a/1", NOON)]),
    "expired, but its pod is bound": (book(), [pod()], [Promote("ns/a/1", "ns/a/1")]),
    "bound": (book(terms=BOUND), [pod()], []),
    "without expiry": (book(terms=Terms()), [pod(node="")], []),
    "a name's": (book("ns/a"), [], [Expire("ns/a", NOON)]),
    "a Reservation's, which ends it itself": (book("ns/a", RESERVED), [], []),
    "a Reservation's that a pod took over": (
        book("ns/a/1", RESERVED),
        [pod(node="")],
        [Expire("ns/a/1", NOON)],
    ),
}


@pytest.mark.parametrize(("held", "pods", "expected"), LATE.values(), ids=LATE)
def test_steps_after_the_expiry(held, pods, expected):
    assert list(steps(held, *pods, now=NOON)) == expected


def test_the_next_check_is_at_the_next_expiry():
    two = ledger.give(book(), "ns/b/1", half(gpu(1)), Terms(until=NOON + SECOND))
    assert isinstance(two, Ledger)

    assert settle.settle(two, {}, NOON - SECOND).again == NOON
    assert settle.settle(two, {}, NOON).again == NOON + SECOND
    assert settle.settle(book(terms=BOUND), {}, NOON).again is None


def test_a_hold_that_was_extended_or_bound_does_not_expire():
    expire = settle.change(Expire("ns/a/1", NOON))

    assert not expire(book()).holders()
    assert expire(ledger.prolong(book(), "ns/a/1", NOON + SECOND)).holders()
    assert expire(ledger.prolong(book(), "ns/a/1", NOON - SECOND)).holders(), (
        "another hold than the planned one"
    )
    assert expire(ledger.bind(book(), "ns/a/1")).holders()


def test_a_reservation_gets_its_hold_back_from_a_pod_that_was_not_bound():
    freed = settle.free(book("ns/a/1", RESERVED), "ns/a/1")

    assert freed.held == {"ns/a": NOON}
    assert freed.reservations == {"ns/a": "rsv"}
    assert settle.free(book("ns/a/1", replace(RESERVED, bound=True)), "ns/a/1").holders() == set()


def test_a_pod_with_a_grant_does_not_take_over_the_hold_of_its_name():
    both = ledger.give(book("ns/a", RESERVED), "ns/a/1", half(gpu(1)), BOUND)

    assert isinstance(both, Ledger)
    assert steps(both, pod()) == ()


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    held = Ledger(NODE, stages.cards_of(plain()))
    for name in stages.NAMES:
        holder = draw(st.sampled_from([f"ns/{name}", f"ns/{name}/1", f"ns/{name}/2"]))
        terms = Terms(
            bound=draw(st.booleans()),
            until=draw(st.sampled_from([None, NOON - SECOND, NOON, NOON + SECOND])),
            reservation=draw(st.sampled_from(["", "rsv"])),
        )
        given = ledger.give(held, holder, half(gpu(draw(st.integers(0, 3))), share=20), terms)
        assert isinstance(given, Ledger)
        held = given
    return held


@given(ledgers(), stages.many_pods(), st.timedeltas(timedelta(hours=-2), timedelta(hours=2)))
def test_cards_of_a_live_pod_are_never_released(held, pods, skew):
    settlement = settle.settle(held, by_key(*pods), NOON + skew)
    certain = [settle.change(step) for step in settlement.steps if step.doubt == "none"]
    after = settle.fold(held, certain)

    assert ledger.faults(after) == []
    for view in pods:
        if view.node == NODE and not view.finished and (held.grant(view.holder) or held.grant(view.key)):
            assert after.grant(view.holder)
            assert view.holder not in after.held
    gone = {holder for holder in held.holders() if not after.grant(holder)}
    assert all(held.grant(holder) for holder in gone)
    again = settle.settle(after, by_key(*pods), NOON + skew).steps
    assert [step for step in again if step.doubt == "none"] == [], "the steps are idempotent"
