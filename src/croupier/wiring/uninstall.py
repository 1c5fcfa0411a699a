"""Finding and taking away what an installation leaves, in the order that core/installation/leaving has.

Everything can be done again, and by several at once: what is gone already is no error, and what changed
meanwhile is looked at again in the next round.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from croupier.admission import certificates_shared, configurations
from croupier.api import crds, kinds, market_report
from croupier.api.gpu import agent_report
from croupier.api.gpu.device import ASSIGNMENT
from croupier.api.gpu.pool import POOL_FINALIZER
from croupier.api.meta import OURS
from croupier.api.mps.reservation import RELEASE_FINALIZER
from croupier.book import switch
from croupier.controllers.pools import nodes as pool_nodes
from croupier.controllers.pools import writing as pool_writing
from croupier.core.installation import leaving
from croupier.core.installation.leaving import Marks, Remnant
from croupier.core.nodes.bootstrap import SERVICE
from croupier.core.nodes.state import MIG_APPLIED
from croupier.core.nodes.state import SERVED as SERVED_CONDITION
from croupier.core.pools.nodes import LABEL
from croupier.kube import together
from croupier.kube.client import EVERYTHING, Client, Deletion, PatchType, Selection
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import Conflict, KubeError, NotFound
from croupier.kube.resource import Raw, Resource
from croupier.node.agent import publishing
from croupier.wiring.chart import SCHEDULER
from croupier.wiring.doctor import DAEMON_SETS, DEFINITIONS, DEPLOYMENTS, ELECTIONS, renewed
from croupier.wiring.doctor_webhook import BINDINGS, POLICIES, REGISTRATIONS

T = TypeVar("T")

ALIVE: Final = timedelta(seconds=20)
"""A Lease that names its holder and was renewed no longer ago has one."""
ROUNDS: Final = 5
AT_ONCE: Final = 16
POLL: Final = 0.5
OUR_PREFIX: Final = "croupier-"
OUR_RESOURCES: Final = ("gpu.mps.io/", "gpu.deckhouse.io/")
OUR_CONDITIONS: Final = (MIG_APPLIED, SERVED_CONDITION)


class StillRunning(KubeError):
    """Somebody would put back what is taken away; the sentence says who."""


class NotGone(KubeError):
    """Something stays however often it is taken away; the sentence says what."""


@dataclass(frozen=True, slots=True)
class House:
    """The cluster that we leave."""

    api: Client
    namespace: str
    wait: float = 60.0
    """Seconds for processes to end, and for kinds to go."""
    clock: Clock = SystemClock()  # noqa: RUF009  # it has no state

    async def all(self, resource: Resource[T], selection: Selection = EVERYTHING) -> list[T]:
        try:
            return list((await self.api.list(resource, selection)).items)
        except NotFound:
            return []


async def remnants(house: House) -> tuple[Remnant, ...]:
    """Everything of ours that there is."""
    parts = await asyncio.gather(
        _registrations(house),
        _processes(house),
        _finalized(house),
        _nodes(house),
        _kept(house),
        _kinds(house),
    )
    return leaving.ordered(one for part in parts for one in part)


async def _registrations(house: House) -> list[Remnant]:
    found = []
    for kind, resource in REGISTRATIONS.items():
        for one in await house.all(resource):
            hooks = [hook for hook in one.get("webhooks") or [] if hook["name"] in configurations.PATHS]
            if hooks:
                failing = [hook["name"] for hook in hooks if hook.get("failurePolicy") == "Fail"]
                found.append(leaving.webhook(kind, one["metadata"]["name"], failing))
    for resource in (BINDINGS, POLICIES):
        names = [one["metadata"]["name"] for one in await house.all(resource)]
        found += [leaving.policy(resource.kind, name) for name in names if name.startswith(OUR_PREFIX)]
    return found


async def _processes(house: House) -> list[Remnant]:
    here = Selection(house.namespace, labels=OURS)
    return [
        leaving.process(kind.kind, one["metadata"]["name"])
        for kind in (DEPLOYMENTS, DAEMON_SETS)
        for one in await house.all(kind, here)
    ]


async def _finalized(house: House) -> list[Remnant]:
    found = [
        leaving.reservation(one.metadata.key, deleted=one.metadata.deletion_timestamp is not None)
        for one in await house.all(kinds.RESERVATIONS)
        if RELEASE_FINALIZER in one.metadata.finalizers
    ]
    return found + [
        leaving.pool(one.metadata.name, deleted=one.metadata.deletion_timestamp is not None)
        for one in await house.all(kinds.GPU_POOLS)
        if POOL_FINALIZER in one.metadata.finalizers
    ]


async def _nodes(house: House) -> list[Remnant]:
    found = [(one["metadata"]["name"], marks(one)) for one in await house.all(kinds.NODES.raw)]
    return [leaving.node(name, left) for name, left in found if left]


def marks(node: Raw) -> Marks:
    meta, status = node["metadata"], node.get("status") or {}
    ours = _taints(meta)
    pools = [key for key in meta.get("labels") or {} if key.startswith(LABEL)]
    has = {**(status.get("capacity") or {}), **(status.get("allocatable") or {})}
    return Marks(
        labels=tuple(sorted({*pools, *_applied(meta)})),
        taints=tuple(sorted(ours)),
        conditions=tuple(
            one["type"] for one in status.get("conditions") or [] if one["type"] in OUR_CONDITIONS
        ),
        resources=tuple(sorted(name for name, amount in has.items() if amount != "0" and _is_ours(name))),
    )


def _is_ours(resource: str) -> bool:
    return resource.startswith(OUR_RESOURCES)


def _taints(meta: Raw) -> set[str]:
    written = (meta.get("annotations") or {}).get(pool_nodes.TAINTS, "")
    return set(written.split(",")) if written else set()


def _applied(meta: Raw) -> set[str]:
    """Labels that the agent of the node applied, and nobody else has taken over."""
    keys: set[str] = set()
    for entry in meta.get("managedFields") or []:
        if entry.get("manager") == publishing.REPORTER and not entry.get("subresource"):
            labels = entry.get("fieldsV1", {}).get("f:metadata", {}).get("f:labels", {})
            keys |= {key.removeprefix("f:") for key in labels if key != "."}
    return keys & (meta.get("labels") or {}).keys()


async def _kept(house: House) -> list[Remnant]:
    """What processes made in our namespace; what came by manifest goes as it came."""
    maps = await house.all(kinds.CONFIG_MAPS, Selection(house.namespace, labels=pool_writing.LABEL))
    found = [leaving.kept("ConfigMap", one.metadata.key, "which cards are in a pool") for one in maps]
    leases = [one.metadata for one in await house.all(kinds.LEASES, Selection(house.namespace))]
    ours = {*ELECTIONS.values(), switch.LEASE, SCHEDULER}
    found += [
        leaving.kept("Lease", meta.key, "a sign of life")
        for meta in leases
        if meta.name in ours or {agent_report.AGENT, market_report.AGENT} & meta.labels.keys()
    ]
    secrets = await house.all(kinds.SECRETS, _called(certificates_shared.NAME, house.namespace))
    found += [leaving.kept("Secret", one.metadata.key, "the webhook's certificate") for one in secrets]
    pods = await house.all(kinds.PODS, Selection(house.namespace, labels=SERVICE))
    return found + [leaving.kept("Pod", one.metadata.key, "started on a node that lacked it") for one in pods]


def _called(name: str, namespace: str) -> Selection:
    return Selection(namespace, fields=f"metadata.name={name}")


async def _kinds(house: House) -> list[Remnant]:
    there = {one["metadata"]["name"] for one in await house.all(DEFINITIONS)}
    ours = [kind.resource for kind in crds.KINDS if kind.resource.full_name in there]
    counts = await asyncio.gather(*(house.all(one.raw) for one in ours))
    return [leaving.definition(one.full_name, len(found)) for one, found in zip(ours, counts, strict=True)]


async def clear(house: House, *, with_kinds: bool, told: Callable[[Remnant], None]) -> None:
    """Take everything away, stage by stage, until nothing is left; NotGone if something always is."""
    left: tuple[Remnant, ...] = ()
    for _ in range(ROUNDS):
        left = leaving.plan(await remnants(house), with_kinds=with_kinds)
        if not left:
            return
        for stage in leaving.STAGES:
            at_stage = [one for one in left if one.stage == stage]
            if stage == "reservation":
                await _quiet(house)
            await _all(at_stage, lambda one: _remove(house, one))
            for one in at_stage:
                told(one)
            if stage == "process":
                await _until(house, lambda: _ended(house), "our pods to end")
            if stage == "definition" and at_stage:
                await _until(house, lambda: _without_kinds(house), "our kinds to go")
    names = ", ".join(one.where for one in left[:3])
    raise NotGone(
        f"{names} come back whenever they are taken away: somebody else makes them; see who, then repeat"
    )


async def _quiet(house: House) -> None:
    """Nobody of ours is at work any more, also outside the cluster."""
    await _until(house, lambda: _nobody(house), "Leases to run out", raising=True)


async def _nobody(house: House) -> bool:
    return not await _alive(house)


async def _alive(house: House) -> list[str]:
    leases = await house.all(kinds.LEASES, Selection(house.namespace))
    ours = {*ELECTIONS.values(), switch.LEASE}
    now = house.clock.now()
    return [
        f"{one.spec.holder_identity} (Lease {one.metadata.name})"
        for one in leases
        if one.metadata.name in ours and one.spec.holder_identity and _fresh(renewed(one), now)
    ]


def _fresh(moment: datetime | None, now: datetime) -> bool:
    return moment is not None and abs(now - moment) < ALIVE


async def _ended(house: House) -> bool:
    return not await house.all(kinds.PODS, Selection(house.namespace, labels=OURS))


async def _without_kinds(house: House) -> bool:
    return not await _kinds(house)


async def _until(
    house: House, done: Callable[[], Awaitable[bool]], what: str, *, raising: bool = False
) -> None:
    begun = house.clock.monotonic()
    while not await done():
        if house.clock.monotonic() - begun > house.wait:
            who = ", ".join(await _alive(house)) if raising else ""
            raise StillRunning(
                f"waited {house.wait:g} s for {what}"
                + (
                    f": {who} still works; stop it, then repeat"
                    if who
                    else "; see what keeps them, then repeat"
                )
            )
        await house.clock.sleep(POLL)


async def _all(found: list[Remnant], remove: Callable[[Remnant], Awaitable[None]]) -> None:
    async def one(what: Remnant) -> None:
        with suppress(NotFound, Conflict):  # gone, or changed: the next round looks again
            await remove(what)

    await together.all_of((one(what) for what in found), at_once=AT_ONCE)


_DELETED: Final[dict[str, Resource[Any]]] = {
    **REGISTRATIONS,
    BINDINGS.kind: BINDINGS,
    POLICIES.kind: POLICIES,
    DEPLOYMENTS.kind: DEPLOYMENTS,
    DAEMON_SETS.kind: DAEMON_SETS,
    "ConfigMap": kinds.CONFIG_MAPS,
    "Lease": kinds.LEASES,
    "Secret": kinds.SECRETS,
    "Pod": kinds.PODS,
    "CRD": DEFINITIONS,
}


async def _remove(house: House, what: Remnant) -> None:
    match what.stage:
        case "reservation":
            await _lift(house, kinds.RESERVATIONS.raw, what.name, RELEASE_FINALIZER)
        case "pool":
            await _release(house, what.name)
        case "node":
            await _unmark(house, what.name)
        case _:
            kind = _DELETED[what.kind]
            namespace, _, name = what.name.rpartition("/")
            place = (namespace or house.namespace) if kind.namespaced else None
            await house.api.delete(kind, name, namespace=place, how=Deletion(propagation="Background"))


async def _lift(house: House, kind: Resource[Raw], key: str, finalizer: str) -> None:
    """Its controller would have, for what it stood for is over: nobody deals any more."""
    namespace, _, name = key.rpartition("/")
    found = await house.api.get(kind, name, namespace=namespace or None)
    meta = found["metadata"]
    others = [one for one in meta.get("finalizers") or [] if one != finalizer]
    patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "finalizers": others}}
    await house.api.patch(kind, name, patch, namespace=namespace or None)


async def _release(house: House, name: str) -> None:
    """A pool that is being deleted takes its cards' assignments along, as its controller would have it."""
    pool = await house.api.get(kinds.GPU_POOLS, name)
    if pool.metadata.deletion_timestamp is not None:
        for card in await house.all(kinds.GPU_DEVICES):
            if card.metadata.annotations.get(ASSIGNMENT) == name:
                words = {**pool_writing.left(card), ASSIGNMENT: None}
                await house.api.patch(
                    kinds.GPU_DEVICES, card.metadata.name, {"metadata": {"annotations": words}}
                )
    await _lift(house, kinds.GPU_POOLS.raw, name, POOL_FINALIZER)


