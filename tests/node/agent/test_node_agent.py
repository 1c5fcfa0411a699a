"""The node agent on a real API server: what it serves, reports and waits for."""

import asyncio
import json

from croupier.api import kinds
from croupier.api.gpu.agent_report import ReportedHealth
from croupier.core.cards import card_health
from croupier.core.nodes.mps_daemon import DaemonRequest
from croupier.kube.client.api_client import DeleteOptions
from croupier.node.agent import gpu_labels
from croupier.node.agent.agent import NodeAgent
from croupier.node.cards import simulated_state
from croupier.node.mps.mps_control import MpsControl
from croupier.node.mps.mps_daemons import MpsDaemons
from croupier.node.mps.mps_folder import MpsFolder
from croupier.node.mps.share_enforcer import HamiCore, ShareEnforcer
from tests.controllers.ledger_env import running
from tests.node.agent_env import AgentEnv, at_work, layout
from tests.node.mps.mps_env import CardModes
from tests.node.simulated_env import OffsetClock
from tests.polling import until, until_async

SECONDS = 20

GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
SMALL = "nvidia.com/mig-1g.10gb"
WHOLE = {GPU: "4", PERCENT: "400"}


async def shows(env: AgentEnv, **wanted: str) -> None:
    """The node offers exactly these resources."""
    names = {"gpu": GPU, "percent": PERCENT, "small": SMALL}
    names |= {"two": "nvidia.com/mig-2g.20gb", "three": "nvidia.com/mig-3g.30gb"}
    expected = {names[key]: count for key, count in wanted.items()}

    def right() -> bool:
        offered = {name: count for name, count in env.allocatable().items() if count != "0"}
        return offered == expected

    try:
        await until(right, f"{env.node} to offer {expected}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it offers {env.allocatable()}") from None


async def bound(env: AgentEnv, name: str, card: int, percent: int = 50) -> None:
    """A pod on the node with an allocation."""
    main = {"name": "main", "image": "none", "resources": {"limits": {PERCENT: str(percent)}}}
    entry = {"card": env.card(card), "index": card, "percent": percent}
    meta = {"name": name, "annotations": {"gpu.mps.io/allocation": json.dumps([entry])}}
    spec = {"nodeName": env.node, "containers": [main], "terminationGracePeriodSeconds": 0}
    await env.api.create(kinds.PODS, {"metadata": meta, "spec": spec}, namespace=env.namespace)
    await until(lambda: env.pods.named(name, env.namespace), "the pod to be seen")


async def state(env: AgentEnv, index: int, wanted: str) -> str:
    """Wait for the partitioning state of a card and return its message."""

    async def right() -> bool:
        return any(card.index == index and card.cut.state == wanted for card in (await env.report()).cards)

    await until_async(right, f"card {index} to be {wanted}")
    return (await env.cut(index)).message


async def applied(env: AgentEnv) -> None:
    for index in range(4):
        await state(env, index, "Applied")


async def tells(env: AgentEnv, words: str) -> bool:
    return any(words in trouble for trouble in (await env.report()).troubles)


async def test_cards_are_repartitioned_by_annotation_and_the_result_is_reported(env):
    async with at_work(env):
        await shows(env, gpu="4", percent="400")
        await env.annotate(layout("small", [0, 1, 2, 3]))
        await shows(env, small="28")
        await env.annotate(layout("medium", [0, 1, 2, 3]))
        await shows(env, two="8", three="4")
        assert env.allocatable()[SMALL] == "0", "a removed resource is reported as 0"
        assert env.allocatable()[GPU] == "0"
        await until(lambda: env.shown().metadata.labels.get(gpu_labels.MIG_STATE) == "success", "the label")
        assert env.shown().metadata.labels["nvidia.com/mig-2g.20gb.count"] == "8"
        await until(lambda: env.condition("MIGLayoutApplied")[:2] == ("True", "Applied"), "the condition")

        await env.annotate(None)
        await until(lambda: env.condition("MIGLayoutApplied")[1] == "NothingAsked", "the condition")
        await shows(env, two="8", three="4")


