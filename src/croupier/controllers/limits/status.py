"""A PodAllocation and its pod between their wire form and the values that are decided with."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from croupier.api import market_pod
from croupier.api.core_v1 import Container as WireContainer
from croupier.api.core_v1 import ContainerStatus, Pod, PodCondition, ResourceRequirements
from croupier.api.market_pod import CPU
from croupier.api.mbcas import PodAllocation, PodAllocationStatus
from croupier.api.meta import Condition, OwnerReference
from croupier.core import quantity
from croupier.core.quantity import ZERO, Quantity
from croupier.core.resizing import seen as resize_seen
from croupier.core.resizing.resize import Change, Decision
from croupier.core.resizing.seen import Container, Told, Wish
from croupier.core.resizing.words import Verdict
from croupier.kube.resource import Raw

CONDITION: Final = "Applied"
_HOLDS: Final[Mapping[str, Literal["True", "False", "Unknown"]]] = {
    "Applied": "True",
    "Failed": "False",
    "Pending": "Unknown",
}


def wish(found: PodAllocation, now: datetime) -> Wish:
    meta, spec = found.metadata, found.spec
    owners = [one.uid for one in meta.owner_references if one.kind == "Pod"]
    return Wish(
        namespace=meta.namespace,
        name=meta.name,
        pod=spec.pod_name,
        pod_namespace=spec.namespace,
        desired=quantity.parse(spec.desired_cpu_limit),
        created=meta.creation_timestamp or now,
        generation=meta.generation,
        owner=owners[0] if owners else "",
        node=spec.node_name or "",
        told=_told(found.status),
    )


def _told(status: PodAllocationStatus) -> Told:
    word, _, sentence = status.reason.partition(": ")
    judged = status.observed_desired_cpu_limit
    return Told(
        status.phase,
        word,
        sentence,
        status.pod_uid,
        desired=None if judged is None else quantity.parse(judged),
        generation=status.observed_generation,
        originals={name: quantity.parse(one) for name, one in status.original_container_limits.items()},
        restarts=status.observed_restarts,
        attempted=status.last_attempt_time,
    )


def seen(pod: Pod) -> resize_seen.Pod:
    meta, status = pod.metadata, pod.status
    told = market_pod.statuses(pod)
    return resize_seen.Pod(
        meta.uid,
        tuple(_container(one, told.get(one.name)) for one in market_pod.bearing(pod)),
        market_pod.shape(pod),
        node=pod.spec.node_name,
        generation=meta.generation,
        observed=status.observed_generation,
        phase=status.phase,
        terminating=meta.deletion_timestamp is not None,
        pod_level=bool(pod.spec.resources.limits or pod.spec.resources.requests),
        pending=_condition(status.conditions, "PodResizePending"),
        in_progress=_condition(status.conditions, "PodResizeInProgress"),
    )


def _container(spec: WireContainer, told: ContainerStatus | None) -> Container:
    limits = spec.resources.limits
    return Container(
        spec.name,
        limit=quantity.parse(limits.get(CPU, "0")),
        request=quantity.parse(spec.resources.requests.get(CPU, limits.get(CPU, "0"))),
        reported=None if told is None else _reported(told.resources),
        state=_state(told),
        restarts=0 if told is None else told.restart_count,
        restarting=any(
            one.resource_name == CPU and one.restart_policy == "RestartContainer"
            for one in spec.resize_policy
        ),
        sidecar=spec.is_sidecar,
    )


def _reported(resources: ResourceRequirements | None) -> Quantity | None:
    if resources is None or CPU not in resources.limits:
        return None
    return quantity.parse(resources.limits[CPU])


def _state(told: ContainerStatus | None) -> str:
    """Why it is not running; empty while it runs."""
    if told is None:
        return "not started"
    if told.state.running is not None:
        return ""
    if told.state.terminated is not None:
        return told.state.terminated.reason or "ended"
    return (told.state.waiting.reason if told.state.waiting is not None else "") or "waiting"


def _condition(conditions: tuple[PodCondition, ...], kind: str) -> resize_seen.Condition | None:
    for one in conditions:
        if one.type == kind and one.status == "True":
            return resize_seen.Condition(one.reason, one.message, one.observed_generation)
    return None


def written(found: PodAllocation, decision: Decision, now: datetime) -> PodAllocationStatus:
    """The status that says so; equal to the one there is if that says so already."""
    old, now = found.status, now.replace(microsecond=0)
    verdict = decision.verdict
    applied = decision.applied
    judged = quantity.parse(found.spec.desired_cpu_limit)
    same = old.pod_uid == decision.uid
    new = msgspec.structs.replace(
        old,
        phase=verdict.phase,
        reason=verdict.reason,
        applied_cpu_limit=None if applied is None else str(applied),
        observed_desired_cpu_limit=str(judged),
        observed_generation=found.metadata.generation,
        pod_uid=decision.uid,
        observed_restarts=decision.restarts,
        last_attempt_time=now if decision.attempted else (old.last_attempt_time if same else None),
        last_applied_time=_applied_time(old, verdict, applied, now),
        conditions=_conditions(found, verdict, now),
    )
    if same and old.original_container_limits:
        return new
    return msgspec.structs.replace(
        new,
        original_cpu_limit=str(sum(decision.originals.values(), ZERO)) if decision.originals else None,
        original_container_limits={name: str(one) for name, one in decision.originals.items()},
    )


def _applied_time(
    old: PodAllocationStatus, verdict: Verdict, applied: Quantity | None, now: datetime
) -> datetime | None:
    """When it came into force, not when we last looked."""
    if verdict.phase != "Applied":
        return old.last_applied_time
    same = old.phase == "Applied" and old.applied_cpu_limit == str(applied)
    return old.last_applied_time if same and old.last_applied_time is not None else now


def _conditions(found: PodAllocation, verdict: Verdict, now: datetime) -> tuple[Condition, ...]:
    """So that `kubectl wait --for=condition=Applied` works."""
    old = next((one for one in found.status.conditions if one.type == CONDITION), None)
    others = tuple(one for one in found.status.conditions if one.type != CONDITION)
    holds = _HOLDS[verdict.phase]
    ours = Condition(
        type=CONDITION,
        status=holds,
        reason=verdict.word,
        message=verdict.reason.partition(": ")[2],
        last_transition_time=old.last_transition_time if old is not None and old.status == holds else now,
        observed_generation=found.metadata.generation,
    )
    return (*others, ours)


def patch(found: PodAllocation, status: PodAllocationStatus) -> Raw:
    """A merge patch of the status, good for the version that was seen only."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    cleared = dict.fromkeys(one for one in msgspec.to_builtins(found.status) if one not in fields)
    return {**_guard(found), "status": {**cleared, "phase": status.phase, **fields}}


