"""Finds and removes what an installation leaves in the cluster (order: core/installation/uninstall_plan).

Every step is idempotent and safe to run concurrently: an object that is already gone is no error, and an
object that has changed is read again in the next round.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from croupier.admission import certificates_shared, configurations
from croupier.api import crds, kinds, market_report, usage_records
from croupier.api.gpu import agent_report, pool_config
from croupier.api.gpu.agent_report import FIELD_MANAGER
from croupier.api.gpu.pool import POOL_FINALIZER
from croupier.api.meta import PART_OF_SELECTOR
from croupier.api.mps.reservation import RELEASE_FINALIZER
from croupier.capacity import exclusion
from croupier.controllers.pools import writer as pool_writing
from croupier.core.installation import uninstall_plan
from croupier.core.installation.uninstall_plan import NodeRemnants, Remnant
from croupier.core.nodes.bootstrap import SERVICE
from croupier.core.nodes.node_conditions import MIG_APPLIED
from croupier.core.nodes.node_conditions import SERVED as SERVED_CONDITION
from croupier.core.pools.assignment import ASSIGNMENT
from croupier.core.pools.hints import NODE_LABEL, TAINTS
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import DeleteOptions, PatchType
from croupier.kube.client.errors import Conflict, KubeError, NotFound
from croupier.kube.client.resource import Raw, Resource
from croupier.ops.doctor_webhook import REGISTRATIONS
from croupier.ops.installation import ELECTIONS, Installation, renew_time
from croupier.ops.scheduler_manifests import SECOND_SCHEDULER_NAME

T = TypeVar("T")

LEASE_TTL: Final = timedelta(seconds=20)
"""A Lease with a holder that was renewed within this time is held."""
ROUNDS: Final = 5
AT_ONCE: Final = 16
POLL: Final = 0.5
TEST_POD: Final = "app=croupier-doctor"
"""Selects the pod of `helm test` (charts/croupier/templates/tests)."""
OUR_PREFIX: Final = "croupier-"
OUR_RESOURCES: Final = ("gpu.mps.io/", "gpu.deckhouse.io/")
POLICIES: Final = (
    kinds.ADMISSION_POLICY_BINDINGS,
    kinds.MUTATING_POLICY_BINDINGS,
    kinds.ADMISSION_POLICIES,
    kinds.MUTATING_POLICIES,
)
OUR_CONDITIONS: Final = (MIG_APPLIED, SERVED_CONDITION)


class StillRunning(KubeError):
    """A running process would recreate the removed objects; the message names it."""


class NotGone(KubeError):
    """An object is recreated after every removal; the message names it."""


async def remnants(cluster: Installation) -> tuple[Remnant, ...]:
    """All of Croupier's objects and marks in the cluster."""
    groups = await asyncio.gather(
        _registrations(cluster),
        _processes(cluster),
        _with_finalizer(cluster),
        _nodes(cluster),
        _created_objects(cluster),
        _kinds(cluster),
    )
    return uninstall_plan.ordered(remnant for group in groups for remnant in group)


async def _registrations(cluster: Installation) -> list[Remnant]:
    remnants_ = []
    for kind, resource in REGISTRATIONS.items():
        for webhook in await cluster.all(resource):
            hooks = [hook for hook in webhook.get("webhooks") or [] if hook["name"] in configurations.PATHS]
            if hooks:
                failing = [hook["name"] for hook in hooks if hook.get("failurePolicy") == "Fail"]
                remnants_.append(uninstall_plan.webhook(kind, webhook["metadata"]["name"], failing))
    for resource in POLICIES:
        names = [policy["metadata"]["name"] for policy in await cluster.all(resource)]
        remnants_ += [
            uninstall_plan.policy(resource.kind, name) for name in names if name.startswith(OUR_PREFIX)
        ]
    return remnants_


