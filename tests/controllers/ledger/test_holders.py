"""The life cycle of holds, on a real API server, with either capacity manager."""

from datetime import timedelta

import pytest

from croupier.api.mps.allocation import HOLD_EXPIRED
from croupier.controllers.ledger.holders import HolderController
from croupier.core.ledger.ledger import HoldTerms
from croupier.core.model.card import CardGrant
from croupier.kube.client.errors import Conflict
from croupier.kube.controller.events import EventRecorder
from tests.controllers import ledger_env as worlds
from tests.controllers.ledger_env import NODE, LedgerEnv, card
from tests.polling import until, until_async

SECONDS = 30

FREE = {card(0): (True, 0), card(1): (True, 0)}
HALF = {card(0): (True, 50), card(1): (True, 0)}


async def opened(world: LedgerEnv) -> None:
    await world.node(gpu=2)
    await world.manager.open(NODE, worlds.empty_ledger())


async def test_a_hold_is_promoted_when_its_pod_is_bound_and_freed_when_it_ends(world):
    await opened(world)
    async with world.works():
        pod = await world.pod("a", cards="1", ratio="50")
        holder = world.holder(pod)
        await world.hold(holder, card(0))
        await world.bind(pod, (CardGrant(card(0), 50),))

        await until(lambda: not world.ledger().held, "the hold to be Bound")
        assert world.ledger().grant(holder) == (CardGrant(card(0), 50),)
        await world.ends("a")
        await world.shows(FREE)


async def test_the_holder_of_a_pod_that_is_deleted_is_freed(world):
    await opened(world)
    async with world.works():
        for name, bound in (("bound", True), ("waits", False)):
            pod = await world.pod(name, cards="1", ratio="50")
            await world.hold(world.holder(pod), card(0))
            if bound:
                await world.bind(pod, (CardGrant(card(0), 50),))
            await world.delete(name)
            await world.shows(FREE)


async def test_a_pod_that_ended_while_no_controller_ran_is_freed_at_start(world):
    await opened(world)
    await world.plant(f"{world.namespace}/gone/0b1c", card(0))

    async with world.works("holders"):
        await world.shows(FREE)


async def test_a_pod_of_the_same_name_does_not_inherit_the_hold(world):
    await opened(world)
    async with world.works():
        first = await world.pod("a", cards="1", ratio="50")
        await world.hold(world.holder(first), card(0))
        await world.delete("a")
        second = await world.pod("a", cards="1", ratio="50")
        await world.hold(world.holder(second), card(1))
        await world.bind(second, (CardGrant(card(1), 50),))

        await world.shows({card(0): (True, 0), card(1): (True, 50)})
        await until(lambda: not world.ledger().held, "the second to be Bound")


async def test_a_hold_whose_pod_is_bound_to_another_node_is_freed(world):
    await opened(world)
    await world.node("other", gpu=1)
    async with world.works():
        pod = await world.pod("a", cards="1", ratio="50")
        await world.hold(world.holder(pod), card(0))
        await world.bind(pod, (CardGrant(card(0, "other"), 50),), "other")

        await world.shows(FREE)


async def test_a_hold_for_a_pod_name_is_promoted_to_the_pod(world):
    await opened(world)
    async with world.works():
        await world.plant(f"{world.namespace}/a", card(0), terms=HoldTerms(reservation="rsv"))
        pod = await world.pod("a")
        await world.bind(pod)

        holder = world.holder(pod)
        await until(lambda: world.ledger().holders() == {holder}, "the pod to take it over")
        assert world.ledger().reservations == {holder: "rsv"}
        await until(lambda: not world.ledger().held, "it to be Bound")


async def test_a_hold_without_bind_expires_and_fences_its_pod(world):
    await opened(world)
    async with world.works():
        pod = await world.pod("a", cards="1", ratio="50")
        await world.hold(world.holder(pod), card(0), seconds=2)
        await world.shows(HALF)
        await world.shows(FREE)

        assert HOLD_EXPIRED in (await world.get("a")).metadata.annotations
        with pytest.raises(Conflict):
            await world.bind(pod, (CardGrant(card(0), 50),), fenced=True)

        async def recorded() -> bool:
            return any(event.startswith("GPUReservationExpired") for event in await world.events("a"))

        await until_async(recorded, "the Event on the pod")


async def test_a_hold_of_a_bound_pod_does_not_expire_with_a_stale_cache(world):
    await opened(world)
    pod = await world.pod("a", cards="1", ratio="50")
    await world.hold(world.holder(pod), card(0), seconds=-5)
    blind = worlds.LedgerEnv(world.api, "kube-system", world.manager)

    async with blind.works("holders"):
        await world.bind(pod, (CardGrant(card(0), 50),))
        await until(lambda: not world.ledger().held, "the hold to be Bound")
        assert world.cards() == HALF


@pytest.mark.parametrize("skew", [timedelta(hours=-1), timedelta(hours=1)], ids=["behind", "ahead"])
async def test_a_bound_pod_never_expires(world, skew):
    await opened(world)
    world.clock.ahead = skew
    async with world.works():
        pod = await world.pod("a", cards="1", ratio="50")
        await world.bind(pod, (CardGrant(card(0), 50),))
        await world.hold(world.holder(pod), card(0))
        await until(lambda: not world.ledger().held, "the hold to be Bound")
        sentinel = await world.pod("b", cards="1", ratio="50")
        await world.hold(world.holder(sentinel), card(1), seconds=-7200)
        await until(lambda: world.cards()[card(1)] == (True, 0), "an old hold to expire")

        assert world.cards() == HALF


async def test_a_hold_for_a_pod_name_without_reservation_expires(world):
    await opened(world)
    async with world.works():
        await world.hold(f"{world.namespace}/never", card(0), seconds=1)
        await world.shows(FREE)


async def test_a_concurrent_bind_is_promoted_and_not_expired(world):
    """The pod is bound after the cache was read and before the API server is queried."""
    await opened(world)
    pod = await world.pod("a", cards="1", ratio="50")
    async with world.sees() as sight:
        recorder = EventRecorder(world.api, "test")
        steward = HolderController(sight, world.api, manager=world.manager, recorder=recorder)
        await world.hold(world.holder(pod), card(0), seconds=-5)
        await world.bind(pod, (CardGrant(card(0), 50),))
        await steward.reconcile(NODE)

    assert world.cards() == HALF
    assert not world.ledger().held
