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
from croupier.core.market.clearing import Part
from croupier.core.quantity import Quantity
from croupier.core.resizing import words
from croupier.core.resizing.seen import Condition, Pod, Scene, Wish
from croupier.core.resizing.words import Verdict

PATIENCE: Final = timedelta(seconds=60)
"""How long the kubelet may take to report a resize before it counts as failed."""


@dataclass(frozen=True, slots=True)
class Change:
    """The new limits, and the requests if they change too. `back`: a reset to the limits in force."""

    limits: Mapping[str, Quantity]
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    back: bool = False

    @property
    def sum(self) -> Quantity:
        return Quantity(sum(limit.nanos for limit in self.limits.values()))


@dataclass(frozen=True, slots=True)
class Decision:
    """`verdict` is the status to write after `change`, if any, was made."""

    verdict: Verdict
    uid: str = ""
    applied: Quantity | None = None
    originals: Mapping[str, Quantity] = field(default_factory=dict)
    restarts: int | None = None
    attempted: bool = False
    """Set the time of the last attempt to now."""
    change: Change | None = None
    again: float | None = None
    """Seconds after which to requeue even if nothing changes."""


def decide(scene: Scene) -> Decision:
    desired_limit, pod = scene.wish, scene.pod
    if pod is None or not desired_limit.may_move(pod):
        return _not_ours(scene)
    if older := _older(scene, pod):
        return Decision(words.duplicate(older), pod.uid, originals=older.told.originals)
    if hindrance := _hindrance(desired_limit, pod):
        return Decision(hindrance, pod.uid, pod.reported, restarts=desired_limit.told.restarts)
    known = _known(scene, pod)
    if pod.phase != "Running":
        return replace(known, verdict=words.waiting(desired_limit, pod))
    target = split(desired_limit, pod, known.originals)
    if target is None:
        return replace(known, verdict=words.below(least(pod), pod))
    return _towards(scene, pod, known, target)


def refused(decision: Decision, verdict: Verdict) -> Decision:
    """The API server refused the change. An infeasible resize stays infeasible, reset or not."""
    back = decision.change is not None and decision.change.back
    return replace(
        decision, verdict=decision.verdict if back else verdict, attempted=True, change=None, again=None
    )


def least(pod: Pod) -> int:
    """In quanta, the lowest limit that Kubernetes accepts without a change of the QoS class."""
    return max(terms.lowest(pod.shape), _floor(pod))


def split(desired_limit: Wish, pod: Pod, originals: Mapping[str, Quantity]) -> Change | None:
    """Split the limit by the containers' original limits; None if it is below their minimum."""
    desired = units.at_most(desired_limit.desired)
    if desired < least(pod):
        return None
    floors = pod.floors
    parts = [
        Part(
            container.name,
            units.at_least(originals.get(container.name, container.limit)),
            floors[container.name],
        )
        for container in pod.containers
    ]
    limits = {name: units.written(share) for name, share in clearing.split(desired, parts).items()}
    return Change(limits, limits if pod.shape.qos == "Guaranteed" else {})


def _not_ours(scene: Scene) -> Decision:
    """There is no pod that this PodAllocation may resize. The record of a deleted pod stays."""
    desired_limit = scene.wish
    if desired_limit.pod_namespace != desired_limit.namespace:
        return Decision(words.other_namespace(desired_limit))
    if scene.pod is None:
        return Decision(words.no_pod(desired_limit), uid=desired_limit.told.uid)
    if not desired_limit.is_of(scene.pod.uid):
        return Decision(words.replaced(desired_limit), uid=desired_limit.told.uid)
    return Decision(words.other_node(desired_limit, scene.pod))


def _older(scene: Scene, pod: Pod) -> Wish | None:
    """The older PodAllocation of this pod, which takes precedence; None if this one is the oldest.

    Creation times are in whole seconds; of two with the same time, the one that resized the pod before wins.
    """
    desired_limit = scene.wish
    rivals = [rival for rival in scene.rivals if rival.may_move(pod)]
    first = min([desired_limit, *rivals], key=lambda rival: (rival.created, not rival.at_work, rival.name))
    return None if first is desired_limit else first


def _hindrance(desired_limit: Wish, pod: Pod) -> Verdict | None:
    """A reason that only a change of the pod or of the PodAllocation can remove."""
    if pod.terminating or pod.phase in ("Succeeded", "Failed"):
        return words.over(desired_limit, pod)
    if pod.pod_level:
        return words.pod_level()
    if unfit := terms.unmovable(pod.shape):
        return words.failed(unfit.word, unfit.sentence)
    if (
        not desired_limit.desired.nanos > 0
        or units.written(units.at_most(desired_limit.desired)) != desired_limit.desired
    ):
        return words.not_a_step(desired_limit.desired)
    return None