async def _processes(cluster: Installation) -> list[Remnant]:
    here = cluster.here(PART_OF_SELECTOR)
    return [
        uninstall_plan.process(kind.kind, workload["metadata"]["name"])
        for kind in (kinds.DEPLOYMENTS, kinds.DAEMON_SETS)
        for workload in await cluster.all(kind, here)
    ]


async def _with_finalizer(cluster: Installation) -> list[Remnant]:
    reservations = [
        uninstall_plan.reservation(item.metadata.key, deleted=item.metadata.deletion_timestamp is not None)
        for item in await cluster.all(kinds.RESERVATIONS)
        if RELEASE_FINALIZER in item.metadata.finalizers
    ]
    return reservations + [
        uninstall_plan.pool(pool.metadata.name, deleted=pool.metadata.deletion_timestamp is not None)
        for pool in await cluster.all(kinds.GPU_POOLS)
        if POOL_FINALIZER in pool.metadata.finalizers
    ]


async def _nodes(cluster: Installation) -> list[Remnant]:
    marked = [(node["metadata"]["name"], marks(node)) for node in await cluster.all(kinds.NODES.raw)]
    return [uninstall_plan.node(name, left) for name, left in marked if left]


def marks(node: Raw) -> NodeRemnants:
    meta, status = node["metadata"], node.get("status") or {}
    ours = _taints(meta)
    pools = [key for key in meta.get("labels") or {} if key.startswith(NODE_LABEL)]
    has = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
    return NodeRemnants(
        labels=tuple(sorted({*pools, *_applied(meta)})),
        taints=tuple(sorted(ours)),
        conditions=tuple(
            condition["type"]
            for condition in status.get("conditions") or []
            if condition["type"] in OUR_CONDITIONS
        ),
        resources=tuple(sorted(name for name, amount in has.items() if amount != "0" and _is_ours(name))),
    )


def _is_ours(resource: str) -> bool:
    return resource.startswith(OUR_RESOURCES)


def _taints(meta: Raw) -> set[str]:
    written = (meta.get("annotations") or {}).get(TAINTS, "")
    return set(written.split(",")) if written else set()


def _applied(meta: Raw) -> set[str]:
    """Labels that the node agent applied and still owns."""
    keys: set[str] = set()
    for entry in meta.get("managedFields") or []:
        if entry.get("manager") == FIELD_MANAGER and not entry.get("subresource"):
            labels = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
            keys |= {key.removeprefix("f:") for key in labels if key != "."}
    return keys & (meta.get("labels") or {}).keys()


async def _created_objects(cluster: Installation) -> list[Remnant]:
    """Objects that the processes created; objects of manifests are removed with the manifests."""
    maps = [item.metadata for item in await cluster.all(kinds.CONFIG_MAPS, cluster.here())]
    created = [
        uninstall_plan.kept("ConfigMap", meta.key, "the cards of a pool")
        for meta in maps
        if pool_config.POOL_LABEL in meta.labels
    ]
    recorded = set(usage_records.names())
    created += [
        uninstall_plan.kept("ConfigMap", meta.key, "the record of usage")
        for meta in maps
        if meta.name in recorded
    ]
    leases = [lease.metadata for lease in await cluster.all(kinds.LEASES, cluster.here())]
    ours = {*ELECTIONS.values(), *exclusion.LEASE_OF.values(), SECOND_SCHEDULER_NAME}
    created += [
        uninstall_plan.kept("Lease", meta.key, "a heartbeat or an election")
        for meta in leases
        if meta.name in ours or {agent_report.AGENT_LABEL, market_report.AGENT_LABEL} & meta.labels.keys()
    ]
    secrets = await cluster.all(kinds.SECRETS, cluster.here(name=certificates_shared.NAME))
    created += [
        uninstall_plan.kept("Secret", item.metadata.key, "the webhook's certificate") for item in secrets
    ]
    pods = {SERVICE: "a service started on a node", TEST_POD: "the pod of a helm test"}
    return created + [
        uninstall_plan.kept("Pod", pod.metadata.key, what)
        for labels, what in pods.items()
        for pod in await cluster.all(kinds.PODS, cluster.here(labels))
    ]


