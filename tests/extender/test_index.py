"""The incremental ranking always chooses the same node as a full search."""

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.book.memory import InMemoryCapacityManager
from croupier.core.ledgers import claim as claiming
from croupier.core.ledgers.claim import Claim, Taken
from croupier.core.ledgers.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placing import explain, placement
from croupier.core.placing.placement import Strategy
from croupier.core.pods.want import Shares, Slots, Wants
from croupier.extender.asked import Asked
from croupier.extender.index import Chosen, Index, Nowhere
from tests.extender.world import HALF, WHOLE, Hands, asked, book, index, ledger, names


async def take(manager: InMemoryCapacityManager, node: str, pod: Asked) -> Grant | Refused:
    return await manager.claim(node, Claim(pod.holder, pod.wants, Terms()))


async def reserve(manager: InMemoryCapacityManager, node: str, pod_key: str, *wants: Shares) -> None:
    terms = Terms(reservation="by-hand")
    assert isinstance(await manager.claim(node, Claim(pod_key, wants, terms)), tuple)


async def test_one_node_is_chosen_and_ties_are_broken_by_name():
    manager = await book(*(ledger(node) for node in ("b", "a", "c")))

    assert index(manager, Hands()).choose(asked("p"), ["c", "b", "a"]) == Chosen(("a",))


async def test_only_the_candidates_are_considered():
    manager = await book(ledger("a"), ledger("b"))

    assert index(manager, Hands()).choose(asked("p"), ["b"]) == Chosen(("b",))


async def test_bin_pack_chooses_used_nodes_and_spread_unused_ones():
    manager = await book(ledger("a"), ledger("b"))
    await take(manager, "b", asked("first"))

    assert index(manager, Hands(), "BinPack").choose(asked("p"), ["a", "b"]) == Chosen(("b",))
    assert index(manager, Hands(), "Spread").choose(asked("p"), ["a", "b"]) == Chosen(("a",))


async def test_several_nodes_can_be_chosen():
    manager = await book(*(ledger(node) for node in "abc"))

    assert index(manager, Hands()).choose(asked("p"), ["c", "a", "b"], most=2) == Chosen(("a", "b"))


async def test_a_pod_that_does_not_fit_gets_a_reason_per_node():
    manager = await book(ledger("small", cards=1), ledger("taken", cards=2))
    await take(manager, "taken", asked("other", *WHOLE))

    choice = index(manager, Hands()).choose(asked("p", Shares(2)), ["small", "taken", "cpu-only"])

    assert choice == Nowhere(
        {
            "small": "needs 2 free cards but has 1",
            "taken": "needs 2 free cards but has 1",
            "cpu-only": "the node has no cards in the ledger",
        }
    )


async def test_an_unreadable_request_has_the_same_reason_on_every_node():
    manager = await book(ledger("a"), ledger("b"))

    choice = index(manager, Hands()).choose(asked("p", trouble="ratio is 0"), ["a", "b"])

    assert choice == Nowhere({"a": "ratio is 0", "b": "ratio is 0"})


async def test_the_ledger_resource_without_a_request_is_refused():
    manager = await book(ledger("a"))

    choice = index(manager, Hands()).choose(Asked("team/p", "u"), ["a"])

    assert choice == Nowhere({"a": explain.ASKS_FOR_NOTHING.reason})


class TestAssumedPods:
    async def test_the_cards_of_an_assumed_pod_are_not_offered_to_the_next(self):
        chooser = index(await book(ledger("a", cards=1), ledger("b", cards=1)), Hands())

        chosen = [chooser.choose(asked(f"p{n}", *WHOLE), ["a", "b"]) for n in range(3)]

        assert chosen[:2] == [Chosen(("a",)), Chosen(("b",))]
        assert isinstance(chosen[2], Nowhere)

    async def test_another_filter_replaces_the_assumption(self):
        chooser = index(await book(ledger("a", cards=1)), Hands())

        for _ in range(3):
            assert chooser.choose(asked("p", *WHOLE), ["a"]) == Chosen(("a",))

    async def test_an_assumption_expires(self):
        clock = Hands()
        chooser = index(await book(ledger("a", cards=1)), clock)
        chooser.choose(asked("first", *WHOLE), ["a"])

        clock.pass_(9.9)
        assert isinstance(chooser.choose(asked("p", *WHOLE), ["a"]), Nowhere)
        assert chooser.promise("uid-first") is not None
        clock.pass_(0.2)
        assert chooser.promise("uid-first") is None
        assert chooser.choose(asked("p", *WHOLE), ["a"]) == Chosen(("a",))

    async def test_an_assumed_pod_that_is_in_the_ledger_counts_once(self):
        manager = await book(ledger("a", cards=1))
        chooser = index(manager, Hands())
        chooser.choose(asked("p"), ["a"])
        await take(manager, "a", asked("p"))

        assert chooser.choose(asked("other"), ["a"]) == Chosen(("a",))

    async def test_the_cards_of_a_forgotten_pod_are_free(self):
        chooser = index(await book(ledger("a", cards=1)), Hands())
        chooser.choose(asked("p", *WHOLE), ["a"])
        chooser.take_back("uid-p")

        assert chooser.choose(asked("other", *WHOLE), ["a"]) == Chosen(("a",))


