"""Checks a whole installation, for `croupier doctor`: reads the cluster, and core/installation evaluates it.

Nothing is written: the pod that tests the webhook is created with dryRun.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from importlib import metadata
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from croupier.admission.configurations import EXCLUDED
from croupier.api import crds, kinds, market_report, settings_source, settings_state
from croupier.api.core_v1 import Lease
from croupier.api.gpu import agent_report
from croupier.api.gpu.node import AGENT_SILENT
from croupier.api.mps.allocation import ALLOCATION
from croupier.capacity import exclusion
from croupier.controllers.ledger import inspection
from croupier.core.installation import diagnosis, diagnosis_cluster, diagnosis_scheduling
from croupier.core.installation.diagnosis import (
    InstallationProblems,
    InstalledCRD,
    InstalledVersions,
)
from croupier.core.installation.diagnosis_cluster import (
    NodeResources,
    PoolConditions,
    SettingsSource,
)
from croupier.core.installation.diagnosis_scheduling import SchedulingFacts
from croupier.core.model.refusal import Refusal
from croupier.core.nodes.node_conditions import SERVED
from croupier.core.pods import ledger_resource, podspec_view
from croupier.core.pods.request_parser import LEDGER, POOL
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import KubeError
from croupier.kube.client.resource import Raw
from croupier.kube.client.transport import ApiRequest
from croupier.ops import doctor_guard, doctor_permissions, doctor_processes, doctor_webhook
from croupier.ops.installation import ELECTIONS, Installation, find_namespace, renew_time
from croupier.wiring import elections

T = TypeVar("T")

SKIPPED_WHILE_DISABLED: Final = ("webhook", "scheduler", "agents", "plugins")
"""Checks that are skipped while Croupier is disabled."""
SCHEDULER_TIMEOUT: Final = 120.0
"""Seconds after which a scheduler must have set a condition on a pod."""


Check: TypeAlias = Callable[[Installation], Awaitable[InstallationProblems]]


async def connect_to(api: Client, namespace: str | None) -> Installation:
    """Find the namespace unless it is given.

    Raises if the API server is unreachable, so that this is one error and not one per check.
    """
    await api.raw(ApiRequest("GET", "/version"))
    found = namespace or await find_namespace(api)
    return Installation(api, found, clock=api.clock, list_once=True)


async def run_all(api: Client, namespace: str) -> dict[str, Any]:
    """All checks, in the JSON of `croupier doctor -o json`."""
    installation = await connect_to(api, namespace)
    if absent := await doctor_processes.absent(installation):
        return diagnosis.as_data({"processes": absent})
    return diagnosis.as_data({name: await run_check(installation, name) for name in CHECKS})


async def run_check(cluster: Installation, check: str) -> InstallationProblems:
    """Run one check by its name; a failed request is a complaint, too."""
    try:
        if check in SKIPPED_WHILE_DISABLED and await _is_disabled(cluster):
            return (diagnosis.skipped(check),)
        return diagnosis.ordered(await CHECKS[check](cluster))
    except KubeError as error:
        return (diagnosis.check_failed(check, str(error)),)


async def _versions(cluster: Installation) -> InstallationProblems:
    version = msgspec.json.decode(await cluster.api.raw(ApiRequest("GET", "/version")))
    nodes = await cluster.all(kinds.NODES.raw)
    with_cards = {device.status.node_name for device in await cluster.all(kinds.GPU_DEVICES)}
    workloads = await doctor_processes.workloads(cluster)
    return diagnosis.versions(
        InstalledVersions(
            server=version.get("gitVersion", ""),
            kubelets={
                name: node["status"].get("nodeInfo", {}).get("kubeletVersion", "")
                for node in nodes
                if (name := node["metadata"]["name"]) in with_cards
            },
            images=doctor_processes.versions(workloads),
            ours=metadata.version("croupier"),
            moves_limits=bool(await cluster.all(kinds.POD_ALLOCATIONS)),
        )
    )


async def _definitions(cluster: Installation) -> InstallationProblems:
    installed = {
        crd["metadata"]["name"]: _definition(crd)
        for crd in await cluster.all(kinds.CUSTOM_RESOURCE_DEFINITIONS)
    }
    wanted = {crd["metadata"]["name"]: crd["spec"] for crd in crds.definitions().values()}
    return diagnosis.crds(wanted, installed, same_version=await doctor_processes.have_our_version(cluster))


def _definition(crd: Raw) -> InstalledCRD:
    conditions = crd.get("status", {}).get("conditions") or []
    true = {condition["type"] for condition in conditions if condition["status"] == "True"}
    return InstalledCRD(crd["spec"], "Established" in true)


async def _webhook(cluster: Installation) -> InstallationProblems:
    webhooks = await doctor_webhook.gather(cluster.api, cluster.namespace)
    return diagnosis_cluster.webhooks(webhooks, cluster.clock.now())


async def _scheduler(cluster: Installation) -> InstallationProblems:
    leases = {lease.metadata.name: lease for lease in await cluster.all(kinds.LEASES, cluster.here())}
    elected = await doctor_processes.running(cluster) & ELECTIONS.keys()
    if not await cluster.all(kinds.POD_ALLOCATIONS):
        elected -= {elections.LIMITS}  # it acquires its lease only once there is a PodAllocation
    renewals = {name: renew_time(leases.get(name)) for name in (ELECTIONS[workload] for workload in elected)}
    if in_memory := _in_memory(leases, cluster.clock.now()):
        renewals[exclusion.LEASE_OF["InMemory"]] = renew_time(leases[exclusion.LEASE_OF["InMemory"]])
    expired = diagnosis.without_heartbeat(renewals, cluster.clock.now())
    live = [pod for pod in await cluster.all(kinds.PODS.raw) if not _is_over(pod)]
    pods = [pod for pod in live if _is_marked(pod)]
    return diagnosis_scheduling.scheduling(
        SchedulingFacts(
            in_memory="" if exclusion.LEASE_OF["InMemory"] in expired else in_memory,
            recorded=len(await cluster.all(kinds.NODE_RESERVATIONS)),
            stale_leases={f"{cluster.namespace}/{name}": since for name, since in expired.items()},
            bypassed=[_key(pod) for pod in pods if _is_bound(pod) and not _has_cards(pod)],
            waiting=[
                _key(pod) for pod in pods if not _is_bound(pod) and _is_ignored(pod, cluster.clock.now())
            ],
            unmarked=[
                _key(pod) for pod in live if not _is_bound(pod) and _lacks_the_mark(pod, cluster.namespace)
            ],
        )
    )


def _in_memory(leases: Mapping[str, Lease], now: datetime) -> str:
    """The process that keeps the ledger in memory, unless it was replaced by those that store it."""
    lease, shared = (leases.get(exclusion.LEASE_OF[kind]) for kind in ("InMemory", "CRD"))
    if lease is None or not lease.spec.holder_identity:
        return ""
    stored = renew_time(shared) if shared is not None and shared.spec.holder_identity else None
    return "" if diagnosis_scheduling.is_past(renew_time(lease), stored, now) else lease.spec.holder_identity


def _is_marked(pod: Raw) -> bool:
    containers = pod["spec"].get("containers", [])
    return any(LEDGER in (container.get("resources", {}).get("requests") or {}) for container in containers)


def _lacks_the_mark(pod: Raw, ours: str) -> bool:
    spec = podspec_view.read(pod)
    asks = () if isinstance(spec, Refusal) else spec.containers
    excluded = pod["metadata"]["namespace"] in {*EXCLUDED, ours}
    return not excluded and not _is_marked(pod) and any(map(ledger_resource.asks_for_cards, asks))


def _is_over(pod: Raw) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _is_bound(pod: Raw) -> bool:
    return bool(pod["spec"].get("nodeName"))


def _has_cards(pod: Raw) -> bool:
    return ALLOCATION in (pod["metadata"].get("annotations") or {})


def _is_ignored(pod: Raw, now: datetime) -> bool:
    """An old pod on which no scheduler has set a condition."""
    age = now - datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
    conditions = {condition["type"] for condition in pod.get("status", {}).get("conditions") or []}
    return age.total_seconds() > SCHEDULER_TIMEOUT and "PodScheduled" not in conditions


def _key(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def _rights(cluster: Installation) -> InstallationProblems:
    ours = await doctor_processes.have_our_version(cluster)  # a rolled back process needs other permissions
    missing = await doctor_permissions.missing(cluster.api, cluster.namespace) if ours else []
    excess = await doctor_permissions.excess(cluster.api, cluster.namespace)
    return (
        *diagnosis_cluster.permissions(missing, cluster.namespace),
        *diagnosis_cluster.excess_permissions(excess),
    )


async def _plugins(cluster: Installation) -> InstallationProblems:
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
            NodeResources(
                node.metadata.name,
                wanted[node.metadata.name],
                [name for name, amount in node.status.allocatable.items() if amount != "0"],
                next(((c.status, c.message) for c in node.status.conditions if c.type == SERVED), None),
            )
            for node in nodes
        ],
        cluster.namespace,
    )


async def _ledger(cluster: Installation) -> InstallationProblems:
    report = await inspection.inspect(cluster.api)
    return diagnosis_cluster.ledger(
        [
            (item.node, item.divergence.finding, report.recorded and item.divergence.repair is not None)
            for item in report.checked
        ]
    )


async def _agents(cluster: Installation) -> InstallationProblems:
    leases = await cluster.all(kinds.LEASES, cluster.here(agent_report.LEASE_SELECTOR))
    heartbeats = {
        lease.metadata.annotations.get(agent_report.NODE_ANNOTATION, lease.metadata.name): renew_time(lease)
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
    trading = await cluster.all(kinds.LEASES, cluster.here(market_report.LEASE_SELECTOR))
    beats = {
        lease.metadata.annotations.get(market_report.NODE_ANNOTATION, ""): renew_time(lease)
        for lease in trading
    }
    expected = await doctor_processes.market_nodes(cluster)
    traders = {
        node: at for node, at in beats.items() if node in nodes and (expected is None or node in expected)
    }
    return (
        *diagnosis.agents(agents, silent, cluster.clock.now(), namespace=cluster.namespace),
        *diagnosis.markets(traders, cluster.clock.now()),
    )


async def _pools(cluster: Installation) -> InstallationProblems:
    return diagnosis_cluster.pools(
        [
            PoolConditions(
                pool.metadata.name,
                {c.type: c.message for c in pool.status.conditions if c.status == "True"},
            )
            for pool in await cluster.all(kinds.GPU_POOLS)
        ]
    )


async def _is_disabled(cluster: Installation) -> bool:
    return any(not settings.enabled for settings in await _settings_found(cluster))


async def _settings(cluster: Installation) -> InstallationProblems:
    return diagnosis_cluster.settings(await _settings_found(cluster))


async def _settings_found(cluster: Installation) -> list[SettingsSource]:
    maps = await cluster.all(kinds.CONFIG_MAPS.raw, cluster.here(name=settings_source.CONFIG_MAP))
    modules = await cluster.all(
        kinds.MODULE_CONFIGS, Selection(fields=f"metadata.name={settings_source.MODULE_CONFIG}")
    )
    name = f"ConfigMap {cluster.namespace}/{settings_source.CONFIG_MAP}"
    module_name = f"ModuleConfig {settings_source.MODULE_CONFIG}"
    return [
        *(_parsed(name, {**config_map, "kind": "ConfigMap"}) for config_map in maps),
        *(_parsed(module_name, {**module, "kind": "ModuleConfig"}) for module in modules),
    ]


def _parsed(where: str, document: Raw) -> SettingsSource:
    match settings_state.read(document):
        case settings_state.RejectedSettings(problems):
            return SettingsSource(where, [str(problem) for problem in problems])
        case order:
            return SettingsSource(where, enabled=order.enabled)


CHECKS: Final[Mapping[str, Check]] = {
    "versions": _versions,
    "crds": _definitions,
    "processes": doctor_processes.check,
    "settings": _settings,
    "rbac": _rights,
    "webhook": _webhook,
    "scheduler": _scheduler,
    "agents": _agents,
    "plugins": _plugins,
    "guard": doctor_guard.check,
    "pools": _pools,
    "ledger": _ledger,
}
"""In the order of their dependencies."""
