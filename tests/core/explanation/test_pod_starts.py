"""Pods that a preview lists fit all together, in the order of the scheduler; the others fit nowhere."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.explanation import pod_starts
from croupier.core.explanation.pod_starts import MAX_PODS, MAX_VERDICTS, PodStarts, QueuedPod
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, LedgerCard
from croupier.core.model.card_request import CardRequestItem, CardShares, MigDevices, PoolUnits
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement
from croupier.core.pods.scheduler_filters import CandidateNode, NodeConstraints
from tests.core import ledger_builders as ledgers

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
HALF, WHOLE = CardShares(1, 50), CardShares(1)
CORDONED = CandidateNode("n1", cordoned=True)


def pod(name: str, *wants: CardRequestItem, needs: NodeConstraints | None = None, **fields: Any) -> QueuedPod:
    view = PodView(f"team/{name}", f"uid-{name}", wants=wants or (HALF,), marked=True, **fields)
    return QueuedPod(view, needs or NodeConstraints())


def node(*cards: LedgerCard, name: str = "n1", **fields: Any) -> Ledger:
    return Ledger(name, cards, **fields)


def card(index: int = 0, free: int = 100, **fields: Any) -> LedgerCard:
    holders = {"x/old/u0": 100 - free} if free < 100 else {}
    return LedgerCard(f"c{index}", index, **{"holders": holders, **fields})


def starts(
    waiting: list[QueuedPod], before: list[Ledger], after: list[Ledger], **nodes: CandidateNode
) -> PodStarts:
    known = {each.node: CandidateNode(each.node) for each in (*before, *after)}
    return pod_starts.starts(
        waiting,
        {**known, **nodes},
        {each.node: each for each in before},
        {each.node: each for each in after},
    )


def listed(found: PodStarts) -> list[tuple[str, str, str]]:
    return [(one.pod.key.removeprefix("team/"), one.node, one.cards) for one in found.pods]


FULL, OPEN = node(card(free=0)), node(card(free=0), card(1))
ON_GOLD = NodeConstraints(selector={"tier": "gold"})
RESERVED = node(card(holders={"team/p": 50}), held={"team/p": None}, reservations={"team/p": "mine"})
STARTS = {
    "a pod that fits only now": ([pod("p")], FULL, OPEN, [("p", "n1", "50 % of card 1")]),
    "a whole card": ([pod("p", WHOLE)], FULL, OPEN, [("p", "n1", "card 1")]),
    "a pod that fitted already": ([pod("p")], node(card()), node(card(), card(1)), []),
    "a pod that needs more": ([pod("p", CardShares(2))], FULL, OPEN, []),
    "as many as fit": (
        [pod("p"), pod("q"), pod("r")],
        FULL,
        OPEN,
        [("p", "n1", "50 % of card 1"), ("q", "n1", "50 % of card 1")],
    ),
    "priority first": (
        [pod("p", WHOLE), pod("q", WHOLE, priority=1)],
        FULL,
        OPEN,
        [("q", "n1", "card 1")],
    ),
    "then age": (
        [pod("p", WHOLE, created=NOON), pod("q", WHOLE, created=NOON - timedelta(minutes=1))],
        FULL,
        OPEN,
        [("q", "n1", "card 1")],
    ),
    "pods of unknown age last": (
        [pod("p", WHOLE), pod("q", WHOLE, created=NOON)],
        FULL,
        OPEN,
        [("q", "n1", "card 1")],
    ),
    "the next pod, where a pod fitted already": (
        [pod("p", WHOLE), pod("q", WHOLE)],
        node(card()),
        node(card(), card(1)),
        [("q", "n1", "card 1")],
    ),
    "a pod of a pool that changed": (
        [pod("p", PoolUnits("a", 1)), pod("q")],
        FULL,
        node(card(free=0), card(1, mode="Exclusive", pool="a")),
        [("p", "n1", "card 1")],
    ),
    "a pod that waits for its Reservation": ([pod("p")], RESERVED, node(*RESERVED.cards, card(1)), []),
    "no change": ([pod("p")], OPEN, OPEN, []),
    "a card that goes": ([pod("p")], OPEN, FULL, []),
}


@pytest.mark.parametrize(("waiting", "before", "after", "found"), STARTS.values(), ids=STARTS)
def test_which_pods_start(waiting, before, after, found):
    seen = starts(waiting, [before], [after])

    assert (listed(seen), seen.left_out) == (found, 0)


FILTERED = {
    "a cordoned node": (pod("p"), CORDONED, []),
    "a node without the label": (pod("p", needs=ON_GOLD), CandidateNode("n1"), []),
    "a node with the label": (
        pod("p", needs=ON_GOLD),
        CandidateNode("n1", {"tier": "gold"}),
        [("p", "n1", "50 % of card 1")],
    ),
}


@pytest.mark.parametrize(("one", "where", "found"), FILTERED.values(), ids=FILTERED)
def test_the_filters_of_the_scheduler_apply(one, where, found):
    assert listed(starts([one], [FULL], [OPEN], n1=where)) == found


def test_the_strategy_of_the_pod_ranks_the_nodes():
    before = [node(card(free=0), name="n1"), node(card(free=0), name="n2")]
    after = [node(card(free=60), name="n1"), node(card(), name="n2")]

    found = [
        starts([replace(pod("p"), strategy=strategy)], before, after).pods[0].node
        for strategy in ("BinPack", "Spread")
    ]

    assert found == ["n1", "n2"]


def test_pods_that_differ_only_in_strategy_get_their_own_verdicts():
    pods = [replace(pod("p"), strategy="BinPack"), replace(pod("q"), strategy="Spread")]
    before = [node(card(free=0), name=name) for name in ("n1", "n2")]
    after = [node(card(free=50), name="n1"), node(card(free=60), card(1), name="n2")]

    assert listed(starts(pods, before, after)) == [
        ("p", "n1", "50 % of card 0"),
        ("q", "n2", "50 % of card 1"),
    ]


def test_pods_that_differ_only_in_their_node_selector_get_their_own_nodes():
    assert listed(starts([pod("p"), pod("q", needs=ON_GOLD)], [FULL], [OPEN])) == [
        ("p", "n1", "50 % of card 1")
    ]


def test_a_pod_with_a_reservation_starts_on_no_other_node():
    """The Reservation holds less than the pod requests, so the pod waits for it."""
    other = node(card(free=0), name="n2")

    assert listed(starts([pod("p", WHOLE)], [RESERVED, other], [replace(other, cards=(card(),))])) == []


def test_a_node_that_was_unknown_counts():
    assert listed(starts([pod("p")], [], [node(card())])) == [("p", "n1", "50 % of card 0")]


def test_pods_over_the_limit_are_counted():
    tiny = CardShares(1, 1)
    waiting = [pod(f"p{number:03}", tiny, priority=-number) for number in range(MAX_PODS + 7)]

    found = starts(waiting, [FULL], [node(card(free=0), card(1), card(2))])

    assert found.left_out == 7
    assert [one.pod.key for one in found.pods] == [f"team/p{number:03}" for number in range(64 + 36)]


def test_pods_of_unchanged_pools_are_not_left_out():
    others = [pod(f"p{number}", PoolUnits("b", 1)) for number in range(MAX_PODS + 1)]
    of_b = card(5, free=0, pool="b")

    found = starts([*others, pod("q")], [node(card(free=0), of_b)], [node(card(), of_b)])

    assert (listed(found), found.left_out) == ([("q", "n1", "50 % of card 0")], 0)


def test_too_many_questions_leave_pods_out():
    """100 pods ask 200 nodes for different shares before the change; after it, the limit is reached."""
    full = [node(card(free=0), name=f"n{number:03}") for number in range(200)]
    waiting = [pod(f"p{percent:03}", CardShares(1, percent)) for percent in range(1, MAX_PODS + 1)]
    assert len(full) * len(waiting) == MAX_VERDICTS

    found = starts(waiting, full, [node(card(free=0), card(1), name="n000")])

    assert (listed(found), found.left_out) == ([("p001", "n000", "1 % of card 1")], MAX_PODS - 1)


KINDS = st.one_of(
    st.builds(CardShares, st.integers(1, 2), st.sampled_from([20, 50, 100]), st.sampled_from(["", "red"])),
    st.builds(MigDevices, st.just("1g.10gb"), st.integers(1, 3), st.sampled_from(["", "red"])),
    st.builds(PoolUnits, st.sampled_from(["red", "blue"]), st.integers(1, 3)),
)
QUEUES = st.lists(
    st.tuples(KINDS, st.integers(0, 1), st.sampled_from(ledgers.STRATEGIES)), min_size=1, max_size=8
).map(
    lambda rows: [
        replace(pod(f"p{number}", want, priority=priority), strategy=strategy)
        for number, (want, priority, strategy) in enumerate(rows)
    ]
)
NODES = st.lists(ledgers.nodes(3), min_size=1, max_size=3).map(
    lambda drawn: [replace(each, node=f"n{number}") for number, each in enumerate(drawn)]
)


def closed(ledger: Ledger) -> Ledger:
    """The ledger while it gives nothing to new pods."""
    return replace(ledger, cards=tuple(replace(each, healthy=False) for each in ledger.cards))


def fits(one: QueuedPod, now: Mapping[str, Ledger]) -> set[str]:
    return {
        name
        for name, ledger in now.items()
        if not isinstance(placement.choose(ledger, one.view.wants, one.strategy), Refusal)
    }


@given(QUEUES, NODES)
@settings(max_examples=100)
def test_listed_pods_fit_one_after_another_and_others_do_not(waiting, opened):
    found = starts(waiting, [closed(each) for each in opened], opened)

    where = {one.pod.uid: one for one in found.pods}
    now = {each.node: each for each in opened}
    for one in sorted(waiting, key=lambda each: (-each.view.priority, each.view.key)):
        start = where.pop(one.view.uid, None)
        assert (start is not None) == bool(fits(one, now))
        if start is not None:
            grant = placement.choose(now[start.node], one.view.wants, one.strategy)
            assert not isinstance(grant, Refusal)
            given_ = ledger_ops.give(now[start.node], one.view.holder, grant, HoldTerms(bound=True))
            assert isinstance(given_, Ledger), given_
            now[start.node] = given_
    assert where == {}
    assert all(not ledger_ops.invariant_violations(ledger) for ledger in now.values())


@given(QUEUES, NODES, st.integers(0, 2))
@settings(max_examples=100)
def test_the_next_pod_starts_only_if_it_did_not_fit(waiting, opened, number):
    """One node changes: a pod that is alone starts exactly if it fits after and not before."""
    one, after = waiting[0], {each.node: each for each in opened}
    shut = closed(opened[number % len(opened)])
    before = {**after, shut.node: shut}

    found = starts([one], list(before.values()), [after[shut.node]])

    assert bool(found.pods) == bool(fits(one, after) and not fits(one, before))


def test_a_grant_of_a_bound_pod_is_not_given_twice():
    """A pod that the ledger already knows keeps its cards, and is not listed."""
    known = node(card(holders={"team/p/uid-p": 50}))

    found = starts([pod("p")], [known], [replace(known, cards=(*known.cards, card(1)))])

    assert found.pods == ()
    assert known.grant("team/p/uid-p") == (CardGrant("c0", 50),)