async def test_cards_that_the_annotation_does_not_name_stay_unchanged(env):
    async with at_work(env):
        await env.annotate(layout(devices=[0], profiles=["2g.20gb", "2g.20gb"]))

        await shows(env, gpu="3", percent="300", two="2")


async def test_an_impossible_layout_is_refused_with_a_reason_and_the_old_layout_stays(env):
    async with at_work(env):
        await env.annotate(layout("medium"))
        await shows(env, two="8", three="4")

        await env.annotate(layout(profiles=["3g.30gb"] * 3))

        await until(lambda: env.condition("MIGLayoutApplied")[1] == "Refused", "the refusal")
        assert "a card can have at most 2 of 3g.30gb, not 3" in env.condition("MIGLayoutApplied")[2]
        await until(lambda: env.shown().metadata.labels.get(gpu_labels.MIG_STATE) == "failed", "the label")
        await shows(env, two="8", three="4")
        await until_async(lambda: tells(env, "at most 2 of 3g.30gb, not 3"), "the report to say so")


async def test_a_label_of_another_field_manager_stays_unchanged(env):
    theirs = {"metadata": {"labels": {f"{GPU}.product": "as-discovered", f"{GPU}.count": "4"}}}
    await env.api.with_field_manager("gpu-feature-discovery").patch(kinds.NODES, env.node, theirs)

    async with at_work(env):
        await until(lambda: f"{GPU}.memory" in env.shown().metadata.labels, "the agent's labels")

    labels = env.shown().metadata.labels
    assert labels[f"{GPU}.product"] == "as-discovered"
    assert labels[f"{GPU}.memory"] == "71680"
    assert labels[f"{GPU}.family"] == "hand-made"
    assert labels["gpu.deckhouse.io/device.03.device"] == "ff70"


async def test_without_a_ledger_a_card_is_repartitioned_after_its_last_pod_is_gone(env):
    await bound(env, "user", card=1)
    async with at_work(env):
        await env.annotate(layout("small"))

        message = await state(env, 1, "Waiting")
        assert message.endswith(f"waiting for {env.namespace}/user")
        await shows(env, small="21", percent="50")  # only the devices that the pod has
        await until(lambda: env.condition("MIGLayoutApplied")[:2] == ("False", "Waiting"), "the condition")

        at_once = DeleteOptions(grace_seconds=0)
        await env.api.delete(kinds.PODS, "user", namespace=env.namespace, how=at_once)
        await shows(env, small="28")


async def test_with_a_ledger_a_card_is_repartitioned_only_after_it_is_withdrawn(env):
    for index in range(4):
        await env.device(index, occupied="Withdrawn")
    async with at_work(env) as agent:
        await env.annotate(layout("small", [0, 1]))
        message = await state(env, 0, "Waiting")
        assert message.endswith("waiting for the ledger to withdraw the card")
        # The card was withdrawn before the change was announced, so it may be allocated again at any time.
        assert (await env.cut(0)).slots == ()

        announced = await env.cut(0)
        await env.device(0, announced, occupied="InUse")
        await env.device(1, announced, occupied="Withdrawn")
        await state(env, 1, "Applied")
        assert agent.report is not None
        assert [card.cut.state for card in agent.report.cards] == ["Waiting", "Applied", "Applied", "Applied"]

        await env.device(0, announced, occupied="Withdrawn")
        await shows(env, gpu="2", percent="200", small="14")


async def test_a_pool_decides_the_layout_and_the_resource_of_its_cards(env):
    async with at_work(env):
        await env.annotate(layout("small"))
        await env.pool("training", [0, 1], mode="MIG", migProfile="3g.30gb")
        await env.pool("shared", [2], mode="TimeSlice", timeSlice={"maxSlicesPerDevice": 4})
        await until(
            lambda: (
                {name: count for name, count in env.allocatable().items() if count != "0"}
                == {"gpu.deckhouse.io/training": "4", "gpu.deckhouse.io/shared": "4", SMALL: "7"}
            ),
            "the pools to be served",
        )

        await env.pool("training", [0, 1], mode="MIG", migLayout=[{"profile": "3g.30gb", "count": 3}])
        message = await state(env, 0, "Failed")
        assert message == "pool training: a card can have at most 2 of 3g.30gb, not 3"


