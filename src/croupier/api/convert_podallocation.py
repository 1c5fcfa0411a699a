"""Convert a PodAllocation to the values of core/resizing, and a decision to its status and patches."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from croupier.api import meta
from croupier.api.core_v1 import Pod
from croupier.api.market_pod import CPU
from croupier.api.mbcas import PodAllocation, PodAllocationStatus
from croupier.api.meta import Condition, OwnerReference
from croupier.core import quantity
from croupier.core.model import reason
from croupier.core.model.condition import ConditionStatus, DesiredCondition
from croupier.core.quantity import ZERO, Quantity
from croupier.core.resizing.model import DesiredLimit, LastStatus, ResizePod, ResizeVerdict
from croupier.core.resizing.resize import LimitChange, ResizeDecision
from croupier.kube.client.resource import Raw

CONDITION: Final = "Applied"
_CONDITION_STATUS: Final[Mapping[str, ConditionStatus]] = {
    "Applied": "True",
    "Failed": "False",
    "Pending": "Unknown",
}


def desired_limit(allocation: PodAllocation, now: datetime) -> DesiredLimit:
    meta, spec = allocation.metadata, allocation.spec
    owners = [owner.uid for owner in meta.owner_references if owner.kind == "Pod"]
    return DesiredLimit(
        namespace=meta.namespace,
        name=meta.name,
        pod=spec.pod_name,
        pod_namespace=spec.namespace,
        desired=quantity.parse(spec.desired_cpu_limit),
        created=meta.creation_timestamp or now,
        generation=meta.generation,
        owner=owners[0] if owners else "",
        node=spec.node_name or "",
        last_status=_last_status(allocation.status),
    )


def _last_status(status: PodAllocationStatus) -> LastStatus:
    judged = status.observed_desired_cpu_limit
    return LastStatus(
        ResizeVerdict(status.phase, reason.parse(status.reason)),
        status.pod_uid,
        desired=None if judged is None else quantity.parse(judged),
        generation=status.observed_generation,
        originals={name: quantity.parse(limit) for name, limit in status.original_container_limits.items()},
        restarts=status.observed_restarts,
        attempted=status.last_attempt_time,
    )


def new_status(allocation: PodAllocation, decision: ResizeDecision, now: datetime) -> PodAllocationStatus:
    """The new status; equal to the current one if nothing changes."""
    old, now = allocation.status, now.replace(microsecond=0)
    verdict = decision.verdict
    judged = quantity.parse(allocation.spec.desired_cpu_limit)
    same = old.pod_uid == decision.uid
    last_applied = old.last_applied_time if same else None
    # Until a limit was applied to this pod, the limit that the kubelet reports is the pod's own.
    applied = decision.applied if last_applied is not None or verdict.phase == "Applied" else None
    new = msgspec.structs.replace(
        old,
        phase=verdict.phase,
        reason=str(verdict.reason),
        applied_cpu_limit=None if applied is None else str(applied),
        observed_desired_cpu_limit=str(judged),
        observed_generation=allocation.metadata.generation,
        pod_uid=decision.uid,
        observed_restarts=decision.restarts,
        last_attempt_time=now if decision.attempted else (old.last_attempt_time if same else None),
        last_applied_time=now if _newly_applied(old, verdict, applied) else last_applied,
        conditions=_conditions(allocation, verdict, now),
    )
    if same and old.original_container_limits:
        return new
    return msgspec.structs.replace(
        new,
        original_cpu_limit=str(sum(decision.originals.values(), ZERO)) if decision.originals else None,
        original_container_limits={name: str(limit) for name, limit in decision.originals.items()},
    )


def _newly_applied(old: PodAllocationStatus, verdict: ResizeVerdict, applied: Quantity | None) -> bool:
    """The time is that of the change, not of the last check."""
    if verdict.phase != "Applied":
        return False
    return old.phase != "Applied" or old.applied_cpu_limit != str(applied) or old.last_applied_time is None


def _conditions(allocation: PodAllocation, verdict: ResizeVerdict, now: datetime) -> tuple[Condition, ...]:
    """So that `kubectl wait --for=condition=Applied` works."""
    old = allocation.status.conditions
    holds = _CONDITION_STATUS[verdict.phase]
    desired = DesiredCondition(CONDITION, holds, verdict.code, verdict.reason.message)
    ours = meta.updated_condition(desired, old, now=now, generation=allocation.metadata.generation)
    return (*(condition for condition in old if condition.type != CONDITION), ours)


def status_patch(allocation: PodAllocation, status: PodAllocationStatus) -> Raw:
    """A merge patch of the status, guarded by the resourceVersion."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    cleared = dict.fromkeys(name for name in msgspec.to_builtins(allocation.status) if name not in fields)
    return {**_version_guard(allocation), "status": {**cleared, "phase": status.phase, **fields}}


def owner_patch(allocation: PodAllocation, pod: Pod) -> Raw | None:
    """A merge patch that makes the pod an owner; None if it is one already."""
    meta = allocation.metadata
    if any(owner.uid == pod.metadata.uid for owner in meta.owner_references):
        return None
    ours = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
    owners = [msgspec.to_builtins(owner) for owner in (*meta.owner_references, ours)]
    return {"metadata": {**_version_guard(allocation)["metadata"], "ownerReferences": owners}}


def _version_guard(allocation: PodAllocation) -> Raw:
    return {"metadata": {"resourceVersion": allocation.metadata.resource_version}}


def resize_patch(pod: ResizePod, change: LimitChange) -> Raw:
    """A strategic merge patch of these containers' CPU only, guarded by the pod's UID."""
    lists: dict[str, list[Raw]] = {}
    for container in pod.containers:
        name = container.name
        resources: Raw = {"limits": {CPU: str(change.limits[name])}}
        if name in change.requests:
            resources["requests"] = {CPU: str(change.requests[name])}
        where = "initContainers" if container.sidecar else "containers"
        lists.setdefault(where, []).append({"name": name, "resources": resources})
    return {"metadata": {"uid": pod.uid}, "spec": lists}