class TestHeldNodes:
    async def test_a_pod_goes_only_to_the_node_of_its_reservation(self):
        manager = await book(ledger("a"), ledger("b"), ledger("c"))
        await reserve(manager, "b", "team/p", Shares(1, 50))
        chooser = index(manager, Hands())

        assert chooser.choose(asked("p"), ["a", "b", "c"]) == Chosen(("b",))
        elsewhere = "a Reservation holds cards of b for the pod"
        assert chooser.choose(asked("p"), ["a", "c"]) == Nowhere({"a": elsewhere, "c": elsewhere})

    async def test_an_empty_request_takes_the_cards_of_the_reservation(self):
        manager = await book(ledger("a"), ledger("b"))
        await reserve(manager, "b", "team/p", Shares(2, 30))

        assert index(manager, Hands()).choose(Asked("team/p", "u"), ["a", "b"]) == Chosen(("b",))

    async def test_a_reservation_with_another_request_is_refused(self):
        manager = await book(ledger("a"), ledger("b"))
        await reserve(manager, "b", "team/p", Shares(2, 30))

        choice = index(manager, Hands()).choose(asked("p"), ["a", "b"])

        assert isinstance(choice, Nowhere)
        assert "they must be equal" in choice.reasons["b"]
        assert choice.reasons["a"] == "a Reservation holds cards of b for the pod"

    async def test_a_pod_with_a_hold_goes_to_the_same_node_again(self):
        manager = await book(ledger("a"), ledger("b", cards=1))
        await take(manager, "b", asked("p", *WHOLE))

        assert index(manager, Hands()).choose(asked("p", *WHOLE), ["a", "b"]) == Chosen(("b",))

    async def test_a_hold_of_another_pod_with_the_same_name_is_ignored(self):
        manager = await book(ledger("a"), ledger("b"))
        await take(manager, "b", asked("p", uid="old"))

        assert index(manager, Hands(), "Spread").choose(asked("p", uid="new"), ["a", "b"]) == Chosen(("a",))

    async def test_a_hold_on_an_excluded_node_is_ignored(self):
        manager = await book(ledger("a"), ledger("b"))
        await take(manager, "b", asked("p"))

        assert index(manager, Hands()).choose(asked("p"), ["a"]) == Chosen(("a",))

    async def test_a_deleted_reservation_is_ignored(self):
        manager = await book(ledger("a"), ledger("b"))
        chooser = index(manager, Hands())
        await reserve(manager, "b", "team/p", Shares(1, 50))
        assert chooser.choose(asked("p"), ["a", "b"]) == Chosen(("b",))

        await manager.release("team/p", "b")

        assert chooser.choose(asked("p"), ["a", "b"]) == Chosen(("a",))


class TestCost:
    async def test_after_one_node_changed_one_node_is_ranked(self):
        manager = await book(*(ledger(node) for node in names(200)))
        chooser = index(manager, Hands())
        chooser.choose(asked("p"), names(200))
        assert chooser.ranked == 200

        await take(manager, "node-7", asked("other"))
        chooser.take_back("uid-p")
        before = chooser.ranked
        chooser.choose(asked("q"), names(200))

        assert chooser.ranked - before == 2  # the changed node, and the node of the forgotten pod

    async def test_a_second_filter_ranks_only_the_node_of_the_first_pod(self):
        manager = await book(*(ledger(node) for node in names(200)))
        chooser = index(manager, Hands())
        chooser.choose(asked("p"), names(200))

        before = chooser.ranked
        chooser.choose(asked("q"), names(200))

        assert chooser.ranked - before == 1

    async def test_rankings_are_bounded(self):
        manager = await book(ledger("a"))
        chooser = index(manager, Hands())
        for percent in range(1, 101):
            chooser.choose(asked(f"p{percent}", Shares(1, percent)), ["a"])
            chooser.take_back(f"uid-p{percent}")

        assert len(chooser._rankings) <= 64


async def test_scores_decrease_from_ten_to_zero_with_the_rank():
    manager = await book(ledger("a"), ledger("b"), ledger("c", cards=1), ledger("full", cards=1))
    await take(manager, "b", asked("x"))
    await take(manager, "full", asked("y", *WHOLE))

    scores = index(manager, Hands()).scores(asked("p"), ["a", "b", "c", "full", "cpu-only"], 10)

    assert scores["b"] == 10
    assert scores["full"] == scores["cpu-only"] == 0
    assert sorted(scores.values()) == [0, 0, 0, 5, 10]


