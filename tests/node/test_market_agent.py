"""The agent of a node's market on a real API server: what it writes, leaves alone, and survives."""

import asyncio
import contextlib
import json
import random
import subprocess
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds, market_report
from croupier.controllers.limits.market_silence import MarketSilence
from croupier.controllers.limits.market_silence import Settings as Silence
from croupier.core.market.units import SECOND
from croupier.kube import client, config
from croupier.kube.client import Client, Selection
from croupier.kube.elector import NotLeading
from croupier.kube.errors import ApiError
from croupier.kube.store import Store
from croupier.lab import borrowed
from croupier.node.market.metrics import MarketMetrics
from tests.cli.command import CROUPIER
from tests.controllers.world import running, watched
from tests.kube.waiting import until
from tests.node.stall import QUICK, Stall, StoppedClock, stall

STATUS = (*CROUPIER, "market", "status", "--lease-namespace")


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


@pytest.fixture(scope="module")
def town(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for all stories: each leaves it as it came."""
    name = borrowed.create_namespace(cluster, "market-stories")
    yield name
    borrowed.delete_namespace(cluster, name, borrowed.namespaced(crds))


@pytest_asyncio.fixture
async def floor(api: Client, town: str, tmp_path: Any) -> AsyncIterator[Stall]:
    async with stall(api, town, tmp_path) as made:
        yield made


async def lease(floor: Stall) -> Any:
    return await floor.api.get(kinds.LEASES, market_report.lease_name(floor.node), namespace=floor.namespace)


async def test_a_throttled_pod_is_raised_in_an_object_of_its_own(floor):
    pod = await floor.pod("busy", wants=800)
    agent = floor.agent()

    await floor.seconds(agent, 2)

    written = floor.allocation("busy")
    assert written is not None
    assert written.spec.desired_cpu_limit == "400m", "twice what it had"
    assert (written.spec.namespace, written.spec.pod_name) == (floor.namespace, "busy")
    assert written.spec.node_name == floor.node
    owners = [(one.kind, one.name, one.uid) for one in written.metadata.owner_references]
    assert owners == [("Pod", "busy", pod.metadata.uid)]

    await floor.enforce("busy")
    await floor.seconds(agent)
    assert floor.desired("busy") == "800m"


async def test_an_idle_elastic_pod_falls_after_its_cool_down_and_not_below_its_request(floor):
    await floor.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    agent = floor.agent()

    await floor.seconds(agent, 2)
    assert floor.allocation("idle") is None, "it started a moment ago"

    for _ in range(8):
        await floor.seconds(agent, 4)
        if floor.allocation("idle") is not None:
            await floor.enforce("idle")
    assert floor.desired("idle") == "70m", "the rest is not worth a move"


async def test_a_new_agent_knows_what_pods_came_with(floor):
    await floor.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await floor.seconds(floor.agent(), 3)
    await floor.enforce("idle")
    assert floor.desired("idle") == "500m"

    second = floor.agent()
    await floor.seconds(second, 1)

    assert second.report is not None
    assert [(one.limit, one.original) for one in second.report.pods] == [("500m", "1")]


LEFT_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "it does not ask to take part": ({"labels": {}}, ""),
    "paused": ({"paused": "true"}, "paused by its owner"),
    "unreadable": ({"weight": "heavy"}, "BadAnnotation"),
    "at its own bound": ({"max_cpu": "200m"}, "the most it may have"),
}


@pytest.mark.parametrize(("how", "says"), LEFT_ALONE.values(), ids=LEFT_ALONE)
async def test_left_alone(floor, how, says):
    await floor.pod("one", wants=900, **how)
    await floor.seconds(agent := floor.agent(), 4)

    assert floor.allocation("one") is None
    assert agent.report is not None
    assert all(says in one.why for one in agent.report.pods)
    assert bool(agent.report.pods) == bool(says)


async def test_our_own_namespaces_are_never_touched(floor):
    await floor.pod("one", wants=900)
    agent = floor.agent(replace(QUICK, protected=frozenset({floor.namespace})))

    await floor.seconds(agent, 4)

    assert floor.allocation("one") is None
    assert "Protected" in agent.report.pods[0].why


async def test_what_a_person_wrote_stays(floor):
    await floor.pod("one", wants=900)
    spec = {"namespace": floor.namespace, "podName": "one", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "by-hand"}, "spec": spec}
    await floor.api.create(kinds.POD_ALLOCATIONS, body, namespace=floor.namespace)
    await floor.caught_up()

    await floor.seconds(agent := floor.agent(), 4)

    assert floor.desired("by-hand") == "200m"
    assert floor.allocation("one") is None
    assert "made by hand" in agent.report.pods[0].why


async def test_where_a_person_came_second_the_market_goes_on(floor):
    """The older one decides, and the controller says so: both cannot stand back for each other."""
    await floor.pod("busy", wants=900)
    await floor.seconds(agent := floor.agent(), 2)
    await floor.enforce("busy")
    spec = {"namespace": floor.namespace, "podName": "busy", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "by-hand"}, "spec": spec}
    await floor.api.create(kinds.POD_ALLOCATIONS, body, namespace=floor.namespace)
    await floor.caught_up()
    await floor.seconds(agent, 2)
    assert floor.desired("busy") == "400m", "nobody has said yet which of the two decides"

    said = {"status": {"phase": "Failed", "reason": "DuplicateAllocation: PodAllocation busy is older"}}
    await floor.api.patch(
        kinds.POD_ALLOCATIONS, "by-hand", said, namespace=floor.namespace, subresource="status"
    )
    await floor.caught_up()
    await floor.seconds(agent)

    assert floor.desired("busy") == "800m"


async def test_what_another_node_wrote_is_not_seen(floor):
    spec = {"namespace": floor.namespace, "podName": "elsewhere", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "elsewhere"}, "spec": {**spec, "nodeName": "another"}}
    await floor.api.create(kinds.POD_ALLOCATIONS, body, namespace=floor.namespace)
    await floor.pod("busy", wants=900)
    await floor.seconds(floor.agent(), 2)

    assert floor.allocation("busy") is not None
    assert floor.allocation("elsewhere") is None


async def test_what_was_written_counts_although_the_watch_does_not_show_it(floor):
    """In strict mode, for minutes: else the room it took would be given to the next, too."""
    await floor.pod("first", wants=900)
    await floor.pod("later", limit="300m")
    unseen = replace(floor.sources, allocations=Store(kinds.POD_ALLOCATIONS))
    agent = replace(floor, sources=unseen).agent(replace(QUICK, strict=True, target=175))  # 700m for 500m

    sums = []
    for second in range(60):
        floor.guests["first"].wants = 900 if second < 20 else 10
        floor.guests["later"].wants = 140 if second < 20 else 900
        await floor.seconds(agent)
        sums.append(strict_sum(floor))

    assert max(sums) == 700


async def test_a_pod_that_is_being_deleted_holds_its_limit_until_it_is_gone(floor):
    meta = {"metadata": {"finalizers": ["example.com/slow"]}}
    await floor.pod("going", limit="500m")
    await floor.pod("busy", wants=900)
    await floor.api.patch(kinds.PODS, "going", meta, namespace=floor.namespace)
    await floor.api.delete(kinds.PODS, "going", namespace=floor.namespace)
    await until(lambda: floor.sources.pods.named("going", floor.namespace).metadata.deletion_timestamp)
    try:
        agent = floor.agent(replace(QUICK, strict=True, target=175))
        await floor.seconds(agent, 5)
        assert not floor.desired("busy"), "all 700m are held"
    finally:
        freed = {"metadata": {"finalizers": None}}
        await floor.api.patch(kinds.PODS, "going", freed, namespace=floor.namespace)
    await until(lambda: not floor.sources.pods.named("going", floor.namespace), "it to be gone")
    await floor.seconds(agent)
    assert floor.desired("busy") == "400m"


async def test_a_dry_run_says_once_what_who_left_would_get_back(floor):
    await floor.pod("left", labels={})
    spec = {"namespace": floor.namespace, "podName": "left", "desiredCPULimit": "400m"}
    body = {"metadata": {"name": "left"}, "spec": {**spec, "nodeName": floor.node}}
    await floor.api.create(kinds.POD_ALLOCATIONS, body, namespace=floor.namespace)
    await floor.caught_up()
    registry = CollectorRegistry()

    await floor.seconds(floor.agent(dry_run=True, gauge=MarketMetrics(registry)), 5)

    assert registry.get_sample_value("mbcas_moves_total", {"direction": "down"}) == 1
    assert floor.desired("left") == "400m"


async def test_who_leaves_the_market_gets_back_what_it_came_with(floor):
    await floor.pod("busy", wants=900)
    await floor.seconds(agent := floor.agent(), 2)
    await floor.enforce("busy")
    assert floor.desired("busy") == "400m"

    gone = {"metadata": {"labels": {"mbcas.io/managed": None}}}
    await floor.api.patch(kinds.PODS, "busy", gone, namespace=floor.namespace)
    await until(lambda: not floor.sources.pods.named("busy", floor.namespace).metadata.labels)
    await floor.seconds(agent)

    assert floor.desired("busy") == "200m"


async def test_another_pod_of_the_same_name_is_another_pod(floor):
    """What was written for the first is on its way out, and means nothing to the second."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "busy", "uid": "11111111-2222-3333-4444-555555555555"}
    meta = {"name": "busy", "ownerReferences": [owner], "finalizers": ["example.com/slow"]}
    spec = {"namespace": floor.namespace, "podName": "busy", "desiredCPULimit": "900m"}
    body = {"metadata": meta, "spec": spec | {"nodeName": floor.node}}
    await floor.api.create(kinds.POD_ALLOCATIONS, body, namespace=floor.namespace)
    await floor.pod("busy", wants=900)
    await floor.caught_up()

    await floor.seconds(agent := floor.agent(), 2)
    assert agent.report.pods[0].limit == "400m", "as one that has 200m and is throttled"
    assert floor.desired("busy") == "900m", "and the other object is not touched"

    await floor.api.delete(kinds.POD_ALLOCATIONS, "busy", namespace=floor.namespace)
    freed = {"metadata": {"finalizers": None}}
    await floor.api.patch(kinds.POD_ALLOCATIONS, "busy", freed, namespace=floor.namespace)
    await until(lambda: floor.allocation("busy") is None, "the first one's to be gone")
    await floor.seconds(agent)
    assert floor.desired("busy") == "400m"


async def test_a_dry_run_writes_no_limit_and_tells_what_it_would_do(floor):
    await floor.pod("busy", wants=900)
    await floor.seconds(agent := floor.agent(dry_run=True), 8)

    assert floor.allocation("busy") is None
    found = await lease(floor)
    assert found.metadata.labels == {market_report.AGENT: market_report.WATCHING}
    told = market_report.read(found)
    assert told is not None
    assert told.dry_run
    assert told.pods[0].limit == "800m", "what it would come to, step by step"
    assert agent.report is not None


async def test_the_books_are_in_the_lease_and_a_person_can_read_them_or_that_there_are_none(floor, cluster):
    await floor.pod("busy", wants=900)
    await floor.pod("batch", wants=300, limit="1", weight="2", **{"class": "elastic"})
    await floor.seconds(floor.agent(), 2)

    found = await lease(floor)
    assert found.spec.holder_identity == floor.node
    assert found.spec.lease_duration_seconds == 120

    asked = [*STATUS, floor.namespace, "--kubeconfig", str(cluster.kubeconfig)]
    questions = [floor.node], [floor.node, "-o", "json"], ["nowhere"]
    shown, data, nowhere = await asyncio.gather(*(answered(*asked, *words) for words in questions))
    assert shown.returncode == 0, shown.stderr
    assert f"Node {floor.node}: 4 CPU" in shown.stdout
    assert "for sale (4 × the node)" in shown.stdout
    assert "SILENT" in shown.stdout, "its clock stands in January"
    busy = next(line for line in shown.stdout.splitlines() if "/busy" in line)
    assert "200m → 400m" in busy
    assert "is throttled in 100 % of its periods" in busy
    assert "█" in busy

    node = json.loads(data.stdout)["nodes"][0]
    assert node["alive"] is False
    assert {book["name"] for book in node["books"]} == {"latency", "elastic"}
    assert node["pods"][1]["pod"] == f"{floor.namespace}/busy"

    assert nowhere.returncode == 1
    assert nowhere.stderr == (
        "croupier: no market agent has run on node nowhere: start `croupier market run` there.\n"
    )


async def answered(*command: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)


async def test_a_blind_agent_gives_no_sign_of_life(floor):
    await floor.pod("busy", wants=900)
    (floor.mount / "kubepods").rename(floor.mount / "elsewhere")
    agent = floor.agent()
    floor.clock.seconds += 1
    await agent.round()

    listed = await floor.api.list(kinds.LEASES, Selection(floor.namespace))
    assert listed.items == []


async def test_figures_are_named_mbcas(floor):
    registry = CollectorRegistry()
    await floor.pod("busy", wants=900)
    await floor.seconds(floor.agent(gauge=MarketMetrics(registry)), 2)

    pod = {"namespace": floor.namespace, "pod": "busy"}
    assert registry.get_sample_value("mbcas_supply_cpu", {"book": "latency"}) == 16
    assert registry.get_sample_value("mbcas_moves_total", {"direction": "up"}) == 1
    assert registry.get_sample_value("mbcas_pod_limit_cpu", pod) == 0.4
    assert registry.get_sample_value("mbcas_pod_throttled_ratio", pod) == 1
    assert registry.get_sample_value("mbcas_tick_seconds_count") == 2


def strict_sum(floor: Stall) -> int:
    """The sum of max(desired, applied), in thousandths."""
    total = 0
    for name, guest in floor.guests.items():
        desired = floor.desired(name)
        told = (
            int(float(desired.removesuffix("m")) * (1 if desired.endswith("m") else 1000)) if desired else 0
        )
        total += max(told, guest.limit)
    return total


@pytest.mark.parametrize("seed", [1, 2])
async def test_strict_mode_never_promises_more_than_there_is(floor, seed):
    """Wishes change, limits land late or not at all for a while, and the agent is replaced now and then."""
    chance = random.Random(seed)  # noqa: S311  a dice, not a secret
    for index in range(6):
        kind = {"class": chance.choice(("latency", "elastic"))}
        await floor.pod(f"p{index}", wants=chance.randrange(900), limit="300m", **kind)
    policy = replace(QUICK, strict=True, target=600)  # 2400m for six pods with 300m each
    agent = floor.agent(policy)

    sums, moved = [strict_sum(floor)], 0
    for _ in range(25):
        done = await floor.seconds(agent)
        moved += sum(type(one).__name__ == "Move" for one in done.decisions)
        sums.append(strict_sum(floor))
        for name, guest in floor.guests.items():
            if floor.allocation(name) and chance.random() < 0.4:
                await floor.enforce(name)
            if chance.random() < 0.1:
                guest.wants = chance.randrange(900)
        sums.append(strict_sum(floor))
        if chance.random() < 0.1:
            agent = floor.agent(policy)

    assert moved > 6
    assert max(sums) <= 2400
    assert max(sums) > 1800, "what is there is also used"


async def test_killed_between_decreases_and_raises_nothing_is_lost(floor):
    """Its connection dies with the first write of the round; another agent goes on from what is there."""
    for name in ("a", "b", "c"):
        await floor.pod(name, wants=10, limit="1", **{"class": "elastic"})
    await floor.seconds(agent := floor.agent(), 2)
    written: list[str] = []

    def once() -> None:
        if written:
            raise NotLeading("killed")
        written.append("the first")

    doomed = floor.agent(api=floor.api.fenced(once))
    doomed._state = agent._state  # it is the same agent, on its last connection
    await floor.seconds(doomed, 2)
    assert len(written) == 1
    lowered = [name for name in ("a", "b", "c") if floor.desired(name)]
    assert len(lowered) == 1, "one of three decreases was written"
    await floor.enforce(lowered[0])

    again = floor.agent()
    for _ in range(6):
        await floor.seconds(again, 3)
        for name in ("a", "b", "c"):
            if floor.allocation(name):
                await floor.enforce(name)
    assert {floor.desired(name) for name in ("a", "b", "c")} == {"70m"}
    assert {one.original for one in again.report.pods} == {"1"}


@contextlib.asynccontextmanager
async def keeper(floor: Stall, clock: StoppedClock) -> AsyncIterator[MarketSilence]:
    trading = Selection(floor.namespace, labels=f"{market_report.AGENT}={market_report.TRADING}")
    async with (
        watched(floor.api, kinds.POD_ALLOCATIONS, Selection(floor.namespace)) as allocations,
        watched(floor.api, kinds.LEASES, trading) as leases,
    ):
        yield MarketSilence(allocations, leases, floor.api, Silence(clock=clock))


async def test_limits_go_back_when_the_agent_falls_silent(floor):
    await floor.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await floor.pod("busy", wants=900)
    await floor.seconds(agent := floor.agent(), 3)
    for name in ("idle", "busy"):
        await floor.enforce(name)
    assert floor.desired("idle") == "500m"
    clock = StoppedClock()

    async with keeper(floor, clock) as keeping:
        await keeping.reconcile(floor.node)
        clock.seconds += 119
        await keeping.reconcile(floor.node)
        await floor.caught_up()
        assert floor.desired("idle") == "500m", "not yet"

        await floor.seconds(agent)
        before = floor.desired("busy")
        renewed = (await lease(floor)).spec.renew_time
        await until(lambda: keeping._leases.get(floor.node)[0].spec.renew_time == renewed)
        await keeping.reconcile(floor.node)
        clock.seconds += 119
        await keeping.reconcile(floor.node)
        await floor.caught_up()
        assert floor.desired("idle") == "500m", "it was heard of meanwhile"

        clock.seconds += 2
        await keeping.reconcile(floor.node)
        await floor.caught_up()
        assert floor.desired("idle") == "1"
        assert floor.desired("busy") == before, "nobody loses what it was given"


async def test_silence_is_noticed_without_anybody_asking(floor):
    await floor.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await floor.seconds(floor.agent(), 3)
    await floor.enforce("idle")
    async with (
        watched(floor.api, kinds.POD_ALLOCATIONS, Selection(floor.namespace)) as allocations,
        watched(floor.api, kinds.LEASES, Selection(floor.namespace)) as leases,
    ):
        keeping = MarketSilence(allocations, leases, floor.api, Silence(patience=SECOND // 2))
        async with running(keeping.run(asyncio.Event())):
            await until(lambda: floor.desired("idle") == "1", "the limit to go back")


async def test_an_agent_that_only_watches_does_not_count_as_alive(floor):
    await floor.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await floor.seconds(floor.agent(), 3)
    await floor.enforce("idle")
    await floor.seconds(watching := floor.agent(dry_run=True))
    clock = StoppedClock()

    async with keeper(floor, clock) as keeping:
        for _ in range(3):
            await keeping.reconcile(floor.node)
            clock.seconds += 61
            await floor.seconds(watching)
        await keeping.reconcile(floor.node)
        await floor.caught_up()
        assert floor.desired("idle") == "1"


async def test_one_that_cannot_be_given_back_does_not_keep_the_others_from_it(floor):
    """Somebody's policy refuses the first; those after it must not starve for that."""
    for name in ("a", "b"):
        await floor.pod(name, wants=10, limit="1", **{"class": "elastic"})
    await floor.seconds(floor.agent(), 3)
    for name in ("a", "b"):
        await floor.enforce(name)
    clock, refused = StoppedClock(), floor.allocation("a")

    async with keeper(floor, clock) as keeping:
        keeping._allocations.get = lambda value: [  # type: ignore[method-assign]  # one that is gone by now
            msgspec.structs.replace(refused, metadata=msgspec.structs.replace(refused.metadata, uid=ANOTHER)),
            floor.allocation("b"),
        ]
        await keeping.reconcile(floor.node)
        clock.seconds += 121
        with pytest.raises(ApiError):
            await keeping.reconcile(floor.node)
        await floor.caught_up()
        assert floor.desired("b") == "1"


ANOTHER = "11111111-2222-3333-4444-555555555555"


async def test_what_a_person_wrote_is_not_given_back(floor):
    await floor.pod("one", limit="1")
    spec = {"namespace": floor.namespace, "podName": "one", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "one"}, "spec": spec}
    await floor.api.create(kinds.POD_ALLOCATIONS, body, namespace=floor.namespace)
    await floor.caught_up()
    await floor.enforce("one")
    clock = StoppedClock()

    async with keeper(floor, clock) as keeping:
        await keeping.reconcile(floor.node)
        clock.seconds += 3600
        await keeping.reconcile(floor.node)
        await floor.caught_up()
        assert floor.desired("one") == "200m"


def test_a_long_name_of_a_node_still_makes_a_lease():
    names = {market_report.lease_name("n" * 253), market_report.lease_name("n" * 252 + "m")}

    assert len(names) == 2
    assert all(len(name) <= 253 for name in names)
