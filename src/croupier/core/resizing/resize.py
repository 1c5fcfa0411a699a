"""Decides about a PodAllocation: its status, and whether the pod's limits are written.

`Applied` is set only on the kubelet's report. Each step is decided from the state in the API server, so a
controller that restarts between two steps continues where it stopped: the original limits are recorded
before the first change, and the pod's spec shows whether a change was made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

from croupier.core.market import clearing, terms, units
from croupier.core.market.clearing import ContainerBid
from croupier.core.quantity import Quantity
from croupier.core.resizing import messages
from croupier.core.resizing.model import (
    DesiredLimit,
    ResizeCondition,
    ResizeInputs,
    ResizePod,
    ResizeVerdict,
)

KUBELET_TIMEOUT: Final = timedelta(seconds=60)
"""How long the kubelet may take to report a resize before it counts as failed."""


@dataclass(frozen=True, slots=True)
class LimitChange:
    """The new limits, and the requests if they change too. `back`: a reset to the limits in force."""

    limits: Mapping[str, Quantity]
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    back: bool = False

    @property
    def sum(self) -> Quantity:
        return Quantity(sum(limit.nanos for limit in self.limits.values()))


@dataclass(frozen=True, slots=True)
class ResizeDecision:
    """`verdict` is the status to write after `change`, if any, was made."""

    verdict: ResizeVerdict
    uid: str = ""
    applied: Quantity | None = None
    originals: Mapping[str, Quantity] = field(default_factory=dict)
    restarts: int | None = None
    attempted: bool = False
    """Set the time of the last attempt to now."""
    change: LimitChange | None = None
    again: float | None = None
    """Seconds after which to requeue even if nothing changes."""


def decide(scene: ResizeInputs) -> ResizeDecision:
    desired_limit, pod = scene.desired_limit, scene.pod
    if pod is None or not desired_limit.may_resize(pod):
        return _no_target_pod(scene)
    if older := _older(scene, pod):
        return ResizeDecision(messages.duplicate(older), pod.uid, originals=older.last_status.originals)
    if hindrance := _permanent_failure(desired_limit, pod):
        return ResizeDecision(hindrance, pod.uid, pod.reported, restarts=desired_limit.last_status.restarts)
    known = _base_decision(scene, pod)
    if pod.phase != "Running":
        return replace(known, verdict=messages.waiting(desired_limit, pod))
    target = split(desired_limit, pod, known.originals)
    if target is None:
        return replace(known, verdict=messages.below_request(lowest_limit(pod), pod))
    return _resize_to(scene, pod, known, target)


def after_refusal(decision: ResizeDecision, verdict: ResizeVerdict) -> ResizeDecision:
    """The API server refused the change. An infeasible resize stays infeasible, reset or not."""
    back = decision.change is not None and decision.change.back
    return replace(
        decision, verdict=decision.verdict if back else verdict, attempted=True, change=None, again=None
    )


def lowest_limit(pod: ResizePod) -> int:
    """In quanta, the lowest limit that Kubernetes accepts without a change of the QoS class."""
    return max(terms.lowest_limit(pod.shape), _floor(pod))


def split(
    desired_limit: DesiredLimit, pod: ResizePod, originals: Mapping[str, Quantity]
) -> LimitChange | None:
    """Split the limit by the containers' original limits; None if it is below their minimum."""
    desired = units.at_most(desired_limit.desired)
    if desired < lowest_limit(pod):
        return None
    floors = pod.floors
    parts = [
        ContainerBid(
            container.name,
            units.at_least(originals.get(container.name, container.limit)),
            floors[container.name],
        )
        for container in pod.containers
    ]
    limits = {name: units.to_quantity(share) for name, share in clearing.split(desired, parts).items()}
    return LimitChange(limits, limits if pod.shape.qos == "Guaranteed" else {})


def _no_target_pod(scene: ResizeInputs) -> ResizeDecision:
    """There is no pod that this PodAllocation may resize. The record of a deleted pod stays."""
    desired_limit, last = scene.desired_limit, scene.desired_limit.last_status
    if scene.exceeded is not None:
        verdict = messages.too_many(scene.exceeded)
        return ResizeDecision(verdict, last.uid, originals=last.originals, restarts=last.restarts)
    if desired_limit.pod_namespace != desired_limit.namespace:
        return ResizeDecision(messages.other_namespace(desired_limit))
    if scene.pod is None:
        return ResizeDecision(messages.no_pod(desired_limit), uid=last.uid)
    if not desired_limit.is_of(scene.pod.uid):
        return ResizeDecision(messages.replaced(desired_limit), uid=last.uid)
    return ResizeDecision(messages.other_node(desired_limit, scene.pod))


def _older(scene: ResizeInputs, pod: ResizePod) -> DesiredLimit | None:
    """The older PodAllocation of this pod, which takes precedence; None if this one is the oldest.

    Creation times are in whole seconds; of two with the same time, the one that resized the pod before wins.
    """
    desired_limit = scene.desired_limit
    rivals = [rival for rival in scene.rivals if rival.may_resize(pod)]
    first = min([desired_limit, *rivals], key=lambda rival: (rival.created, not rival.is_active, rival.name))
    return None if first is desired_limit else first


