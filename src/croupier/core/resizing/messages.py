"""The messages of a PodAllocation's status: a stable reason for programs and a sentence for people."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from croupier.core.market import units
from croupier.core.model.phase import AllocationPhase
from croupier.core.model.reason import Reason
from croupier.core.quantity import Quantity
from croupier.core.resizing.model import (
    DUPLICATE,
    TOO_MANY,
    AllocationLimit,
    DesiredLimit,
    ResizeContainer,
    ResizePod,
    ResizeVerdict,
)

MAX_LENGTH: Final = 900
SET_AFTER_WRITE: Final = frozenset(
    {
        "Enforced",
        "Resizing",
        "InProgress",
        "Deferred",
        "KubeletError",
        "NotRunning",
        "Restarted",
        "QuotaNotEnforced",
    }
)
"""Reasons that are set only while the pod's spec is ours: if it differs now, another client changed it."""


def pending(code: str, sentence: str) -> ResizeVerdict:
    return _verdict("Pending", code, sentence)


def failed(code: str, sentence: str) -> ResizeVerdict:
    return _verdict("Failed", code, sentence)


def _verdict(phase: AllocationPhase, code: str, sentence: str) -> ResizeVerdict:
    """The message is one line of bounded length."""
    line = " ".join(sentence.split())
    return ResizeVerdict(
        phase, Reason(code, line if len(line) <= MAX_LENGTH else f"{line[: MAX_LENGTH - 1]}…")
    )


def other_namespace(desired_limit: DesiredLimit) -> ResizeVerdict:
    return failed(
        "NamespaceMismatch",
        f"it is in namespace {desired_limit.namespace} and names a pod of namespace"
        f" {desired_limit.pod_namespace}; create it in the namespace of the pod",
    )


def duplicate(older: DesiredLimit) -> ResizeVerdict:
    return failed(
        DUPLICATE,
        f"PodAllocation {older.name} of pod {older.pod} is older and takes precedence; delete one of the two",
    )


def too_many(exceeded: AllocationLimit) -> ResizeVerdict:
    return failed(
        TOO_MANY,
        f"{exceeded.where} has more than {exceeded.most} PodAllocations, and only the oldest"
        f" {exceeded.most} are applied; delete some{exceeded.remedy}",
    )


def no_pod(desired_limit: DesiredLimit) -> ResizeVerdict:
    return failed(
        "PodNotFound", f"pod {desired_limit.pod} does not exist in namespace {desired_limit.namespace}"
    )


def replaced(desired_limit: DesiredLimit) -> ResizeVerdict:
    return failed(
        "PodReplaced",
        f"pod {desired_limit.pod} was deleted and another pod has its name; create a new PodAllocation",
    )


def other_node(desired_limit: DesiredLimit, pod: ResizePod) -> ResizeVerdict:
    where = f"on node {pod.node}" if pod.node else "on no node"
    return failed(
        "WrongNode",
        f"the market agent of node {desired_limit.node} wrote it,"
        f" but pod {desired_limit.pod} is {where}; delete it",
    )


def finished(desired_limit: DesiredLimit, pod: ResizePod) -> ResizeVerdict:
    if pod.terminating:
        return failed("PodTerminating", f"pod {desired_limit.pod} is being deleted")
    return failed("PodFinished", f"pod {desired_limit.pod} has finished ({pod.phase})")


def pod_level() -> ResizeVerdict:
    return failed("PodLevelResources", "the pod sets pod-level resources, which cannot be resized")


def below_request(least: int, pod: ResizePod) -> ResizeVerdict:
    if pod.shape.memory_pinned and least > sum(pod.floors.values()):
        why = "with limits equal to requests its QoS class would become Guaranteed"
    else:
        why = "Kubernetes refuses a limit below the request"
    return failed("BelowRequest", f"{why}; set at least {units.text(least)}")