# --- properties -----------------------------------------------------------------------------------

KINDS: list[Wants] = [HALF, WHOLE, (Shares(1, 30),), (Shares(2, 50),), (Slots("1g.10gb", 1),)]
NODES = ["n0", "n1", "n2"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["filter", "claim", "bind", "release", "wait"]),
        st.integers(0, 7),
        st.sampled_from(NODES),
    ),
    max_size=40,
)


@given(STEPS, st.sampled_from(["BinPack", "Spread", "LeastFragmentation"]), st.data())
def test_the_choice_equals_that_of_a_full_search(steps, strategy, data):
    asyncio.run(_play(steps, strategy, data.draw))


async def _play(steps, strategy: Strategy, draw) -> None:
    manager, clock = await book(*(ledger(node) for node in NODES)), Hands()
    chooser = index(manager, clock, strategy)
    promised: dict[int, str] = {}
    for verb, number, node in steps:
        pod = asked(f"p{number}", *KINDS[number % len(KINDS)])
        if verb == "filter":
            candidates = draw(st.lists(st.sampled_from([*NODES, "cpu"]), unique=True, min_size=1))
            promised.pop(number, None)
            expected = _naive(manager, promised, pod, candidates, strategy)
            choice = chooser.choose(pod, candidates)
            assert (choice.nodes if isinstance(choice, Chosen) else ()) == expected
            if expected:
                promised[number] = expected[0]
                _nothing_promised_twice(manager, promised, strategy)
        elif verb == "claim":
            await take(manager, node, pod)
        elif verb == "bind":
            chooser.take_back(pod.uid)
            promised.pop(number, None)
        elif verb == "release":
            await manager.release(pod.holder, node)
        else:
            clock.pass_(11)
            promised.clear()


def _worlds(manager, promised: dict[int, str], strategy: Strategy) -> dict[str, Ledger]:
    """Every ledger with its assumed pods, in their order."""
    worlds = {node: manager.ledger(node) for node in NODES}
    for number, node in promised.items():
        pod = asked(f"p{number}", *KINDS[number % len(KINDS)])
        taken = claiming.decide(worlds[node], Claim(pod.holder, pod.wants, Terms()), strategy)
        if isinstance(taken, Taken):
            worlds[node] = taken.ledger
    return worlds


def _naive(manager, promised, pod: Asked, candidates, strategy: Strategy) -> tuple[str, ...]:
    worlds = _worlds(manager, promised, strategy)
    homes = [
        node for node in sorted(candidates) if node in worlds and pod.holder in manager.ledger(node).held
    ]
    if homes:
        return (homes[0],)
    ranks = {
        node: rank
        for node in candidates
        if node in worlds
        and not isinstance(rank := placement.rank(worlds[node], pod.wants, strategy), Refused)
    }
    return (min(ranks, key=lambda node: (ranks[node], node)),) if ranks else ()


def _nothing_promised_twice(manager, promised: dict[int, str], strategy: Strategy) -> None:
    """The newest assumed pod fits even if all others are claimed first."""
    *_, newest = promised
    pod = asked(f"p{newest}", *KINDS[newest % len(KINDS)])
    assert _worlds(manager, promised, strategy)[promised[newest]].grant(pod.holder)


@pytest.mark.parametrize("strategy", ["BinPack", "Spread"])
@given(percents=st.lists(st.integers(1, 100), min_size=1, max_size=30))
def test_every_assumed_pod_can_be_claimed(strategy, percents):
    async def story() -> None:
        manager = await book(*(ledger(node, cards=2) for node in NODES))
        chooser = index(manager, Hands(), strategy)
        chosen: list[tuple[Asked, str]] = []
        for number, percent in enumerate(percents):
            pod = asked(f"p{number}", Shares(1, percent))
            choice = chooser.choose(pod, NODES)
            if isinstance(choice, Chosen):
                chosen.append((pod, choice.nodes[0]))
        for pod, node in chosen:
            claim = Claim(pod.holder, pod.wants, Terms(until=datetime(2026, 1, 1, tzinfo=UTC)))
            assert isinstance(await manager.claim(node, claim, strategy), tuple)

    asyncio.run(story())


def test_a_ranking_knows_nodes_that_existed_before():
    async def story() -> Index:
        manager = await book(ledger("a"))
        await reserve(manager, "a", "team/p", Shares(1, 50))
        return index(manager, Hands())

    assert asyncio.run(story()).choose(asked("p"), ["a"]) == Chosen(("a",))
