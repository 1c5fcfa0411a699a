"""Batches: releases come first, then claims by priority and arrival; a failed change affects no other."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from croupier.book import fold
from croupier.book.fold import Amend, Release, Unlawful
from croupier.core.ledgers import ledger as ledgers
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods.want import Shares
from tests.book.worlds import claim, node, percent, pod


def take(number: int, share: int = 60, priority: int = 0) -> fold.Take:
    return fold.take(claim(pod(number), Shares(1, share), priority=priority), "Spread")


def winners(*steps: fold.Step) -> set[str]:
    return fold.fold(node(percent(0, holders={pod(9): 60})), steps).ledger.holders() - {pod(9)}


def test_a_release_frees_capacity_for_an_earlier_claim():
    assert winners(take(0), Release(pod(9))) == {pod(0)}


def test_claims_are_ordered_by_priority_then_arrival():
    assert winners(Release(pod(9)), take(0), take(1, priority=5), take(2, priority=5)) == {pod(1)}


def test_results_are_in_the_order_of_the_changes():
    _, low, high = fold.fold(node(percent()), [Release(pod(9)), take(0), take(1, priority=1)]).answers

    assert isinstance(low, Refused)
    assert high == fold.fold(node(percent()), [take(1)]).answers[0]


def test_an_amendment_cannot_change_the_node():
    folded = fold.fold(node(), [Amend(lambda ledger: replace(ledger, node="node-2"))])

    assert isinstance(folded.answers[0], Unlawful)
    assert folded.ledger == node()


steps = st.lists(
    st.one_of(
        st.builds(take, st.integers(0, 9), st.integers(1, 100), st.integers(0, 2)),
        st.builds(Release, st.integers(0, 9).map(pod)),
    ),
    max_size=20,
)


@given(steps)
def test_a_batch_is_idempotent(batch):
    """After a lost reply the batch is applied to its own result, which must not grant anything twice."""
    takes = list({step.claim.holder: step for step in batch if isinstance(step, fold.Take)}.values())
    once = fold.fold(node(), takes)
    again = fold.fold(once.ledger, takes)

    assert again.ledger == once.ledger
    assert [_granted(answer) for answer in again.answers] == [_granted(answer) for answer in once.answers]


def _granted(answer: fold.Answer) -> object:
    return None if isinstance(answer, Refused) else answer


@given(steps)
def test_no_batch_makes_an_invalid_ledger(batch):
    assert ledgers.faults(fold.fold(node(), batch).ledger) == []
