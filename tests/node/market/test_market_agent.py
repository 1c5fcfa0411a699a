"""The market agent on a real API server: its writes, what it does not change, and restarts."""

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
from croupier.controllers.limits.restore_limits import RestoreLimitsController
from croupier.controllers.limits.restore_limits import RestoreLimitsOptions as RestoreOptions
from croupier.core.market.model import SetLimit
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import ApiError
from croupier.kube.controller.leader_election import NotLeader
from croupier.node.market.metrics import MarketMetrics
from croupier_lab import shared_cluster
from tests.cli.command import CROUPIER
from tests.controllers.ledger_env import running, watched
from tests.node.market_env import QUICK, ManualMarketClock, MarketEnv, market_env
from tests.polling import until

SECONDS = 30

STATUS = (*CROUPIER, "market", "status", "--lease-namespace")


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


@pytest.fixture(scope="module")
def pod_namespace(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for all tests; each cleans up."""
    name = shared_cluster.create_namespace(cluster, "market-stories")
    yield name
    shared_cluster.delete_namespace(cluster, name, shared_cluster.namespaced(crds))


@pytest_asyncio.fixture
async def env(api: Client, pod_namespace: str, tmp_path: Any) -> AsyncIterator[MarketEnv]:
    async with market_env(api, pod_namespace, tmp_path) as made:
        yield made


async def lease(env: MarketEnv) -> Any:
    return await env.api.get(kinds.LEASES, market_report.LEASE.name(env.node), namespace=env.namespace)


async def test_a_throttled_pod_is_raised_by_its_own_podallocation(env):
    pod = await env.pod("busy", wants=800)
    agent = env.agent()

    await env.seconds(agent, 2)

    written = env.allocation("busy")
    assert written is not None
    assert written.spec.desired_cpu_limit == "400m", "twice the original"
    assert (written.spec.namespace, written.spec.pod_name) == (env.namespace, "busy")
    assert written.spec.node_name == env.node
    owners = [
        (reference.kind, reference.name, reference.uid) for reference in written.metadata.owner_references
    ]
    assert owners == [("Pod", "busy", pod.metadata.uid)]

    await env.enforce("busy")
    await env.seconds(agent)
    assert env.desired("busy") == "800m"


async def test_an_idle_elastic_pod_is_lowered_after_its_cool_down_and_not_below_its_request(env):
    await env.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    agent = env.agent()

    await env.seconds(agent, 2)
    assert env.allocation("idle") is None, "it started recently"

    for _ in range(8):
        await env.seconds(agent, 4)
        if env.allocation("idle") is not None:
            await env.enforce("idle")
    assert env.desired("idle") == "70m", "the rest is too small for a resize"


async def test_a_restarted_agent_knows_the_original_limits(env):
    await env.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await env.seconds(env.agent(), 3)
    await env.enforce("idle")
    assert env.desired("idle") == "500m"

    second = env.agent()
    await env.seconds(second, 1)

    assert second.report is not None
    assert [(pod.limit, pod.original) for pod in second.report.pods] == [("500m", "1")]


LEFT_ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "it does not ask to take part": ({"labels": {}}, ""),
    "paused": ({"paused": "true"}, "paused by its owner"),
    "an invalid annotation": ({"weight": "heavy"}, "BadAnnotation"),
    "at its own maximum": ({"max_cpu": "200m"}, "its maximum is 200m"),
}


@pytest.mark.parametrize(("how", "says"), LEFT_ALONE.values(), ids=LEFT_ALONE)
async def test_not_changed(env, how, says):
    await env.pod("one", wants=900, **how)
    await env.seconds(agent := env.agent(), 4)

    assert env.allocation("one") is None
    assert agent.report is not None
    assert all(says in pod.why for pod in agent.report.pods)
    assert bool(agent.report.pods) == bool(says)


async def test_protected_namespaces_are_never_managed(env):
    await env.pod("one", wants=900)
    agent = env.agent(replace(QUICK, protected=frozenset({env.namespace})))

    await env.seconds(agent, 4)

    assert env.allocation("one") is None
    assert "Protected" in agent.report.pods[0].why


async def test_a_podallocation_by_hand_is_not_changed(env):
    await env.pod("one", wants=900)
    spec = {"namespace": env.namespace, "podName": "one", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "by-hand"}, "spec": spec}
    await env.api.create(kinds.POD_ALLOCATIONS, body, namespace=env.namespace)
    await env.caught_up()

    await env.seconds(agent := env.agent(), 4)

    assert env.desired("by-hand") == "200m"
    assert env.allocation("one") is None
    assert "created by hand" in agent.report.pods[0].why


async def test_the_market_continues_if_its_podallocation_is_older(env):
    """The older one takes precedence, as the controller reports: they must not wait for each other."""
    await env.pod("busy", wants=900)
    await env.seconds(agent := env.agent(), 2)
    await env.enforce("busy")
    spec = {"namespace": env.namespace, "podName": "busy", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "by-hand"}, "spec": spec}
    await env.api.create(kinds.POD_ALLOCATIONS, body, namespace=env.namespace)
    await env.caught_up()
    await env.seconds(agent, 2)
    assert env.desired("busy") == "400m", "the controller has not reported yet which one takes precedence"

    said = {"status": {"phase": "Failed", "reason": "DuplicateAllocation: PodAllocation busy is older"}}
    await env.api.patch(kinds.POD_ALLOCATIONS, "by-hand", said, namespace=env.namespace, subresource="status")
    await env.caught_up()
    await env.seconds(agent)

    assert env.desired("busy") == "800m"


async def test_podallocations_of_other_nodes_are_not_watched(env):
    spec = {"namespace": env.namespace, "podName": "elsewhere", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "elsewhere"}, "spec": {**spec, "nodeName": "another"}}
    await env.api.create(kinds.POD_ALLOCATIONS, body, namespace=env.namespace)
    await env.pod("busy", wants=900)
    await env.seconds(env.agent(), 2)

    assert env.allocation("busy") is not None
    assert env.allocation("elsewhere") is None


async def test_a_written_limit_counts_before_the_watch_delivers_it(env):
    """In strict mode, for minutes: otherwise its CPU would be granted to another pod, too."""
    await env.pod("first", wants=900)
    await env.pod("later", limit="300m")
    unseen = replace(env.sources, allocations=Store(kinds.POD_ALLOCATIONS))
    agent = replace(env, sources=unseen).agent(replace(QUICK, strict=True, target=175))  # 700m for 500m

    sums = []
    for second in range(60):
        env.guests["first"].wants = 900 if second < 20 else 10
        env.guests["later"].wants = 140 if second < 20 else 900
        await env.seconds(agent)
        sums.append(strict_sum(env))

    assert max(sums) == 700


async def test_a_terminating_pod_holds_its_limit_until_it_is_deleted(env):
    meta = {"metadata": {"finalizers": ["example.com/slow"]}}
    await env.pod("going", limit="500m")
    await env.pod("busy", wants=900)
    await env.api.patch(kinds.PODS, "going", meta, namespace=env.namespace)
    await env.api.delete(kinds.PODS, "going", namespace=env.namespace)
    await until(lambda: env.sources.pods.named("going", env.namespace).metadata.deletion_timestamp)
    try:
        agent = env.agent(replace(QUICK, strict=True, target=175))
        await env.seconds(agent, 5)
        assert not env.desired("busy"), "all 700m are held"
    finally:
        freed = {"metadata": {"finalizers": None}}
        await env.api.patch(kinds.PODS, "going", freed, namespace=env.namespace)
    await until(lambda: not env.sources.pods.named("going", env.namespace), "it to be gone")
    await env.seconds(agent)
    assert env.desired("busy") == "400m"


async def test_a_dry_run_logs_a_restored_limit_once(env):
    await env.pod("left", labels={})
    spec = {"namespace": env.namespace, "podName": "left", "desiredCPULimit": "400m"}
    body = {"metadata": {"name": "left"}, "spec": {**spec, "nodeName": env.node}}
    await env.api.create(kinds.POD_ALLOCATIONS, body, namespace=env.namespace)
    await env.caught_up()
    registry = CollectorRegistry()

    await env.seconds(env.agent(dry_run=True, metrics=MarketMetrics(registry)), 5)

    assert registry.get_sample_value("mbcas_limit_writes_total", {"direction": "down"}) == 1
    assert env.desired("left") == "400m"


async def test_a_pod_that_leaves_the_market_gets_its_original_limit(env):
    await env.pod("busy", wants=900)
    await env.seconds(agent := env.agent(), 2)
    await env.enforce("busy")
    assert env.desired("busy") == "400m"

    gone = {"metadata": {"labels": {"mbcas.io/managed": None}}}
    await env.api.patch(kinds.PODS, "busy", gone, namespace=env.namespace)
    await until(lambda: not env.sources.pods.named("busy", env.namespace).metadata.labels)
    await env.seconds(agent)

    assert env.desired("busy") == "200m"


async def test_a_recreated_pod_starts_without_history(env):
    """The PodAllocation of the first pod will be garbage-collected and does not apply to the second."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "busy", "uid": "11111111-2222-3333-4444-555555555555"}
    meta = {"name": "busy", "ownerReferences": [owner], "finalizers": ["example.com/slow"]}
    spec = {"namespace": env.namespace, "podName": "busy", "desiredCPULimit": "900m"}
    body = {"metadata": meta, "spec": spec | {"nodeName": env.node}}
    await env.api.create(kinds.POD_ALLOCATIONS, body, namespace=env.namespace)
    await env.pod("busy", wants=900)
    await env.caught_up()

    await env.seconds(agent := env.agent(), 2)
    assert agent.report.pods[0].limit == "400m", "like a throttled pod with 200m"
    assert env.desired("busy") == "900m", "the other object is unchanged"

    await env.api.delete(kinds.POD_ALLOCATIONS, "busy", namespace=env.namespace)
    freed = {"metadata": {"finalizers": None}}
    await env.api.patch(kinds.POD_ALLOCATIONS, "busy", freed, namespace=env.namespace)
    await until(lambda: env.allocation("busy") is None, "the first one's to be gone")
    await env.seconds(agent)
    assert env.desired("busy") == "400m"


async def test_a_dry_run_writes_no_limit_and_reports_its_decisions(env):
    await env.pod("busy", wants=900)
    await env.seconds(agent := env.agent(dry_run=True), 8)

    assert env.allocation("busy") is None
    found = await lease(env)
    assert found.metadata.labels == {market_report.AGENT_LABEL: market_report.DRY_RUN}
    told = market_report.LEASE.decode(found)
    assert told is not None
    assert told.dry_run
    assert told.pods[0].limit == "800m", "the result of several steps"
    assert agent.report is not None


async def test_market_status_shows_the_report_in_the_lease(env, cluster):
    await env.pod("busy", wants=900)
    await env.pod("batch", wants=300, limit="1", weight="2", **{"class": "elastic"})
    await env.seconds(env.agent(), 2)

    found = await lease(env)
    assert found.spec.holder_identity == env.node
    assert found.spec.lease_duration_seconds == 120

    asked = [*STATUS, env.namespace, "--kubeconfig", str(cluster.kubeconfig)]
    questions = [env.node], [env.node, "-o", "json"], ["nowhere"]
    shown, data, nowhere = await asyncio.gather(*(answered(*asked, *words) for words in questions))
    assert shown.returncode == 0, shown.stderr
    assert f"Node {env.node}: 4 CPU" in shown.stdout
    assert "(4 × the node)" in shown.stdout
    assert "no heartbeat" in shown.stdout, "its clock is in January"
    busy = next(line for line in shown.stdout.splitlines() if "/busy" in line)
    assert "200m → 400m" in busy
    assert "is throttled in 100 % of its periods" in busy
    assert "█" in busy

    node = json.loads(data.stdout)["nodes"][0]
    assert node["alive"] is False
    assert {book["name"] for book in node["books"]} == {"latency", "elastic"}
    assert node["pods"][1]["pod"] == f"{env.namespace}/busy"

    assert nowhere.returncode == 1
    assert nowhere.stderr == (
        "croupier: no market agent has run on node nowhere: start `croupier market run` there.\n"
    )


async def answered(*command: str) -> "subprocess.CompletedProcess[str]":
    return await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)


