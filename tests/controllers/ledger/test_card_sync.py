"""The ledger of a node follows its cards, on a real API server, with either capacity manager."""

from croupier.api import kinds
from croupier.capacity.cluster_view import ClusterView
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.controllers.ledger.card_sync import CardSyncController
from croupier.core.ledger import ledger
from croupier.core.ledger.ledger import HoldTerms
from croupier.core.model.card import CardGrant
from croupier.core.model.refusal import Refusal
from tests.controllers import ledger_env as worlds
from tests.controllers.ledger_env import NODE, card
from tests.polling import until


async def test_a_plain_node_is_opened_with_the_cards_of_its_device_plugin(world):
    async with world.works():
        await world.node(gpu=2, **{"mig-1g.10gb": 3})
        await world.node("cpu-worker")
        await world.shows({card(0): (True, 0), card(1): (True, 0), f"{NODE}-mig-1g.10gb-0": (True, 0)})

        assert len(world.ledger().cards[2].slots) == 3
        assert world.manager.ledger("cpu-worker") is None


async def test_a_node_is_opened_with_the_holds_of_its_pods(world):
    await world.node(gpu=3)
    ours = await world.runs("ours", card(1), percent=30)
    foreign = await world.pod("foreign", gpus=1)
    await world.bind(foreign)

    async with world.works("capacity"):
        await world.shows({card(0): (True, 100), card(1): (True, 30), card(2): (True, 0)})

    assert world.ledger().grant(ours) == (CardGrant(card(1), 30),)
    assert world.ledger().grant(world.holder(foreign)) == (CardGrant(card(0), 100),)


async def test_priming_opens_every_node_before_anything_else_runs(world):
    for name in ("one", "two", "three"):
        await world.node(name, gpu=1)

    async with world.sees() as sight:
        await CardSyncController(sight, world.manager).prime()

        assert {"one", "two", "three"} <= set(world.manager.nodes())


async def test_cards_are_added_and_removed_and_a_held_one_stays_unhealthy(world):
    await world.node(gpu=2)
    async with world.works():
        await world.shows({card(0): (True, 0), card(1): (True, 0)})
        await world.runs("a", card(1))
        await world.plant(world.holder(await world.get("a")), card(1))

        await world.offers(gpu=3)
        await world.shows({card(0): (True, 0), card(1): (True, 50), card(2): (True, 0)})
        await world.offers(gpu=1)
        await world.shows({card(1): (True, 50)})
        await world.offers(gpu=0)
        await world.shows({card(1): (False, 50)})
        await world.offers(gpu=2)
        await world.shows({card(0): (True, 0), card(1): (True, 50)})


async def test_holders_follow_when_an_agent_names_the_cards(world):
    await world.node(gpu=2)
    async with world.works() as audit:
        holder = await world.runs("a", card(1))
        await world.plant(holder, card(1))
        named = [await world.device(index) for index in range(2)]

        await world.shows({named[0]: (True, 0), named[1]: (True, 50)})
        assert world.ledger().grant(holder) == (CardGrant(named[1], 50),)
        await audit.run_once()
        assert audit.findings.every() == {}, "the pod's allocation means the same card"


async def test_the_inventory_is_used_once_it_exists(world):
    await world.node(gpu=8)
    healthy = await world.device(0)
    faulted = await world.device(1, state="Faulted")
    retired = await world.device(2)
    label = {"metadata": {"labels": {"gpu.deckhouse.io/ignore": "true"}}}
    await world.api.patch(kinds.GPU_DEVICES, retired, label)
    await world.device(3, managed=False)

    async with world.works():
        await world.shows({healthy: (True, 0), faulted: (False, 0), retired: (False, 0)})
        mended = {"status": {"state": "Unassigned"}}
        await world.api.patch(kinds.GPU_DEVICES, faulted, mended, subresource="status")
        await world.shows({healthy: (True, 0), faulted: (True, 0), retired: (False, 0)})