def owned(found: PodAllocation, pod: Pod) -> Raw | None:
    """A merge patch that lets it go with its pod; None if it does already."""
    meta = found.metadata
    if any(one.uid == pod.metadata.uid for one in meta.owner_references):
        return None
    ours = OwnerReference(api_version="v1", kind="Pod", name=pod.metadata.name, uid=pod.metadata.uid)
    owners = [msgspec.to_builtins(one) for one in (*meta.owner_references, ours)]
    return {"metadata": {**_guard(found)["metadata"], "ownerReferences": owners}}


def _guard(found: PodAllocation) -> Raw:
    return {"metadata": {"resourceVersion": found.metadata.resource_version}}


def resize(pod: resize_seen.Pod, change: Change) -> Raw:
    """A strategic merge patch of these containers' CPU and nothing else, of this very pod."""
    lists: dict[str, list[Raw]] = {}
    for one in pod.containers:
        resources: Raw = {"limits": {CPU: str(change.limits[one.name])}}
        if one.name in change.requests:
            resources["requests"] = {CPU: str(change.requests[one.name])}
        where = "initContainers" if one.sidecar else "containers"
        lists.setdefault(where, []).append({"name": one.name, "resources": resources})
    return {"metadata": {"uid": pod.uid}, "spec": lists}
