"""The contract of both capacity managers: atomic and idempotent claims, nothing lost or allocated twice."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from croupier.book.fold import Unlawful
from croupier.book.manager import CapacityManager, UnknownNode
from croupier.core.ledgers import claim as claims
from croupier.core.ledgers import ledger as ledgers
from croupier.core.ledgers.claim import Taken
from croupier.core.ledgers.ledger import Ledger, Part, Refused
from croupier.core.pods.want import Shares, Slots, Units
from tests.book.worlds import NODE, NOON, claim, cut, exclusive, node, percent, pod, sliced

LATER = NOON + timedelta(hours=1)


def known(book: CapacityManager) -> Ledger:
    ledger = book.ledger(NODE)
    assert ledger is not None
    return ledger


async def test_a_reserve_holds_until_the_ttl_is_over(book):
    await book.open(NODE, node())

    granted = await book.reserve(pod(), NODE, cards=2, percent=50)

    assert granted == (Part("node-1-gpu-0", 50), Part("node-1-gpu-1", 50))
    assert known(book).held == {pod(): NOON + timedelta(seconds=121)}  # 120 s, rounded up to whole seconds
    assert known(book).grant(pod()) == granted


WANTED = {
    "a share": (node(), Shares(1, 30)),
    "shares of two cards": (node(), Shares(2, 30)),
    "a whole card": (node(), Shares(1)),
    "an exclusive card": (node(exclusive()), Shares(1)),
    "MIG devices of two cards": (node(cut(0), cut(1)), Slots("1g.10gb", 3)),
    "time slices": (node(sliced(pool="shared")), Units("shared", 3)),
    "cards of a pool": (node(percent(0), exclusive(1, pool="train")), Units("train", 1)),
    "MIG devices of a pool": (node(cut(0, pool="small")), Units("small", 2)),
}


@pytest.mark.parametrize(("empty", "want"), WANTED.values(), ids=WANTED)
async def test_a_claim_gets_the_decision_of_the_core_and_is_released_completely(book, empty, want):
    expected = claims.decide(empty, claim(pod(), want), "Spread")
    assert isinstance(expected, Taken)
    await book.open(NODE, empty)

    assert await book.claim(NODE, claim(pod(), want)) == expected.grant
    assert book.ledger(NODE) == expected.ledger
    await book.release(pod(), NODE)

    assert book.ledger(NODE) == empty


async def test_a_claim_with_its_own_strategy(book):
    await book.open(NODE, node())
    await book.claim(NODE, claim(pod(0)))

    assert await book.claim(NODE, claim(pod(1)), "BinPack") == (Part("node-1-gpu-0", 50),)


TOO_MUCH = {
    "more cards than exist": (node(), Shares(3, 50)),
    "more than is free": (node(percent(0, holders={pod(9): 80}), percent(1)), Shares(2, 50)),
    "a profile that no card has": (node(cut()), Slots("7g.80gb", 1)),
    "an unhealthy card": (node(percent(healthy=False)), Shares(1, 10)),
    "a pool without cards": (node(), Units("train", 1)),
    "two items, one of them not available": (node(cut()), [Slots("1g.10gb", 1), Shares(1, 50)]),
}


@pytest.mark.parametrize(("full", "wants"), TOO_MUCH.values(), ids=TOO_MUCH)
async def test_all_or_nothing_with_the_refusal_of_the_core(book, full, wants):
    asked = claim(pod(), *(wants if isinstance(wants, list) else [wants]))
    await book.open(NODE, full)

    answer = await book.claim(NODE, asked)

    assert isinstance(answer, Refused)
    assert answer == claims.decide(full, asked, "Spread")
    assert book.ledger(NODE) == full


async def test_a_repeated_claim_gets_the_same_grant(book):
    await book.open(NODE, node())

    first = await book.claim(NODE, claim(pod()))
    once = book.ledger(NODE)

    assert await book.claim(NODE, claim(pod())) == first
    assert book.ledger(NODE) == once


async def test_the_same_claim_twice_at_once_holds_once(book):
    await book.open(NODE, node())

    first, second = await asyncio.gather(*(book.claim(NODE, claim(pod(), Shares(1, 60))) for _ in range(2)))

    assert first == second
    assert sum(card.used for card in known(book).cards) == 60


async def test_releasing_twice_and_releasing_nothing_is_harmless(book):
    await book.open(NODE, node())
    await book.claim(NODE, claim(pod()))

    for holder in (pod(), pod(), pod(7)):
        await book.release(holder, NODE)

    assert book.ledger(NODE) == node()


async def test_concurrent_claims_never_overcommit(book):
    await book.open(NODE, node())

    answers = await asyncio.gather(*(book.claim(NODE, claim(pod(n), Shares(1, 30))) for n in range(10)))

    refused = [answer for answer in answers if isinstance(answer, Refused)]
    assert len(refused) == 4
    assert [card.used for card in known(book).cards] == [90, 90]
    assert not ledgers.faults(known(book))


async def test_a_pod_takes_over_the_hold_of_its_reservation(book):
    await book.open(NODE, node())
    reserved = await book.claim(
        NODE, claim("default/my-pod", Shares(2, 50), until=None, reservation="example")
    )

    refused = await book.claim(NODE, claim("default/my-pod/uid-1", Shares(1, 100)))
    taken = await book.claim(NODE, claim("default/my-pod/uid-1", Shares(2, 50)))

    assert isinstance(refused, Refused)
    assert "Reservation example holds 50 % of 2 cards" in str(refused)
    assert taken == reserved
    assert known(book).holders() == {"default/my-pod/uid-1"}
    assert known(book).reservations == {"default/my-pod/uid-1": "example"}


async def test_bound_held_until_a_time_and_held_without_expiry(book):
    await book.open(NODE, node())

    await book.claim(NODE, claim(pod(0), bound=True))
    await book.claim(NODE, claim(pod(1), until=NOON + timedelta(microseconds=1)))
    await book.claim(NODE, claim(pod(2), until=None))

    assert known(book).held == {pod(1): NOON + timedelta(seconds=1), pod(2): None}


async def test_an_amendment_returns_the_new_ledger(book):
    await book.open(NODE, node())
    await book.claim(NODE, claim(pod()))

    prolonged = await book.amend(NODE, lambda ledger: ledgers.prolong(ledger, pod(), LATER))
    bound = await book.amend(NODE, lambda ledger: ledgers.bind(ledger, pod()))

    assert (prolonged.held, bound.held) == ({pod(): LATER}, {})
    assert book.ledger(NODE) == bound


def overcommits(ledger: Ledger) -> Ledger:
    return replace(ledger, cards=tuple(replace(c, holders={"a/b": 60, "a/c": 60}) for c in ledger.cards))


def stumbles(ledger: Ledger) -> Ledger:
    raise ZeroDivisionError("in the change itself")


MISTAKES = {"overcommitted": (overcommits, Unlawful), "a bug": (stumbles, ZeroDivisionError)}


@pytest.mark.parametrize(("change", "error"), MISTAKES.values(), ids=MISTAKES)
async def test_an_invalid_amendment_does_not_affect_others(book, change, error):
    await book.open(NODE, node())

    right = asyncio.create_task(book.claim(NODE, claim(pod())))
    with pytest.raises(error):
        await book.amend(NODE, change)

    assert await right == (Part("node-1-gpu-0", 50),)
    assert known(book).holders() == {pod()}


async def test_an_unknown_node(book):
    refused = await book.claim(NODE, claim(pod()))
    await book.release(pod(), NODE)

    assert str(refused) == "the ledger has no node node-1"
    with pytest.raises(UnknownNode, match="the ledger has no node node-1"):
        await book.amend(NODE, lambda ledger: ledger)
    assert (book.ledger(NODE), list(book.nodes())) == (None, [])


async def test_opening_again_changes_nothing(book):
    await book.open(NODE, node())
    await book.claim(NODE, claim(pod()))

    again = await book.open(NODE, node(percent(0), percent(1), percent(2)))

    assert again == book.ledger(NODE)
    assert known(book).holders() == {pod()}
    assert len(known(book).cards) == 2


async def test_only_a_node_without_holders_is_closed(book):
    await book.open(NODE, node())
    await book.claim(NODE, claim(pod()))

    assert not await book.close(NODE)
    await book.release(pod(), NODE)
    assert list(book.nodes()) == [NODE]
    assert await book.close(NODE)

    assert (book.ledger(NODE), list(book.nodes())) == (None, [])
    assert await book.close(NODE)
    assert await book.open(NODE, node(percent())) == node(percent())


async def test_an_uncommitted_claim_is_counted(book):
    await book.open(NODE, node())

    claiming = asyncio.create_task(book.claim(NODE, claim(pod(), Shares(2, 100))))
    await asyncio.sleep(0)

    assert known(book).holders() == {pod()}
    await claiming
    assert known(book).holders() == {pod()}


async def test_a_refused_claim_is_not_counted(book):
    await book.open(NODE, node())

    claiming = asyncio.create_task(book.claim(NODE, claim(pod(), Shares(3, 100))))
    await asyncio.sleep(0)

    assert book.ledger(NODE) == node()
    await claiming
    assert book.ledger(NODE) == node()


async def test_subscribers_are_notified_until_they_unsubscribe(book):
    heard: list[tuple[str, int | None]] = []

    def listen(name: str) -> None:
        ledger = book.ledger(name)
        heard.append((name, None if ledger is None else len(ledger.holders())))

    leave = book.subscribe(listen)
    await book.open(NODE, node())
    await book.claim(NODE, claim(pod()))
    await book.claim(NODE, claim(pod()))
    await book.release(pod(), NODE)
    await book.close(NODE)
    leave()
    await book.open(NODE, node())

    assert heard == [(NODE, 0), (NODE, 1), (NODE, 0), (NODE, None)]


async def test_a_failing_subscriber_does_not_affect_others(book):
    heard: list[str] = []

    def stumble(name: str) -> None:
        raise ZeroDivisionError(name)

    book.subscribe(stumble)
    book.subscribe(heard.append)
    await book.open(NODE, node())

    assert heard == [NODE]
    assert await book.claim(NODE, claim(pod())) == (Part("node-1-gpu-0", 50),)


async def test_lazy_amendments_are_committed_when_they_return(book):
    await book.open(NODE, node())
    await book.claim(NODE, claim(pod()))

    bound = book.amend(NODE, lambda ledger: ledgers.bind(ledger, pod()), lazy=True)
    _, ledger = await asyncio.gather(book.claim(NODE, claim(pod(1))), bound)

    assert ledger.held.keys() == {pod(1)}