def _known(scene: Scene, pod: Pod) -> Decision:
    """The fields of the status that do not depend on the outcome."""
    last = scene.wish.told
    originals = last.originals or {container.name: container.limit for container in pod.containers}
    restarts = last.restarts if last.uid == pod.uid else None
    return Decision(
        words.recorded(scene.wish.desired),
        pod.uid,
        pod.reported,
        originals,
        restarts=pod.restarts if restarts is None else restarts,
    )


def _towards(scene: Scene, pod: Pod, known: Decision, target: Change) -> Decision:
    desired_limit, last = scene.wish, scene.wish.told
    if _matches(pod, target):
        return _judged(scene, pod, known)
    current = (
        last.uid == pod.uid
        and last.generation == desired_limit.generation
        and last.desired == desired_limit.desired
    )
    if current and last.word in words.ASKED:
        return replace(known, verdict=words.foreign(desired_limit, pod))
    if current and last.word in words.RETRIED and not scene.due:
        return replace(known, verdict=Verdict(last.phase, last.word, last.sentence))
    if not last.originals:
        return replace(known, again=0.0)
    return replace(
        known,
        verdict=words.resizing(desired_limit.desired, pod),
        restarts=pod.restarts,
        attempted=True,
        change=target,
        again=PATIENCE.total_seconds(),
    )


def _judged(scene: Scene, pod: Pod, known: Decision) -> Decision:
    """The spec is as desired: evaluate the kubelet's conditions."""
    pending, moving = _fresh(pod.pending, pod), _fresh(pod.in_progress, pod)
    if pending is not None and pending.reason == "Infeasible":
        return _infeasible(scene, pod, known, pending)
    if pending is not None:
        return replace(known, verdict=words.deferred(pending.message))
    if moving is not None:
        failed = moving.reason == "Error"
        verdict = words.kubelet_error(moving.message) if failed else words.in_progress(moving.message)
        return replace(known, verdict=verdict)
    return _proven(scene, pod, known)


def _proven(scene: Scene, pod: Pod, known: Decision) -> Decision:
    """There is no resize condition, as is also the case right after the change: check the reported limits."""
    desired = scene.wish.desired
    if stopped := [container for container in pod.containers if container.state]:
        return replace(known, verdict=words.not_running(stopped))
    if known.restarts != pod.restarts:
        verdict = words.restarted(desired)
        return replace(known, verdict=verdict, restarts=pod.restarts, attempted=True, again=0.0)
    if pod.observed >= pod.generation and _reports(pod):
        return replace(known, verdict=words.enforced(desired, pod))
    last = scene.wish.told
    asked = last.attempted if last.uid == pod.uid else None
    left = PATIENCE if asked is None else asked + PATIENCE - scene.now
    if left <= timedelta():
        return replace(known, verdict=words.not_enforced(desired, pod))
    verdict = words.resizing(desired, pod)
    return replace(known, verdict=verdict, attempted=asked is None, again=left.total_seconds())


def _infeasible(scene: Scene, pod: Pod, known: Decision, said: Condition) -> Decision:
    """Reset the spec to the limits in force: an infeasible spec would mislead its readers."""
    last = scene.wish.told
    verdict = words.infeasible(said.message, pod.reported)
    before = last.word == "Infeasible" and last.uid == pod.uid and last.generation == scene.wish.generation
    if pod.reported is None or (before and not scene.due):
        return replace(known, verdict=verdict)
    limits = {
        container.name: container.reported for container in pod.containers if container.reported is not None
    }
    requests = limits if pod.shape.qos == "Guaranteed" else {}
    return replace(known, verdict=verdict, attempted=True, change=Change(limits, requests, back=True))


def _fresh(condition: Condition | None, pod: Pod) -> Condition | None:
    """None for a condition about an earlier spec, until the kubelet has observed the current one.

    After that it is valid for the current spec, too: the kubelet does not reset it after other changes.
    """
    if condition is None:
        return None
    stale = 0 < condition.generation < pod.generation and pod.observed < pod.generation
    return None if stale else condition


def _matches(pod: Pod, target: Change) -> bool:
    """The spec equals the target."""
    return all(
        container.limit == target.limits[container.name]
        and container.request == target.requests.get(container.name, container.request)
        for container in pod.containers
    )


def _reports(pod: Pod) -> bool:
    return all(container.reported == container.limit for container in pod.containers)


def _floor(pod: Pod) -> int:
    return sum(pod.floors.values())