async def test_a_pool_decides_how_its_cards_are_shared(world):
    await world.node()
    pool = {"metadata": {"name": "turns"}, "spec": {"allocation": {"mode": "TimeSlice"}}}
    await world.create(kinds.GPU_POOLS, pool)
    await world.device(0, state="Assigned", poolRef={"name": "turns"})

    async with world.works():
        await until(world.cards, "the node to be opened")
        (sliced,) = world.ledger().cards
        assert (sliced.mode, sliced.capacity, sliced.pool) == ("TimeSlice", 8, "turns")

        fewer = {"spec": {"allocation": {"mode": "TimeSlice", "timeSlice": {"maxSlicesPerDevice": 2}}}}
        await world.api.patch(kinds.GPU_POOLS, "turns", fewer)
        await until(lambda: world.ledger().cards[0].capacity == 2, "the card to be shared by two")


async def test_a_card_whose_shares_cannot_be_enforced_is_withheld_until_they_can(world):
    await world.node()
    pool = {"metadata": {"name": "shared"}, "spec": {"allocation": {"mode": "MPS"}}}
    await world.create(kinds.GPU_POOLS, pool)
    share = await world.device(0, state="Assigned", poolRef={"name": "shared"})
    holder = await world.runs("running", share, percent=30)

    async def enforced(ready: bool) -> None:
        status = {"enforcement": {"by": "MPSClient", "ready": ready, "message": "as the agent says"}}
        await world.api.patch(kinds.GPU_DEVICES, share, {"status": status}, subresource="status")

    async with world.works("capacity"):
        await world.shows({share: (True, 30)})
        await enforced(False)
        await world.shows({share: (False, 30)})
        refused = ledger.give(world.ledger(), "ml/new/1", (CardGrant(share, 20),), HoldTerms())
        assert isinstance(refused, Refusal)
        assert world.ledger().grant(holder) == (CardGrant(share, 30),), "running pods keep their shares"

        await enforced(True)
        await world.shows({share: (True, 30)})
        await world.hold("ml/new/1", share, percent=20)
        await world.shows({share: (True, 50)})


async def test_the_ledger_of_a_deleted_node_is_closed_with_its_last_holder(world):
    await world.node(gpu=1)
    async with world.works():
        await world.shows({card(0): (True, 0)})
        pod = await world.pod("a", cards="1", ratio="50")
        await world.hold(world.holder(pod), card(0))

        await world.api.delete(kinds.NODES, NODE)
        await world.shows({card(0): (False, 50)})
        await world.delete("a")
        await until(lambda: world.manager.ledger(NODE) is None, "the node to be closed")

        await world.node(gpu=2)
        await world.shows({card(0): (True, 0), card(1): (True, 0)})


async def test_a_restarted_process_rebuilds_its_ledgers(world):
    await world.node(gpu=2)
    holder = await world.runs("a", card(1), percent=70)
    async with world.works("capacity"):
        await world.shows({card(0): (True, 0), card(1): (True, 70)})

    restarted = worlds.LedgerEnv(world.api, world.namespace, InMemoryCapacityManager())
    async with restarted.works("capacity"):
        await restarted.shows({card(0): (True, 0), card(1): (True, 70)})

    assert restarted.ledger() == world.ledger()
    assert restarted.ledger().grant(holder) == (CardGrant(card(1), 70),)


async def test_an_unchanged_node_is_not_written(world):
    await world.node(gpu=2)
    async with world.works():
        await world.shows({card(0): (True, 0), card(1): (True, 0)})
    before, changed = await world.record(), list[str]()
    world.manager.subscribe(changed.append)
    async with world.sees() as view:
        controller = CardSyncController(view, world.manager)
        await controller.reconcile(NODE)
        await world.api.patch(kinds.NODES, NODE, {"metadata": {"labels": {"beat": "one"}}})
        await until(lambda: _beat(view) == "one", "the cache to show the changed node")
        await controller.reconcile(NODE)

    assert (await world.record(), changed) == (before, [])


def _beat(view: ClusterView) -> str | None:
    node = view.node(NODE)
    return node.metadata.labels.get("beat") if node is not None else None
