"""Checks a whole installation, for `croupier doctor`: reads the cluster, and core/installation evaluates it.

Nothing is written: the pod that tests the webhook is created with dryRun.
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
"""Deployments with leader election, and their Leases."""
RESTING: Final = ("webhook", "scheduler", "agents", "plugins")
"""Checks that are skipped while Croupier is disabled."""
WAITS_LONG: Final = 120.0
"""Seconds after which a scheduler must have set a condition on a pod."""


@dataclass(frozen=True, slots=True)
class Patient:
    """The cluster that is checked."""

    api: Client
    namespace: str
    now: datetime
    _listed: dict[str, Any] = field(default_factory=dict)

    async def all(self, resource: Resource[T], selection: Selection = EVERYTHING) -> list[T]:
        """All objects, listed once; a kind that is not installed has no objects."""
        key = f"{resource.full_name} {resource.type} {selection}"
        if key not in self._listed:
            try:
                self._listed[key] = list((await self.api.list(resource, selection)).items)
            except NotFound:
                self._listed[key] = []
        items: list[T] = self._listed[key]
        return items

    def here(self, labels: str | None = None) -> Selection:
        return Selection(self.namespace, labels=labels)


Check: TypeAlias = Callable[[Patient], Awaitable[Complaints]]


async def admitted(api: Client, namespace: str, now: datetime) -> Patient:
    """Raises if the API server is unreachable, so that this is one error and not one per check."""
    await api.raw(Request("GET", "/version"))
    return Patient(api, namespace, now)


async def examine(cluster: Patient, check: str) -> Complaints:
    """Run one check by its name; a failed request is a complaint, too."""
    try:
        if check in RESTING and await _is_off(cluster):
            return (diagnosis.resting(check),)
        return diagnosis.ordered(await CHECKS[check](cluster))
    except KubeError as error:
        return (diagnosis.unseen(check, str(error)),)


async def _versions(cluster: Patient) -> Complaints:
    version = msgspec.json.decode(await cluster.api.raw(Request("GET", "/version")))
    nodes = await cluster.all(kinds.NODES.raw)
    with_cards = {device.status.node_name for device in await cluster.all(kinds.GPU_DEVICES)}
    workloads = await _workloads(cluster)
    return diagnosis.versions(
        Versions(
            server=version.get("gitVersion", ""),
            kubelets={
                name: node["status"].get("nodeInfo", {}).get("kubeletVersion", "")
                for node in nodes
                if (name := node["metadata"]["name"]) in with_cards
            },
            images={_named(workload): _image_version(workload) for workload in workloads},
            ours=metadata.version("croupier"),
            moves_limits=bool(await cluster.all(kinds.POD_ALLOCATIONS)),
        )
    )


async def _definitions(cluster: Patient) -> Complaints:
    installed = {crd["metadata"]["name"]: _definition(crd) for crd in await cluster.all(DEFINITIONS)}
    wanted = {crd["metadata"]["name"]: crd["spec"] for crd in crds.definitions().values()}
    return diagnosis.definitions(wanted, installed)


def _definition(crd: Raw) -> Definition:
    conditions = crd.get("status", {}).get("conditions") or []
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    return Definition(crd["spec"], "Established" in true)


async def _processes(cluster: Patient) -> Complaints:
    workloads = [_workload(workload) for workload in await _workloads(cluster)]
    return diagnosis.processes(workloads, cluster.namespace)


async def _workloads(cluster: Patient) -> list[Raw]:
    here = cluster.here(OURS)
    deployments, sets = await cluster.all(DEPLOYMENTS, here), await cluster.all(DAEMON_SETS, here)
    return [{**deployment, "kind": "Deployment"} for deployment in deployments] + [
        {**daemon_set, "kind": "DaemonSet"} for daemon_set in sets
    ]


def _named(workload: Raw) -> str:
    return f"{workload['kind'].lower()}/{workload['metadata']['name']}"


def _image_version(workload: Raw) -> str:
    image: str = workload["spec"]["template"]["spec"]["containers"][0].get("image", "")
    version = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    return "" if version == "latest" else version


def _workload(workload: Raw) -> Workload:
    name, status = _named(workload), workload.get("status", {})
    if workload["kind"] == "DaemonSet":
        return Workload(name, status.get("desiredNumberScheduled", 0), status.get("numberReady", 0))
    return Workload(name, workload["spec"].get("replicas", 1), status.get("readyReplicas", 0))


async def _webhook(cluster: Patient) -> Complaints:
    webhooks = await doctor_webhook.gather(cluster.api, cluster.namespace)
    return diagnosis_cluster.webhooks(webhooks, cluster.now)


async def _scheduler(cluster: Patient) -> Complaints:
    leases = {lease.metadata.name: lease for lease in await cluster.all(kinds.LEASES, cluster.here())}
    workloads = {_named(workload).partition("/")[2] for workload in await _workloads(cluster)}
    elected = workloads & ELECTIONS.keys()
    if not await cluster.all(kinds.POD_ALLOCATIONS):
        elected -= {LIMITS}  # it acquires its lease only once there is a PodAllocation
    renewals = {name: renewed(leases.get(name)) for name in (ELECTIONS[workload] for workload in elected)}
    in_memory_lease = leases.get(switch.LEASE)
    in_memory = in_memory_lease.spec.holder_identity if in_memory_lease is not None else ""
    if in_memory:
        renewals[switch.LEASE] = renewed(in_memory_lease)
    expired = diagnosis.silent(renewals, cluster.now)
    pods = [pod for pod in await cluster.all(kinds.PODS.raw) if _is_marked(pod) and not _is_over(pod)]
    return diagnosis_cluster.scheduling(
        Scheduling(
            in_memory="" if switch.LEASE in expired else in_memory,
            recorded=len(await cluster.all(kinds.NODE_RESERVATIONS)),
            keepers={f"{cluster.namespace}/{name}": since for name, since in expired.items()},
            passed_by=[_key(pod) for pod in pods if _is_bound(pod) and not _has_cards(pod)],
            waiting=[_key(pod) for pod in pods if not _is_bound(pod) and _unheard(pod, cluster.now)],
        )
    )


def renewed(lease: Lease | None) -> datetime | None:
    if lease is None or not lease.spec.renew_time:
        return None
    return datetime.fromisoformat(lease.spec.renew_time)


def _is_marked(pod: Raw) -> bool:
    containers = pod["spec"].get("containers", [])
    return any(MARK in (container.get("resources", {}).get("requests") or {}) for container in containers)


def _is_over(pod: Raw) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_bound(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _has_cards(pod: Raw) -> bool:
    return ALLOCATION in (pod["metadata"].get("annotations") or {})


def _unheard(pod: Raw, now: datetime) -> bool:
    """An old pod on which no scheduler has set a condition."""
    age = now - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    conditions = {condition["type"] for condition in pod.get("status", {}).get("conditions") or []}
    return age.total_seconds() > WAITS_LONG and "PodScheduled" not in conditions


def _key(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def _rights(cluster: Patient) -> Complaints:
    return diagnosis_cluster.rights(await doctor_rights.lacking(cluster.api, cluster.namespace))


async def _plugins(cluster: Patient) -> Complaints:
    wanted: dict[str, set[str]] = {}
    for device in await cluster.all(kinds.GPU_DEVICES):
        status = device.status
        if status.node_name and status.managed is not False:
            pools_of = wanted.setdefault(status.node_name, set())
            if status.pool_ref is not None and status.state == "Assigned":
                pools_of.add(POOL + status.pool_ref.name)
    nodes = [node for node in await cluster.all(kinds.NODES) if node.metadata.name in wanted]
    return diagnosis_cluster.plugins(
        [
            Serving(
                node.metadata.name,
                wanted[node.metadata.name],
                [name for name, amount in node.status.allocatable.items() if amount != "0"],
                next(((c.status, c.message) for c in node.status.conditions if c.type == SERVED), None),
            )
            for node in nodes
        ]
    )


async def _ledger(cluster: Patient) -> Complaints:
    report = await inspection.inspect(cluster.api)
    return diagnosis_cluster.ledger(
        [
            (item.node, item.divergence.finding, report.recorded and item.divergence.repair is not None)
            for item in report.checked
        ]
    )


async def _agents(cluster: Patient) -> Complaints:
    leases = await cluster.all(kinds.LEASES, cluster.here(agent_report.LEASES))
    heartbeats = {
        lease.metadata.annotations.get(agent_report.NODE, lease.metadata.name): renewed(lease)
        for lease in leases
    }
    nodes = {node.metadata.name for node in await cluster.all(kinds.NODES)}
    silent = {
        inventory.metadata.name: condition.message
        for inventory in await cluster.all(kinds.GPU_NODE_INVENTORIES)
        for condition in inventory.status.conditions
        if condition.type == AGENT_SILENT and condition.status == "True"
    }
    agents = {node: at for node, at in heartbeats.items() if node in nodes}
    trading = await cluster.all(kinds.LEASES, cluster.here(market_report.LEASES))
    beats = {lease.metadata.annotations.get(market_report.NODE, ""): renewed(lease) for lease in trading}
    traders = {node: at for node, at in beats.items() if node in nodes}
    return (*diagnosis.agents(agents, silent, cluster.now), *diagnosis.markets(traders, cluster.now))


async def _pools(cluster: Patient) -> Complaints:
    return diagnosis_cluster.pools(
        [
            PoolState(
                pool.metadata.name,
                {c.type: c.message for c in pool.status.conditions if c.status == "True"},
            )
            for pool in await cluster.all(kinds.GPU_POOLS)
        ]
    )


async def _is_off(cluster: Patient) -> bool:
    return any(not settings.enabled for settings in await _stand(cluster))


async def _settings(cluster: Patient) -> Complaints:
    return diagnosis_cluster.settings(await _stand(cluster))


async def _stand(cluster: Patient) -> list[SettingsSeen]:
    maps = await cluster.all(kinds.CONFIG_MAPS.raw, _called(settings_source.CONFIG_MAP, cluster.namespace))
    modules = await cluster.all(MODULE_CONFIGS, _called(settings_source.MODULE))
    name = f"ConfigMap {cluster.namespace}/{settings_source.CONFIG_MAP}"
    module_name = f"ModuleConfig {settings_source.MODULE}"
    return [
        *(_judged(name, {**config_map, "kind": "ConfigMap"}) for config_map in maps),
        *(_judged(module_name, {**module, "kind": "ModuleConfig"}) for module in modules),
    ]


def _called(name: str, namespace: str | None = None) -> Selection:
    return Selection(namespace, fields=f"metadata.name={name}")


def _judged(where: str, document: Raw) -> SettingsSeen:
    match settings_order.read(document):
        case settings_order.Refused(problems):
            return SettingsSeen(where, [str(problem) for problem in problems])
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
"""In the order of their dependencies."""