def _permanent_failure(desired_limit: DesiredLimit, pod: ResizePod) -> ResizeVerdict | None:
    """A reason that only a change of the pod or of the PodAllocation can remove."""
    if pod.terminating or pod.phase in ("Succeeded", "Failed"):
        return messages.finished(desired_limit, pod)
    if pod.pod_level:
        return messages.pod_level()
    if unfit := terms.not_resizable(pod.shape):
        return messages.failed(unfit.code, unfit.message)
    if (
        not desired_limit.desired.nanos > 0
        or units.to_quantity(units.at_most(desired_limit.desired)) != desired_limit.desired
    ):
        return messages.invalid_limit(desired_limit.desired)
    return None


def _base_decision(scene: ResizeInputs, pod: ResizePod) -> ResizeDecision:
    """The fields of the status that do not depend on the outcome."""
    last = scene.desired_limit.last_status
    originals = last.originals or {container.name: container.limit for container in pod.containers}
    restarts = last.restarts if last.uid == pod.uid else None
    return ResizeDecision(
        messages.recorded(scene.desired_limit.desired),
        pod.uid,
        pod.reported,
        originals,
        restarts=pod.restarts if restarts is None else restarts,
    )


def _resize_to(
    scene: ResizeInputs, pod: ResizePod, known: ResizeDecision, target: LimitChange
) -> ResizeDecision:
    desired_limit, last = scene.desired_limit, scene.desired_limit.last_status
    if _matches(pod, target):
        return _evaluate_conditions(scene, pod, known)
    current = (
        last.uid == pod.uid
        and last.generation == desired_limit.generation
        and last.desired == desired_limit.desired
    )
    if current and last.verdict.code in messages.SET_AFTER_WRITE:
        return replace(known, verdict=messages.foreign(desired_limit, pod))
    if current and last.verdict.retried and not scene.due:
        return replace(known, verdict=last.verdict)
    if not last.originals:
        return replace(known, again=0.0)
    return replace(
        known,
        verdict=messages.resizing(desired_limit.desired, pod),
        restarts=pod.restarts,
        attempted=True,
        change=target,
        again=KUBELET_TIMEOUT.total_seconds(),
    )


def _evaluate_conditions(scene: ResizeInputs, pod: ResizePod, known: ResizeDecision) -> ResizeDecision:
    """The spec is as desired: evaluate the kubelet's conditions."""
    pending, moving = _fresh(pod.pending, pod), _fresh(pod.in_progress, pod)
    if pending is not None and pending.reason == "Infeasible":
        return _infeasible(scene, pod, known, pending)
    if pending is not None:
        return replace(known, verdict=messages.deferred(pending.message))
    if moving is not None:
        failed = moving.reason == "Error"
        verdict = messages.kubelet_error(moving.message) if failed else messages.in_progress(moving.message)
        return replace(known, verdict=verdict)
    return _evaluate_report(scene, pod, known)


def _evaluate_report(scene: ResizeInputs, pod: ResizePod, known: ResizeDecision) -> ResizeDecision:
    """There is no resize condition, as is also the case right after the change: check the reported limits."""
    desired = scene.desired_limit.desired
    if stopped := [container for container in pod.containers if container.state]:
        return replace(known, verdict=messages.not_running(stopped))
    if known.restarts != pod.restarts:
        verdict = messages.restarted(desired)
        return replace(known, verdict=verdict, restarts=pod.restarts, attempted=True, again=0.0)
    if pod.observed >= pod.generation and _reports(pod):
        return replace(known, verdict=messages.enforced(desired, pod))
    last = scene.desired_limit.last_status
    asked = last.attempted if last.uid == pod.uid else None
    left = KUBELET_TIMEOUT if asked is None else asked + KUBELET_TIMEOUT - scene.now
    if left <= timedelta():
        return replace(known, verdict=messages.not_enforced(desired, pod))
    verdict = messages.resizing(desired, pod)
    return replace(known, verdict=verdict, attempted=asked is None, again=left.total_seconds())


def _infeasible(
    scene: ResizeInputs, pod: ResizePod, known: ResizeDecision, said: ResizeCondition
) -> ResizeDecision:
    """Reset the spec to the limits in force: an infeasible spec would mislead its readers."""
    last = scene.desired_limit.last_status
    verdict = messages.infeasible(said.message, pod.reported)
    before = (
        last.verdict.code == "Infeasible"
        and last.uid == pod.uid
        and last.generation == scene.desired_limit.generation
    )
    if pod.reported is None or (before and not scene.due):
        return replace(known, verdict=verdict)
    limits = {
        container.name: container.reported for container in pod.containers if container.reported is not None
    }
    requests = limits if pod.shape.qos == "Guaranteed" else {}
    return replace(known, verdict=verdict, attempted=True, change=LimitChange(limits, requests, back=True))


def _fresh(condition: ResizeCondition | None, pod: ResizePod) -> ResizeCondition | None:
    """None for a condition about an earlier spec, until the kubelet has observed the current one.

    After that it is valid for the current spec, too: the kubelet does not reset it after other changes.
    """
    if condition is None:
        return None
    stale = 0 < condition.generation < pod.generation and pod.observed < pod.generation
    return None if stale else condition


def _matches(pod: ResizePod, target: LimitChange) -> bool:
    """The spec equals the target."""
    return all(
        container.limit == target.limits[container.name]
        and container.request == target.requests.get(container.name, container.request)
        for container in pod.containers
    )


def _reports(pod: ResizePod) -> bool:
    return all(container.reported == container.limit for container in pod.containers)


def _floor(pod: ResizePod) -> int:
    return sum(pod.floors.values())