async def test_an_agent_without_counters_sends_no_heartbeat(env):
    await env.pod("busy", wants=900)
    (env.mount / "kubepods").rename(env.mount / "elsewhere")
    agent = env.agent()
    env.clock.seconds += 1
    await agent.round()

    listed = await env.api.list(kinds.LEASES, Selection(env.namespace))
    assert listed.items == []


async def test_metrics_are_named_mbcas(env):
    registry = CollectorRegistry()
    await env.pod("busy", wants=900)
    await env.seconds(env.agent(metrics=MarketMetrics(registry)), 2)

    pod = {"namespace": env.namespace, "pod": "busy"}
    assert registry.get_sample_value("mbcas_supply_cores", {"class": "latency"}) == 16
    assert registry.get_sample_value("mbcas_limit_writes_total", {"direction": "up"}) == 1
    assert registry.get_sample_value("mbcas_pod_limit_cores", pod) == 0.4
    assert registry.get_sample_value("mbcas_pod_throttled_ratio", pod) == 1
    assert registry.get_sample_value("mbcas_round_duration_seconds_count") == 2


def strict_sum(env: MarketEnv) -> int:
    """The sum of max(desired, applied), in thousandths."""
    total = 0
    for name, guest in env.guests.items():
        desired = env.desired(name)
        told = (
            int(float(desired.removesuffix("m")) * (1 if desired.endswith("m") else 1000)) if desired else 0
        )
        total += max(told, guest.limit)
    return total


