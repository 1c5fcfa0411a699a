"""The lifecycle of the holders of a node: promotion, release and expiry.

A hold becomes Bound when its pod is bound to the node. A holder is removed when its pod has ended or does
not exist any more. A hold past its expiry is removed unless a pod is bound with it. (A Reservation's hold
that no pod has taken over ends with the Reservation: core/claims/reservation.py.) Irreversible states in a
cache can be trusted (a bound pod stays bound, a finished pod stays finished). That a cache does *not* contain
a pod proves nothing, so such steps say what must be verified first.

Every step is applied to the current ledger and is safe on any ledger.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from croupier.core.ledger import holder as holder_names
from croupier.core.ledger import ledger
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.pod_view import PodView

Verify: TypeAlias = Literal["none", "pod", "binding"]
"""What to verify with a live read before a step: nothing; the pod is gone; it is not bound, and fenced."""


@dataclass(frozen=True, slots=True)
class PromoteHolder:
    """The pod is bound here, so the hold no longer expires. `holder` is renamed to `pod`."""

    holder: str
    pod: str
    verify: Verify = "none"


@dataclass(frozen=True, slots=True)
class FreeHolder:
    """The pod has ended, is gone or is bound elsewhere; a Reservation that still waits keeps its hold."""

    holder: str
    why: str
    verify: Verify = "none"


@dataclass(frozen=True, slots=True)
class ExpireHolder:
    """The hold is past its expiry `until`, and its pod is not known to be bound."""

    holder: str
    until: datetime
    verify: Verify = "binding"


HolderStep: TypeAlias = PromoteHolder | FreeHolder | ExpireHolder


@dataclass(frozen=True, slots=True)
class HolderPlan:
    steps: tuple[HolderStep, ...] = ()
    again: datetime | None = None
    """When the next hold expires."""


def plan(
    held: Ledger, pods: Mapping[str, PodView], now: datetime, *, patience: timedelta = timedelta.max
) -> HolderPlan:
    """Plan the steps for all holders. `pods` are the known pods of the holders, by `namespace/name`.

    The extender that binds a pod promotes it with its next write to the ledger. To avoid conflicts with
    that write, a promotion is planned here only when the hold has less than `patience` left.
    """
    steps = [step for holder in sorted(held.holders()) if (step := _step(held, holder, pods, now))]
    early = {step.holder: due for step in steps if (due := _due(held, step, patience)) > now}
    moments = {until for until in held.held.values() if until is not None and until > now}
    again = min(moments | set(early.values()), default=None)
    return HolderPlan(tuple(step for step in steps if step.holder not in early), again)


def _due(held: Ledger, step: HolderStep, patience: timedelta) -> datetime:
    """When a step is due; every step except a promotion is due at once."""
    until = held.held.get(step.holder)
    if (
        not isinstance(step, PromoteHolder)
        or step.holder != step.pod
        or until is None
        or patience == timedelta.max
    ):
        return datetime.min.replace(tzinfo=UTC)
    return until - patience


def _step(held: Ledger, holder: str, pods: Mapping[str, PodView], now: datetime) -> HolderStep | None:
    waiting = holder_names.reservation_holder(holder)
    pod = _pod_of(holder, pods)
    step = _bound_here(held, holder, pod) or (_ended(held, holder, pod) if waiting else None)
    if step is not None and step.verify == "none":
        return step
    until = held.held.get(holder)
    overdue = until is not None and until <= now and (waiting or holder not in held.reservations)
    # A pod that is not in the cache may exist and wait: an overdue hold ends in both cases.
    return ExpireHolder(holder, until) if until is not None and overdue else step


def _pod_of(holder: str, pods: Mapping[str, PodView]) -> PodView | None:
    """The pod of a holder; None for another pod with the same name."""
    waiting = holder_names.reservation_holder(holder)
    pod = pods.get(waiting or holder)
    return None if pod is not None and waiting and pod.holder != holder else pod


def _bound_here(held: Ledger, holder: str, pod: PodView | None) -> HolderStep | None:
    """The promotion of a pod that is bound to this node, if it is still needed."""
    if pod is None or pod.finished or pod.node != held.node:
        return None
    promoted = holder not in held.held if holder == pod.holder else bool(held.grant(pod.holder))
    return None if promoted else PromoteHolder(holder, pod.holder)


def _ended(held: Ledger, holder: str, pod: PodView | None) -> HolderStep | None:
    """The release of a holder with UID whose pod does not use the node."""
    if pod is None:
        return FreeHolder(holder, f"pod {holder_names.reservation_holder(holder)} is gone", verify="pod")
    if pod.finished:
        return FreeHolder(holder, f"pod {pod.key} has ended")
    if pod.node and pod.node != held.node:
        return FreeHolder(holder, f"pod {pod.key} is bound to node {pod.node}")
    return None


def as_change(step: HolderStep) -> Callable[[Ledger], Ledger]:
    """The step as a function that is safe on any ledger."""
    match step:
        case PromoteHolder(holder=holder, pod=pod):
            return lambda held: ledger.bind(_renamed_to_pod(held, holder, pod), pod)
        case FreeHolder(holder=holder):
            return lambda held: free(held, holder)
        case ExpireHolder(holder=holder, until=until):
            return lambda held: expire(held, holder, until)


def apply_all(held: Ledger, changes: Iterable[Callable[[Ledger], Ledger]]) -> Ledger:
    for apply in changes:
        held = apply(held)
    return held


def with_bound_pods(held: Ledger, pods: Mapping[str, PodView]) -> Ledger:
    """The ledger as it will be once every hold whose pod is bound to this node is promoted.

    A bound pod stays bound, but its hold is promoted with a later write. Commands that know the pods show
    the ledger like this.
    """
    steps = (_bound_here(held, holder, _pod_of(holder, pods)) for holder in sorted(held.holders()))
    return apply_all(held, (as_change(step) for step in steps if step is not None))


def _renamed_to_pod(held: Ledger, holder: str, pod: str) -> Ledger:
    return held if holder == pod else ledger.rename(held, holder, pod)


def free(held: Ledger, holder: str) -> Ledger:
    """Release `holder`; a hold that was taken over from a Reservation returns to the Reservation."""
    waiting = holder_names.reservation_holder(holder)
    if waiting and holder in held.held and holder in held.reservations and not held.grant(waiting):
        return ledger.rename(held, holder, waiting)
    return ledger.release(held, holder)


def expire(held: Ledger, holder: str, until: datetime) -> Ledger:
    """Release `holder` only if its expiry is still `until`: a bind extends the hold or makes it Bound."""
    return ledger.release(held, holder) if held.held.get(holder) == until else held