async def _kinds(cluster: Installation) -> list[Remnant]:
    installed = {crd["metadata"]["name"] for crd in await cluster.all(kinds.CUSTOM_RESOURCE_DEFINITIONS)}
    ours = [kind.resource for kind in crds.KINDS if kind.resource.full_name in installed]
    objects = await asyncio.gather(*(cluster.all(kind.raw) for kind in ours))
    return [
        uninstall_plan.definition(kind.full_name, len(items))
        for kind, items in zip(ours, objects, strict=True)
    ]


async def clear(cluster: Installation, *, with_kinds: bool, told: Callable[[Remnant], None]) -> None:
    """Remove everything, stage by stage, until nothing is left; raises NotGone if objects are recreated."""
    left: tuple[Remnant, ...] = ()
    for _ in range(ROUNDS):
        left = uninstall_plan.plan(await remnants(cluster), with_kinds=with_kinds)
        if not left:
            return
        for stage in uninstall_plan.STAGES:
            at_stage = [remnant for remnant in left if remnant.stage == stage]
            if stage == "reservation":
                await _wait_for_leases(cluster)
            await _all(at_stage, lambda remnant: _remove(cluster, remnant))
            for remnant in at_stage:
                told(remnant)
            if stage == "process":
                await _until(cluster, lambda: _ended(cluster), "Croupier's pods to end")
            if stage == "definition" and at_stage:
                await _until(cluster, lambda: _without_kinds(cluster), "Croupier's CRDs to be deleted")
    names = ", ".join(remnant.where for remnant in left[:3])
    raise NotGone(
        f"{names} are recreated after every removal; find and stop the program that creates them, then repeat"
    )


async def _wait_for_leases(cluster: Installation) -> None:
    """Wait until no process of Croupier holds a Lease, in the cluster or outside of it."""
    await _until(cluster, lambda: _no_holder(cluster), "Leases to expire", raising=True)


async def _no_holder(cluster: Installation) -> bool:
    return not await _lease_holders(cluster)


async def _lease_holders(cluster: Installation) -> list[str]:
    leases = await cluster.all(kinds.LEASES, cluster.here())
    ours = {*ELECTIONS.values(), *exclusion.LEASE_OF.values()}
    now = cluster.clock.now()
    return [
        f"{lease.spec.holder_identity} (Lease {lease.metadata.name})"
        for lease in leases
        if lease.metadata.name in ours and lease.spec.holder_identity and _fresh(renew_time(lease), now)
    ]