@pytest.mark.parametrize("seed", [1, 2])
async def test_strict_mode_never_exceeds_the_supply(env, seed):
    """Demands change, limits are applied late or not at all, and the agent is sometimes replaced."""
    chance = random.Random(seed)  # noqa: S311  a dice, not a secret
    for index in range(6):
        kind = {"class": chance.choice(("latency", "elastic"))}
        await env.pod(f"p{index}", wants=chance.randrange(900), limit="300m", **kind)
    policy = replace(QUICK, strict=True, target=600)  # 2400m for six pods with 300m each
    agent = env.agent(policy)

    sums, moved = [strict_sum(env)], 0
    for _ in range(25):
        done = await env.seconds(agent)
        moved += sum(isinstance(decision, SetLimit) for decision in done.decisions)
        sums.append(strict_sum(env))
        for name, guest in env.guests.items():
            if env.allocation(name) and chance.random() < 0.4:
                await env.enforce(name)
            if chance.random() < 0.1:
                guest.wants = chance.randrange(900)
        sums.append(strict_sum(env))
        if chance.random() < 0.1:
            agent = env.agent(policy)

    assert moved > 6
    assert max(sums) <= 2400
    assert max(sums) > 1800, "the supply is used"


async def test_a_kill_between_decreases_and_raises_loses_nothing(env):
    """The connection breaks at the first write of the round; another agent continues."""
    for name in ("a", "b", "c"):
        await env.pod(name, wants=10, limit="1", **{"class": "elastic"})
    await env.seconds(agent := env.agent(), 2)
    written: list[str] = []

    def once() -> None:
        if written:
            raise NotLeader("killed")
        written.append("the first")

    doomed = env.agent(api=env.api.fenced(once))
    doomed._state = agent._state  # the same agent, on a connection that breaks
    await env.seconds(doomed, 2)
    assert len(written) == 1
    lowered = [name for name in ("a", "b", "c") if env.desired(name)]
    assert len(lowered) == 1, "one of three decreases was written"
    await env.enforce(lowered[0])

    again = env.agent()
    for _ in range(6):
        await env.seconds(again, 3)
        for name in ("a", "b", "c"):
            if env.allocation(name):
                await env.enforce(name)
    assert {env.desired(name) for name in ("a", "b", "c")} == {"70m"}
    assert {pod.original for pod in again.report.pods} == {"1"}


