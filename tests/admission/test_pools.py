"""Pods that ask for a pool, at the gate of a real cluster: who gets in, and what they carry."""

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
from croupier.core.pods.request import CARDS, MARK, POOL, RATIO
from croupier.core.pools.hints import NODE_LABEL, POD_LABEL, REQUEST_ID
from croupier.kube import client, config
from croupier.kube.client import Client, Deletion, Selection
from croupier.kube.errors import ApiError
from croupier.kube.resource import Resource
from croupier.lab.cluster import Cluster
from tests.admission import gate as gates
from tests.admission.gate import Gate
from tests.kube.waiting import until_async

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


def pool(name: str = "team-a", *, total: int | None = 8, holds: str = "", **spec: Any) -> GPUPool:
    """As it is stored; `holds` is a condition that is true of it."""
    now = datetime.now(UTC)
    capacity = {"total": total, "used": 0, "available": total, "unit": "Card"}
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
async def house(lab: object, cluster: Cluster) -> AsyncIterator[Gate]:
    async with gates.opened(cluster) as opened:
        opened.pools["probe"] = pool("probe")

        async def guarded() -> bool:
            answer = await opened.create(gates.pod("probe", {f"{POOL}probe": "1"}), dry_run=True)
            return answer.pod is not None and POD_LABEL in answer.pod["metadata"].get("labels", {})

        await until_async(guarded, "the guard of the pools to be asked", WITHIN)
        yield opened


@pytest.fixture
def gate(house: Gate) -> Iterator[Gate]:
    house.pools.clear()
    yield house
    house.pools.clear()


@contextlib.asynccontextmanager
async def speaking(cluster: Cluster, identity: dict[str, tuple[str, ...]]) -> AsyncIterator[Client]:
    async with client.connect(replace(config.load(cluster.kubeconfig), impersonate=identity)) as connected:
        yield connected


async def refusal(api: Client, body: Raw, namespace: str) -> str:
    """Why the pod is not let in; empty if it is. It is not created."""
    try:
        await api.create(kinds.PODS.raw, body, namespace=namespace, dry_run=True)
    except ApiError as refusal:
        return str(refusal)
    return ""


