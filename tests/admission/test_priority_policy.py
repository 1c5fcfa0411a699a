"""The priority of a Reservation is a right, also for a tenant with all rights in its namespace."""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from croupier.admission import priority_policy
from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import ApiError
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.polling import until_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

TENANT, OPERATOR = "tenant", "operator"
CLASS = "quota-test-high"
RIGHT = "quota-test-priorities"
HIGHEST = 2_147_483_647
WITHIN = 60.0


def _kind(kind: str, name: str, group: str = "rbac.authorization.k8s.io", **fields: Any) -> dict[str, Any]:
    return {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": name}, **fields}


def _objects(namespace: str) -> list[dict[str, Any]]:
    """The tenant has all rights in its namespace, the operator the right to use the priorities."""
    rules = [
        {"apiGroups": ["mps.nvidia.com"], "resources": ["reservationpriorities"], "verbs": ["use"]},
        {
            "apiGroups": ["scheduling.k8s.io"],
            "resources": ["priorityclasses"],
            "resourceNames": [CLASS],
            "verbs": ["use"],
        },
        {"apiGroups": ["mps.nvidia.com"], "resources": ["reservations"], "verbs": ["*"]},
    ]
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    here = {"metadata": {"name": "all", "namespace": namespace}}
    return [
        *priority_policy.documents(),
        _kind("PriorityClass", CLASS, "scheduling.k8s.io", value=1000),
        _kind("ClusterRole", RIGHT, rules=rules),
        _kind("ClusterRoleBinding", RIGHT, roleRef=_role("ClusterRole", RIGHT), subjects=[_user(OPERATOR)]),
        _kind("Role", "all", rules=[everything]) | here,
        _kind("RoleBinding", "all", roleRef=_role("Role", "all"), subjects=[_user(TENANT)]) | here,
    ]


def _role(kind: str, name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}


def _user(name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def namespace(cluster: Cluster, crds: object) -> AsyncIterator[str]:
    name = shared_cluster.create_namespace(cluster, "priority")
    applied = _objects(name)
    try:
        for one in applied:
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(one))
        async with _client(cluster, TENANT) as tenant:
            await until_async(lambda: _holds(tenant, name), "the policy", within=WITHIN)
        yield name
    finally:
        for one in reversed(applied[:5]):
            cluster.kubectl("delete", one["kind"], one["metadata"]["name"])
        shared_cluster.delete_namespace(cluster, name)


@contextlib.asynccontextmanager
async def _client(cluster: Cluster, user: str) -> AsyncIterator[Client]:
    identity = {"Impersonate-User": (user,), "Impersonate-Group": ("system:authenticated",)}
    async with api_client.connect(replace(config.load(cluster.kubeconfig), impersonate=identity)) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def tenant(cluster: Cluster, namespace: str) -> AsyncIterator[Client]:
    async with _client(cluster, TENANT) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def operator(cluster: Cluster, namespace: str) -> AsyncIterator[Client]:
    async with _client(cluster, OPERATOR) as made:
        yield made


async def _holds(api: Client, namespace: str) -> bool:
    return priority_policy.unauthorized_number() in await _create(api, namespace, "probe", priority=1)


async def _create(api: Client, namespace: str, name: str, **spec: Any) -> str:
    """The refusal, empty if it was created."""
    wanted = {"podKey": f"{namespace}/{name}", "nodeName": "n", "numCards": 1, "percentPerCard": 50, **spec}
    try:
        body = {"metadata": {"name": name}, "spec": wanted}
        await api.create(kinds.RESERVATIONS, body, namespace=namespace, dry_run=name == "probe")
    except ApiError as refused:
        return str(refused)
    return ""


async def test_a_tenant_cannot_overtake_with_a_number(tenant: Client, namespace: str):
    refused = await _create(tenant, namespace, "greedy", priority=HIGHEST)

    assert priority_policy.unauthorized_number() in refused
    assert await _create(tenant, namespace, "modest") == ""
    assert await _create(tenant, namespace, "patient", priority=-5) == ""


async def test_a_tenant_cannot_raise_the_number_later(tenant: Client, namespace: str):
    assert await _create(tenant, namespace, "later") == ""

    with pytest.raises(ApiError, match=r"spec\.priority above 0 needs the verb use"):
        await tenant.patch(kinds.RESERVATIONS, "later", {"spec": {"priority": 7}}, namespace=namespace)


async def test_a_class_needs_the_verb_use_on_it(tenant: Client, operator: Client, namespace: str):
    refused = await _create(tenant, namespace, "classy", priorityClassName=CLASS)

    assert priority_policy.unauthorized_class(CLASS) in refused
    assert await _create(operator, namespace, "classy", priorityClassName=CLASS) == ""
    assert "needs the verb use" in await _create(operator, namespace, "x", priorityClassName="another")


async def test_an_operator_may_write_a_number_and_the_tenant_may_keep_it(
    tenant: Client, operator: Client, namespace: str
):
    assert await _create(operator, namespace, "urgent", priority=HIGHEST) == ""

    kept = await tenant.patch(kinds.RESERVATIONS, "urgent", {"spec": {"ttlSeconds": 60}}, namespace=namespace)
    assert kept.spec.priority == HIGHEST