async def test_a_failed_change_is_rolled_back_and_the_next_layout_is_tried(env):
    env.suffers(cards={0: {"fail": [3]}})
    async with at_work(env):
        await env.annotate(layout("small"))

        message = await state(env, 0, "Failed")
        assert "in use by another client" in message
        assert "its old layout is restored" in message
        assert (await env.cut(0)).slots == ()
        await until(lambda: env.shown().metadata.labels.get(gpu_labels.MIG_STATE) == "failed", "the label")
        for index in (1, 2, 3):
            await state(env, index, "Applied")

        await env.annotate(layout("medium"))
        await shows(env, two="8", three="4")


async def test_a_repartitioning_from_outside_is_repaired_only_after_the_card_is_withdrawn(env):
    async with at_work(env):
        await env.annotate(layout("small"))
        await shows(env, small="28")
        await applied(env)  # reported in the Lease, too
    for index in range(4):
        await env.device(index, occupied="Free")

    env.suffers(cards={2: {"cut": "3g.30gb:2"}})
    async with at_work(env) as agent:  # a restarted agent, which knows the past only from the Lease
        message = await state(env, 2, "Drifted")
        assert message.startswith("another program repartitioned the card: the layout is 3g.30gb:2")
        assert [slot.profile for slot in (await env.cut(2)).slots] == ["3g.30gb", "3g.30gb"]

        await env.device(2, await env.cut(2), occupied="Withdrawn")
        await state(env, 2, "Applied")
        assert agent.report is not None
        assert len(agent.report.cards[2].cut.slots) == 7


async def test_a_restarted_agent_finishes_the_change_of_a_killed_one(env):
    env.suffers(cards={"all": {"slow": 0.05}})
    async with at_work(env):
        await env.annotate(layout("small"))

        await state(env, 0, "Changing")
        await until((env.folder / "cards.json").exists, "a partly repartitioned card")
    env.suffers()

    async with at_work(env):
        await shows(env, small="28")
        await applied(env)


async def test_a_restarted_agent_leaves_a_card_to_the_mps_daemon_that_still_has_it(env, tmp_path):
    """The daemon of the agent before: this one has not looked after daemons yet when it plans layouts."""
    folder = MpsFolder(tmp_path / "mps")
    daemons = MpsDaemons(folder, MpsControl(), CardModes("ExclusiveProcess"), env.clock)
    left = folder.card(simulated_state.card_uuid(env.node, simulated_state.address(0)))
    left.prepare()
    left.write_request(DaemonRequest(1, run=True))
    await env.annotate(layout("small", [0, 1]))

    async with at_work(env, enforcement=ShareEnforcer(daemons, HamiCore(), env.clock)):
        await state(env, 1, "Applied")
        assert "waiting for the end of its MPS daemon" in await state(env, 0, "Waiting")
        assert (await env.cut(0)).slots == ()

        left.remove()
        await state(env, 0, "Applied")
        assert len((await env.cut(0)).slots) == 7


async def test_an_unhealthy_card_is_withdrawn_at_once_and_back_after_three_clean_heartbeats(env):
    async with at_work(env, beat=0.3):
        await shows(env, gpu="4", percent="400")

        env.suffers(cards={1: {"xid": 79}})
        await shows(env, gpu="3", percent="300")
        await until_async(lambda: reason(env, 1, "CriticalXID"), "the report to say so")
        health = (await env.report()).cards[1].health
        assert (health.healthy, health.xid, health.clean) == (False, 79, 0)

        env.suffers()
        await until_async(lambda: _clean(env, 1, 3), "three clean heartbeats")
        assert (await env.report()).beats == 3


