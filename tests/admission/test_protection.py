"""Managed fields are protected, fields of users can be changed, and admitted requests stay."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from croupier.admission import protection
from croupier.admission.protection import ACCOUNTS, GARBAGE_COLLECTORS, KEEP_REQUEST
from croupier.api import kinds
from croupier.api.mps.reservation import MIRROR
from croupier.core.fallbacks import fallback
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, PERCENT, RATIO
from croupier.core.pools.hints import NODE_LABEL, POD_LABEL, REQUEST_ID
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import Forbidden, NotFound
from croupier.kube.client.resource import Resource
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.admission import cluster_env as envs
from tests.polling import until_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

CARD, NODE, POOL, CONFIG = "protected-card", "protected-node", "protected", "gpupool-protected"
LABELS = {"gpu.deckhouse.io/node": NODE, "gpu.deckhouse.io/device-index": "0"}
WITHIN = 60.0

Raw = dict[str, Any]


def account(name: str, namespace: str = DEFAULT_NAMESPACE) -> dict[str, tuple[str, ...]]:
    """A client with this identity; RBAC allows everything, so that only the policies decide."""
    user = f"system:serviceaccount:{namespace}:{name}"
    return {"Impersonate-User": (user,), "Impersonate-Group": ("system:masters",)}


@contextlib.asynccontextmanager
async def client_as(cluster: Cluster, identity: dict[str, tuple[str, ...]]) -> AsyncIterator[Client]:
    async with api_client.connect(
        replace(config.load(cluster.kubeconfig), impersonate=identity)
    ) as connected:
        yield connected


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> Iterator[str]:
    name = shared_cluster.create_namespace(cluster, "keeps")
    yield name
    shared_cluster.delete_namespace(cluster, name)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ours(cluster: Cluster, crds: object, namespace: str) -> AsyncIterator[Client]:
    """A client of one of our accounts, with one protected card, pool and node."""
    applied = [*protection.managed_documents(), *protection.pod_documents(_only(namespace))]
    made = DEFAULT_NAMESPACE not in cluster.kubectl("get", "namespaces", "-o", "name").stdout
    async with client_as(cluster, account("gpupool-controller")) as api:
        if made:
            cluster.kubectl("create", "namespace", DEFAULT_NAMESPACE)
        for one in applied:
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(one))
        try:
            await _create_objects(api, namespace)
            await until_async(lambda: _holds(cluster), "the policies", within=WITHIN)
            yield api
        finally:
            for one in reversed(applied):
                cluster.kubectl("delete", one["kind"], one["metadata"]["name"])
            await _clear(api)
            await until_async(lambda: _gone(cluster), "the policies to be forgotten", within=WITHIN)
            if made:
                cluster.kubectl("delete", "namespace", DEFAULT_NAMESPACE, "--wait=false")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def user(cluster: Cluster, ours: Client) -> AsyncIterator[Client]:
    """A user with all RBAC permissions."""
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


def _only(namespace: str) -> Raw:
    return {"matchLabels": {"kubernetes.io/metadata.name": namespace}}


async def _create_objects(api: Client, namespace: str) -> None:
    await api.create(kinds.NODES, {"metadata": {"name": NODE, "labels": {f"{NODE_LABEL}{POOL}": ""}}})
    await api.create(kinds.GPU_DEVICES, {"metadata": {"name": CARD, "labels": LABELS}})
    await api.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": NODE}})
    pool = {"metadata": {"name": POOL}, "spec": {"allocation": {"mode": "Exclusive"}}}
    await api.create(kinds.GPU_POOLS, pool)
    await api.create(kinds.CONFIG_MAPS, {"metadata": {"name": CONFIG}}, namespace=DEFAULT_NAMESPACE)
    await api.create(kinds.RESERVATIONS, RESERVATION, namespace=DEFAULT_NAMESPACE)
    pods = {
        "marked": envs.pod("marked", {GPU: "1", LEDGER: "1"}),
        "shared": envs.pod("shared", {PERCENT: "50", LEDGER: "1"}, {RATIO: "50"}),
        "plain": envs.pod("plain", {GPU: "1"}),
        "pooled": envs.pod("pooled", {}, {REQUEST_ID: "id-1"}),
    }
    pods["pooled"]["metadata"]["labels"] = {POD_LABEL: POOL}
    for body in pods.values():
        await api.create(kinds.PODS, body, namespace=namespace)


RESERVATION: Raw = {
    "metadata": {"name": "reserved"},
    "spec": {"podKey": f"{DEFAULT_NAMESPACE}/x", "nodeName": NODE, "numCards": 1, "percentPerCard": 10},
}
MARKED: Raw = {"name": "probe", "labels": {MIRROR: "true"}}
MADE: list[tuple[Resource[Any], str]] = [
    (kinds.RESERVATIONS, "reserved"),
    (kinds.NODES, NODE),
    (kinds.GPU_DEVICES, CARD),
    (kinds.GPU_NODE_INVENTORIES, NODE),
    (kinds.GPU_POOLS, POOL),
    (kinds.CONFIG_MAPS, CONFIG),
]


async def _clear(api: Client) -> None:
    for kind, name in MADE:
        with contextlib.suppress(NotFound):
            await api.delete(kind, name, namespace=DEFAULT_NAMESPACE if kind.namespaced else None)


async def _refused(cluster: Cluster) -> list[bool]:
    """Whether each policy is enforced for a user already."""
    async with api_client.connect(config.load(cluster.kubeconfig)) as api:
        probes: list[tuple[Resource[Any], Raw, str | None]] = [
            (kinds.GPU_DEVICES, {"metadata": {"name": "probe"}}, None),
            (kinds.CONFIG_MAPS, {"metadata": {"name": "gpupool-probe"}}, DEFAULT_NAMESPACE),
            (kinds.NODES, {"metadata": {"name": "probe", "labels": {f"{NODE_LABEL}a": ""}}}, None),
            (kinds.RESERVATIONS, {**RESERVATION, "metadata": MARKED}, DEFAULT_NAMESPACE),
        ]
        found = []
        for kind, body, namespace in probes:
            try:
                await api.create(kind, body, namespace=namespace, dry_run=True)
                found.append(False)
            except Forbidden:
                found.append(True)
        return found


async def _holds(cluster: Cluster) -> bool:
    return all(await _refused(cluster))


async def _gone(cluster: Cluster) -> bool:
    return not any(await _refused(cluster))


async def test_the_pod_policy_is_enforced(user: Client, namespace: str):
    """A policy is enforced only shortly after its creation."""

    async def holds() -> bool:
        return bool(await _why_not(user, kinds.PODS, "marked", _annotated(CARDS, "9"), namespace=namespace))

    await until_async(holds, KEEP_REQUEST, within=WITHIN)


async def _why_not(
    api: Client,
    kind: Resource[Any],
    name: str,
    patch: Raw,
    *,
    sub: str | None = None,
    namespace: str | None = None,
) -> str:
    """The message of the refusal of a dry run; empty if the change is allowed."""
    try:
        await api.patch(kind, name, patch, namespace=namespace, subresource=sub, dry_run=True)
    except Forbidden as refusal:
        return str(refusal).partition("denied request: ")[2].rpartition(" (403 to ")[0]
    return ""


def _annotated(key: str, value: str | None) -> Raw:
    return {"metadata": {"annotations": {key: value}}}


def _labelled(key: str, value: str | None) -> Raw:
    return {"metadata": {"labels": {key: value}}}


STATUS: Raw = {"status": {"conditions": []}}
SETTLED: Raw = {"status": {"state": "Unassigned"}}
EDITED: dict[str, tuple[Resource[Any], str, Raw, str | None, str]] = {
    "a card's state": (kinds.GPU_DEVICES, CARD, SETTLED, "status", f"the status of GPUDevice {CARD}"),
    "a card's node": (
        kinds.GPU_DEVICES,
        CARD,
        _labelled("gpu.deckhouse.io/node", "other"),
        None,
        "the label gpu.deckhouse.io/node",
    ),
    "a removed index of a card": (
        kinds.GPU_DEVICES,
        CARD,
        _labelled("gpu.deckhouse.io/device-index", None),
        None,
        "the label gpu.deckhouse.io/device-index",
    ),
    "a card's allocation": (
        kinds.GPU_DEVICES,
        CARD,
        _annotated("gpu.deckhouse.io/allocation", "{}"),
        None,
        "the annotation gpu.deckhouse.io/allocation",
    ),
    "a node's inventory": (
        kinds.GPU_NODE_INVENTORIES,
        NODE,
        STATUS,
        "status",
        f"the status of GPUNodeInventory {NODE}",
    ),
    "a pool's status": (kinds.GPU_POOLS, POOL, STATUS, "status", f"the status of GPUPool {POOL}"),
    "a pool's ConfigMap": (kinds.CONFIG_MAPS, CONFIG, {"data": {"a": "b"}}, None, f"ConfigMap {CONFIG}"),
    "a node joins a pool": (
        kinds.NODES,
        NODE,
        _labelled(f"{NODE_LABEL}other", ""),
        None,
        f"the label {NODE_LABEL}other",
    ),
    "a node leaves a pool": (
        kinds.NODES,
        NODE,
        _labelled(f"{NODE_LABEL}{POOL}", None),
        None,
        f"the label {NODE_LABEL}{POOL}",
    ),
    "a Reservation becomes a mirror": (
        kinds.RESERVATIONS,
        "reserved",
        _labelled(MIRROR, "true"),
        None,
        f"the label {MIRROR}",
    ),
    "a node joins by its status": (
        kinds.NODES,
        NODE,
        _labelled(f"{NODE_LABEL}other", ""),
        "status",
        f"the label {NODE_LABEL}other",
    ),
}


@pytest.mark.parametrize("edit", EDITED.values(), ids=EDITED)
async def test_managed_fields_can_be_written_only_by_our_accounts(edit, user: Client, ours: Client):
    kind, name, patch, sub, what = edit
    where = DEFAULT_NAMESPACE if kind.namespaced else None

    assert await _why_not(user, kind, name, patch, sub=sub, namespace=where) == protection.managed_field(what)
    assert await _why_not(ours, kind, name, patch, sub=sub, namespace=where) == ""


async def test_all_our_accounts_may_write_and_no_others(cluster: Cluster, ours: Client):
    for name in ACCOUNTS:
        async with client_as(cluster, account(name)) as api:
            assert await _why_not(api, kinds.GPU_DEVICES, CARD, SETTLED, sub="status") == ""
    for other in (account("gpupool-controller", "team"), account("croupier-node")):
        async with client_as(cluster, other) as api:
            assert await _why_not(api, kinds.GPU_DEVICES, CARD, SETTLED, sub="status")


async def test_users_cannot_create_cards(user: Client):
    for kind in (kinds.GPU_DEVICES, kinds.GPU_NODE_INVENTORIES):
        with pytest.raises(Forbidden, match=f"{kind.kind} invented is managed by Croupier"):
            await user.create(kind, {"metadata": {"name": "invented"}}, dry_run=True)


PEOPLES: dict[str, tuple[Resource[Any], str, Raw]] = {
    "assign a card": (kinds.GPU_DEVICES, CARD, _annotated("gpu.deckhouse.io/assignment", POOL)),
    "drain a card": (kinds.GPU_DEVICES, CARD, _annotated("gpu.deckhouse.io/drain", "new fan")),
    "ignore a card": (kinds.GPU_DEVICES, CARD, _labelled("gpu.deckhouse.io/ignore", "true")),
    "label a card": (kinds.GPU_DEVICES, CARD, _labelled("team", "red")),
    "confirm a pool": (kinds.GPU_POOLS, POOL, _annotated("gpu.deckhouse.io/confirmed", "1")),
    "change a pool": (kinds.GPU_POOLS, POOL, {"spec": {"allocation": {"mode": "MPS"}}}),
    "label a node": (kinds.NODES, NODE, _labelled("gpu.deckhouse.io/enabled", "false")),
    "cordon a node": (kinds.NODES, NODE, {"spec": {"unschedulable": True}}),
}


@pytest.mark.parametrize("deed", PEOPLES.values(), ids=PEOPLES)
async def test_users_may_change_their_own_fields(deed, user: Client):
    assert await _why_not(user, *deed) == ""


async def test_other_config_maps_and_garbage_collection_are_allowed(cluster: Cluster, user: Client):
    await user.create(
        kinds.CONFIG_MAPS, {"metadata": {"name": "settings"}}, namespace=DEFAULT_NAMESPACE, dry_run=True
    )
    await user.create(
        kinds.CONFIG_MAPS, {"metadata": {"name": CONFIG}}, namespace="kube-system", dry_run=True
    )
    removal = ("delete", "configmap", CONFIG, "-n", DEFAULT_NAMESPACE, "--dry-run=server")
    by_hand = cluster.kubectl(*removal, check=False)
    assert protection.managed_field(f"ConfigMap {CONFIG}") in by_hand.stderr
    for name in GARBAGE_COLLECTORS:
        who = (f"--as=system:serviceaccount:kube-system:{name}", "--as-group=system:masters")
        assert "deleted" in cluster.kubectl(*removal, *who).stdout


ASKED_LATER = {
    "cards": ("marked", _annotated(CARDS, "2"), protection.changed_request(CARDS)),
    "a ratio": ("marked", _annotated(RATIO, "50"), protection.changed_request(RATIO)),
    "a container": (
        "marked",
        _annotated("gpu.mps.io/container", "main"),
        protection.changed_request("gpu.mps.io/container"),
    ),
    "a larger ratio": ("shared", _annotated(RATIO, "100"), protection.changed_request(RATIO)),
    "a removed ratio": ("shared", _annotated(RATIO, None), protection.changed_request(RATIO)),
    "another id": (
        "pooled",
        _annotated(REQUEST_ID, "id-2"),
        protection.changed_admission(f"the annotation {REQUEST_ID}"),
    ),
    "a fallback that did not happen": (
        "pooled",
        _annotated(fallback.ANNOTATION, "7g.80gb->1g.10gb"),
        protection.changed_admission(f"the annotation {fallback.ANNOTATION}"),
    ),
    "no pool": ("pooled", _labelled(POD_LABEL, None), protection.changed_admission(f"the label {POD_LABEL}")),
    "a pool": ("plain", _labelled(POD_LABEL, POOL), protection.changed_admission(f"the label {POD_LABEL}")),
}


@pytest.mark.parametrize(("name", "patch", "sentence"), ASKED_LATER.values(), ids=ASKED_LATER)
async def test_the_request_of_a_pod_cannot_be_changed(name, patch, sentence, user: Client, namespace: str):
    await test_the_pod_policy_is_enforced(user, namespace)

    assert await _why_not(user, kinds.PODS, name, patch, namespace=namespace) == sentence


STILL_FREE = {
    "a note on a marked pod": ("marked", _annotated("note", "mine")),
    "a label": ("pooled", _labelled("team", "red")),
    "shares on an unmarked pod": ("plain", _annotated(RATIO, "50")),
    "an unchanged value": ("shared", _annotated(RATIO, "50")),
}


@pytest.mark.parametrize(("name", "patch"), STILL_FREE.values(), ids=STILL_FREE)
async def test_other_fields_of_a_pod_can_be_changed(name, patch, user: Client, namespace: str):
    assert await _why_not(user, kinds.PODS, name, patch, namespace=namespace) == ""
