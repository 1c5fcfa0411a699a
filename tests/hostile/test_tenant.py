"""A tenant who is `admin` of one namespace tries what the RBAC and the validation of Kubernetes refuse.

The tenant has a real token. The role `admin` of Kubernetes and all verbs on our namespaced kinds are bound in
its namespace; a second namespace belongs to another tenant.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from croupier.admission.registration import KINDS as WEBHOOKS
from croupier.api import kinds
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.config import Token
from croupier.kube.client.errors import ApiError, Forbidden
from croupier.kube.client.resource import Raw, Resource
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMESPACES: Resource[Raw] = Resource("", "v1", "namespaces", "Namespace", False, dict)
ACCOUNTS: Resource[Raw] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
ROLE_BINDINGS: Resource[Raw] = Resource(
    "rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True, dict
)
ROLES: Resource[Raw] = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role", True, dict)
QUOTAS: Resource[Raw] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)
POLICIES: Resource[Raw] = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    False,
    dict,
)
PRIORITY_CLASSES: Resource[Raw] = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, dict
)
OURS = ["reservations", "podallocations"]


@dataclass(frozen=True)
class Tenant:
    """`api` has the tenant's token."""

    api: Client
    mine: str
    theirs: str
    """The namespace of another tenant."""


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster, crds: Any) -> Iterator[tuple[str, str]]:
    names = tuple(shared_cluster.create_namespace(cluster, name) for name in ("tenant", "victim"))
    yield names[0], names[1]
    for name in names:
        shared_cluster.delete_namespace(cluster, name, shared_cluster.namespaced(crds))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tenant(cluster: Cluster, namespaces: tuple[str, str]) -> AsyncIterator[Tenant]:
    mine, theirs = namespaces
    given = config.load(cluster.kubeconfig)
    async with api_client.connect(given) as api:
        await api.create(ACCOUNTS, {"metadata": {"name": "tenant"}}, namespace=mine)
        rules = [
            {"apiGroups": ["mps.nvidia.com", "mbcas.io"], "resources": OURS, "verbs": ["*"]},
            {"apiGroups": [""], "resources": ["pods/ephemeralcontainers"], "verbs": ["*"]},
        ]
        await api.create(ROLES, {"metadata": {"name": "ours"}, "rules": rules}, namespace=mine)
        for kind, role in (("ClusterRole", "admin"), ("Role", "ours")):
            binding = {
                "metadata": {"name": role},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": "tenant", "namespace": mine}],
            }
            await api.create(ROLE_BINDINGS, binding, namespace=mine)
        await api.create(kinds.PODS, pod("web"), namespace=mine)
        await api.create(kinds.PODS, pod("web"), namespace=theirs)
    token = cluster.kubectl("create", "token", "tenant", "-n", mine).stdout.strip()
    mine_only = replace(given, auth=Token(token), certificate=None, key=None)
    async with api_client.connect(mine_only) as api:
        yield Tenant(api, mine, theirs)


def pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "none"}]
    return {
        "metadata": {"name": name},
        "spec": {"containers": containers, "nodeSelector": {"no": "node"}, **spec},
    }


def binding(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "target": {"kind": "Node", "name": "any"}}


def reservation(namespace: str) -> dict[str, Any]:
    spec = {"podKey": f"{namespace}/web", "nodeName": "any", "numCards": 1, "percentPerCard": 100}
    return {"metadata": {"name": "r"}, "spec": spec}


Attack = Callable[[Tenant], Awaitable[object]]

