"""Whether a pod's CPU limit may be changed at all, and what its owner allows: `mbcas.io/*`.

A pod with an invalid value is not managed, and the reason names the value: a guess could starve the pod.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, cast

from croupier.core import quantity
from croupier.core.market import units
from croupier.core.model import name_list
from croupier.core.model.reason import Reason
from croupier.core.quantity import InvalidQuantityError

MANAGED: Final = "mbcas.io/managed"
ALLOW_GUARANTEED: Final = "mbcas.io/allow-guaranteed"
ALLOW_RESTART: Final = "mbcas.io/allow-restart"
CLASS: Final = "mbcas.io/class"
WEIGHT: Final = "mbcas.io/weight"
MIN_CPU: Final = "mbcas.io/min-cpu"
MAX_CPU: Final = "mbcas.io/max-cpu"
THROTTLE_TARGET: Final = "mbcas.io/throttle-target"
PAUSED: Final = "mbcas.io/paused"

PodClass: TypeAlias = Literal["latency", "elastic"]
QoS: TypeAlias = Literal["Guaranteed", "Burstable", "BestEffort"]
SpecialPodKind: TypeAlias = Literal["", "static", "mirror", "Windows"]

_THOUSANDTHS: Final = re.compile(r"(?P<whole>[0-9]{1,4})(?:\.(?P<part>[0-9]{1,3}))?")
_PERCENT: Final = re.compile(r"(?P<whole>[0-9]{1,2})(?:\.(?P<part>[0-9]))? ?%")


@dataclass(frozen=True, slots=True)
class PodShape:
    """The fields of a pod that decide whether and how far its limit may change; CPU in quanta."""

    namespace: str
    request: int
    """Sum of all containers, rounded up to a full quantum."""
    original: int
    """The original limit, from a record that survives the agent."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    qos: QoS = "Burstable"
    kind: SpecialPodKind = ""
    memory_pinned: bool = False
    """Memory requests equal memory limits: a CPU limit equal to the request would make it Guaranteed."""
    unlimited: tuple[str, ...] = ()
    """Containers without a CPU limit."""
    restarting: tuple[str, ...] = ()
    """Containers whose resizePolicy restarts them when CPU changes."""
    autoscaler: str = ""
    """The VerticalPodAutoscaler that writes the same field."""


@dataclass(frozen=True, slots=True)
class MarketTerms:
    """What the market may do with a pod."""

    book: PodClass
    weight: int
    floor: int
    cap: int
    throttle_target: int = 0
    """Thousandths of periods in which throttling is accepted."""
    paused: bool = False


class _InvalidAnnotationError(Exception):
    """The message about an invalid annotation."""


def not_resizable(shape: PodShape) -> Reason | None:
    """Why this pod's limit cannot be changed, by the market or by hand; None if it can."""
    if shape.kind:
        return Reason(f"{shape.kind.capitalize()}Pod", f"{shape.kind} pods cannot be resized in place")
    if shape.qos == "BestEffort":
        return Reason("BestEffort", "a pod without requests and limits has no CPU limit to change")
    if shape.unlimited:
        names = ", ".join(shape.unlimited)
        return Reason("NoCPULimit", f"no CPU limit in container {names}; an added limit cannot be removed")
    return _needs_opt_in(shape)


def _needs_opt_in(shape: PodShape) -> Reason | None:
    """Changes that are possible, but need an opt-in or conflict with another autoscaler."""
    if shape.qos == "Guaranteed" and not _opted_in(shape, ALLOW_GUARANTEED):
        return Reason(
            "Guaranteed",
            f'its QoS class is Guaranteed; set {ALLOW_GUARANTEED}: "true" to change requests with limits',
        )
    if shape.restarting and not _opted_in(shape, ALLOW_RESTART):
        names = ", ".join(shape.restarting)
        return Reason(
            "RestartPolicy",
            f'container {names} restarts when its CPU changes; set {ALLOW_RESTART}: "true" to accept that',
        )
    if shape.autoscaler:
        return Reason(
            "Autoscaler",
            f"VerticalPodAutoscaler {shape.autoscaler} sets the same limit; use only one of the two",
        )
    return None


def lowest_limit(shape: PodShape) -> int:
    """The lowest limit that Kubernetes accepts without a change of the pod's QoS class."""
    if shape.qos == "Guaranteed":
        return 1  # requests change together with limits
    return max(1, shape.request + (1 if shape.memory_pinned else 0))


