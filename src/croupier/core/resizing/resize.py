"""What becomes of a PodAllocation: what is said of it, and whether the pod's limits are written.

`Applied` is said of the kubelet's report and of nothing else. Each step is decided from what the API server
holds, so a controller that dies between two of them goes on where it stopped: the limits a pod came with are
on record before the first change, and a change that was made is recognised by the pod's spec.
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
"""How long the kubelet may say nothing before that is a failure."""


@dataclass(frozen=True, slots=True)
class Change:
    """What the limits become, and the requests where they move along. `back`: to what is in force."""

    limits: Mapping[str, Quantity]
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    back: bool = False

    @property
    def sum(self) -> Quantity:
        return Quantity(sum(one.nanos for one in self.limits.values()))


@dataclass(frozen=True, slots=True)
class Decision:
    """`verdict` is what to say when `change`, if any, was made."""

    verdict: Verdict
    uid: str = ""
    applied: Quantity | None = None
    originals: Mapping[str, Quantity] = field(default_factory=dict)
    restarts: int | None = None
    attempted: bool = False
    """The time of the last attempt becomes now."""
    change: Change | None = None
    again: float | None = None
    """Seconds after which to look again even if nothing changes."""


def decide(scene: Scene) -> Decision:
    wish, pod = scene.wish, scene.pod
    if pod is None or not wish.may_move(pod):
        return _not_ours(scene)
    if older := _older(scene, pod):
        return Decision(words.duplicate(older), pod.uid, originals=older.told.originals)
    if hindrance := _hindrance(wish, pod):
        return Decision(hindrance, pod.uid, pod.reported, restarts=wish.told.restarts)
    known = _known(scene, pod)
    if pod.phase != "Running":
        return replace(known, verdict=words.waiting(wish, pod))
    target = split(wish, pod, known.originals)
    if target is None:
        return replace(known, verdict=words.below(least(pod), pod))
    return _towards(scene, pod, known, target)


def refused(decision: Decision, verdict: Verdict) -> Decision:
    """The change was not made. What is infeasible stays infeasible, set back or not."""
    back = decision.change is not None and decision.change.back
    return replace(
        decision, verdict=decision.verdict if back else verdict, attempted=True, change=None, again=None
    )


def least(pod: Pod) -> int:
    """In quanta, the limit Kubernetes would still accept without changing what the pod is."""
    return max(terms.lowest(pod.shape), _floor(pod))


def split(wish: Wish, pod: Pod, originals: Mapping[str, Quantity]) -> Change | None:
    """The limit over the containers, by what they came with; None if it is less than they need."""
    desired = units.at_most(wish.desired)
    if desired < least(pod):
        return None
    floors = pod.floors
    parts = [
        Part(one.name, units.at_least(originals.get(one.name, one.limit)), floors[one.name])
        for one in pod.containers
    ]
    limits = {name: units.written(share) for name, share in clearing.split(desired, parts).items()}
    return Change(limits, limits if pod.shape.qos == "Guaranteed" else {})


def _not_ours(scene: Scene) -> Decision:
    """No pod that this one may move. What was said of a pod that is gone stays on record."""
    wish = scene.wish
    if wish.pod_namespace != wish.namespace:
        return Decision(words.other_namespace(wish))
    if scene.pod is None:
        return Decision(words.no_pod(wish), uid=wish.told.uid)
    if not wish.is_of(scene.pod.uid):
        return Decision(words.replaced(wish), uid=wish.told.uid)
    return Decision(words.other_node(wish, scene.pod))


def _older(scene: Scene, pod: Pod) -> Wish | None:
    """The one that decides, if it is another: the oldest that is of this pod.

    Times are in whole seconds; of two made in the same, the one that is at work already.
    """
    wish = scene.wish
    rivals = [one for one in scene.rivals if one.may_move(pod)]
    first = min([wish, *rivals], key=lambda one: (one.created, not one.at_work, one.name))
    return None if first is wish else first


def _hindrance(wish: Wish, pod: Pod) -> Verdict | None:
    """What needs somebody to change something."""
    if pod.terminating or pod.phase in ("Succeeded", "Failed"):
        return words.over(wish, pod)
    if pod.pod_level:
        return words.pod_level()
    if unfit := terms.unmovable(pod.shape):
        return words.failed(unfit.word, unfit.sentence)
    if not wish.desired.nanos > 0 or units.written(units.at_most(wish.desired)) != wish.desired:
        return words.not_a_step(wish.desired)
    return None


def _known(scene: Scene, pod: Pod) -> Decision:
    """What stays true of the pod whatever is said of it."""
    told = scene.wish.told
    originals = told.originals or {one.name: one.limit for one in pod.containers}
    restarts = told.restarts if told.uid == pod.uid else None
    return Decision(
        words.recorded(scene.wish.desired),
        pod.uid,
        pod.reported,
        originals,
        restarts=pod.restarts if restarts is None else restarts,
    )


def _towards(scene: Scene, pod: Pod, known: Decision, target: Change) -> Decision:
    wish, told = scene.wish, scene.wish.told
    if _matches(pod, target):
        return _judged(scene, pod, known)
    current = told.uid == pod.uid and told.generation == wish.generation and told.desired == wish.desired
    if current and told.word in words.ASKED:
        return replace(known, verdict=words.foreign(wish, pod))
    if current and told.word in words.RETRIED and not scene.due:
        return replace(known, verdict=Verdict(told.phase, told.word, told.sentence))
    if not told.originals:
        return replace(known, again=0.0)
    return replace(
        known,
        verdict=words.resizing(wish.desired, pod),
        restarts=pod.restarts,
        attempted=True,
        change=target,
        again=PATIENCE.total_seconds(),
    )


def _judged(scene: Scene, pod: Pod, known: Decision) -> Decision:
    """The spec is as it should be: what does the kubelet say?"""
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
    """No condition speaks against it, which is also so right after the change: what does it report?"""
    desired = scene.wish.desired
    if stopped := [one for one in pod.containers if one.state]:
        return replace(known, verdict=words.not_running(stopped))
    if known.restarts != pod.restarts:
        verdict = words.restarted(desired)
        return replace(known, verdict=verdict, restarts=pod.restarts, attempted=True, again=0.0)
    if pod.observed >= pod.generation and _reports(pod):
        return replace(known, verdict=words.enforced(desired, pod))
    told = scene.wish.told
    asked = told.attempted if told.uid == pod.uid else None
    left = PATIENCE if asked is None else asked + PATIENCE - scene.now
    if left <= timedelta():
        return replace(known, verdict=words.not_enforced(desired, pod))
    verdict = words.resizing(desired, pod)
    return replace(known, verdict=verdict, attempted=asked is None, again=left.total_seconds())


def _infeasible(scene: Scene, pod: Pod, known: Decision, said: Condition) -> Decision:
    """Back to what is in force: a spec that can never be is a trap for whoever reads it."""
    told = scene.wish.told
    verdict = words.infeasible(said.message, pod.reported)
    before = told.word == "Infeasible" and told.uid == pod.uid and told.generation == scene.wish.generation
    if pod.reported is None or (before and not scene.due):
        return replace(known, verdict=verdict)
    limits = {one.name: one.reported for one in pod.containers if one.reported is not None}
    requests = limits if pod.shape.qos == "Guaranteed" else {}
    return replace(known, verdict=verdict, attempted=True, change=Change(limits, requests, back=True))


def _fresh(condition: Condition | None, pod: Pod) -> Condition | None:
    """One about an earlier spec says nothing as long as the kubelet has not seen this one.

    What stands when it has is about this one, too: a change of something else does not make it look again.
    """
    if condition is None:
        return None
    stale = 0 < condition.generation < pod.generation and pod.observed < pod.generation
    return None if stale else condition


def _matches(pod: Pod, target: Change) -> bool:
    """The spec is what we would write."""
    return all(
        one.limit == target.limits[one.name] and one.request == target.requests.get(one.name, one.request)
        for one in pod.containers
    )


def _reports(pod: Pod) -> bool:
    return all(one.reported == one.limit for one in pod.containers)


def _floor(pod: Pod) -> int:
    return sum(pod.floors.values())
