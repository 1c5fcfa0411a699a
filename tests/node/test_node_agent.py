"""The agent of a node on a real API server: what it serves, tells, waits for and never does twice."""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.gpu.agent_report import CardHealth
from croupier.core.cards import vitality
from croupier.kube.client import Deletion
from croupier.lab import borrowed
from croupier.lab.cluster import Cluster
from croupier.node.agent import features
from croupier.node.agent.agent import Agent
from tests.controllers.world import running
from tests.kube.waiting import until, until_async
from tests.node.agent_house import House, house, layout
from tests.node.simulation import Later

GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
SMALL = "nvidia.com/mig-1g.10gb"
WHOLE = {GPU: "4", PERCENT: "400"}


@pytest.fixture(scope="module")
def ours(cluster: Cluster, crds: Any) -> Iterator[str]:
    """Where Leases and the ConfigMaps of pools are."""
    name = borrowed.create_namespace(cluster, "agents")
    yield name
    borrowed.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def hall(cluster: Cluster, ours: str, tmp_path: Path) -> AsyncIterator[House]:
    name = f"gpu-{secrets.token_hex(3)}"
    async with house(cluster.kubeconfig, name, ours, tmp_path) as made:
        body = {"metadata": {"name": name, "labels": {f"{GPU}.family": "hand-made"}}}
        await made.api.create(kinds.NODES, body)
        await until(lambda: made.nodes.named(name), "the node to be seen")
        try:
            yield made
        finally:
            await made.leaves()


@contextlib.asynccontextmanager
async def at_work(hall: House, **more: Any) -> AsyncIterator[Agent]:
    """It ends as one that is killed."""
    agent = hall.agent(**more)
    stores = (hall.nodes, hall.pods, hall.devices, hall.maps)
    ends = [store.subscribe(lambda _: agent.wake()) for store in stores]
    async with running(agent.run(asyncio.Event())):
        yield agent
    for end in ends:
        end()


async def shows(hall: House, **wanted: str) -> None:
    """The node offers these and, of what it ever offered beside them, nothing."""
    names = {"gpu": GPU, "percent": PERCENT, "small": SMALL}
    names |= {"two": "nvidia.com/mig-2g.20gb", "three": "nvidia.com/mig-3g.30gb"}
    expected = {names[key]: count for key, count in wanted.items()}

    def right() -> bool:
        offered = {name: count for name, count in hall.allocatable().items() if count != "0"}
        return offered == expected

    try:
        await until(right, f"{hall.node} to offer {expected}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it offers {hall.allocatable()}") from None


async def bound(hall: House, name: str, card: int, percent: int = 50) -> None:
    """A pod of the node, with the allocation that came with its Binding."""
    main = {"name": "main", "image": "none", "resources": {"limits": {PERCENT: str(percent)}}}
    entry = {"card": hall.card(card), "index": card, "percent": percent}
    meta = {"name": name, "annotations": {"gpu.mps.io/allocation": json.dumps([entry])}}
    spec = {"nodeName": hall.node, "containers": [main], "terminationGracePeriodSeconds": 0}
    await hall.api.create(kinds.PODS, {"metadata": meta, "spec": spec}, namespace=hall.namespace)
    await until(lambda: hall.pods.named(name, hall.namespace), "the pod to be seen")


async def state(hall: House, index: int, wanted: str) -> str:
    """Wait for the state of a card; what its message says."""

    async def right() -> bool:
        return any(one.index == index and one.cut.state == wanted for one in (await hall.report()).cards)

    await until_async(right, f"card {index} to be {wanted}")
    return (await hall.cut(index)).message


async def applied(hall: House) -> None:
    for index in range(4):
        await state(hall, index, "Applied")


async def tells(hall: House, words: str) -> bool:
    return any(words in trouble for trouble in (await hall.report()).troubles)