def read(shape: PodShape, *, capacity: int, protected: frozenset[str] = frozenset()) -> MarketTerms | Reason:
    """The owner's terms, or why the market does not manage the pod. By default a limit ends at `capacity`."""
    if shape.labels.get(MANAGED) != "true":
        return Reason("NotManaged", f'it does not have the label {MANAGED}: "true"')
    if shape.namespace in protected:
        return Reason("Protected", f"the market never manages pods of namespace {shape.namespace}")
    if unfit := not_resizable(shape):
        return unfit
    try:
        return _terms(shape, capacity)
    except _InvalidAnnotationError as unreadable:
        return Reason("BadAnnotation", str(unreadable))


def _terms(shape: PodShape, capacity: int) -> MarketTerms:
    low, high = _bounds(shape, capacity)
    weight = _weight(shape.annotations.get(WEIGHT, "1"))
    return MarketTerms(
        book=_class(shape.annotations.get(CLASS, "latency")),
        weight=weight * max(1, shape.original if shape.qos == "Guaranteed" else shape.request),
        floor=low,
        cap=high,
        throttle_target=_target(shape.annotations.get(THROTTLE_TARGET, "0%")),
        paused=_flag(PAUSED, shape.annotations.get(PAUSED, "false")),
    )


def _bounds(shape: PodShape, capacity: int) -> tuple[int, int]:
    """By default a Guaranteed pod keeps at least half of its original limit."""
    least = lowest_limit(shape)
    usual = max(least, -(-shape.original // 2)) if shape.qos == "Guaranteed" else least
    low = max(least, _cpu(MIN_CPU, shape, up=True)) if MIN_CPU in shape.annotations else usual
    if MAX_CPU not in shape.annotations:
        return low, max(low, shape.original, capacity)
    high = _cpu(MAX_CPU, shape, up=False)
    if high < least:
        raise _InvalidAnnotationError(
            f"annotation {MAX_CPU} is {units.text(high)}, but its limit cannot go below {units.text(least)}"
            " because of its CPU requests; raise the annotation or lower the requests"
        )
    if high < low and MIN_CPU in shape.annotations:
        raise _InvalidAnnotationError(
            f"annotation {MIN_CPU} is {units.text(low)} and {MAX_CPU} is {units.text(high)};"
            " the minimum must not exceed the maximum"
        )
    return min(low, high), high


def _opted_in(shape: PodShape, name: str) -> bool:
    return "true" in (shape.labels.get(name), shape.annotations.get(name))


def _cpu(name: str, shape: PodShape, *, up: bool) -> int:
    written = shape.annotations[name]
    try:
        amount = quantity.parse(written)
    except InvalidQuantityError:
        amount = quantity.ZERO
    quanta = units.at_least(amount) if up else units.at_most(amount)
    if quanta < 1:
        raise _InvalidAnnotationError(
            f"annotation {name} is {name_list.quoted(written)}:"
            ' it must be at least 10m of CPU, such as "500m" or "2"'
        )
    return quanta


def _class(written: str) -> PodClass:
    if written not in ("latency", "elastic"):
        raise _InvalidAnnotationError(
            f"annotation {CLASS} is {name_list.quoted(written)}: it must be latency or elastic"
        )
    return cast("PodClass", written)


def _weight(written: str) -> int:
    """In thousandths, per CPU of the request."""
    match = _THOUSANDTHS.fullmatch(written)
    weight = _thousandths(match) if match else 0
    if not 1 <= weight <= 1_000_000:
        raise _InvalidAnnotationError(
            f"annotation {WEIGHT} is {name_list.quoted(written)}:"
            ' it must be a number above 0 and up to 1000, such as "2" or "0.5"'
        )
    return weight


def _target(written: str) -> int:
    """`5%` or `0.05`, in thousandths."""
    if percent := _PERCENT.fullmatch(written):
        return int(percent["whole"]) * 10 + int(percent["part"] or 0)
    match = _THOUSANDTHS.fullmatch(written)
    if match is None or _thousandths(match) >= 1000:
        raise _InvalidAnnotationError(
            f"annotation {THROTTLE_TARGET} is {name_list.quoted(written)}:"
            ' it must be a share of periods below 1, such as "5%" or "0.05"'
        )
    return _thousandths(match)


def _thousandths(match: re.Match[str]) -> int:
    return int(match["whole"]) * 1000 + int((match["part"] or "").ljust(3, "0"))


def _flag(name: str, written: str) -> bool:
    if written not in ("true", "false"):
        raise _InvalidAnnotationError(
            f'annotation {name} is {name_list.quoted(written)}: it must be "true" or "false"'
        )
    return written == "true"
