"""Batches: releases come first, then claims by priority and arrival; a failed change affects no other."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from croupier.capacity import batching
from croupier.capacity.batching import AmendChange, InvalidChange, ReleaseChange
from croupier.core.ledger import ledger as ledgers
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from tests.capacity.env import claim, node, percent, pod


def take(number: int, share: int = 60, priority: int = 0) -> batching.ClaimChange:
    return batching.claim_change(claim(pod(number), CardShares(1, share), priority=priority), "Spread")


def winners(*steps: batching.BatchChange) -> set[str]:
    return batching.apply_batch(node(percent(0, holders={pod(9): 60})), steps).ledger.holders() - {pod(9)}


def test_a_release_frees_capacity_for_an_earlier_claim():
    assert winners(take(0), ReleaseChange(pod(9))) == {pod(0)}


def test_claims_are_ordered_by_priority_then_arrival():
    assert winners(ReleaseChange(pod(9)), take(0), take(1, priority=5), take(2, priority=5)) == {pod(1)}


def test_results_are_in_the_order_of_the_changes():
    _, low, high = batching.apply_batch(
        node(percent()), [ReleaseChange(pod(9)), take(0), take(1, priority=1)]
    ).answers

    assert isinstance(low, Refusal)
    assert high == batching.apply_batch(node(percent()), [take(1)]).answers[0]


def test_an_amendment_cannot_change_the_node():
    folded = batching.apply_batch(node(), [AmendChange(lambda ledger: replace(ledger, node="node-2"))])

    assert isinstance(folded.answers[0], InvalidChange)
    assert folded.ledger == node()


steps = st.lists(
    st.one_of(
        st.builds(take, st.integers(0, 9), st.integers(1, 100), st.integers(0, 2)),
        st.builds(ReleaseChange, st.integers(0, 9).map(pod)),
    ),
    max_size=20,
)


@given(steps)
def test_a_batch_is_idempotent(batch):
    """After a lost reply the batch is applied to its own result, which must not grant anything twice."""
    takes = list(
        {step.claim.holder: step for step in batch if isinstance(step, batching.ClaimChange)}.values()
    )
    once = batching.apply_batch(node(), takes)
    again = batching.apply_batch(once.ledger, takes)

    assert again.ledger == once.ledger
    assert [_granted(answer) for answer in again.answers] == [_granted(answer) for answer in once.answers]


def _granted(answer: batching.ChangeResult) -> object:
    return None if isinstance(answer, Refusal) else answer


@given(steps)
def test_no_batch_makes_an_invalid_ledger(batch):
    assert ledgers.invariant_violations(batching.apply_batch(node(), batch).ledger) == []