async def test_an_xid_is_carried_over_restarts_of_the_agent_but_not_over_a_reboot(env):
    env.clock = clock = OffsetClock()
    env.suffers(cards={1: {"xid": 79}})
    async with at_work(env, boot="monday"):
        await until_async(lambda: reason(env, 1, "CriticalXID"), "the report to say so")
    env.suffers()  # a driver reports an XID once

    for _ in range(2):
        async with at_work(env, boot="monday") as agent:
            carried = await first_told(agent, 1)
            health = (carried.healthy, carried.reason, carried.xid, carried.clean)
            assert health == (False, "CriticalXID", 79, 0)
            await shows(env, gpu="3", percent="300")
    async with at_work(env, boot="monday", beat=0.3) as agent:
        assert not (await first_told(agent, 1)).healthy
        clock.ahead += card_health.XID_HOLD_SECONDS
        await shows(env, gpu="4", percent="400")
        await until_async(lambda: _clean(env, 1, 3), "three clean heartbeats")

    async with at_work(env, boot="monday") as agent:
        recovered = await first_told(agent, 1)
        assert (recovered.healthy, recovered.xid) == (True, 79)

    env.suffers(cards={1: {"xid": 79}})
    async with at_work(env, boot="monday"):
        await until_async(lambda: reason(env, 1, "CriticalXID"), "the report to say so")
    env.suffers()
    async with at_work(env, boot="tuesday") as agent:
        reset = await first_told(agent, 1)
        assert (reset.healthy, reset.xid) == (True, None)


async def first_told(agent: NodeAgent, index: int) -> ReportedHealth:
    """The health of a card in the first report of an agent."""
    await agent.started.wait()
    assert agent.report is not None
    return agent.report.cards[index].health


async def _clean(env: AgentEnv, index: int, beats: int) -> bool:
    clean: int = (await env.report()).cards[index].health.clean
    return clean == beats


async def reason(env: AgentEnv, index: int, wanted: str) -> bool:
    return any(card.index == index and card.health.reason == wanted for card in (await env.report()).cards)


async def test_all_cards_are_unhealthy_while_the_driver_does_not_answer(env):
    async with at_work(env, beat=0.3):
        await shows(env, gpu="4", percent="400")
        env.suffers(driver=False)
        await shows(env)
        for index in range(4):
            await until_async(lambda: reason(env, index, "DriverUnreachable"), "the report to say so")  # noqa: B023  # awaited here
        report = await env.report()
        assert (report.driver, report.beats) == ("", 0)
        env.suffers()
        await shows(env, gpu="4", percent="400")


async def test_nothing_is_written_while_nothing_changes(env):
    agent = env.agent()
    stop = asyncio.Event()
    async with running(agent.run(stop)):
        await shows(env, gpu="4", percent="400")
        await until(lambda: env.condition("GPUResourcesServed")[1] == "Served", "the condition")
    env.writes.clear()

    for _ in range(20):
        env.clock.monotonic()
        await again(agent)

    assert env.writes == []


async def again(agent: NodeAgent) -> None:
    """One more round of an agent whose loop has ended."""
    await agent._parts.cards.open()  # the loop closed the driver when it ended
    await agent.round()


async def test_a_heartbeat_of_an_unchanged_report_is_one_small_write(env):
    async with at_work(env, beat=0.3):
        await until(lambda: env.condition("GPUResourcesServed")[1] == "Served", "the condition")
        await until_async(lambda: _beats(env, 3), "three heartbeats")
        env.writes.clear()
        before = await _renewed(env)
        await until_async(lambda: _later(env, before), "another heartbeat")

    assert set(env.writes) == {"patch leases.coordination.k8s.io"}


async def _beats(env: AgentEnv, count: int) -> bool:
    return (await env.report()).beats == count


async def _renewed(env: AgentEnv) -> str:
    lease = await env.api.get(kinds.LEASES, f"gpu-node-{env.node}", namespace=env.namespace)
    return lease.spec.renew_time


async def _later(env: AgentEnv, before: str) -> bool:
    return await _renewed(env) > before
