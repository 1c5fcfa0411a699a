"""Whether Croupier is installed, and whether its processes run. A rollout in progress is not a problem."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from croupier.core.installation import diagnosis
from croupier.core.installation.diagnosis import InstallationProblem, InstallationProblems

START_TIMEOUT: Final = timedelta(minutes=10)
"""How long a pod may take to start; also the default progressDeadlineSeconds of a Deployment."""
_PROGRESSING: Final = ("NewReplicaSetCreated", "FoundNewReplicaSet", "ReplicaSetUpdated")
"""Reasons of the condition Progressing of a Deployment while a rollout advances."""
IN_REPOSITORY: Final = "in a checkout of Croupier: "


def install_command(namespace: str) -> str:
    return f"helm upgrade --install croupier charts/croupier --namespace {namespace} --create-namespace"


def repeat_installation(namespace: str) -> str:
    """What restores a missing part of an installation, with the values that it has."""
    return (
        "install the manifests again, "
        f"{IN_REPOSITORY}helm upgrade croupier charts/croupier --namespace {namespace} --reuse-values"
    )


@dataclass(frozen=True, slots=True)
class Rollout:
    """A Deployment or DaemonSet, as its controller reports it."""

    generation: int
    observed: int = 0
    progressing: str = ""
    """Reason of the condition Progressing; empty for DaemonSets, which do not have it."""
    updated: int = 0
    wanted: int = 0
    age: timedelta = timedelta(0)


def in_progress(rollout: Rollout) -> bool:
    """Whether the change of a workload is being applied. A change that got stuck is not."""
    if not rollout.observed:
        return rollout.age < START_TIMEOUT
    if rollout.observed < rollout.generation:
        return True
    if rollout.progressing:
        return rollout.progressing in _PROGRESSING
    return rollout.updated < rollout.wanted


@dataclass(frozen=True, slots=True)
class PodTimes:
    """When a pod that is not ready was created, and when it was deleted."""

    created: datetime
    deleted: datetime | None = None


def starting(pods: Sequence[PodTimes], now: datetime) -> int:
    """How many of the pods are being started or replaced, and not for too long."""
    return sum(now - (pod.deleted or pod.created) < START_TIMEOUT for pod in pods)


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    name: str
    wanted: int
    ready: int
    starting: int = 0
    """Pods that a rollout is starting or replacing."""


def processes(workloads: Sequence[WorkloadStatus], namespace: str) -> InstallationProblems:
    if not workloads:
        return not_installed(namespace, ())
    return (*_unready(workloads, namespace), *_scaled_to_zero(workloads, namespace))


def not_installed(namespace: str, elsewhere: Sequence[str]) -> InstallationProblems:
    """`elsewhere`: namespaces in which there are processes of Croupier."""
    where = f"namespace {namespace}"
    if elsewhere:
        what = f"Croupier is not installed in this namespace, but in {diagnosis.join_names(elsewhere)}"
        remedy = f"croupier doctor --namespace {min(elsewhere)}"
        return (InstallationProblem("error", what, where, remedy),)
    what, remedy = "Croupier is not installed", IN_REPOSITORY + install_command(namespace)
    return (InstallationProblem("error", what, where, remedy),)


def _unready(workloads: Sequence[WorkloadStatus], namespace: str) -> Iterator[InstallationProblem]:
    for workload in workloads:
        missing = workload.wanted - workload.ready
        what = f"{workload.ready} of {workload.wanted} are ready"
        remedy = f"kubectl -n {namespace} describe {workload.name}, and the logs of its pods"
        if missing > workload.starting:
            yield InstallationProblem(
                "error" if workload.ready == 0 else "warning", what, workload.name, remedy
            )
        elif missing > 0 and workload.ready == 0:
            yield InstallationProblem("note", f"it is starting: {what}", workload.name, remedy)


def _scaled_to_zero(workloads: Sequence[WorkloadStatus], namespace: str) -> Iterator[InstallationProblem]:
    """Deployments that are scaled to 0. A DaemonSet may have no pods because no node matches."""
    for workload in workloads:
        if workload.wanted == 0 and workload.name.startswith("deployment/"):
            what = "it is scaled to 0, so it does not run"
            remedy = f"kubectl -n {namespace} scale {workload.name} --replicas=1"
            yield InstallationProblem("error", what, workload.name, remedy)
