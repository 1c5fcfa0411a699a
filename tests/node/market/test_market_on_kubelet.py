"""The market with this machine as a node: real containers, a real kubelet, real quotas.

The tests compare limits and counters with each other, never with wall-clock time.
"""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest_asyncio

from croupier.api import kinds, market_pod, market_report
from croupier.api.core_v1 import Pod
from croupier.api.market_report import MarketReport
from croupier.controllers.limits.podallocation import PodAllocationController
from croupier.controllers.limits.podallocation import PodAllocationInformers as LimitInformers
from croupier.core.market import units
from croupier.core.market.estimation import CPUSample
from croupier.core.market.policy import MarketPolicy
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.controller.events import EventRecorder
from croupier.node.market import cgroup_paths
from croupier.node.market import node_view as market_sight
from croupier.node.market.cgroup import CgroupTree
from croupier.node.market.cgroup_paths import ContainerCgroup
from croupier.node.market.market_agent import MarketAgent, MarketAgentOptions
from croupier.node.market.node_view import MarketStores
from croupier_lab import image, realnode
from croupier_lab.lab import Lab
from tests.cli.command import CROUPIER
from tests.controllers.ledger_env import running, watched
from tests.node.market_env import QUICK
from tests.polling import until, until_async

SECONDS = 30

BUSY = "while :; do :; done"
IDLE = "sleep 3600"
WITHIN = 60.0


def pod(
    name: str, does: str, limit: str, *, managed: bool = True, says: dict[str, str] | None = None
) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": image.BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", does],
        "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": limit}},
    }
    meta = {
        "name": name,
        "labels": {"mbcas.io/managed": "true"} if managed else {},
        "annotations": {f"mbcas.io/{key}": text for key, text in (says or {}).items()},
    }
    spec = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@dataclass
class MarketKubeletEnv:
    """This machine as a node, with the PodAllocation controller."""

    lab: Lab
    api: Client
    node: str
    namespace: str
    sources: MarketStores
    tree: CgroupTree
    sums: list[int] = field(default_factory=list)
    """Sums of max(desired, applied), in quanta, at every observed change."""
    enforced: list[int] = field(default_factory=list)

    async def opens(self, *pods: dict[str, Any]) -> None:
        for one in pods:
            one["spec"]["nodeName"] = self.node
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)})
        await asyncio.to_thread(self.lab.kubectl, "apply", "-n", self.namespace, "-f", "-", stdin=items)
        names = [one["metadata"]["name"] for one in pods]
        await until(lambda: all(map(self._reported, names)), "pods to run", WITHIN)

    def _reported(self, name: str) -> bool:
        found = self.sources.pods.named(name, self.namespace)
        return found is not None and found.status.phase == "Running" and self.applied(name) > 0

    def pod(self, name: str) -> Pod:
        found = self.sources.pods.named(name, self.namespace)
        assert found is not None
        return found

    def applied(self, name: str) -> int:
        return market_pod.applied(self.pod(name)) or 0

    def sample(self, name: str) -> CPUSample:
        found = self.pod(name)
        container = cgroup_paths.container_id(found.status.container_statuses[0].container_id)
        sample = self.tree.sample(
            ContainerCgroup(found.metadata.uid, found.status.qos_class, container), lambda: 0
        )
        assert sample is not None
        return sample

    def quota(self, name: str) -> int:
        """The quota in the kernel, in quanta."""
        sample = self.sample(name)
        assert sample.quota is not None
        return sample.quota * units.CPU // sample.period

    def restarts(self) -> int:
        return sum(
            told.restart_count for found in self.sources.pods for told in found.status.container_statuses
        )

    def original(self, name: str) -> str | None:
        found = self.sources.allocations.named(name, self.namespace)
        return found.status.original_cpu_limit if found is not None else None

    def agent(self, policy: MarketPolicy = QUICK) -> MarketAgent:
        settings = MarketAgentOptions(self.node, self.namespace, policy, every=0.5, heartbeat=1.0)
        return MarketAgent(self.sources, self.tree, self.api, settings)

    def held(self) -> int:
        """Of the pods that take part."""
        total = 0
        for found in self.sources.pods:
            if found.metadata.labels.get("mbcas.io/managed") != "true":
                continue
            written = self.sources.allocations.named(found.metadata.name, found.metadata.namespace)
            desired = market_sight.desired(written) if written is not None else 0
            total += max(desired, market_pod.applied(found) or market_pod.limit(found))
        return total

    def quotas(self) -> int:
        """The sum of the quotas of pods that take part; also recorded."""
        names = [one.metadata.name for one in self.sources.pods if "mbcas.io/managed" in one.metadata.labels]
        self.enforced.append(sum(self.quota(name) for name in names))
        return self.enforced[-1]

    def adds_up(self) -> None:
        """Record the sum at every change."""
        for store in (self.sources.pods, self.sources.allocations):
            store.subscribe(lambda _: self.sums.append(self.held()))


