"""The workloads of an installation, for `croupier doctor`: which there are, and how far their rollout is."""

from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from typing import Final

from croupier.api import kinds
from croupier.api.meta import PART_OF_SELECTOR
from croupier.core.installation import diagnosis, diagnosis_processes
from croupier.core.installation.diagnosis import InstallationProblems
from croupier.core.installation.diagnosis_processes import PodTimes, Rollout, WorkloadStatus
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import Forbidden
from croupier.kube.client.resource import Raw
from croupier.ops import uninstall
from croupier.ops.installation import Installation

MARKET: Final = "daemonset/croupier-market"


async def absent(cluster: Installation) -> InstallationProblems:
    """The only problem where Croupier is not installed: there, all other checks would fail, too.

    CRDs alone do nothing; an uninstallation keeps them.
    """
    if await workloads(cluster):
        return ()
    try:
        stages = {remnant.stage for remnant in await uninstall.remnants(cluster)}
        elsewhere = await _other_namespaces(cluster)
    except Forbidden:  # the account of `helm test` exists only where Croupier is installed
        return ()
    if "kept" in stages:  # objects in this namespace: the processes run outside of pods, or were deleted
        return ()
    if elsewhere or stages <= {"definition"}:
        return diagnosis_processes.not_installed(cluster.namespace, elsewhere)
    return ()


async def _other_namespaces(cluster: Installation) -> list[str]:
    everywhere = Selection(labels=PART_OF_SELECTOR)
    deployments = await cluster.all(kinds.DEPLOYMENTS, everywhere)
    daemon_sets = await cluster.all(kinds.DAEMON_SETS, everywhere)
    return sorted({item["metadata"]["namespace"] for item in (*deployments, *daemon_sets)})


async def workloads(cluster: Installation) -> list[Raw]:
    here = cluster.here(PART_OF_SELECTOR)
    deployments, sets = await cluster.all(kinds.DEPLOYMENTS, here), await cluster.all(kinds.DAEMON_SETS, here)
    return [{**deployment, "kind": "Deployment"} for deployment in deployments] + [
        {**daemon_set, "kind": "DaemonSet"} for daemon_set in sets
    ]


def versions(found: Sequence[Raw]) -> dict[str, str]:
    """The version in the image of each workload; empty if its tag is none."""
    return {_named(workload): _image_version(workload) for workload in found}


async def have_our_version(cluster: Installation) -> bool:
    """Whether what this command knows about its own version applies to the processes."""
    return diagnosis.same_version(versions(await workloads(cluster)).values(), metadata.version("croupier"))


async def running(cluster: Installation) -> set[str]:
    """Names of the workloads with a pod that is ready. About the others, the check `processes` reports."""
    statuses = [await _status(cluster, workload) for workload in await workloads(cluster)]
    return {status.name.partition("/")[2] for status in statuses if status.ready}


async def market_nodes(cluster: Installation) -> set[str] | None:
    """Nodes that should have a market agent; None if it runs outside of pods, as in a lab.

    An agent that was switched off, or whose node it no longer selects, leaves its Lease behind.
    """
    found = await workloads(cluster)
    if not found:
        return None
    agents = [workload for workload in found if _named(workload) == MARKET]
    pods = [pod for agent in agents for pod in await _pods_of(cluster, agent)]
    return {pod["spec"].get("nodeName", "") for pod in pods}


async def check(cluster: Installation) -> InstallationProblems:
    statuses = [await _status(cluster, workload) for workload in await workloads(cluster)]
    return diagnosis_processes.processes(statuses, cluster.namespace)


async def _status(cluster: Installation, workload: Raw) -> WorkloadStatus:
    name, status, now = _named(workload), workload.get("status", {}), cluster.clock.now()
    rollout = _rollout(workload, now)
    if workload["kind"] == "Deployment":
        starting = rollout.wanted if diagnosis_processes.in_progress(rollout) else 0
        return WorkloadStatus(name, rollout.wanted, status.get("readyReplicas", 0), starting)
    unready = [pod for pod in await _pods_of(cluster, workload) if not _is_ready(pod)]
    starting = diagnosis_processes.starting([_times(pod) for pod in unready], now)
    return WorkloadStatus(name, rollout.wanted, status.get("numberReady", 0), starting)


def _rollout(workload: Raw, now: datetime) -> Rollout:
    meta, status = workload["metadata"], workload.get("status", {})
    replicas = workload["spec"].get("replicas", 1)
    is_set = workload["kind"] == "DaemonSet"
    conditions = status.get("conditions") or []
    return Rollout(
        generation=meta.get("generation", 0),
        observed=status.get("observedGeneration", 0),
        progressing=next(
            (item.get("reason", "") for item in conditions if item["type"] == "Progressing"), ""
        ),
        updated=status.get("updatedReplicas", 0),
        wanted=status.get("desiredNumberScheduled", 0) if is_set else replicas,
        age=now - datetime.fromisoformat(meta["creationTimestamp"]),
    )


async def _pods_of(cluster: Installation, workload: Raw) -> list[Raw]:
    """The pods that a DaemonSet owns."""
    uid = workload["metadata"]["uid"]
    return [
        pod
        for pod in await cluster.all(kinds.PODS.raw, cluster.here())
        if any(owner["uid"] == uid for owner in pod["metadata"].get("ownerReferences") or [])
    ]


def _is_ready(pod: Raw) -> bool:
    conditions = pod.get("status", {}).get("conditions") or []
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _times(pod: Raw) -> PodTimes:
    meta = pod["metadata"]
    deleted = meta.get("deletionTimestamp")
    return PodTimes(
        datetime.fromisoformat(meta["creationTimestamp"]),
        datetime.fromisoformat(deleted) if deleted else None,
    )


def _named(workload: Raw) -> str:
    return f"{workload['kind'].lower()}/{workload['metadata']['name']}"


def _image_version(workload: Raw) -> str:
    image: str = workload["spec"]["template"]["spec"]["containers"][0].get("image", "")
    version = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
    return "" if version == "latest" else version
