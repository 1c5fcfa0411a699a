"""The contract of both capacity managers: atomic and idempotent claims, nothing lost or allocated twice."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from croupier.capacity.batching import InvalidChange
from croupier.capacity.manager import CapacityManager, UnknownNode
from croupier.core.claims import claim as claims
from croupier.core.claims.claim import Granted
from croupier.core.ledger import ledger as ledgers
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import CardGrant
from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits
from croupier.core.model.refusal import Refusal
from tests.capacity.env import NODE, NOON, claim, exclusive, mig, node, percent, pod, time_sliced

LATER = NOON + timedelta(hours=1)


def known(manager: CapacityManager) -> Ledger:
    ledger = manager.ledger(NODE)
    assert ledger is not None
    return ledger


async def test_a_reserve_holds_until_the_ttl_is_over(manager):
    await manager.open(NODE, node())

    granted = await manager.reserve(pod(), NODE, cards=2, percent=50)

    assert granted == (CardGrant("node-1-gpu-0", 50), CardGrant("node-1-gpu-1", 50))
    assert known(manager).held == {pod(): NOON + timedelta(seconds=121)}  # 120 s, rounded up to whole seconds
    assert known(manager).grant(pod()) == granted


WANTED = {
    "a share": (node(), CardShares(1, 30)),
    "shares of two cards": (node(), CardShares(2, 30)),
    "a whole card": (node(), CardShares(1)),
    "an exclusive card": (node(exclusive()), CardShares(1)),
    "MIG devices of two cards": (node(mig(0), mig(1)), MigDevices("1g.10gb", 3)),
    "time slices": (node(time_sliced(pool="shared")), PoolUnits("shared", 3)),
    "cards of a pool": (node(percent(0), exclusive(1, pool="train")), PoolUnits("train", 1)),
    "MIG devices of a pool": (node(mig(0, pool="small")), PoolUnits("small", 2)),
}


@pytest.mark.parametrize(("empty", "want"), WANTED.values(), ids=WANTED)
async def test_a_claim_gets_the_decision_of_the_core_and_is_released_completely(manager, empty, want):
    expected = claims.decide(empty, claim(pod(), want), "Spread")
    assert isinstance(expected, Granted)
    await manager.open(NODE, empty)

    assert await manager.claim(NODE, claim(pod(), want)) == expected.grant
    assert manager.ledger(NODE) == expected.ledger
    await manager.release(pod(), NODE)

    assert manager.ledger(NODE) == empty


async def test_a_claim_with_its_own_strategy(manager):
    await manager.open(NODE, node())
    await manager.claim(NODE, claim(pod(0)))

    assert await manager.claim(NODE, claim(pod(1)), "BinPack") == (CardGrant("node-1-gpu-0", 50),)


TOO_MUCH = {
    "more cards than exist": (node(), CardShares(3, 50)),
    "more than is free": (node(percent(0, holders={pod(9): 80}), percent(1)), CardShares(2, 50)),
    "a profile that no card has": (node(mig()), MigDevices("7g.80gb", 1)),
    "an unhealthy card": (node(percent(healthy=False)), CardShares(1, 10)),
    "a pool without cards": (node(), PoolUnits("train", 1)),
    "two items, one of them not available": (node(mig()), [MigDevices("1g.10gb", 1), CardShares(1, 50)]),
}


@pytest.mark.parametrize(("full", "wants"), TOO_MUCH.values(), ids=TOO_MUCH)
async def test_all_or_nothing_with_the_refusal_of_the_core(manager, full, wants):
    asked = claim(pod(), *(wants if isinstance(wants, list) else [wants]))
    await manager.open(NODE, full)

    answer = await manager.claim(NODE, asked)

    assert isinstance(answer, Refusal)
    assert answer == claims.decide(full, asked, "Spread")
    assert manager.ledger(NODE) == full


async def test_a_repeated_claim_gets_the_same_grant(manager):
    await manager.open(NODE, node())

    first = await manager.claim(NODE, claim(pod()))
    once = manager.ledger(NODE)

    assert await manager.claim(NODE, claim(pod())) == first
    assert manager.ledger(NODE) == once


async def test_the_same_claim_twice_at_once_holds_once(manager):
    await manager.open(NODE, node())

    first, second = await asyncio.gather(
        *(manager.claim(NODE, claim(pod(), CardShares(1, 60))) for _ in range(2))
    )

    assert first == second
    assert sum(card.used for card in known(manager).cards) == 60


async def test_releasing_twice_and_releasing_nothing_is_harmless(manager):
    await manager.open(NODE, node())
    await manager.claim(NODE, claim(pod()))

    for holder in (pod(), pod(), pod(7)):
        await manager.release(holder, NODE)

    assert manager.ledger(NODE) == node()


async def test_concurrent_claims_never_overcommit(manager):
    await manager.open(NODE, node())

    answers = await asyncio.gather(
        *(manager.claim(NODE, claim(pod(n), CardShares(1, 30))) for n in range(10))
    )

    refused = [answer for answer in answers if isinstance(answer, Refusal)]
    assert len(refused) == 4
    assert [card.used for card in known(manager).cards] == [90, 90]
    assert not ledgers.invariant_violations(known(manager))


async def test_a_pod_takes_over_the_hold_of_its_reservation(manager):
    await manager.open(NODE, node())
    reserved = await manager.claim(
        NODE, claim("default/my-pod", CardShares(2, 50), until=None, reservation="example")
    )

    refused = await manager.claim(NODE, claim("default/my-pod/uid-1", CardShares(1, 100)))
    taken = await manager.claim(NODE, claim("default/my-pod/uid-1", CardShares(2, 50)))

    assert isinstance(refused, Refusal)
    assert "Reservation example holds 50 % of 2 cards" in str(refused)
    assert taken == reserved
    assert known(manager).holders() == {"default/my-pod/uid-1"}
    assert known(manager).reservations == {"default/my-pod/uid-1": "example"}


async def test_bound_held_until_a_time_and_held_without_expiry(manager):
    await manager.open(NODE, node())

    await manager.claim(NODE, claim(pod(0), bound=True))
    await manager.claim(NODE, claim(pod(1), until=NOON + timedelta(microseconds=1)))
    await manager.claim(NODE, claim(pod(2), until=None))

    assert known(manager).held == {pod(1): NOON + timedelta(seconds=1), pod(2): None}


async def test_an_amendment_returns_the_new_ledger(manager):
    await manager.open(NODE, node())
    await manager.claim(NODE, claim(pod()))

    prolonged = await manager.amend(NODE, lambda ledger: ledgers.extend(ledger, pod(), LATER))
    bound = await manager.amend(NODE, lambda ledger: ledgers.bind(ledger, pod()))

    assert (prolonged.held, bound.held) == ({pod(): LATER}, {})
    assert manager.ledger(NODE) == bound


def overcommits(ledger: Ledger) -> Ledger:
    return replace(ledger, cards=tuple(replace(c, holders={"a/b": 60, "a/c": 60}) for c in ledger.cards))


def stumbles(ledger: Ledger) -> Ledger:
    raise ZeroDivisionError("in the change itself")


MISTAKES = {"overcommitted": (overcommits, InvalidChange), "a bug": (stumbles, ZeroDivisionError)}


@pytest.mark.parametrize(("change", "error"), MISTAKES.values(), ids=MISTAKES)
async def test_an_invalid_amendment_does_not_affect_others(manager, change, error):
    await manager.open(NODE, node())

    right = asyncio.create_task(manager.claim(NODE, claim(pod())))
    with pytest.raises(error):
        await manager.amend(NODE, change)

    assert await right == (CardGrant("node-1-gpu-0", 50),)
    assert known(manager).holders() == {pod()}


async def test_an_unknown_node(manager):
    refused = await manager.claim(NODE, claim(pod()))
    await manager.release(pod(), NODE)

    assert str(refused) == "the ledger has no node node-1"
    with pytest.raises(UnknownNode, match="the ledger has no node node-1"):
        await manager.amend(NODE, lambda ledger: ledger)
    assert (manager.ledger(NODE), list(manager.nodes())) == (None, [])


async def test_opening_again_changes_nothing(manager):
    await manager.open(NODE, node())
    await manager.claim(NODE, claim(pod()))

    again = await manager.open(NODE, node(percent(0), percent(1), percent(2)))

    assert again == manager.ledger(NODE)
    assert known(manager).holders() == {pod()}
    assert len(known(manager).cards) == 2


async def test_only_a_node_without_holders_is_closed(manager):
    await manager.open(NODE, node())
    await manager.claim(NODE, claim(pod()))

    assert not await manager.close(NODE)
    await manager.release(pod(), NODE)
    assert list(manager.nodes()) == [NODE]
    assert await manager.close(NODE)

    assert (manager.ledger(NODE), list(manager.nodes())) == (None, [])
    assert await manager.close(NODE)
    assert await manager.open(NODE, node(percent())) == node(percent())


async def test_an_uncommitted_claim_is_counted(manager):
    await manager.open(NODE, node())

    claiming = asyncio.create_task(manager.claim(NODE, claim(pod(), CardShares(2, 100))))
    await asyncio.sleep(0)

    assert known(manager).holders() == {pod()}
    await claiming
    assert known(manager).holders() == {pod()}


async def test_a_refused_claim_is_not_counted(manager):
    await manager.open(NODE, node())

    claiming = asyncio.create_task(manager.claim(NODE, claim(pod(), CardShares(3, 100))))
    await asyncio.sleep(0)

    assert manager.ledger(NODE) == node()
    await claiming
    assert manager.ledger(NODE) == node()


async def test_subscribers_are_notified_until_they_unsubscribe(manager):
    heard: list[tuple[str, int | None]] = []

    def listen(name: str) -> None:
        ledger = manager.ledger(name)
        heard.append((name, None if ledger is None else len(ledger.holders())))

    leave = manager.subscribe(listen)
    await manager.open(NODE, node())
    await manager.claim(NODE, claim(pod()))
    await manager.claim(NODE, claim(pod()))
    await manager.release(pod(), NODE)
    await manager.close(NODE)
    leave()
    await manager.open(NODE, node())

    assert heard == [(NODE, 0), (NODE, 1), (NODE, 0), (NODE, None)]


async def test_a_failing_subscriber_does_not_affect_others(manager):
    heard: list[str] = []

    def stumble(name: str) -> None:
        raise ZeroDivisionError(name)

    manager.subscribe(stumble)
    manager.subscribe(heard.append)
    await manager.open(NODE, node())

    assert heard == [NODE]
    assert await manager.claim(NODE, claim(pod())) == (CardGrant("node-1-gpu-0", 50),)


async def test_lazy_amendments_are_committed_when_they_return(manager):
    await manager.open(NODE, node())
    await manager.claim(NODE, claim(pod()))

    bound = manager.amend(NODE, lambda ledger: ledgers.bind(ledger, pod()), lazy=True)
    _, ledger = await asyncio.gather(manager.claim(NODE, claim(pod(1))), bound)

    assert ledger.held.keys() == {pod(1)}