@pytest_asyncio.fixture
async def env(lab: Lab, crds: Any, real_node: str, namespace: str) -> AsyncIterator[MarketKubeletEnv]:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(api_client.connect(config.load(lab.cluster.kubeconfig)))
        here = Selection(namespace)
        nodes = await stack.enter_async_context(
            watched(api, kinds.NODES, Selection(fields=f"metadata.name={real_node}"))
        )
        pods = await stack.enter_async_context(watched(api, kinds.PODS, here))
        allocations = await stack.enter_async_context(watched(api, kinds.POD_ALLOCATIONS, here))
        recorder = EventRecorder(api, "podallocation-controller")
        moving = PodAllocationController(LimitInformers(allocations, pods), api, recorder=recorder)
        await stack.enter_async_context(running(moving.run(asyncio.Event())))
        by_people = await stack.enter_async_context(
            watched(api, kinds.POD_ALLOCATIONS, market_sight.WRITTEN_BY_HAND)
        )
        sources = MarketStores(nodes.store, pods.store, allocations.store, by_people.store)
        tree = CgroupTree(root=f"/{realnode.paths_of(lab).cgroup}")
        yield MarketKubeletEnv(lab, api, real_node, namespace, sources, tree)


async def test_limits_follow_the_load_and_a_new_agent_knows_the_original_limits(env):
    await env.opens(
        pod("busy", BUSY, "100m", says={"max-cpu": "400m"}),
        pod("idle", IDLE, "400m", says={"class": "elastic"}),
        pod("quiet", IDLE, "400m", managed=False),
    )
    assert env.tree.problem() is None
    assert {env.quota("busy"), env.quota("idle")} == {10, 40}

    async with running(env.agent().run(asyncio.Event())):
        await until(lambda: env.quota("busy") >= 20, "the busy pod to be raised", WITHIN)
        await until(lambda: env.quota("idle") <= 20, "the idle pod to be lowered", WITHIN)
    # The agent is killed here, at any point of its round.

    again = env.agent()
    async with running(again.run(asyncio.Event())):
        await until(lambda: env.quota("idle") <= 10, "the idle pod to be lowered further", WITHIN)
        await until(lambda: again.report and len(again.report.pods) == 2, "a report")

    assert again.report is not None
    assert {one.pod.split("/")[1]: one.original for one in again.report.pods} == {
        "busy": "100m",
        "idle": "400m",
    }
    assert (env.original("busy"), env.original("idle")) == ("100m", "400m")
    assert 10 < env.quota("busy") <= 40, "within its maximum"
    assert env.quota("quiet") == 40, "an unmanaged pod is unchanged"
    assert env.sources.allocations.named("quiet", env.namespace) is None
    assert env.restarts() == 0


async def test_the_market_throttles_less_than_static_limits_under_contention(env):
    """Two groups of one busy and two idle pods with the same sum of limits, at the same time."""
    await env.opens(
        *(pod(f"{who}-idle-{n}", IDLE, "200m", managed=who == "traded") for who in COMPANIES for n in "ab"),
        *(pod(f"{who}-busy", BUSY, "200m", managed=who == "traded") for who in COMPANIES),
    )
    policy = replace(QUICK, strict=True, target=_target(env, wanted=60))
    env.adds_up()
    agent = env.agent(policy)

    async with running(agent.run(asyncio.Event())):
        await until(lambda: env.quotas() and env.quota("traded-busy") >= 40, "room to move", WITHIN)
        before = {who: env.sample(f"{who}-busy") for who in COMPANIES}
        await until(
            lambda: env.quotas() and _enough(before["static"], env.sample("static-busy")),
            "some throttling to compare",
            WITHIN,
        )
        after = {who: env.sample(f"{who}-busy") for who in COMPANIES}

    assert agent.report is not None
    assert [book.supply for book in agent.report.books] == ["600m"]
    assert max(env.sums) <= 60, "no more than is for sale, at any moment"
    assert max(env.sums) > 50
    assert max(env.enforced) <= 60, "nor does the kernel allow more"
    throttled = {who: _throttled(before[who], after[who]) for who in COMPANIES}
    used = {who: after[who].usage - before[who].usage for who in COMPANIES}
    print(f"throttled per period in µs: {throttled}; used: {used}")  # noqa: T201  the figures of docs/market.md
    assert used["traded"] > used["static"]
    # For the same work: on a machine whose other cores are busy a pod that may run longer also waits longer.
    assert throttled["traded"] / used["traded"] < 0.9 * throttled["static"] / used["static"]
    assert {env.quota(f"static-{name}") for name in ("busy", "idle-a", "idle-b")} == {20}
    assert env.restarts() == 0