async def _unmark(house: House, name: str) -> None:
    node = await house.api.get(kinds.NODES.raw, name)
    left = marks(node)
    if _applied(node["metadata"]):  # whoever applies nothing gives up all that it applied
        alone = {"metadata": {"name": name, "uid": node["metadata"]["uid"]}}
        agent = house.api.acting_as(publishing.REPORTER)
        node = await agent.apply(kinds.NODES.raw, alone)
    await _unlabel(house, node)
    if left.conditions or left.resources:
        gone = dict.fromkeys(left.resources)
        conditions = [{"type": one, "$patch": "delete"} for one in left.conditions]
        status = {"capacity": gone, "allocatable": gone, "conditions": conditions}
        strategic = PatchType.STRATEGIC
        await house.api.patch(
            kinds.NODES.raw, name, {"status": status}, patch_type=strategic, subresource="status"
        )


async def _unlabel(house: House, node: Raw) -> None:
    """Pools' labels and taints: only taints that we put there."""
    meta, ours = node["metadata"], _taints(node["metadata"])
    labels = {key: None for key in meta.get("labels") or {} if key.startswith(LABEL)}
    if not labels and not ours:
        return
    patch: Raw = {"metadata": {"resourceVersion": meta["resourceVersion"], "labels": labels}}
    if ours:
        taints = node["spec"].get("taints") or []
        patch["metadata"]["annotations"] = {pool_nodes.TAINTS: None}
        patch["spec"] = {"taints": [one for one in taints if _spelled(one) not in ours]}
    await house.api.patch(kinds.NODES.raw, meta["name"], patch)


def _spelled(taint: Raw) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"