def _fresh(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and abs(now - moment) < LEASE_TTL


async def _ended(cluster: Installation) -> bool:
    """A pod that has ended may stay, such as that of `helm test`."""
    pods = await cluster.all(kinds.PODS, cluster.here(PART_OF_SELECTOR))
    return all(pod.status.phase in ("Succeeded", "Failed") for pod in pods)


async def _without_kinds(cluster: Installation) -> bool:
    return not await _kinds(cluster)


async def _until(
    cluster: Installation, done: Callable[[], Awaitable[bool]], what: str, *, raising: bool = False
) -> None:
    started = cluster.clock.monotonic()
    while not await done():
        if cluster.clock.monotonic() - started > cluster.wait:
            holders = ", ".join(await _lease_holders(cluster)) if raising else ""
            raise StillRunning(
                f"waited {cluster.wait:g} s for {what}"
                + (
                    f": {holders} is still running; stop it, then repeat"
                    if holders
                    else "; find out what blocks them, then repeat"
                )
            )
        await cluster.clock.sleep(POLL)


async def _all(left: list[Remnant], remove: Callable[[Remnant], Awaitable[None]]) -> None:
    async def attempt(remnant: Remnant) -> None:
        with suppress(NotFound, Conflict):  # gone, or changed: the next round reads it again
            await remove(remnant)

    await concurrency.gather_limited((attempt(remnant) for remnant in left), at_once=AT_ONCE)


_DELETED: Final[dict[str, Resource[Any]]] = {
    **REGISTRATIONS,
    **{
        kind.kind: kind
        for kind in (
            *POLICIES,
            kinds.DEPLOYMENTS,
            kinds.DAEMON_SETS,
            kinds.CONFIG_MAPS,
            kinds.LEASES,
            kinds.SECRETS,
            kinds.PODS,
        )
    },
    "CRD": kinds.CUSTOM_RESOURCE_DEFINITIONS,
}


async def _remove(cluster: Installation, what: Remnant) -> None:
    match what.stage:
        case "reservation":
            await _remove_finalizer(cluster, kinds.RESERVATIONS.raw, what.name, RELEASE_FINALIZER)
        case "pool":
            await _release(cluster, what.name)
        case "node":
            await _unmark(cluster, what.name)
        case _:
            kind = _DELETED[what.kind]
            namespace, _, name = what.name.rpartition("/")
            place = (namespace or cluster.namespace) if kind.namespaced else None
            await cluster.api.delete(kind, name, namespace=place, how=DeleteOptions(propagation="Background"))


async def _remove_finalizer(cluster: Installation, kind: Resource[Raw], key: str, finalizer: str) -> None:
    """Remove a finalizer, because its controller no longer runs."""
    namespace, _, name = key.rpartition("/")
    current = await cluster.api.get(kind, name, namespace=namespace or None)
    meta = current["metadata"]
    others = [other for other in meta.get("finalizers") or [] if other != finalizer]
    patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": others}}
    await cluster.api.patch(kind, name, patch, namespace=namespace or None)


async def _release(cluster: Installation, name: str) -> None:
    """Remove a pool's finalizer, and the card assignments of a pool that is being deleted."""
    pool = await cluster.api.get(kinds.GPU_POOLS, name)
    if pool.metadata.deletion_timestamp is not None:
        for card in await cluster.all(kinds.GPU_DEVICES):
            if card.metadata.annotations.get(ASSIGNMENT) == name:
                annotations = {**pool_writing.cleared_annotations(card), ASSIGNMENT: None}
                await cluster.api.patch(
                    kinds.GPU_DEVICES, card.metadata.name, {"metadata": {"annotations": annotations}}
                )
    await _remove_finalizer(cluster, kinds.GPU_POOLS.raw, name, POOL_FINALIZER)


async def _unmark(cluster: Installation, name: str) -> None:
    node = await cluster.api.get(kinds.NODES.raw, name)
    left = marks(node)
    if _applied(node["metadata"]):  # an apply without fields removes all fields that the agent owns
        alone = {"metadata": {"name": name, "uid": node["metadata"]["uid"]}}
        agent = cluster.api.with_field_manager(FIELD_MANAGER)
        node = await agent.apply(kinds.NODES.raw, alone)
    await _unlabel(cluster, node)
    if left.conditions or left.resources:
        gone = dict.fromkeys(left.resources)
        conditions = [{"type": condition, "$patch": "delete"} for condition in left.conditions]
        status = {"capacity": gone, "allocatable": gone, "conditions": conditions}
        strategic = PatchType.STRATEGIC
        await cluster.api.patch(
            kinds.NODES.raw, name, {"status": status}, patch_type=strategic, subresource="status"
        )


async def _unlabel(cluster: Installation, node: Raw) -> None:
    """Remove the labels of pools, and the taints that Croupier added."""
    meta, ours = node["metadata"], _taints(node["metadata"])
    labels = {key: None for key in meta.get("labels") or {} if key.startswith(NODE_LABEL)}
    if not labels and not ours:
        return
    patch: Raw = {"metadata": {"resourceVersion": meta["resourceVersion"], "labels": labels}}
    if ours:
        taints = node["spec"].get("taints") or []
        patch["metadata"]["annotations"] = {TAINTS: None}
        patch["spec"] = {"taints": [taint for taint in taints if _taint_text(taint) not in ours]}
    await cluster.api.patch(kinds.NODES.raw, meta["name"], patch)


def _taint_text(taint: Raw) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