@contextlib.asynccontextmanager
async def restore_controller(
    env: MarketEnv, clock: ManualMarketClock
) -> AsyncIterator[RestoreLimitsController]:
    trading = Selection(env.namespace, labels=f"{market_report.AGENT_LABEL}={market_report.ACTIVE}")
    async with (
        watched(env.api, kinds.POD_ALLOCATIONS, Selection(env.namespace)) as allocations,
        watched(env.api, kinds.LEASES, trading) as leases,
    ):
        yield RestoreLimitsController(allocations, leases, env.api, RestoreOptions(clock=clock))


async def test_limits_are_restored_when_the_agent_stops(env):
    await env.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await env.pod("busy", wants=900)
    await env.seconds(agent := env.agent(), 3)
    for name in ("idle", "busy"):
        await env.enforce(name)
    assert env.desired("idle") == "500m"
    clock = ManualMarketClock()

    async with restore_controller(env, clock) as keeping:
        await keeping.reconcile(env.node)
        clock.seconds += 119
        await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("idle") == "500m", "not yet"

        await env.seconds(agent)
        before = env.desired("busy")
        renewed = (await lease(env)).spec.renew_time
        await until(lambda: keeping._leases.get(env.node)[0].spec.renew_time == renewed)
        await keeping.reconcile(env.node)
        clock.seconds += 119
        await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("idle") == "500m", "its heartbeat was observed"

        clock.seconds += 2
        await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("idle") == "1"
        assert env.desired("busy") == before, "a raised limit stays"