FORBIDDEN: dict[str, Attack] = {
    "bind a pod of its own": lambda t: t.api.create(
        kinds.PODS.raw, binding("web"), namespace=t.mine, name="web", subresource="binding"
    ),
    "bind a pod of another tenant": lambda t: t.api.create(
        kinds.PODS.raw, binding("web"), namespace=t.theirs, name="web", subresource="binding"
    ),
    "write the status of its pod": lambda t: t.api.patch(
        kinds.PODS, "web", {"status": {"phase": "Running"}}, namespace=t.mine, subresource="status"
    ),
    "create a pod in another namespace": lambda t: t.api.create(kinds.PODS, pod("x"), namespace=t.theirs),
    "annotate a pod of another tenant": lambda t: t.api.patch(
        kinds.PODS, "web", {"metadata": {"annotations": {"gpu.mps.io/ratio": "1"}}}, namespace=t.theirs
    ),
    "delete a pod of another tenant": lambda t: t.api.delete(kinds.PODS, "web", namespace=t.theirs),
    "read the pods of another tenant": lambda t: t.api.list(kinds.PODS, Selection(t.theirs)),
    "reserve in another namespace": lambda t: t.api.create(
        kinds.RESERVATIONS, reservation(t.theirs), namespace=t.theirs
    ),
    "delete the Reservations of another tenant": lambda t: t.api.delete_collection(
        kinds.RESERVATIONS, Selection(t.theirs)
    ),
    "limit a pod of another tenant": lambda t: t.api.create(
        kinds.POD_ALLOCATIONS,
        {
            "metadata": {"name": "a"},
            "spec": {"namespace": t.theirs, "podName": "web", "desiredCPULimit": "1"},
        },
        namespace=t.theirs,
    ),
    "write a ledger": lambda t: t.api.create(kinds.NODE_RESERVATIONS, {"metadata": {"name": "n"}}),
    "delete a ledger": lambda t: t.api.delete(kinds.NODE_RESERVATIONS, "n"),
    "create a card": lambda t: t.api.create(kinds.GPU_DEVICES, {"metadata": {"name": "c"}}),
    "create a pool": lambda t: t.api.create(
        kinds.GPU_POOLS, {"metadata": {"name": "p"}, "spec": {"allocation": {"mode": "Exclusive"}}}
    ),
    "open a pool for itself": lambda t: t.api.patch(
        kinds.GPU_POOLS, "p", {"spec": {"access": {"namespaces": [t.mine]}}}
    ),
    "label a node": lambda t: t.api.patch(kinds.NODES, "n", {"metadata": {"labels": {"a": "b"}}}),
    "write the capacity of a node": lambda t: t.api.patch(
        kinds.NODES, "n", {"status": {"allocatable": {"nvidia.com/gpu": "9"}}}, subresource="status"
    ),
    "exempt its namespace by a label": lambda t: t.api.patch(
        NAMESPACES, t.mine, {"metadata": {"labels": {"kubernetes.io/metadata.name": "kube-system"}}}
    ),
    "raise its quota": lambda t: t.api.create(
        QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "9"}}}, namespace=t.mine
    ),
    "delete the mutating webhook": lambda t: t.api.delete(WEBHOOKS[0], "croupier-webhook"),
    "delete the validating webhook": lambda t: t.api.delete(WEBHOOKS[1], "croupier-webhook"),
    "delete a policy": lambda t: t.api.delete(POLICIES, "croupier-mark"),
    "create a PriorityClass": lambda t: t.api.create(
        PRIORITY_CLASSES, {"metadata": {"name": "p"}, "value": 1_000_000_000}
    ),
    "read the Secret of the webhook's key": lambda t: t.api.list(kinds.SECRETS, Selection(DEFAULT_NAMESPACE)),
    "take over the Lease of a controller": lambda t: t.api.create(
        kinds.LEASES, {"metadata": {"name": "croupier-pools"}}, namespace=DEFAULT_NAMESPACE
    ),
    "get the token of our account": lambda t: t.api.create(
        ACCOUNTS, {"spec": {}}, namespace=DEFAULT_NAMESPACE, name="croupier-ledger", subresource="token"
    ),
    "give itself more rights": lambda t: t.api.create(
        ROLES,
        {
            "metadata": {"name": "more"},
            "rules": [{"apiGroups": [""], "resources": ["pods/binding"], "verbs": ["create"]}],
        },
        namespace=t.mine,
    ),
}


@pytest.mark.parametrize("attack", FORBIDDEN.values(), ids=FORBIDDEN)
async def test_kubernetes_refuses_it(attack: Attack, tenant: Tenant):
    with pytest.raises(Forbidden):
        await attack(tenant)


IMPERSONATED = {
    "an administrator": {"Impersonate-User": ("kubernetes-admin",), "Impersonate-Group": ("system:masters",)},
    "our account": {"Impersonate-User": (f"system:serviceaccount:{DEFAULT_NAMESPACE}:croupier-extender",)},
    "kube-scheduler": {"Impersonate-User": ("system:kube-scheduler",)},
    "a node": {"Impersonate-User": ("system:node:n",), "Impersonate-Group": ("system:nodes",)},
}


@pytest.mark.parametrize("identity", IMPERSONATED.values(), ids=IMPERSONATED)
async def test_the_tenant_cannot_act_as(identity, tenant: Tenant, cluster: Cluster):
    token = cluster.kubectl("create", "token", "tenant", "-n", tenant.mine).stdout.strip()
    given = replace(
        config.load(cluster.kubeconfig), auth=Token(token), certificate=None, key=None, impersonate=identity
    )
    async with api_client.connect(given) as api:
        with pytest.raises(Forbidden, match="impersonate"):
            await api.get(kinds.PODS, "web", namespace=tenant.mine)


INVALID: dict[str, Attack] = {
    "an ephemeral container with cards": lambda t: t.api.patch(
        kinds.PODS,
        "web",
        {
            "spec": {
                "ephemeralContainers": [
                    {"name": "e", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
                ]
            }
        },
        namespace=t.mine,
        subresource="ephemeralcontainers",
    ),
    "cards added to a running pod": lambda t: t.api.patch(
        kinds.PODS,
        "web",
        {"spec": {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
        namespace=t.mine,
    ),
    "a node for a pod that exists": lambda t: t.api.patch(
        kinds.PODS, "web", {"spec": {"nodeName": "n"}}, namespace=t.mine
    ),
    "an object larger than the API server accepts": lambda t: t.api.create(
        kinds.RESERVATIONS,
        reservation(t.mine) | {"metadata": {"name": "r", "annotations": {"a": "x" * (300 * 1024)}}},
        namespace=t.mine,
    ),
}


@pytest.mark.parametrize("attack", INVALID.values(), ids=INVALID)
async def test_the_api_server_refuses_the_object(attack: Attack, tenant: Tenant):
    with pytest.raises(ApiError) as refused:
        await attack(tenant)
    assert refused.value.status in (400, 413, 422)


async def test_the_tenant_can_do_its_own_work(tenant: Tenant):
    """Otherwise the refusals above would prove nothing."""
    await tenant.api.create(kinds.PODS, pod("mine"), namespace=tenant.mine, dry_run=True)
    await tenant.api.create(kinds.RESERVATIONS, reservation(tenant.mine), namespace=tenant.mine, dry_run=True)
    found = await tenant.api.get(kinds.PODS, "web", namespace=tenant.mine)
    assert found.metadata.name == "web"