@contextlib.asynccontextmanager
async def process(
    env: MarketKubeletEnv, folder: Path, *command: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The agent process in strict mode."""
    options = ["--node", env.node, "--cgroup-root", f"/{realnode.paths_of(env.lab).cgroup}", "--strict"]
    options += [
        "--target",
        str(_percent(env)),
        "--every",
        "0.5",
        "--raise-after",
        "1",
        "--lower-after",
        "2",
    ]
    options += ["--keep-peaks", "1", "--lease-namespace", "default", "--heartbeat", "0.5"]
    options += ["--health", "127.0.0.1:0", "--kubeconfig", str(env.lab.kubeconfig)]
    with (folder / "log").open("a") as log:
        started = await asyncio.create_subprocess_exec(
            *command, "market", "run", *options, stdout=log, stderr=log
        )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.terminate()
            await started.wait()


async def test_a_killed_agent_loses_no_limit_and_never_exceeds_the_supply(env, tmp_path):
    """The process is killed by SIGKILL repeatedly; each new one knows only the state in the API server."""
    names = [f"idle-{n}" for n in "abc"]
    await env.opens(pod("busy", BUSY, "200m"), *(pod(name, IDLE, "200m") for name in names))
    supply = _percent(env) * units.CPU * _cpus(env) // 100
    env.adds_up()

    for number in (1, 2, 1):
        async with process(
            env, tmp_path, sys.executable, "-m", "tests.node.killed_market", str(number)
        ) as doomed:
            async with asyncio.timeout(WITHIN):
                assert await doomed.wait() == -signal.SIGKILL, (tmp_path / "log").read_text()[-3000:]
        env.quotas()
    assert len(env.sources.allocations) > 0

    async def trading() -> MarketReport | None:
        """Its report once it knows all pods; until then their limits do not count as free."""
        name = market_report.LEASE.name(env.node)
        told = market_report.LEASE.decode(await env.api.get(kinds.LEASES, name, namespace="default"))
        return told if told and [book.supply for book in told.books] == [units.text(supply)] else None

    async with process(env, tmp_path, *CROUPIER):
        await until(lambda: env.quotas() and env.quota("busy") >= 40, "the busy pod to be raised", WITHIN)
        told = await until_async(trading, "it to trade with all of them", WITHIN)
    await env.api.delete(kinds.LEASES, market_report.LEASE.name(env.node), namespace="default")

    assert told is not None
    assert {one.original for one in told.pods} == {"200m"}, "in the agent's report"
    assert {env.original(name) for name in ("busy", *names)} <= {"200m", None}
    assert max(env.sums) <= supply, "no more than is for sale, at any moment"
    assert max(env.enforced) <= supply, "nor does the kernel allow more"
    assert env.restarts() == 0


COMPANIES = ("static", "traded")


def _cpus(env: MarketKubeletEnv) -> int:
    node = env.sources.nodes.named(env.node)
    assert node is not None
    return int(node.status.capacity["cpu"])


def _percent(env: MarketKubeletEnv) -> int:
    """A target with little or no free CPU for four pods with 200m each."""
    return -(-80 // _cpus(env))


def _target(env: MarketKubeletEnv, wanted: int) -> int:
    """The target in thousandths that leaves `wanted` quanta above the requests of other pods."""
    whole = units.CPU * _cpus(env)
    asked = sum(
        market_pod.request(one) for one in env.sources.pods if "mbcas.io/managed" not in one.metadata.labels
    )
    return -(-(wanted + asked) * 1000 // whole)


def _enough(before: CPUSample, after: CPUSample) -> bool:
    """Fifty periods, twenty of them throttled, unless the machine is overloaded."""
    many = after.periods >= before.periods + 50
    return many and after.throttled_periods >= before.throttled_periods + 20


def _throttled(before: CPUSample, after: CPUSample) -> float:
    return (after.throttled - before.throttled) / max(1, after.periods - before.periods)