async def test_the_node_is_cut_as_its_annotation_says_and_tells_so(hall):
    async with at_work(hall):
        await shows(hall, gpu="4", percent="400")
        await hall.annotate(layout("small", [0, 1, 2, 3]))
        await shows(hall, small="28")
        await hall.annotate(layout("medium", [0, 1, 2, 3]))
        await shows(hall, two="8", three="4")
        assert hall.allocatable()[SMALL] == "0", "what is gone is told as 0"
        assert hall.allocatable()[GPU] == "0"
        await until(lambda: hall.shown().metadata.labels.get(features.MIG_STATE) == "success", "the label")
        assert hall.shown().metadata.labels["nvidia.com/mig-2g.20gb.count"] == "8"
        await until(lambda: hall.condition("MIGLayoutApplied")[:2] == ("True", "Applied"), "the condition")

        await hall.annotate(None)
        await until(lambda: hall.condition("MIGLayoutApplied")[1] == "NothingAsked", "the condition")
        await shows(hall, two="8", three="4")


async def test_cards_the_annotation_does_not_name_stay_as_they_are(hall):
    async with at_work(hall):
        await hall.annotate(layout(devices=[0], profiles=["2g.20gb", "2g.20gb"]))

        await shows(hall, gpu="3", percent="300", two="2")


async def test_an_impossible_layout_is_refused_with_the_reason_and_the_old_one_stays(hall):
    async with at_work(hall):
        await hall.annotate(layout("medium"))
        await shows(hall, two="8", three="4")

        await hall.annotate(layout(profiles=["3g.30gb"] * 3))

        await until(lambda: hall.condition("MIGLayoutApplied")[1] == "Refused", "the refusal")
        assert "a card can have 2 of 3g.30gb at most, not 3" in hall.condition("MIGLayoutApplied")[2]
        await until(lambda: hall.shown().metadata.labels.get(features.MIG_STATE) == "failed", "the label")
        await shows(hall, two="8", three="4")
        await until_async(lambda: tells(hall, "at most, not 3"), "the report to say so")


async def test_a_label_that_somebody_else_wrote_stays_theirs(hall):
    theirs = {"metadata": {"labels": {f"{GPU}.product": "as-discovered", f"{GPU}.count": "4"}}}
    await hall.api.acting_as("gpu-feature-discovery").patch(kinds.NODES, hall.node, theirs)

    async with at_work(hall):
        await until(lambda: f"{GPU}.memory" in hall.shown().metadata.labels, "our labels")

    labels = hall.shown().metadata.labels
    assert labels[f"{GPU}.product"] == "as-discovered"
    assert labels[f"{GPU}.memory"] == "71680"
    assert labels[f"{GPU}.family"] == "hand-made"
    assert labels["gpu.deckhouse.io/device.03.device"] == "ff70"


async def test_without_a_ledger_a_card_is_cut_when_its_last_pod_is_gone(hall):
    await bound(hall, "user", card=1)
    async with at_work(hall):
        await hall.annotate(layout("small"))

        message = await state(hall, 1, "Waiting")
        assert message.endswith(f"waits for {hall.namespace}/user")
        await shows(hall, small="21", percent="50")  # what the pod has, and nothing for anybody else
        await until(lambda: hall.condition("MIGLayoutApplied")[:2] == ("False", "Waiting"), "the condition")

        at_once = Deletion(grace_seconds=0)
        await hall.api.delete(kinds.PODS, "user", namespace=hall.namespace, how=at_once)
        await shows(hall, small="28")


async def test_where_there_is_a_ledger_nothing_is_cut_before_it_has_withdrawn_the_card(hall):
    for index in range(4):
        await hall.device(index, occupied="Withdrawn")
    async with at_work(hall) as agent:
        await hall.annotate(layout("small", [0, 1]))
        message = await state(hall, 0, "Waiting")
        assert message.endswith("waits until the ledger has withdrawn it")
        # Withdrawn before anybody could know what for: somebody may get the card any moment.
        assert (await hall.cut(0)).slots == ()

        told = await hall.cut(0)
        await hall.device(0, told, occupied="InUse")
        await hall.device(1, told, occupied="Withdrawn")
        await state(hall, 1, "Applied")
        assert agent.report is not None
        assert [one.cut.state for one in agent.report.cards] == ["Waiting", "Applied", "Applied", "Applied"]

        await hall.device(0, told, occupied="Withdrawn")
        await shows(hall, gpu="2", percent="200", small="14")


