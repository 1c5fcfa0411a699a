"""Filter's choice: always what a look at every ledger would choose, for the price of a look-up."""

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


async def test_one_node_is_chosen_and_ties_end_at_its_name():
    manager = await book(*(ledger(node) for node in ("b", "a", "c")))

    assert index(manager, Hands()).choose(asked("p"), ["c", "b", "a"]) == Chosen(("a",))


async def test_only_the_candidates_are_considered():
    manager = await book(ledger("a"), ledger("b"))

    assert index(manager, Hands()).choose(asked("p"), ["b"]) == Chosen(("b",))


async def test_packing_goes_where_others_are_and_spreading_where_they_are_not():
    manager = await book(ledger("a"), ledger("b"))
    await take(manager, "b", asked("first"))

    assert index(manager, Hands(), "BinPack").choose(asked("p"), ["a", "b"]) == Chosen(("b",))
    assert index(manager, Hands(), "Spread").choose(asked("p"), ["a", "b"]) == Chosen(("a",))


async def test_a_setting_may_leave_the_few_best():
    manager = await book(*(ledger(node) for node in "abc"))

    assert index(manager, Hands()).choose(asked("p"), ["c", "a", "b"], most=2) == Chosen(("a", "b"))


async def test_whoever_fits_nowhere_learns_why_node_by_node():
    manager = await book(ledger("small", cards=1), ledger("taken", cards=2))
    await take(manager, "taken", asked("other", *WHOLE))

    found = index(manager, Hands()).choose(asked("p", Shares(2)), ["small", "taken", "cpu-only"])

    assert found == Nowhere(
        {
            "small": "needs 2 free cards but has 1",
            "taken": "needs 2 free cards but has 1",
            "cpu-only": "the node has no cards in the ledger",
        }
    )


async def test_a_request_nobody_can_read_has_the_same_sentence_everywhere():
    manager = await book(ledger("a"), ledger("b"))

    found = index(manager, Hands()).choose(asked("p", trouble="ratio is 0"), ["a", "b"])

    assert found == Nowhere({"a": "ratio is 0", "b": "ratio is 0"})


async def test_a_mark_without_a_request_is_refused():
    manager = await book(ledger("a"))

    found = index(manager, Hands()).choose(Asked("team/p", "u"), ["a"])

    assert found == Nowhere({"a": explain.ASKS_FOR_NOTHING.reason})


class TestPromises:
    async def test_what_was_promised_to_one_pod_is_not_promised_to_the_next(self):
        chooser = index(await book(ledger("a", cards=1), ledger("b", cards=1)), Hands())

        chosen = [chooser.choose(asked(f"p{n}", *WHOLE), ["a", "b"]) for n in range(3)]

        assert chosen[:2] == [Chosen(("a",)), Chosen(("b",))]
        assert isinstance(chosen[2], Nowhere)

    async def test_asking_again_replaces_the_promise(self):
        chooser = index(await book(ledger("a", cards=1)), Hands())

        for _ in range(3):
            assert chooser.choose(asked("p", *WHOLE), ["a"]) == Chosen(("a",))

    async def test_a_promise_ends_after_a_while(self):
        clock = Hands()
        chooser = index(await book(ledger("a", cards=1)), clock)
        chooser.choose(asked("first", *WHOLE), ["a"])

        clock.pass_(9.9)
        assert isinstance(chooser.choose(asked("p", *WHOLE), ["a"]), Nowhere)
        assert chooser.promise("uid-first") is not None
        clock.pass_(0.2)
        assert chooser.promise("uid-first") is None
        assert chooser.choose(asked("p", *WHOLE), ["a"]) == Chosen(("a",))

    async def test_a_promise_that_is_in_the_book_counts_once(self):
        manager = await book(ledger("a", cards=1))
        chooser = index(manager, Hands())
        chooser.choose(asked("p"), ["a"])
        await take(manager, "a", asked("p"))

        assert chooser.choose(asked("other"), ["a"]) == Chosen(("a",))

    async def test_a_promise_taken_back_is_free_for_others(self):
        chooser = index(await book(ledger("a", cards=1)), Hands())
        chooser.choose(asked("p", *WHOLE), ["a"])
        chooser.take_back("uid-p")

        assert chooser.choose(asked("other", *WHOLE), ["a"]) == Chosen(("a",))


