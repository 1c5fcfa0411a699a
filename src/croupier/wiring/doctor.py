"""A look at a whole installation from outside, for `croupier doctor`: gathers for core/installation to judge.

Nothing is written: the one pod that is offered to the webhook is offered with dryRun, and is never made.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import metadata
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from croupier.api import crds, kinds, market_report, settings_order, settings_source
from croupier.api.core_v1 import Lease
from croupier.api.gpu import agent_report
from croupier.api.gpu.node import AGENT_SILENT
from croupier.api.meta import OURS
from croupier.api.mps.allocation import ALLOCATION
from croupier.book import switch
from croupier.controllers.ledger import inspection
from croupier.core.installation import diagnosis, diagnosis_cluster
from croupier.core.installation.diagnosis import Complaints, Definition, Versions, Workload
from croupier.core.installation.diagnosis_cluster import PoolState, Scheduling, Serving, SettingsSeen
from croupier.core.nodes.state import SERVED
from croupier.core.pods.request import MARK, POOL
from croupier.kube.client import EVERYTHING, Client, Selection
from croupier.kube.errors import KubeError, NotFound
from croupier.kube.resource import Raw, Resource
from croupier.kube.transport import Request
from croupier.wiring import bootstrap, doctor_rights, doctor_webhook, inventory, limits, manager, pools
from croupier.wiring.settings import MODULE_CONFIGS

T = TypeVar("T")

DEFINITIONS: Final[Resource[Raw]] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, dict
)
DEPLOYMENTS: Final[Resource[Raw]] = Resource("apps", "v1", "deployments", "Deployment", True, dict)
DAEMON_SETS: Final[Resource[Raw]] = Resource("apps", "v1", "daemonsets", "DaemonSet", True, dict)
LIMITS: Final = "croupier-cpu-limits"
ELECTIONS: Final = {
    "gpu-inventory-controller": inventory.LEASE,
    "gpu-bootstrap-controller": bootstrap.LEASE,
    "gpupool-controller": pools.LEASE,
    "croupier-ledger": manager.MANAGER_LEASE,
    LIMITS: limits.LIMITS_LEASE,
}
"""Deployments that work under a Lease, and which."""
RESTING: Final = ("webhook", "scheduler", "agents", "plugins")
"""Checks of what nobody does while we are switched off."""
WAITS_LONG: Final = 120.0
"""Seconds after which a scheduler has said something of every pod."""


@dataclass(frozen=True, slots=True)
class Patient:
    """The cluster that is looked at."""

    api: Client
    namespace: str
    now: datetime
    _listed: dict[str, Any] = field(default_factory=dict)

    async def all(self, resource: Resource[T], selection: Selection = EVERYTHING) -> list[T]:
        """Listed once, whoever asks; a kind that is not installed has no objects."""
        key = f"{resource.full_name} {resource.type} {selection}"
        if key not in self._listed:
            try:
                self._listed[key] = list((await self.api.list(resource, selection)).items)
            except NotFound:
                self._listed[key] = []
        found: list[T] = self._listed[key]
        return found

    def here(self, labels: str | None = None) -> Selection:
        return Selection(self.namespace, labels=labels)


Check: TypeAlias = Callable[[Patient], Awaitable[Complaints]]


async def admitted(api: Client, namespace: str, now: datetime) -> Patient:
    """Who does not answer at all cannot be examined: that is one sentence, not one for each check."""
    await api.raw(Request("GET", "/version"))
    return Patient(api, namespace, now)


async def examine(patient: Patient, check: str) -> Complaints:
    """One check by its name; what it could not see is a complaint, too."""
    try:
        if check in RESTING and await _is_off(patient):
            return (diagnosis.resting(check),)
        return diagnosis.ordered(await CHECKS[check](patient))
    except KubeError as error:
        return (diagnosis.unseen(check, str(error)),)


async def _versions(patient: Patient) -> Complaints:
    told = msgspec.json.decode(await patient.api.raw(Request("GET", "/version")))
    nodes = await patient.all(kinds.NODES.raw)
    with_cards = {one.status.node_name for one in await patient.all(kinds.GPU_DEVICES)}
    workloads = await _workloads(patient)
    return diagnosis.versions(
        Versions(
            server=told.get("gitVersion", ""),
            kubelets={
                name: one["status"].get("nodeInfo", {}).get("kubeletVersion", "")
                for one in nodes
                if (name := one["metadata"]["name"]) in with_cards
            },
            images={_named(one): _image_version(one) for one in workloads},
            ours=metadata.version("croupier"),
            moves_limits=bool(await patient.all(kinds.POD_ALLOCATIONS)),
        )
    )


async def _definitions(patient: Patient) -> Complaints:
    found = {one["metadata"]["name"]: _definition(one) for one in await patient.all(DEFINITIONS)}
    wanted = {one["metadata"]["name"]: one["spec"] for one in crds.definitions().values()}
    return diagnosis.definitions(wanted, found)


def _definition(found: Raw) -> Definition:
    conditions = found.get("status", {}).get("conditions") or []
    held = {one["type"] for one in conditions if one["status"] == "True"}
    return Definition(found["spec"], "Established" in held)


async def _processes(patient: Patient) -> Complaints:
    found = [_workload(one) for one in await _workloads(patient)]
    return diagnosis.processes(found, patient.namespace)


async def _workloads(patient: Patient) -> list[Raw]:
    here = patient.here(OURS)
    deployments, sets = await patient.all(DEPLOYMENTS, here), await patient.all(DAEMON_SETS, here)
    return [{**one, "kind": "Deployment"} for one in deployments] + [
        {**one, "kind": "DaemonSet"} for one in sets
    ]


def _named(found: Raw) -> str:
    return f"{found['kind'].lower()}/{found['metadata']['name']}"


def _image_version(found: Raw) -> str:
    image: str = found["spec"]["template"]["spec"]["containers"][0].get("image", "")
    version = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    return "" if version == "latest" else version


def _workload(found: Raw) -> Workload:
    status = found.get("status", {})
    if found["kind"] == "DaemonSet":
        return Workload(_named(found), status.get("desiredNumberScheduled", 0), status.get("numberReady", 0))
    return Workload(_named(found), found["spec"].get("replicas", 1), status.get("readyReplicas", 0))


async def _webhook(patient: Patient) -> Complaints:
    seen = await doctor_webhook.gather(patient.api, patient.namespace)
    return diagnosis_cluster.webhooks(seen, patient.now)


async def _scheduler(patient: Patient) -> Complaints:
    leases = {one.metadata.name: one for one in await patient.all(kinds.LEASES, patient.here())}
    elected = {_named(one).partition("/")[2] for one in await _workloads(patient)} & ELECTIONS.keys()
    if not await patient.all(kinds.POD_ALLOCATIONS):
        elected -= {LIMITS}  # nobody stands for election before there is a limit to move
    lives = {name: renewed(leases.get(name)) for name in (ELECTIONS[one] for one in elected)}
    book = leases.get(switch.LEASE)
    in_memory = book.spec.holder_identity if book is not None else ""
    if in_memory:
        lives[switch.LEASE] = renewed(book)
    quiet = diagnosis.silent(lives, patient.now)
    pods = [one for one in await patient.all(kinds.PODS.raw) if _is_marked(one) and not _is_over(one)]
    return diagnosis_cluster.scheduling(
        Scheduling(
            in_memory="" if switch.LEASE in quiet else in_memory,
            recorded=len(await patient.all(kinds.NODE_RESERVATIONS)),
            keepers={f"{patient.namespace}/{name}": since for name, since in quiet.items()},
            passed_by=[_key(one) for one in pods if _is_bound(one) and not _has_cards(one)],
            waiting=[_key(one) for one in pods if not _is_bound(one) and _unheard(one, patient.now)],
        )
    )


def renewed(lease: Lease | None) -> datetime | None:
    if lease is None or not lease.spec.renew_time:
        return None
    return datetime.fromisoformat(lease.spec.renew_time)


def _is_marked(pod: Raw) -> bool:
    containers = pod["spec"].get("containers", [])
    return any(MARK in (one.get("resources", {}).get("requests") or {}) for one in containers)


def _is_over(pod: Raw) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_bound(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _has_cards(pod: Raw) -> bool:
    return ALLOCATION in (pod["metadata"].get("annotations") or {})


def _unheard(pod: Raw, now: datetime) -> bool:
    """Old, and no scheduler has said anything about it."""
    age = now - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    told = {one["type"] for one in pod.get("status", {}).get("conditions") or []}
    return age.total_seconds() > WAITS_LONG and "PodScheduled" not in told


def _key(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def _rights(patient: Patient) -> Complaints:
    return diagnosis_cluster.rights(await doctor_rights.lacking(patient.api, patient.namespace))


async def _plugins(patient: Patient) -> Complaints:
    wanted: dict[str, set[str]] = {}
    for device in await patient.all(kinds.GPU_DEVICES):
        status = device.status
        if status.node_name and status.managed is not False:
            pools_of = wanted.setdefault(status.node_name, set())
            if status.pool_ref is not None and status.state == "Assigned":
                pools_of.add(POOL + status.pool_ref.name)
    nodes = [one for one in await patient.all(kinds.NODES) if one.metadata.name in wanted]
    return diagnosis_cluster.plugins(
        [
            Serving(
                one.metadata.name,
                wanted[one.metadata.name],
                [name for name, amount in one.status.allocatable.items() if amount != "0"],
                next(((c.status, c.message) for c in one.status.conditions if c.type == SERVED), None),
            )
            for one in nodes
        ]
    )


async def _ledger(patient: Patient) -> Complaints:
    found = await inspection.inspect(patient.api)
    return diagnosis_cluster.ledger(
        [
            (one.node, one.divergence.finding, found.recorded and one.divergence.repair is not None)
            for one in found.checked
        ]
    )


async def _agents(patient: Patient) -> Complaints:
    leases = await patient.all(kinds.LEASES, patient.here(agent_report.LEASES))
    lives = {
        one.metadata.annotations.get(agent_report.NODE, one.metadata.name): renewed(one) for one in leases
    }
    there = {one.metadata.name for one in await patient.all(kinds.NODES)}
    told = {
        inventory.metadata.name: one.message
        for inventory in await patient.all(kinds.GPU_NODE_INVENTORIES)
        for one in inventory.status.conditions
        if one.type == AGENT_SILENT and one.status == "True"
    }
    known = {node: at for node, at in lives.items() if node in there}
    trading = await patient.all(kinds.LEASES, patient.here(market_report.LEASES))
    beats = {one.metadata.annotations.get(market_report.NODE, ""): renewed(one) for one in trading}
    traders = {node: at for node, at in beats.items() if node in there}
    return (*diagnosis.agents(known, told, patient.now), *diagnosis.markets(traders, patient.now))


async def _pools(patient: Patient) -> Complaints:
    return diagnosis_cluster.pools(
        [
            PoolState(
                one.metadata.name,
                {c.type: c.message for c in one.status.conditions if c.status == "True"},
            )
            for one in await patient.all(kinds.GPU_POOLS)
        ]
    )


async def _is_off(patient: Patient) -> bool:
    return any(not one.enabled for one in await _stand(patient))


async def _settings(patient: Patient) -> Complaints:
    return diagnosis_cluster.settings(await _stand(patient))


async def _stand(patient: Patient) -> list[SettingsSeen]:
    maps = await patient.all(kinds.CONFIG_MAPS.raw, _called(settings_source.CONFIG_MAP, patient.namespace))
    modules = await patient.all(MODULE_CONFIGS, _called(settings_source.MODULE))
    name = f"ConfigMap {patient.namespace}/{settings_source.CONFIG_MAP}"
    found = [_judged(name, {**one, "kind": "ConfigMap"}) for one in maps]
    found += [
        _judged(f"ModuleConfig {settings_source.MODULE}", {**one, "kind": "ModuleConfig"}) for one in modules
    ]
    return found


def _called(name: str, namespace: str | None = None) -> Selection:
    return Selection(namespace, fields=f"metadata.name={name}")


def _judged(where: str, document: Raw) -> SettingsSeen:
    match settings_order.read(document):
        case settings_order.Refused(problems):
            return SettingsSeen(where, [str(one) for one in problems])
        case order:
            return SettingsSeen(where, enabled=order.enabled)


CHECKS: Final[Mapping[str, Check]] = {
    "versions": _versions,
    "crds": _definitions,
    "processes": _processes,
    "settings": _settings,
    "rbac": _rights,
    "webhook": _webhook,
    "scheduler": _scheduler,
    "agents": _agents,
    "plugins": _plugins,
    "pools": _pools,
    "ledger": _ledger,
}
"""In the order in which one thing builds on the other."""
