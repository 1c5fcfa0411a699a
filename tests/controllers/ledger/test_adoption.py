"""Pods bound without the extender hold their cards within moments, and binds in flight are left alone.

The delay of the audit's second check is an hour, so that the audit itself adopts nothing here.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from croupier.api import kinds
from croupier.capacity.crd import CRDCapacityManager
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import HoldTerms
from croupier.core.model.card import CardGrant
from croupier.core.model.card_request import CardShares
from croupier.core.model.refusal import Refusal
from croupier.kube.cache.store import Store
from tests.controllers import ledger_env as worlds
from tests.controllers.conftest import in_the_api_server
from tests.controllers.ledger_env import NODE, LedgerEnv, card, running
from tests.polling import until

HOUR = 3600.0
REPAIRED = "croupier_audit_repaired_total"


async def opened(world: LedgerEnv, cards: int = 2) -> None:
    await world.node(gpu=cards)
    await world.manager.open(NODE, worlds.empty_ledger(cards))


@contextlib.asynccontextmanager
async def adopting(world: LedgerEnv) -> AsyncIterator[None]:
    async with world.works("audit only", recheck_delay=HOUR) as audit, running(audit.run(asyncio.Event())):
        yield


async def pod_with_node_name(world: LedgerEnv, name: str) -> str:
    main = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": NODE, "containers": [main], "terminationGracePeriodSeconds": 0}
    return world.holder(await world.create(kinds.PODS, {"metadata": {"name": name}, "spec": spec}))


async def test_pods_that_were_bound_without_the_extender_hold_their_cards_soon(world):
    await opened(world, cards=3)
    async with adopting(world):
        foreign = await world.pod("bound-by-another-scheduler", gpus=1)
        await world.bind(foreign)
        preset = await pod_with_node_name(world, "with-node-name")

        holders = {world.holder(foreign), preset}
        await until(lambda: world.ledger().holders() == holders, "both pods to hold a card")
        assert not world.ledger().held, "a pod that runs is Bound"
        await until(lambda: world.metric(REPAIRED, "Ghost") == 2, "both repairs to be counted")
        claims = [
            await world.manager.claim(
                NODE, CardClaim(f"{world.namespace}/late-{n}/0b1c", (CardShares(1, 100),), HoldTerms())
            )
            for n in range(2)
        ]
        assert [part.card for part in claims[0]] == [card(2)], "only the free card is granted"
        assert isinstance(claims[1], Refusal)


async def test_binds_in_flight_are_not_adopted(world):
    await opened(world)
    async with adopting(world):
        held = {}
        for number in range(4):
            pod = await world.pod(f"ours-{number}", cards="1", ratio="20")
            grant = (CardGrant(card(1), 20),)
            await world.hold(world.holder(pod), card(1), percent=20)
            await world.bind(pod, grant)
            held[world.holder(pod)] = grant
        last = await pod_with_node_name(world, "last")

        await until(lambda: last in world.ledger().holders(), "the pod that was bound last to be adopted")
        await until(lambda: world.metric(REPAIRED, "Ghost") > 0, "its repair to be counted")
        assert world.metric(REPAIRED, "Ghost") == 1, "of the others none was adopted"
        assert {holder: world.ledger().grant(holder) for holder in held} == held


@in_the_api_server
async def test_a_hold_that_the_cache_does_not_show_yet_is_not_adopted(world):
    """The ledgers of this audit come from a cache that stands still since before the hold."""
    await opened(world)
    stale = Store(kinds.NODE_RESERVATIONS)
    record = await world.record()
    assert record is not None
    stale.put(record)
    behind = LedgerEnv(world.api, world.namespace, CRDCapacityManager(world.api, stale))
    async with adopting(behind):
        pod = await world.pod("ours", cards="1", ratio="50")
        holder = world.holder(pod)
        await world.hold(holder, card(1))
        before = await world.record()
        await world.bind(pod, (CardGrant(card(1), 50),))

        await until(lambda: holder in behind.ledger().held, "the audit to read the newest ledger")
        assert await world.record() == before, "nothing was written"
        assert behind.metric(REPAIRED, "Ghost") == 0


async def test_a_pod_that_needs_more_than_is_free_takes_nothing(world):
    await opened(world, cards=1)
    holder = await world.runs("ours", card(0), percent=60)
    await world.plant(holder, card(0), percent=60)
    async with adopting(world):
        await pod_with_node_name(world, "too-large")
        small = await world.runs("small", card(0), percent=40)

        await until(lambda: small in world.ledger().holders(), "the pod that fits to be adopted")
        assert world.ledger().holders() == {holder, small}
