"""The incremental ranking always chooses the same node as a full search."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.core.claims import claim as claiming
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.explanation import explain
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardRequest, CardShares, MigDevices
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import Withheld
from croupier.core.placement import placement
from croupier.core.placement.placement import Strategy
from croupier.extender.node_ranking import NodeRanking, NoFit
from croupier.extender.pod_request import PodRequest
from tests.extender.builders import (
    HALF,
    WHOLE,
    ManualClock,
    in_memory_manager,
    ledger,
    names,
    node_ranking,
    pod_request,
)


async def take(manager: InMemoryCapacityManager, node: str, pod: PodRequest) -> Grant | Refusal:
    return await manager.claim(node, CardClaim(pod.holder, pod.wants, HoldTerms()))


async def reserve(manager: InMemoryCapacityManager, node: str, pod_key: str, *wants: CardShares) -> None:
    terms = HoldTerms(reservation="by-hand")
    assert isinstance(await manager.claim(node, CardClaim(pod_key, wants, terms)), tuple)


async def test_one_node_is_chosen_and_ties_are_broken_by_name():
    manager = await in_memory_manager(*(ledger(node) for node in ("b", "a", "c")))

    assert node_ranking(manager, ManualClock()).choose(pod_request("p"), ["c", "b", "a"]) == "a"


async def test_only_the_candidates_are_considered():
    manager = await in_memory_manager(ledger("a"), ledger("b"))

    assert node_ranking(manager, ManualClock()).choose(pod_request("p"), ["b"]) == "b"


async def test_bin_pack_chooses_used_nodes_and_spread_unused_ones():
    manager = await in_memory_manager(ledger("a"), ledger("b"))
    await take(manager, "b", pod_request("first"))

    assert node_ranking(manager, ManualClock(), "BinPack").choose(pod_request("p"), ["a", "b"]) == "b"
    assert node_ranking(manager, ManualClock(), "Spread").choose(pod_request("p"), ["a", "b"]) == "a"


async def test_a_pod_that_does_not_fit_gets_a_reason_per_node():
    manager = await in_memory_manager(ledger("small", cards=1), ledger("taken", cards=2))
    await take(manager, "taken", pod_request("other", *WHOLE))

    choice = node_ranking(manager, ManualClock()).choose(
        pod_request("p", CardShares(2)), ["small", "taken", "cpu-only"]
    )

    assert choice == NoFit(
        {
            "small": "needs 2 free cards but has 1",
            "taken": "needs 2 free cards but has 1",
            "cpu-only": "the node has no cards in the ledger",
        }
    )


async def test_a_pod_that_does_not_fit_for_drained_cards_is_told_why():
    full = ledger("small", cards=3)
    fan = Withheld("Drained", "swap the fan")
    cards = (full.cards[0], *(replace(card, healthy=False, withheld=fan) for card in full.cards[1:]))
    manager = await in_memory_manager(replace(full, cards=cards))

    choice = node_ranking(manager, ManualClock()).choose(pod_request("p", CardShares(2)), ["small"])

    assert choice == NoFit({"small": "needs 2 free cards but has 1 (2 cards are drained: swap the fan)"})


async def test_an_unreadable_request_has_the_same_reason_on_every_node():
    manager = await in_memory_manager(ledger("a"), ledger("b"))

    choice = node_ranking(manager, ManualClock()).choose(pod_request("p", trouble="ratio is 0"), ["a", "b"])

    assert choice == NoFit({"a": "ratio is 0", "b": "ratio is 0"})


async def test_the_ledger_resource_without_a_request_is_refused():
    manager = await in_memory_manager(ledger("a"))

    choice = node_ranking(manager, ManualClock()).choose(PodRequest("team/p", "u"), ["a"])

    assert choice == NoFit({"a": explain.ASKS_FOR_NOTHING.reason})


class TestAssumedPods:
    async def test_the_cards_of_an_assumed_pod_are_not_offered_to_the_next(self):
        chooser = node_ranking(
            await in_memory_manager(ledger("a", cards=1), ledger("b", cards=1)), ManualClock()
        )

        chosen = [chooser.choose(pod_request(f"p{n}", *WHOLE), ["a", "b"]) for n in range(3)]

        assert chosen[:2] == ["a", "b"]
        assert isinstance(chosen[2], NoFit)

    async def test_another_filter_replaces_the_assumption(self):
        chooser = node_ranking(await in_memory_manager(ledger("a", cards=1)), ManualClock())

        for _ in range(3):
            assert chooser.choose(pod_request("p", *WHOLE), ["a"]) == "a"

    async def test_an_assumption_expires(self):
        clock = ManualClock()
        chooser = node_ranking(await in_memory_manager(ledger("a", cards=1)), clock)
        chooser.choose(pod_request("first", *WHOLE), ["a"])

        clock.pass_(9.9)
        assert isinstance(chooser.choose(pod_request("p", *WHOLE), ["a"]), NoFit)
        assert chooser.assumed("uid-first") is not None
        clock.pass_(0.2)
        assert chooser.assumed("uid-first") is None
        assert chooser.choose(pod_request("p", *WHOLE), ["a"]) == "a"

    async def test_an_assumed_pod_that_is_in_the_ledger_counts_once(self):
        manager = await in_memory_manager(ledger("a", cards=1))
        chooser = node_ranking(manager, ManualClock())
        chooser.choose(pod_request("p"), ["a"])
        await take(manager, "a", pod_request("p"))

        assert chooser.choose(pod_request("other"), ["a"]) == "a"

    async def test_the_cards_of_a_forgotten_pod_are_free(self):
        chooser = node_ranking(await in_memory_manager(ledger("a", cards=1)), ManualClock())
        chooser.choose(pod_request("p", *WHOLE), ["a"])
        chooser.forget_assumed("uid-p")

        assert chooser.choose(pod_request("other", *WHOLE), ["a"]) == "a"


class TestHeldNodes:
    async def test_a_pod_goes_only_to_the_node_of_its_reservation(self):
        manager = await in_memory_manager(ledger("a"), ledger("b"), ledger("c"))
        await reserve(manager, "b", "team/p", CardShares(1, 50))
        chooser = node_ranking(manager, ManualClock())

        assert chooser.choose(pod_request("p"), ["a", "b", "c"]) == "b"
        elsewhere = "a Reservation holds cards of b for the pod"
        assert chooser.choose(pod_request("p"), ["a", "c"]) == NoFit({"a": elsewhere, "c": elsewhere})

    async def test_an_empty_request_takes_the_cards_of_the_reservation(self):
        manager = await in_memory_manager(ledger("a"), ledger("b"))
        await reserve(manager, "b", "team/p", CardShares(2, 30))

        assert node_ranking(manager, ManualClock()).choose(PodRequest("team/p", "u"), ["a", "b"]) == "b"

    async def test_a_reservation_with_another_request_is_refused(self):
        manager = await in_memory_manager(ledger("a"), ledger("b"))
        await reserve(manager, "b", "team/p", CardShares(2, 30))

        choice = node_ranking(manager, ManualClock()).choose(pod_request("p"), ["a", "b"])

        assert isinstance(choice, NoFit)
        assert "they must be equal" in choice.reasons["b"]
        assert choice.reasons["a"] == "a Reservation holds cards of b for the pod"

    async def test_a_pod_with_a_hold_goes_to_the_same_node_again(self):
        manager = await in_memory_manager(ledger("a"), ledger("b", cards=1))
        await take(manager, "b", pod_request("p", *WHOLE))

        assert node_ranking(manager, ManualClock()).choose(pod_request("p", *WHOLE), ["a", "b"]) == "b"

    async def test_a_hold_of_another_pod_with_the_same_name_is_ignored(self):
        manager = await in_memory_manager(ledger("a"), ledger("b"))
        await take(manager, "b", pod_request("p", uid="old"))

        assert (
            node_ranking(manager, ManualClock(), "Spread").choose(pod_request("p", uid="new"), ["a", "b"])
            == "a"
        )

    async def test_a_hold_on_an_excluded_node_is_ignored(self):
        manager = await in_memory_manager(ledger("a"), ledger("b"))
        await take(manager, "b", pod_request("p"))

        assert node_ranking(manager, ManualClock()).choose(pod_request("p"), ["a"]) == "a"

    async def test_a_deleted_reservation_is_ignored(self):
        manager = await in_memory_manager(ledger("a"), ledger("b"))
        chooser = node_ranking(manager, ManualClock())
        await reserve(manager, "b", "team/p", CardShares(1, 50))
        assert chooser.choose(pod_request("p"), ["a", "b"]) == "b"

        await manager.release("team/p", "b")

        assert chooser.choose(pod_request("p"), ["a", "b"]) == "a"


class TestCost:
    async def test_after_one_node_changed_one_node_is_ranked(self):
        manager = await in_memory_manager(*(ledger(node) for node in names(200)))
        chooser = node_ranking(manager, ManualClock())
        chooser.choose(pod_request("p"), names(200))
        assert chooser.ranked == 200

        await take(manager, "node-7", pod_request("other"))
        chooser.forget_assumed("uid-p")
        before = chooser.ranked
        chooser.choose(pod_request("q"), names(200))

        assert chooser.ranked - before == 2  # the changed node, and the node of the forgotten pod

    async def test_a_second_filter_ranks_only_the_node_of_the_first_pod(self):
        manager = await in_memory_manager(*(ledger(node) for node in names(200)))
        chooser = node_ranking(manager, ManualClock())
        chooser.choose(pod_request("p"), names(200))

        before = chooser.ranked
        chooser.choose(pod_request("q"), names(200))

        assert chooser.ranked - before == 1

    async def test_rankings_are_bounded(self):
        manager = await in_memory_manager(ledger("a"))
        chooser = node_ranking(manager, ManualClock())
        for percent in range(1, 101):
            chooser.choose(pod_request(f"p{percent}", CardShares(1, percent)), ["a"])
            chooser.forget_assumed(f"uid-p{percent}")

        assert len(chooser._rankings) <= 64


# --- properties -----------------------------------------------------------------------------------

KINDS: list[CardRequest] = [
    HALF,
    WHOLE,
    (CardShares(1, 30),),
    (CardShares(2, 50),),
    (MigDevices("1g.10gb", 1),),
]
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
    manager, clock = await in_memory_manager(*(ledger(node) for node in NODES)), ManualClock()
    chooser = node_ranking(manager, clock, strategy)
    promised: dict[int, str] = {}
    for verb, number, node in steps:
        pod = pod_request(f"p{number}", *KINDS[number % len(KINDS)])
        if verb == "filter":
            candidates = draw(st.lists(st.sampled_from([*NODES, "cpu"]), unique=True, min_size=1))
            promised.pop(number, None)
            expected = _naive(manager, promised, pod, candidates, strategy)
            choice = chooser.choose(pod, candidates)
            assert ((choice,) if isinstance(choice, str) else ()) == expected
            if expected:
                promised[number] = expected[0]
                _nothing_promised_twice(manager, promised, strategy)
        elif verb == "claim":
            await take(manager, node, pod)
        elif verb == "bind":
            chooser.forget_assumed(pod.uid)
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
        pod = pod_request(f"p{number}", *KINDS[number % len(KINDS)])
        taken = claiming.decide(worlds[node], CardClaim(pod.holder, pod.wants, HoldTerms()), strategy)
        if isinstance(taken, Granted):
            worlds[node] = taken.ledger
    return worlds


def _naive(manager, promised, pod: PodRequest, candidates, strategy: Strategy) -> tuple[str, ...]:
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
        and not isinstance(rank := placement.rank(worlds[node], pod.wants, strategy), Refusal)
    }
    return (min(ranks, key=lambda node: (ranks[node], node)),) if ranks else ()


def _nothing_promised_twice(manager, promised: dict[int, str], strategy: Strategy) -> None:
    """The newest assumed pod fits even if all others are claimed first."""
    *_, newest = promised
    pod = pod_request(f"p{newest}", *KINDS[newest % len(KINDS)])
    assert _worlds(manager, promised, strategy)[promised[newest]].grant(pod.holder)


@pytest.mark.parametrize("strategy", ["BinPack", "Spread"])
@given(percents=st.lists(st.integers(1, 100), min_size=1, max_size=30))
def test_every_assumed_pod_can_be_claimed(strategy, percents):
    async def story() -> None:
        manager = await in_memory_manager(*(ledger(node, cards=2) for node in NODES))
        chooser = node_ranking(manager, ManualClock(), strategy)
        chosen: list[tuple[PodRequest, str]] = []
        for number, percent in enumerate(percents):
            pod = pod_request(f"p{number}", CardShares(1, percent))
            choice = chooser.choose(pod, NODES)
            if isinstance(choice, str):
                chosen.append((pod, choice))
        assert chosen, "the first pod fits"
        for pod, node in chosen:
            claim = CardClaim(pod.holder, pod.wants, HoldTerms(until=datetime(2026, 1, 1, tzinfo=UTC)))
            assert isinstance(await manager.claim(node, claim, strategy), tuple)

    asyncio.run(story())


def test_a_ranking_knows_nodes_that_existed_before():
    async def story() -> NodeRanking:
        manager = await in_memory_manager(ledger("a"))
        await reserve(manager, "a", "team/p", CardShares(1, 50))
        return node_ranking(manager, ManualClock())

    assert asyncio.run(story()).choose(pod_request("p"), ["a"]) == "a"