class TestHomes:
    async def test_a_pod_goes_where_its_reservation_is_and_nowhere_else(self):
        manager = await book(ledger("a"), ledger("b"), ledger("c"))
        await reserve(manager, "b", "team/p", Shares(1, 50))
        chooser = index(manager, Hands())

        assert chooser.choose(asked("p"), ["a", "b", "c"]) == Chosen(("b",))
        elsewhere = "a Reservation holds cards of b for the pod"
        assert chooser.choose(asked("p"), ["a", "c"]) == Nowhere({"a": elsewhere, "c": elsewhere})

    async def test_a_pod_that_asks_for_nothing_takes_what_its_reservation_holds(self):
        manager = await book(ledger("a"), ledger("b"))
        await reserve(manager, "b", "team/p", Shares(2, 30))

        assert index(manager, Hands()).choose(Asked("team/p", "u"), ["a", "b"]) == Chosen(("b",))

    async def test_a_reservation_for_something_else_is_told(self):
        manager = await book(ledger("a"), ledger("b"))
        await reserve(manager, "b", "team/p", Shares(2, 30))

        found = index(manager, Hands()).choose(asked("p"), ["a", "b"])

        assert isinstance(found, Nowhere)
        assert "they must be equal" in found.reasons["b"]
        assert found.reasons["a"] == "a Reservation holds cards of b for the pod"

    async def test_a_pod_that_holds_already_goes_there_again(self):
        manager = await book(ledger("a"), ledger("b", cards=1))
        await take(manager, "b", asked("p", *WHOLE))

        assert index(manager, Hands()).choose(asked("p", *WHOLE), ["a", "b"]) == Chosen(("b",))

    async def test_a_hold_of_another_pod_of_the_name_binds_nobody(self):
        manager = await book(ledger("a"), ledger("b"))
        await take(manager, "b", asked("p", uid="old"))

        assert index(manager, Hands(), "Spread").choose(asked("p", uid="new"), ["a", "b"]) == Chosen(("a",))

    async def test_a_hold_on_a_node_the_scheduler_ruled_out_does_not_hold_the_pod_back(self):
        manager = await book(ledger("a"), ledger("b"))
        await take(manager, "b", asked("p"))

        assert index(manager, Hands()).choose(asked("p"), ["a"]) == Chosen(("a",))

    async def test_a_reservation_that_is_gone_binds_nobody(self):
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

        assert chooser.ranked - before == 2  # the one that changed, and the one whose promise ended

    async def test_a_second_filter_ranks_only_the_node_of_the_first_ones_promise(self):
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


async def test_scores_fall_from_ten_to_zero_with_the_rank():
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
def test_the_choice_is_what_a_look_at_every_ledger_would_choose(steps, strategy, data):
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
            found = chooser.choose(pod, candidates)
            assert (found.nodes if isinstance(found, Chosen) else ()) == expected
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
    """Every ledger with what is promised on it, in the order it was promised."""
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
    """The newest promise is kept even if every other one is taken first."""
    *_, newest = promised
    pod = asked(f"p{newest}", *KINDS[newest % len(KINDS)])
    assert _worlds(manager, promised, strategy)[promised[newest]].grant(pod.holder)


@pytest.mark.parametrize("strategy", ["BinPack", "Spread"])
@given(percents=st.lists(st.integers(1, 100), min_size=1, max_size=30))
def test_everything_promised_can_be_taken(strategy, percents):
    async def story() -> None:
        manager = await book(*(ledger(node, cards=2) for node in NODES))
        chooser = index(manager, Hands(), strategy)
        chosen: list[tuple[Asked, str]] = []
        for number, percent in enumerate(percents):
            pod = asked(f"p{number}", Shares(1, percent))
            found = chooser.choose(pod, NODES)
            if isinstance(found, Chosen):
                chosen.append((pod, found.nodes[0]))
        for pod, node in chosen:
            claim = Claim(pod.holder, pod.wants, Terms(until=datetime(2026, 1, 1, tzinfo=UTC)))
            assert isinstance(await manager.claim(node, claim, strategy), tuple)

    asyncio.run(story())


def test_an_index_hears_of_nodes_that_were_there_before_it():
    async def story() -> Index:
        manager = await book(ledger("a"))
        await reserve(manager, "a", "team/p", Shares(1, 50))
        return index(manager, Hands())

    assert asyncio.run(story()).choose(asked("p"), ["a"]) == Chosen(("a",))
