"""deployments/access: what members of a namespace may do, and what the commands tell them.

Users are bound to view, edit and admin of Kubernetes in one namespace of a real API server.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.errors import Forbidden
from croupier.kube.client.resource import Resource
from croupier_lab import api_proxy, shared_cluster
from croupier_lab.cluster import Cluster
from tests import polling
from tests.cli import env
from tests.cli.env import CommandResult, croupier

ROLES = Path(__file__).resolve().parents[2] / "deployments/access/roles.yaml"
RBAC = "rbac.authorization.k8s.io"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
NAMESPACED = ("reservations.mps.nvidia.com", "podallocations.allocation.mbcas.io")
CLUSTER_SCOPED = (
    "nodereservations.mps.nvidia.com",
    "gpupools.gpu.deckhouse.io",
    "gpudevices.gpu.deckhouse.io",
    "gpunodeinventories.gpu.deckhouse.io",
)
ALLOCATION = '[{"card": "GPU-1", "index": 0, "percent": 50}]'


@dataclass(frozen=True)
class AccessEnv:
    cluster: Cluster
    namespace: str
    other: str
    folder: Path

    def can(self, user: str, verb: str, resource: str, namespace: str = "", subresource: str = "") -> bool:
        """As `kubectl auth can-i --as` asks, without a process for each of hundreds of questions."""
        plural, _, group = resource.partition(".")
        names = {"group": group, "resource": plural, "subresource": subresource, "namespace": namespace}
        spec = {
            "user": user,
            "groups": ["system:authenticated"],
            "resourceAttributes": {"verb": verb, **names},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        review = api_proxy.connect(self.cluster).post(REVIEWS, body)
        return bool(review["status"]["allowed"])

    def run(self, user: str, *args: str, stdin: str = "") -> CommandResult:
        """Run a command of croupier as the user."""
        path = self.folder / user
        known = yaml.safe_load(Path(self.cluster.kubeconfig).read_text())
        for entry in known["users"]:
            entry["user"]["as"] = user
        path.write_text(yaml.safe_dump(known))
        return croupier(*args, stdin=stdin, kubeconfig=path)


@pytest.fixture(scope="module")
def access(cluster: Cluster, crds: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessEnv]:
    mine, other = (shared_cluster.create_namespace(cluster, name) for name in ("members", "others"))
    env = AccessEnv(cluster, mine, other, tmp_path_factory.mktemp("access"))
    bound = [_binding(role, role, mine) for role in ("view", "edit", "admin")]
    bound += [_binding("everywhere", "view"), _binding("member", "edit", mine)]
    bound += [_binding("member", "croupier-pool-reader"), _binding("node-reader", "system:kube-scheduler")]
    given = yaml.safe_dump_all(bound)
    cluster.kubectl("apply", "-f", str(ROLES))
    cluster.kubectl("apply", "-f", "-", stdin=given)
    polling.until_blocking(
        lambda: (
            all(env.can(user, "list", NAMESPACED[0], mine) for user in ("view", "edit", "admin"))
            and env.can("edit", "create", NAMESPACED[0], mine)
            and env.can("admin", "create", NAMESPACED[0], mine)
        ),
        "the aggregation of the roles",
    )
    yield env
    cluster.kubectl("delete", "-f", "-", stdin=given)
    cluster.kubectl("delete", "-f", str(ROLES))
    for name in (mine, other):
        shared_cluster.delete_namespace(cluster, name, shared_cluster.namespaced(crds))


def _binding(user: str, role: str, namespace: str = "") -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"test-{user}-{role}", **where},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }


@pytest.mark.parametrize(("user", "writes"), [("view", False), ("edit", True), ("admin", True)])
def test_members_use_the_kinds_of_their_namespace_only(access: AccessEnv, user: str, writes: bool):
    for resource in NAMESPACED:
        assert all(access.can(user, verb, resource, access.namespace) for verb in READ)
        assert {access.can(user, verb, resource, access.namespace) for verb in WRITE} == {writes}
        assert not any(access.can(user, verb, resource, access.other) for verb in (*READ, *WRITE))
    for resource in CLUSTER_SCOPED:
        assert not any(access.can(user, verb, resource) for verb in (*READ, *WRITE))


def test_members_cannot_write_status(access: AccessEnv):
    for resource in NAMESPACED:
        assert not access.can("admin", "patch", resource, access.namespace, "status")


def test_view_of_the_cluster_reads_every_kind_and_writes_none(access: AccessEnv):
    for resource in (*NAMESPACED, *CLUSTER_SCOPED):
        assert all(access.can("everywhere", verb, resource) for verb in READ)
        assert not any(access.can("everywhere", verb, resource) for verb in WRITE)


def test_pool_readers_read_pools_only(access: AccessEnv):
    assert all(access.can("member", verb, "gpupools.gpu.deckhouse.io") for verb in READ)
    assert not access.can("member", "patch", "gpupools.gpu.deckhouse.io")
    assert not access.can("member", "list", "gpudevices.gpu.deckhouse.io")
    assert not access.can("member", "list", "nodereservations.mps.nvidia.com")


async def test_an_editor_makes_reservations_and_a_viewer_is_refused(access: AccessEnv):
    given = config.load(access.cluster.kubeconfig)
    spec = {"podKey": f"{access.namespace}/web", "nodeName": "any", "numCards": 1, "percentPerCard": 50}
    allocation = {"namespace": access.namespace, "podName": "web", "desiredCPULimit": "1"}
    objects: list[tuple[Resource[Any], dict[str, Any]]] = [
        (kinds.RESERVATIONS, {"metadata": {"name": "made"}, "spec": spec}),
        (kinds.POD_ALLOCATIONS, {"metadata": {"name": "made"}, "spec": allocation}),
    ]
    for kind, body in objects:
        async with api_client.connect(replace(given, impersonate={"Impersonate-User": ("view",)})) as api:
            with pytest.raises(Forbidden):
                await api.create(kind, body, namespace=access.namespace, dry_run=True)
        async with api_client.connect(replace(given, impersonate={"Impersonate-User": ("edit",)})) as api:
            await api.create(kind, body, namespace=access.namespace, dry_run=True)
            with pytest.raises(Forbidden):
                await api.create(kind, body, namespace=access.other, dry_run=True)


async def test_explain_pod_answers_a_member(access: AccessEnv, clean_cluster: None):
    async with api_client.connect(config.load(access.cluster.kubeconfig)) as api:
        waiting = await api.create(kinds.PODS, env.pod(access.namespace, "waiting", ratio="50"))
        message = "0/3 nodes are available: 3 needs 1 card with 50 %% free but has 0."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        await api.patch(
            kinds.PODS,
            waiting.metadata.name,
            {"status": {"conditions": [condition]}},
            namespace=access.namespace,
            subresource="status",
        )
        placed = env.pod(access.namespace, "placed", ratio="50", allocation=ALLOCATION)
        placed["spec"]["nodeName"] = "node-1"
        await api.create(kinds.PODS, placed)

    pending = access.run("view", "explain", "pod", f"{access.namespace}/waiting")
    bound = access.run("view", "explain", "pod", f"{access.namespace}/placed", "-o", "json")
    listed = access.run("view", "reservations", "-n", access.namespace, "-o", "json")
    everywhere = access.run("view", "reservations", "-A", "-o", "json")

    assert (pending.code, pending.err) == (1, "")
    assert "needs 1 card with 50 % free but has 0." in pending.out
    assert "requests   50 % of 1 card" in pending.out
    assert "not read   cannot list nodereservations: nodereservations.mps.nvidia.com is forb" in pending.out
    assert (bound.code, bound.data["state"]) == (0, "Bound")
    assert bound.data["sentence"] == "the pod is bound to node-1 and holds card 0 (GPU-1)"
    assert any(sentence.startswith("cannot list nodes: ") for sentence in bound.data["unreadable"])
    assert [(row["pod"], row["share"]) for row in listed.data] == [("placed", "50 % of 1 card")]
    assert "not read: cannot list pods of other namespaces: " in listed.err
    assert (everywhere.code, listed.code) == (0, 0)


async def test_what_if_tells_a_member_what_the_pool_has_left(access: AccessEnv, clean_cluster: None):
    pool = {"metadata": {"name": "training"}, "spec": {"allocation": {"mode": "Exclusive"}}}
    capacity = {"total": 8, "used": 5, "available": 3, "unit": "Card"}
    async with api_client.connect(config.load(access.cluster.kubeconfig)) as api:
        await api.create(kinds.GPU_POOLS.raw, pool)
        status = {"status": {"capacity": capacity}}
        await api.patch(kinds.GPU_POOLS, "training", status, subresource="status")
    body = env.pod(access.namespace, "tried")
    body["spec"]["containers"][0]["resources"]["limits"]["gpu.deckhouse.io/training"] = "1"

    told = access.run("member", "what-if", "-f", "-", stdin=yaml.safe_dump(body))
    data = access.run("view", "what-if", "-f", "-", "-o", "json", stdin=yaml.safe_dump(body))

    assert (told.code, told.err) == (1, "")
    assert "Cannot tell where the pod would be placed" in told.out
    assert "pool training has 3 of 8 units (Card) available" in told.out
    assert "cannot list gpupools" not in told.out
    assert (data.code, data.data["missing"], data.data["notes"]) == (1, None, [])
    assert any(sentence.startswith("cannot list gpupools: ") for sentence in data.data["unreadable"])


async def test_available_without_the_ledger_says_so(access: AccessEnv, clean_cluster: None):
    async with api_client.connect(config.load(access.cluster.kubeconfig)) as api:
        await api.create(kinds.NODES, {"metadata": {"name": "plain"}})

    answer = access.run("node-reader", "available", "-o", "name")

    assert (answer.code, answer.out) == (0, "node/plain\n")
    assert answer.err.startswith("croupier: cannot read the ledger, so available does not consider it: ")


def test_another_namespace_is_named_and_not_read(access: AccessEnv):
    told = access.run("view", "reservations", "-n", access.other)

    assert told.code == 0
    assert f"cannot list reservations in namespace {access.other}: " in told.err
