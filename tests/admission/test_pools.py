"""Pods that request a pool, on a real cluster: access, and the fields that are added."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from croupier.admission.configurations import ACCESS
from croupier.api import kinds
from croupier.api.gpu import GPUPool
from croupier.api.meta import Condition
from croupier.core.pods.request_parser import CARDS, LEDGER, POOL, RATIO
from croupier.core.pools.hints import NODE_LABEL, POD_LABEL, REQUEST_ID
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, DeleteOptions, Selection
from croupier.kube.client.errors import ApiError
from croupier.kube.client.resource import Resource
from croupier_lab.cluster import Cluster
from tests.admission import cluster_env as envs
from tests.admission.cluster_env import WebhookClusterEnv
from tests.polling import until_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEAM = f"{POOL}team-a"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"
WITHIN = 60.0
DEPLOYMENTS: Resource[dict[str, Any]] = Resource("apps", "v1", "deployments", "Deployment", True, dict)
ALICE: dict[str, tuple[str, ...]] = {
    "Impersonate-User": ("alice",),
    "Impersonate-Group": ("system:masters", "ml-people"),
}
BOB: dict[str, tuple[str, ...]] = {"Impersonate-User": ("bob",), "Impersonate-Group": ("system:masters",)}

Raw = dict[str, Any]


def pool(
    name: str = "team-a", *, total: int | None = 8, holds: str = "", unit: str = "Card", **spec: Any
) -> GPUPool:
    """The stored pool on one node; `holds` is a condition that is True."""
    now = datetime.now(UTC)
    most = spec.pop("per_pod", total)
    capacity = {"total": total, "used": 0, "available": total, "perPod": most, "unit": unit}
    stored: Raw = {
        "metadata": {"name": name},
        "spec": {"allocation": {"mode": "Exclusive"}, **spec},
        "status": {"capacity": capacity} if total is not None else {},
    }
    found = msgspec.convert(stored, GPUPool)
    if not holds:
        return found
    told = Condition(
        type=holds, status="True", last_transition_time=now, reason="Why", message="two pods run"
    )
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, conditions=(told,)))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_env(lab: object, cluster: Cluster) -> AsyncIterator[WebhookClusterEnv]:
    async with envs.webhook_cluster(cluster) as opened:
        opened.pools["probe"] = pool("probe")

        async def guarded() -> bool:
            answer = await opened.create(envs.pod("probe", {f"{POOL}probe": "1"}), dry_run=True)
            return answer.pod is not None and POD_LABEL in answer.pod["metadata"].get("labels", {})

        await until_async(guarded, "the guard of the pools to be asked", WITHIN)
        yield opened


@pytest.fixture
def env(shared_env: WebhookClusterEnv) -> Iterator[WebhookClusterEnv]:
    shared_env.pools.clear()
    yield shared_env
    shared_env.pools.clear()


@contextlib.asynccontextmanager
async def client_as(cluster: Cluster, identity: dict[str, tuple[str, ...]]) -> AsyncIterator[Client]:
    async with api_client.connect(
        replace(config.load(cluster.kubeconfig), impersonate=identity)
    ) as connected:
        yield connected


async def refusal(api: Client, body: Raw, namespace: str) -> str:
    """The message of the refusal of a dry run; empty if the pod is admitted."""
    try:
        await api.create(kinds.PODS.raw, body, namespace=namespace, dry_run=True)
    except ApiError as refusal:
        return str(refusal)
    return ""


async def test_an_admitted_pod_gets_its_scheduling_fields(env: WebhookClusterEnv):
    taint = {"key": "gpu", "value": "dear", "effect": "NoSchedule"}
    env.pools["team-a"] = pool(scheduling={"taints": [taint]})

    answer = await env.create(envs.pod("first", {TEAM: "2"}))
    other = await env.create(envs.pod("second", {TEAM: "2"}, {REQUEST_ID: "stolen"}))

    assert answer.pod is not None, answer.refused
    assert other.pod is not None, other.refused
    metadata, spec = answer.pod["metadata"], answer.pod["spec"]
    assert metadata["labels"] == {POD_LABEL: "team-a"}
    assert envs.limits(answer.pod) == {"main": {TEAM: "2", LEDGER: "1"}}
    (term,) = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": f"{NODE_LABEL}team-a", "operator": "Exists"}]}
    assert {**taint, "operator": "Equal"} in spec["tolerations"]
    (spread,) = spec["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == (ZONE, "ScheduleAnyway")
    ids = [one["metadata"]["annotations"][REQUEST_ID] for one in (answer.pod, other.pod)]
    assert len({*ids, "stolen", ""}) == 4
    await env.sweep()


async def test_a_dry_run_creates_nothing_and_a_pool_share_is_kept(env: WebhookClusterEnv):
    env.pools["team-a"] = pool(total=800, allocation={"mode": "MPS"}, scheduling={"strategy": "BinPack"})

    body = envs.pod("shared", {TEAM: "100"}, {CARDS: "2", RATIO: "50"})
    answer = await env.create(body, dry_run=True)

    assert answer.pod is not None, answer.refused
    assert envs.limits(answer.pod) == {"main": {TEAM: "100", LEDGER: "1"}}
    assert "topologySpreadConstraints" not in answer.pod["spec"]
    listed = await env.api.list(kinds.PODS, Selection(env.namespace))
    assert listed.items == []


REFUSED: dict[str, tuple[GPUPool, Raw, str]] = {
    "two pools": (
        pool(),
        envs.pod("p", {TEAM: "1", f"{POOL}team-b": "1"}),
        "MixedPoolRequest: the pod asks for pools team-a and team-b",
    ),
    "no such pool": (
        pool("team-b"),
        envs.pod("p", {TEAM: "1"}),
        'UnknownPool: GPUPool "team-a"',
    ),
    "more than there is": (
        pool(),
        envs.pod("p", {TEAM: "9"}),
        "InsufficientCapacity: the pod requests 9 of gpu.deckhouse.io/team-a, but one node can provide "
        "at most 8",
    ),
    "parts of an unknown number of cards": (
        pool(total=800, unit="Percent", allocation={"mode": "MPS"}),
        envs.pod("p", {TEAM: "150"}),
        "InvalidRequest: 150 % is neither a part of one card nor a number of whole cards; set gpu.mps.io",
    ),
    "maintenance": (
        pool(holds="Maintenance"),
        envs.pod("p", {TEAM: "1"}),
        "Maintenance: pool team-a is in maintenance and accepts no new pods: two pods run; create",
    ),
    "drift": (
        pool(holds="Misconfigured"),
        envs.pod("p", {TEAM: "1"}),
        "Misconfigured: pool team-a is misconfigured and accepts no new pods: two pods run",
    ),
    "a conflict": (
        pool(),
        envs.pod("p", {TEAM: "1"}, nodeSelector={f"{NODE_LABEL}team-a": "yes"}),
        "SchedulingConflict: spec.nodeSelector requires pool.gpu.deckhouse.io/team-a",
    ),
}


@pytest.mark.parametrize(("known", "body", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_a_refusal_reaches_the_client(known, body, sentence, env: WebhookClusterEnv):
    env.pools[known.metadata.name] = known

    answer = await env.create(body)

    assert answer.pod is None
    assert f'admission webhook "{ACCESS}" denied the request: {sentence}' in answer.refused


async def test_a_pod_is_admitted_with_the_reason_why_it_waits(env: WebhookClusterEnv):
    silent = "no card of the pool can be allocated now; of 1 of 1 card: the agent of its node is silent"
    waits = pool(total=0, per_pod=8)
    told = Condition(
        type="Available",
        status="False",
        last_transition_time=datetime.now(UTC),
        reason="NoCapacity",
        message=silent,
    )
    env.pools["team-a"] = msgspec.structs.replace(
        waits, status=msgspec.structs.replace(waits.status, conditions=(told,))
    )

    answer = await env.create(envs.pod("p", {TEAM: "2"}), dry_run=True)

    assert answer.pod is not None, answer.refused
    assert f"the pod waits for pool team-a: {silent}" in answer.warnings


async def test_access_depends_on_the_pods_account_and_its_creator(env: WebhookClusterEnv, cluster: Cluster):
    body = envs.pod("p", {TEAM: "1"})
    async with client_as(cluster, ALICE) as alice, client_as(cluster, BOB) as bob:
        env.pools["team-a"] = pool(access={"dexGroups": ["ml-people"]})
        assert await refusal(alice, body, env.namespace) == ""
        assert 'nor to a group of user "bob"' in await refusal(bob, body, env.namespace)

        env.pools["team-a"] = pool(access={"serviceAccounts": [f"{env.namespace}/default"]})
        assert await refusal(bob, body, env.namespace) == ""
        env.pools["team-a"] = pool(access={"serviceAccounts": ["other/default"]})
        assert f"nor to service account {env.namespace}/default;" in await refusal(bob, body, env.namespace)

        env.pools["team-a"] = pool(access={"namespaces": [env.namespace]})
        assert await refusal(bob, body, env.namespace) == ""


async def test_a_deployment_reports_the_refusal_of_its_pods(env: WebhookClusterEnv):
    env.pools["team-a"] = pool(access={"dexGroups": ["ml-people"]})
    labels = {"app": "web"}
    pod = envs.pod("", {TEAM: "1"})
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "web", "namespace": env.namespace}, "spec": spec}
    await env.api.create(DEPLOYMENTS, body)

    async def told() -> str:
        events = await env.api.list(kinds.EVENTS, Selection(env.namespace, fields="reason=FailedCreate"))
        return next((item.note for item in events.items if "AccessDenied" in item.note), "")

    note = await until_async(told, "the ReplicaSet to be refused", WITHIN)
    assert "because service account kube-system/replicaset-controller created the pod" in note
    env.pools["team-a"] = pool(access={"namespaces": [env.namespace]})

    async def made() -> bool:
        listed = await env.api.list(kinds.PODS, Selection(env.namespace, labels=f"{POD_LABEL}=team-a"))
        return bool(listed.items)

    await until_async(made, "the ReplicaSet to try again", WITHIN)
    await env.api.delete(
        DEPLOYMENTS, "web", namespace=env.namespace, how=DeleteOptions(propagation="Foreground")
    )
    await env.sweep()


async def test_a_quota_counts_units_of_a_pool(env: WebhookClusterEnv):
    quotas: Resource[Raw] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)
    env.pools["team-a"] = pool()
    spec = {"hard": {f"requests.{TEAM}": "3"}}
    await env.api.create(quotas, {"metadata": {"name": "cards"}, "spec": spec}, namespace=env.namespace)

    async def counted() -> bool:
        """Also waits until the pods of another test are deleted."""
        found = await env.api.get(quotas, "cards", namespace=env.namespace)
        return bool(found.get("status", {}).get("used", {}).get(f"requests.{TEAM}") == "0")

    await until_async(counted, "the quota to be counted", WITHIN)
    first = await env.create(envs.pod("first", {TEAM: "2"}))
    second = await env.create(envs.pod("second", {TEAM: "2"}))
    await env.api.delete(quotas, "cards", namespace=env.namespace)
    await env.sweep()

    assert first.pod is not None, first.refused
    assert f"exceeded quota: cards, requested: requests.{TEAM}=2, used: requests.{TEAM}=2" in second.refused
