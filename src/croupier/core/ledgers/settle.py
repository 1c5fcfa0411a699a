"""What time and pods do to the holders of a node.

A hold whose pod is bound here is Bound. A holder whose pod has ended, or will never come, has nothing any
more. A hold whose time is up ends, if no pod is bound with it. (A Reservation's hold, as long as no pod has
taken it over, ends with the Reservation: core/ledgers/reservation.py.) What a cache shows can be trusted
where it cannot be taken back (a pod that is bound stays bound there, one that has finished stays finished);
that it does *not* show a pod proves nothing, so such steps say what must be made sure of.

Every step is applied to whatever the ledger is by then, and is safe on any.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeAlias

from croupier.core.ledgers import claim, ledger
from croupier.core.ledgers.ledger import Ledger
from croupier.core.pods.pod import PodView

Doubt: TypeAlias = Literal["none", "pod", "binding"]
"""What must be read live before a step: nothing; that the pod is gone; that it is not bound, and fenced."""


@dataclass(frozen=True, slots=True)
class Promote:
    """The pod is bound here: no clock can free what it holds. `holder` becomes `pod`."""

    holder: str
    pod: str
    doubt: Doubt = "none"


@dataclass(frozen=True, slots=True)
class Free:
    """The pod has ended or is gone, or went elsewhere; a Reservation that still waits keeps its hold."""

    holder: str
    why: str
    doubt: Doubt = "none"


@dataclass(frozen=True, slots=True)
class Expire:
    """Its time, `until`, is up and nobody saw its pod bound."""

    holder: str
    until: datetime
    doubt: Doubt = "binding"


Step: TypeAlias = Promote | Free | Expire


@dataclass(frozen=True, slots=True)
class Settlement:
    steps: tuple[Step, ...] = ()
    again: datetime | None = None
    """When the next hold ends by itself."""


def settle(
    held: Ledger, pods: Mapping[str, PodView], now: datetime, *, patience: timedelta = timedelta.max
) -> Settlement:
    """`pods` by `namespace/name`: those the holders name, as far as they are seen.

    Whoever binds a pod promotes it with its next write there. Only when a hold has less than `patience`
    left, that did not happen and it is done here: two who promote at once only get in each other's way.
    """
    steps = [step for holder in sorted(held.holders()) if (step := _step(held, holder, pods, now))]
    early = {step.holder: due for step in steps if (due := _due(held, step, patience)) > now}
    moments = {until for until in held.held.values() if until is not None and until > now}
    again = min(moments | set(early.values()), default=None)
    return Settlement(tuple(step for step in steps if step.holder not in early), again)


def _due(held: Ledger, step: Step, patience: timedelta) -> datetime:
    """When a step is to be taken; everything but a promotion at once."""
    until = held.held.get(step.holder)
    if not isinstance(step, Promote) or step.holder != step.pod or until is None or patience == timedelta.max:
        return datetime.min.replace(tzinfo=UTC)
    return until - patience


def _step(held: Ledger, holder: str, pods: Mapping[str, PodView], now: datetime) -> Step | None:
    waiting = claim.reserved_as(holder)
    pod = pods.get(waiting or holder)
    if pod is not None and pod.holder != holder and waiting:
        pod = None  # another of the same name
    step = _here(held, holder, pod) or (_ended(held, holder, pod) if waiting else None)
    if step is not None and step.doubt == "none":
        return step
    until = held.held.get(holder)
    overdue = until is not None and until <= now and (waiting or holder not in held.reservations)
    # A pod that is not seen may be there and wait: who is overdue ends either way.
    return Expire(holder, until) if until is not None and overdue else step


def _here(held: Ledger, holder: str, pod: PodView | None) -> Step | None:
    """The pod is bound to this node, and holds what was held for it."""
    if pod is None or pod.finished or pod.node != held.node:
        return None
    promoted = holder not in held.held if holder == pod.holder else bool(held.grant(pod.holder))
    return None if promoted else Promote(holder, pod.holder)


def _ended(held: Ledger, holder: str, pod: PodView | None) -> Step | None:
    """The pod, named with its UID, will not use anything here (any more)."""
    if pod is None:
        return Free(holder, f"pod {claim.reserved_as(holder)} is gone", doubt="pod")
    if pod.finished:
        return Free(holder, f"pod {pod.key} has ended")
    if pod.node and pod.node != held.node:
        return Free(holder, f"pod {pod.key} is bound to node {pod.node}")
    return None


def change(step: Step) -> Callable[[Ledger], Ledger]:
    """The step as a change of any ledger."""
    match step:
        case Promote(holder=holder, pod=pod):
            return lambda held: ledger.bind(_taken_over(held, holder, pod), pod)
        case Free(holder=holder):
            return lambda held: free(held, holder)
        case Expire(holder=holder, until=until):
            return lambda held: expire(held, holder, until)


def fold(held: Ledger, changes: Iterable[Callable[[Ledger], Ledger]]) -> Ledger:
    for one in changes:
        held = one(held)
    return held


def _taken_over(held: Ledger, holder: str, pod: str) -> Ledger:
    return held if holder == pod else ledger.rename(held, holder, pod)


def free(held: Ledger, holder: str) -> Ledger:
    """What `holder` had is free; a hold that a Reservation made before the pod came goes back to it."""
    waiting = claim.reserved_as(holder)
    if waiting and holder in held.held and holder in held.reservations and not held.grant(waiting):
        return ledger.rename(held, holder, waiting)
    return ledger.release(held, holder)


def expire(held: Ledger, holder: str, until: datetime) -> Ledger:
    """Only the hold that was seen to end then: a pod that binds after all has prolonged it, or is bound."""
    return ledger.release(held, holder) if held.held.get(holder) == until else held
