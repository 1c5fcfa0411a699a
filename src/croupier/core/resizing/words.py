"""Everything that can be said of a PodAllocation: a stable word for programs and a sentence for people."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from croupier.core.market import units
from croupier.core.quantity import Quantity
from croupier.core.resizing.seen import DUPLICATE, Container, Phase, Pod, Wish

LONGEST: Final = 900
ASKED: Final = frozenset(
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
"""Said only while the pod's spec is what we wrote: if it is not any more, somebody else wrote it."""
RETRIED: Final = frozenset(
    {
        "Infeasible",
        "ForeignWriter",
        "QuotaExceeded",
        "LimitRange",
        "NotPermitted",
        "NodeCapacity",
        "Refused",
        "Invalid",
        "Conflict",
        "NoResize",
        "Unavailable",
    }
)
"""Tried again with growing delays: nothing tells us when the cause is gone."""


@dataclass(frozen=True, slots=True)
class Verdict:
    phase: Phase
    word: str
    sentence: str

    @property
    def reason(self) -> str:
        """On one line and not too long, as it goes into the status."""
        line = " ".join(self.sentence.split())
        short = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
        return f"{self.word}: {short}" if short else self.word

    @property
    def retried(self) -> bool:
        return self.word in RETRIED


def pending(word: str, sentence: str) -> Verdict:
    return Verdict("Pending", word, sentence)


def failed(word: str, sentence: str) -> Verdict:
    return Verdict("Failed", word, sentence)


def other_namespace(wish: Wish) -> Verdict:
    return failed(
        "NamespaceMismatch",
        f"it lives in namespace {wish.namespace} and names a pod of {wish.pod_namespace};"
        " create it in the namespace of the pod",
    )


def duplicate(older: Wish) -> Verdict:
    return failed(
        DUPLICATE,
        f"PodAllocation {older.name} is older and decides for pod {older.pod}; delete one of the two",
    )


def no_pod(wish: Wish) -> Verdict:
    return failed("PodNotFound", f"namespace {wish.namespace} has no pod {wish.pod}")


def replaced(wish: Wish) -> Verdict:
    return failed(
        "PodReplaced",
        f"the pod {wish.pod} it was made for is gone and another has its name; create a new PodAllocation",
    )


def other_node(wish: Wish, pod: Pod) -> Verdict:
    where = f"on node {pod.node}" if pod.node else "on no node"
    return failed(
        "WrongNode",
        f"the market of node {wish.node} wrote it, but pod {wish.pod} is {where}; delete it",
    )


def over(wish: Wish, pod: Pod) -> Verdict:
    if pod.terminating:
        return failed("PodTerminating", f"pod {wish.pod} is being deleted")
    return failed("PodFinished", f"pod {wish.pod} has ended ({pod.phase})")


def pod_level() -> Verdict:
    return failed("PodLevelResources", "the pod has resources of its own beside those of its containers")


def below(least: int, pod: Pod) -> Verdict:
    if pod.shape.memory_pinned and least > sum(pod.floors.values()):
        why = "at its CPU requests its QoS class would become Guaranteed"
    else:
        why = "Kubernetes refuses a limit below the request"
    return failed("BelowRequest", f"{why}; ask for at least {units.text(least)}")


def not_a_step(desired: Quantity) -> Verdict:
    return failed("InvalidLimit", f"{desired} is no positive multiple of 10m")


def waiting(wish: Wish, pod: Pod) -> Verdict:
    where = f"on node {pod.node}" if pod.node else "for a node"
    return pending("PodPending", f"pod {wish.pod} does not run yet; it waits {where}")


def resizing(desired: Quantity, pod: Pod) -> Verdict:
    return pending("Resizing", f"{desired} was asked for; the kubelet of {pod.node} does not report it yet")


def recorded(desired: Quantity) -> Verdict:
    return pending("Recorded", f"the limit the pod came with is on record; {desired} comes next")


def deferred(message: str) -> Verdict:
    return pending("Deferred", message or "the kubelet waits for room")


def in_progress(message: str) -> Verdict:
    return pending("InProgress", message or "the kubelet is at it")


def kubelet_error(message: str) -> Verdict:
    return failed("KubeletError", message or "the kubelet could not change the control group; it tries again")


def not_running(containers: Collection[Container]) -> Verdict:
    each = ", ".join(f"{one.name} ({one.state})" for one in containers)
    return pending("NotRunning", f"not running: {each}; the limit shows when it runs")


def restarted(desired: Quantity) -> Verdict:
    return pending("Restarted", f"a container started again since {desired} was asked for; looking again")


def not_enforced(desired: Quantity, pod: Pod) -> Verdict:
    if pod.observed < pod.generation:
        how = f"the kubelet of {pod.node} has not looked at it"
    else:
        how = f"the kubelet of {pod.node} reports {pod.reported if pod.reported is not None else 'no limit'}"
    return failed("QuotaNotEnforced", f"{desired} was asked for more than a minute ago and {how}")


def enforced(desired: Quantity, pod: Pod) -> Verdict:
    return Verdict("Applied", "Enforced", f"the kubelet of {pod.node} reports {desired}")


def infeasible(message: str, back: Quantity | None) -> Verdict:
    ending = f"; the limit is set back to {back}" if back is not None else ""
    return failed("Infeasible", f"{message or 'the kubelet can never grant it'}{ending}")


def foreign(wish: Wish, pod: Pod, by: str = "") -> Verdict:
    limits = ", ".join(f"{one.name} {one.limit}" for one in pod.containers)
    return failed(
        "ForeignWriter",
        f"{by or 'somebody else'} changed the limits ({limits}) after {wish.desired} was set;"
        " it will be set again",
    )


def refused(status: int, message: str, causes: Collection[Mapping[str, Any]] = ()) -> Verdict:
    """What the API server's no to a resize means; status 0: it did not answer."""
    return failed(_word(status, message, causes), message or f"the API server answered {status}")


def _word(status: int, message: str, causes: Collection[Mapping[str, Any]]) -> str:
    if any(cause.get("reason") == "NodeCapacity" for cause in causes):
        return "NodeCapacity"
    if status == 403:
        return _forbidden(message)
    if "could not find the requested resource" in message or "without support for resize" in message:
        return "NoResize"
    if status in (404, 409) or "metadata.uid: Invalid value" in message:
        return "Conflict"  # it came too late for its pod
    if status in (400, 422):
        return "Invalid"
    return "Unavailable"


def _forbidden(message: str) -> str:
    """Quota, LimitRange and RBAC all say 403; their sentences have not changed in years."""
    if "exceeded quota" in message or "must specify limits" in message:
        return "QuotaExceeded"
    if " per Container is " in message or " per Pod is " in message:
        return "LimitRange"
    if "cannot patch resource" in message:
        return "NotPermitted"
    return "Refused"
