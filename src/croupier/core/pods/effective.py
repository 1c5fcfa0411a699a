"""What a pod as a whole asks for, counted as Kubernetes counts it.

Containers run together, so they add up. Init containers run one after another before
them, so only the largest counts; but a sidecar keeps running, so it counts beside
everything that is started after it. The scheduler and the kubelet reserve this number,
and whoever counted otherwise would disagree with them about what is left.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from croupier.core.quantity import ZERO, Quantity

Amounts: TypeAlias = Mapping[str, Quantity]
"""Resource name to how much of it."""

_POD_LEVEL = frozenset(("cpu", "memory"))
_HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Everything of a pod's spec that decides what it asks for."""

    containers: Sequence[Amounts] = ()
    before: Sequence["Early"] = ()
    """Its init containers, in the order they start."""
    overhead: Amounts = field(default_factory=dict)
    pod_level: Amounts = field(default_factory=dict)
    """Requests written on the pod itself: they replace those of its containers where Kubernetes lets them."""


@dataclass(frozen=True, slots=True)
class Early:
    """An init container; a sidecar is one that goes on running."""

    amounts: Amounts
    sidecar: bool = False


def requests(pod: Footprint) -> dict[str, Quantity]:
    """The effective request of each resource; what comes to nothing is left out."""
    while_starting, sidecars = _starting(pod.before)
    running = _sum((*pod.containers, sidecars))
    total = _most(running, while_starting)
    total |= {name: amount for name, amount in pod.pod_level.items() if _may_stand_on_pod(name)}
    return {name: amount for name, amount in _sum((total, pod.overhead)).items() if amount}


def _starting(before: Iterable[Early]) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """The most that is needed at once before the containers start, and what the sidecars keep."""
    most: dict[str, Quantity] = {}
    sidecars: dict[str, Quantity] = {}
    for one in before:
        together = _sum((sidecars, one.amounts))
        if one.sidecar:
            sidecars = together
        most = _most(most, together)
    return most, sidecars


def _sum(parts: Iterable[Amounts]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _most(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    return {
        name: max(one.get(name, ZERO), other.get(name, ZERO), key=lambda amount: amount.nanos)
        for name in (*one, *other)
    }


def _may_stand_on_pod(name: str) -> bool:
    """Kubernetes takes these from the pod itself; devices are always asked for by a container."""
    return name in _POD_LEVEL or name.startswith(_HUGE_PAGES)