async def test_a_stale_informer_does_not_restore_limits(env):
    await env.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await env.seconds(agent := env.agent(), 3)
    await env.enforce("idle")
    clock = ManualMarketClock()

    async with restore_controller(env, clock) as keeping:
        stale = keeping._leases.get(env.node)
        keeping._leases.get = lambda value: stale  # type: ignore[method-assign]  # the watch is stuck
        await keeping.reconcile(env.node)
        clock.seconds += 121
        await env.seconds(agent)
        await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("idle") == "500m", "the API server has a newer heartbeat"

        clock.seconds += 121
        await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("idle") == "500m", "the API server has a newer heartbeat"


async def test_a_missing_heartbeat_is_detected_without_an_event(env):
    await env.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await env.seconds(env.agent(), 3)
    await env.enforce("idle")
    async with (
        watched(env.api, kinds.POD_ALLOCATIONS, Selection(env.namespace)) as allocations,
        watched(env.api, kinds.LEASES, Selection(env.namespace)) as leases,
    ):
        keeping = RestoreLimitsController(allocations, leases, env.api, RestoreOptions(timeout=0.5))
        async with running(keeping.run(asyncio.Event())):
            await until(lambda: env.desired("idle") == "1", "the limit to go back")


async def test_an_agent_in_dry_run_mode_does_not_count_as_alive(env):
    await env.pod("idle", wants=10, limit="1", **{"class": "elastic"})
    await env.seconds(env.agent(), 3)
    await env.enforce("idle")
    await env.seconds(watching := env.agent(dry_run=True))
    clock = ManualMarketClock()

    async with restore_controller(env, clock) as keeping:
        for _ in range(3):
            await keeping.reconcile(env.node)
            clock.seconds += 61
            await env.seconds(watching)
        await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("idle") == "1"


async def test_a_failed_restore_does_not_block_the_others(env):
    """A policy refuses the first; the others are restored nevertheless."""
    for name in ("a", "b"):
        await env.pod(name, wants=10, limit="1", **{"class": "elastic"})
    await env.seconds(env.agent(), 3)
    for name in ("a", "b"):
        await env.enforce(name)
    clock, refused = ManualMarketClock(), env.allocation("a")

    async with restore_controller(env, clock) as keeping:
        keeping._allocations.get = lambda value: [  # type: ignore[method-assign]  # one that is gone by now
            msgspec.structs.replace(refused, metadata=msgspec.structs.replace(refused.metadata, uid=ANOTHER)),
            env.allocation("b"),
        ]
        await keeping.reconcile(env.node)
        clock.seconds += 121
        with pytest.raises(ApiError):
            await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("b") == "1"


ANOTHER = "11111111-2222-3333-4444-555555555555"


async def test_a_limit_set_by_hand_is_not_restored(env):
    await env.pod("one", limit="1")
    spec = {"namespace": env.namespace, "podName": "one", "desiredCPULimit": "200m"}
    body = {"metadata": {"name": "one"}, "spec": spec}
    await env.api.create(kinds.POD_ALLOCATIONS, body, namespace=env.namespace)
    await env.caught_up()
    await env.enforce("one")
    clock = ManualMarketClock()

    async with restore_controller(env, clock) as keeping:
        await keeping.reconcile(env.node)
        clock.seconds += 3600
        await keeping.reconcile(env.node)
        await env.caught_up()
        assert env.desired("one") == "200m"


def test_a_long_node_name_gives_a_valid_lease_name():
    names = {market_report.LEASE.name("n" * 253), market_report.LEASE.name("n" * 252 + "m")}

    assert len(names) == 2
    assert all(len(name) <= 253 for name in names)