def invalid_limit(desired: Quantity) -> ResizeVerdict:
    return failed("InvalidLimit", f"{desired} is not a positive multiple of 10m")


def waiting(desired_limit: DesiredLimit, pod: ResizePod) -> ResizeVerdict:
    where = f"on node {pod.node}" if pod.node else "not scheduled"
    return pending("PodPending", f"pod {desired_limit.pod} is not running yet ({where})")


def resizing(desired: Quantity, pod: ResizePod) -> ResizeVerdict:
    return pending("Resizing", f"{desired} was requested; the kubelet of {pod.node} does not report it yet")


def recorded(desired: Quantity) -> ResizeVerdict:
    return pending("Recorded", f"the original limit of the pod is recorded; {desired} is set next")


def deferred(message: str) -> ResizeVerdict:
    return pending("Deferred", message or "the kubelet waits until the node has enough free CPU")


def in_progress(message: str) -> ResizeVerdict:
    return pending("InProgress", message or "the kubelet is applying the resize")


def kubelet_error(message: str) -> ResizeVerdict:
    return failed("KubeletError", message or "the kubelet could not change the cgroup and retries")


def not_running(containers: Collection[ResizeContainer]) -> ResizeVerdict:
    each = ", ".join(f"{container.name} ({container.state})" for container in containers)
    return pending("NotRunning", f"not running: {each}; the limit is reported when they run")


def restarted(desired: Quantity) -> ResizeVerdict:
    return pending("Restarted", f"a container restarted after {desired} was requested; checking again")


def not_enforced(desired: Quantity, pod: ResizePod) -> ResizeVerdict:
    if pod.observed < pod.generation:
        how = f"the kubelet of {pod.node} has not observed it"
    else:
        how = f"the kubelet of {pod.node} reports {pod.reported if pod.reported is not None else 'no limit'}"
    return failed("QuotaNotEnforced", f"{desired} was requested more than a minute ago, but {how}")


def enforced(desired: Quantity, pod: ResizePod) -> ResizeVerdict:
    return _verdict("Applied", "Enforced", f"the kubelet of {pod.node} reports {desired}")


def infeasible(message: str, back: Quantity | None) -> ResizeVerdict:
    ending = f"; the limit is reset to {back}" if back is not None else ""
    return failed("Infeasible", f"{message or 'the node can never provide it'}{ending}")


def foreign(desired_limit: DesiredLimit, pod: ResizePod, by: str = "") -> ResizeVerdict:
    limits = ", ".join(f"{container.name} {container.limit}" for container in pod.containers)
    return failed(
        "ForeignWriter",
        f"{by or 'another client'} changed the limits ({limits}) after {desired_limit.desired} was set;"
        " it will be set again",
    )


def refused(status: int, message: str, causes: Collection[Mapping[str, Any]] = ()) -> ResizeVerdict:
    """The API server refused a resize; status 0: it did not answer."""
    return failed(_refusal_code(status, message, causes), message or f"the API server answered {status}")


def _refusal_code(status: int, message: str, causes: Collection[Mapping[str, Any]]) -> str:
    if any(cause.get("reason") == "NodeCapacity" for cause in causes):
        return "NodeCapacity"
    if status == 403:
        return _forbidden(message)
    if "could not find the requested resource" in message or "without support for resize" in message:
        return "NoResize"
    if status in (404, 409) or "metadata.uid: Invalid value" in message:
        return "Conflict"  # the pod was deleted or replaced
    if status in (400, 422):
        return "Invalid"
    return "Unavailable"


def _forbidden(message: str) -> str:
    """Quota, LimitRange and RBAC all answer 403; their messages have been stable for years."""
    if "exceeded quota" in message or "must specify limits" in message:
        return "QuotaExceeded"
    if " per Container is " in message or " per Pod is " in message:
        return "LimitRange"
    if "cannot patch resource" in message:
        return "NotPermitted"
    return "Refused"