async def test_an_admitted_pod_carries_its_way_to_the_cards(gate: Gate):
    taint = {"key": "gpu", "value": "dear", "effect": "NoSchedule"}
    gate.pools["team-a"] = pool(scheduling={"taints": [taint]})

    answer = await gate.create(gates.pod("first", {TEAM: "2"}))
    other = await gate.create(gates.pod("second", {TEAM: "2"}, {REQUEST_ID: "stolen"}))

    assert answer.pod is not None, answer.refused
    assert other.pod is not None, other.refused
    metadata, spec = answer.pod["metadata"], answer.pod["spec"]
    assert metadata["labels"] == {POD_LABEL: "team-a"}
    assert gates.limits(answer.pod) == {"main": {TEAM: "2", MARK: "1"}}
    (term,) = spec["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term == {"matchExpressions": [{"key": f"{NODE_LABEL}team-a", "operator": "Exists"}]}
    assert {**taint, "operator": "Equal"} in spec["tolerations"]
    (spread,) = spec["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == (ZONE, "ScheduleAnyway")
    ids = [one["metadata"]["annotations"][REQUEST_ID] for one in (answer.pod, other.pod)]
    assert len({*ids, "stolen", ""}) == 4
    await gate.sweep()


async def test_a_dry_run_leaves_nothing_and_a_share_of_a_pool_stays_one(gate: Gate):
    gate.pools["team-a"] = pool(total=800, allocation={"mode": "MPS"}, scheduling={"strategy": "BinPack"})

    body = gates.pod("shared", {TEAM: "100"}, {CARDS: "2", RATIO: "50"})
    answer = await gate.create(body, dry_run=True)

    assert answer.pod is not None, answer.refused
    assert gates.limits(answer.pod) == {"main": {TEAM: "100", MARK: "1"}}
    assert "topologySpreadConstraints" not in answer.pod["spec"]
    listed = await gate.api.list(kinds.PODS, Selection(gate.namespace))
    assert listed.items == []


REFUSED: dict[str, tuple[GPUPool, Raw, str]] = {
    "two pools": (
        pool(),
        gates.pod("p", {TEAM: "1", f"{POOL}team-b": "1"}),
        "MixedPoolRequest: the pod asks for pools team-a and team-b",
    ),
    "no such pool": (
        pool("team-b"),
        gates.pod("p", {TEAM: "1"}),
        'UnknownPool: there is no GPUPool "team-a"',
    ),
    "more than there is": (
        pool(),
        gates.pod("p", {TEAM: "9"}),
        "InsufficientCapacity: the pod asks for 9 of gpu.deckhouse.io/team-a, and the pool has 8 in all",
    ),
    "maintenance": (
        pool(holds="Maintenance"),
        gates.pod("p", {TEAM: "1"}),
        "Maintenance: pool team-a is in maintenance and takes no new pods: two pods run; create",
    ),
    "drift": (
        pool(holds="Misconfigured"),
        gates.pod("p", {TEAM: "1"}),
        "Misconfigured: pool team-a is misconfigured and takes no new pods: two pods run",
    ),
    "a conflict": (
        pool(),
        gates.pod("p", {TEAM: "1"}, nodeSelector={f"{NODE_LABEL}team-a": "yes"}),
        "SchedulingConflict: spec.nodeSelector wants pool.gpu.deckhouse.io/team-a",
    ),
}


@pytest.mark.parametrize(("known", "body", "sentence"), REFUSED.values(), ids=REFUSED)
async def test_a_refusal_reaches_whoever_asks(known, body, sentence, gate: Gate):
    gate.pools[known.metadata.name] = known

    answer = await gate.create(body)

    assert answer.pod is None
    assert f'admission webhook "{ACCESS}" denied the request: {sentence}' in answer.refused


async def test_whose_pods_they_are_decides(gate: Gate, cluster: Cluster):
    body = gates.pod("p", {TEAM: "1"})
    async with speaking(cluster, ALICE) as alice, speaking(cluster, BOB) as bob:
        gate.pools["team-a"] = pool(access={"dexGroups": ["ml-people"]})
        assert await refusal(alice, body, gate.namespace) == ""
        assert 'nor to a group of user "bob"' in await refusal(bob, body, gate.namespace)

        gate.pools["team-a"] = pool(access={"serviceAccounts": [f"{gate.namespace}/default"]})
        assert await refusal(bob, body, gate.namespace) == ""
        gate.pools["team-a"] = pool(access={"serviceAccounts": ["other/default"]})
        assert f"nor to service account {gate.namespace}/default;" in await refusal(bob, body, gate.namespace)

        gate.pools["team-a"] = pool(access={"namespaces": [gate.namespace]})
        assert await refusal(bob, body, gate.namespace) == ""


async def test_a_deployment_is_told_what_its_pods_need(gate: Gate):
    gate.pools["team-a"] = pool(access={"dexGroups": ["ml-people"]})
    labels = {"app": "web"}
    pod = gates.pod("", {TEAM: "1"})
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    body = {"metadata": {"name": "web", "namespace": gate.namespace}, "spec": spec}
    await gate.api.create(DEPLOYMENTS, body)

    async def told() -> str:
        events = await gate.api.list(kinds.EVENTS, Selection(gate.namespace, fields="reason=FailedCreate"))
        return next((one.note for one in events.items if "AccessDenied" in one.note), "")

    note = await until_async(told, "the ReplicaSet to be refused", WITHIN)
    assert "because service account kube-system/replicaset-controller created the pod" in note
    gate.pools["team-a"] = pool(access={"namespaces": [gate.namespace]})

    async def made() -> bool:
        listed = await gate.api.list(kinds.PODS, Selection(gate.namespace, labels=f"{POD_LABEL}=team-a"))
        return bool(listed.items)

    await until_async(made, "the ReplicaSet to try again", WITHIN)
    await gate.api.delete(
        DEPLOYMENTS, "web", namespace=gate.namespace, how=Deletion(propagation="Foreground")
    )
    await gate.sweep()


async def test_a_quota_counts_units_of_a_pool(gate: Gate):
    quotas: Resource[Raw] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)
    gate.pools["team-a"] = pool()
    spec = {"hard": {f"requests.{TEAM}": "3"}}
    await gate.api.create(quotas, {"metadata": {"name": "cards"}, "spec": spec}, namespace=gate.namespace)

    async def counted() -> bool:
        """Also that pods of another story are gone."""
        found = await gate.api.get(quotas, "cards", namespace=gate.namespace)
        return bool(found.get("status", {}).get("used", {}).get(f"requests.{TEAM}") == "0")

    await until_async(counted, "the quota to be counted", WITHIN)
    first = await gate.create(gates.pod("first", {TEAM: "2"}))
    second = await gate.create(gates.pod("second", {TEAM: "2"}))
    await gate.api.delete(quotas, "cards", namespace=gate.namespace)
    await gate.sweep()

    assert first.pod is not None, first.refused
    assert f"exceeded quota: cards, requested: requests.{TEAM}=2, used: requests.{TEAM}=2" in second.refused