async def test_a_pool_decides_how_its_cards_are_cut_and_what_they_are_called(hall):
    async with at_work(hall):
        await hall.annotate(layout("small"))
        await hall.pool("training", [0, 1], mode="MIG", migProfile="3g.30gb")
        await hall.pool("shared", [2], mode="TimeSlice", timeSlice={"maxSlicesPerDevice": 4})
        await until(
            lambda: (
                {name: count for name, count in hall.allocatable().items() if count != "0"}
                == {"gpu.deckhouse.io/training": "4", "gpu.deckhouse.io/shared": "4", SMALL: "7"}
            ),
            "the pools to be served",
        )

        await hall.pool("training", [0, 1], mode="MIG", migLayout=[{"profile": "3g.30gb", "count": 3}])
        message = await state(hall, 0, "Failed")
        assert message == "pool training: a card can have 2 of 3g.30gb at most, not 3"


async def test_a_change_that_fails_leaves_the_card_as_it_was_and_the_next_wish_is_tried(hall):
    hall.suffers(cards={0: {"fail": [3]}})
    async with at_work(hall):
        await hall.annotate(layout("small"))

        message = await state(hall, 0, "Failed")
        assert "in use by another client" in message
        assert "its old layout is restored" in message
        assert (await hall.cut(0)).slots == ()
        await until(lambda: hall.shown().metadata.labels.get(features.MIG_STATE) == "failed", "the label")
        for index in (1, 2, 3):
            await state(hall, index, "Applied")

        await hall.annotate(layout("medium"))
        await shows(hall, two="8", three="4")


async def test_what_somebody_else_cut_is_drift_and_repaired_only_once_the_card_is_withdrawn(hall):
    async with at_work(hall):
        await hall.annotate(layout("small"))
        await shows(hall, small="28")
        await applied(hall)  # told in the Lease, too
    for index in range(4):
        await hall.device(index, occupied="Free")

    hall.suffers(cards={2: {"cut": "3g.30gb:2"}})
    async with at_work(hall) as agent:  # another one, that knows of the past by the Lease alone
        message = await state(hall, 2, "Drifted")
        assert message.startswith("somebody else has cut it: it is cut 3g.30gb:2, and annotation")
        assert [slot.profile for slot in (await hall.cut(2)).slots] == ["3g.30gb", "3g.30gb"]

        await hall.device(2, await hall.cut(2), occupied="Withdrawn")
        await state(hall, 2, "Applied")
        assert agent.report is not None
        assert len(agent.report.cards[2].cut.slots) == 7


async def test_an_agent_killed_in_the_middle_of_a_change_is_followed_by_one_that_ends_it(hall):
    hall.suffers(cards={"all": {"slow": 0.05}})
    async with at_work(hall):
        await hall.annotate(layout("small"))

        await state(hall, 0, "Changing")
        await until((hall.folder / "cards.json").exists, "a card that is half cut")
    hall.suffers()

    async with at_work(hall):
        await shows(hall, small="28")
        await applied(hall)


async def test_a_sick_card_is_withdrawn_at_once_and_back_after_three_clean_heartbeats(hall):
    async with at_work(hall, beat=0.3):
        await shows(hall, gpu="4", percent="400")

        hall.suffers(cards={1: {"xid": 79}})
        await shows(hall, gpu="3", percent="300")
        await until_async(lambda: reason(hall, 1, "CriticalXID"), "the report to say so")
        sick = (await hall.report()).cards[1].health
        assert (sick.healthy, sick.xid, sick.clean) == (False, 79, 0)

        hall.suffers()
        await until_async(lambda: _clean(hall, 1, 3), "three clean heartbeats")
        assert (await hall.report()).beats == 3


async def test_an_xid_outlives_the_agent_that_was_told_of_it_and_the_next_but_no_reboot(hall):
    hall.clock = clock = Later()
    hall.suffers(cards={1: {"xid": 79}})
    async with at_work(hall, boot="monday"):
        await until_async(lambda: reason(hall, 1, "CriticalXID"), "the report to say so")
    hall.suffers()  # a driver tells of it once

    for _ in range(2):
        async with at_work(hall, boot="monday") as agent:
            sick = await first_told(agent, 1)
            assert (sick.healthy, sick.reason, sick.xid, sick.clean) == (False, "CriticalXID", 79, 0)
            await shows(hall, gpu="3", percent="300")
    async with at_work(hall, boot="monday", beat=0.3) as agent:
        assert not (await first_told(agent, 1)).healthy
        clock.ahead += vitality.HELD
        await shows(hall, gpu="4", percent="400")
        await until_async(lambda: _clean(hall, 1, 3), "three clean heartbeats")

    async with at_work(hall, boot="monday") as agent:
        well = await first_told(agent, 1)
        assert (well.healthy, well.xid) == (True, 79)

    hall.suffers(cards={1: {"xid": 79}})
    async with at_work(hall, boot="monday"):
        await until_async(lambda: reason(hall, 1, "CriticalXID"), "the report to say so")
    hall.suffers()
    async with at_work(hall, boot="tuesday") as agent:
        reset = await first_told(agent, 1)
        assert (reset.healthy, reset.xid) == (True, None)


async def first_told(agent: Agent, index: int) -> CardHealth:
    """How a card fares by the first round of an agent."""
    await agent.begun.wait()
    assert agent.report is not None
    return agent.report.cards[index].health


async def _clean(hall: House, index: int, beats: int) -> bool:
    clean: int = (await hall.report()).cards[index].health.clean
    return clean == beats


async def reason(hall: House, index: int, wanted: str) -> bool:
    return any(one.index == index and one.health.reason == wanted for one in (await hall.report()).cards)


async def test_a_driver_that_does_not_answer_makes_every_card_unfit_and_is_told(hall):
    async with at_work(hall, beat=0.3):
        await shows(hall, gpu="4", percent="400")
        hall.suffers(driver=False)
        await shows(hall)
        for index in range(4):
            await until_async(lambda: reason(hall, index, "DriverUnreachable"), "the report to say so")  # noqa: B023  # awaited here
        told = await hall.report()
        assert (told.driver, told.beats) == ("", 0)
        hall.suffers()
        await shows(hall, gpu="4", percent="400")


async def test_nothing_is_written_while_nothing_changes(hall):
    agent = hall.agent()
    stop = asyncio.Event()
    async with running(agent.run(stop)):
        await shows(hall, gpu="4", percent="400")
        await until(lambda: hall.condition("GPUResourcesServed")[1] == "Served", "all to be told")
    hall.writes.clear()

    for _ in range(20):
        hall.clock.monotonic()
        await again(agent)

    assert hall.writes == []


async def again(agent: Agent) -> None:
    """One more round of an agent whose loop has ended."""
    await agent._parts.cards.open()  # the loop closed them when it was ended
    await agent.round()


async def test_a_heartbeat_of_an_unchanged_report_is_one_small_write(hall):
    async with at_work(hall, beat=0.3):
        await until(lambda: hall.condition("GPUResourcesServed")[1] == "Served", "all to be told")
        await until_async(lambda: _beats(hall, 3), "three heartbeats")
        hall.writes.clear()
        before = await _renewed(hall)
        await until_async(lambda: _later(hall, before), "another heartbeat")

    assert set(hall.writes) == {"patch leases.coordination.k8s.io"}


async def _beats(hall: House, count: int) -> bool:
    return (await hall.report()).beats == count


async def _renewed(hall: House) -> str:
    lease = await hall.api.get(kinds.LEASES, f"gpu-node-{hall.node}", namespace=hall.namespace)
    return lease.spec.renew_time


async def _later(hall: House, before: str) -> bool:
    return await _renewed(hall) > before
