"""The effective resource requests of a pod, computed as Kubernetes does.

Containers run in parallel, so their requests add up. Init containers run one after another before
them, so only the largest counts; a sidecar keeps running, so it is added to everything that starts
after it. The scheduler and the kubelet use the same total.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from croupier.core.quantity import ZERO, Quantity

Amounts: TypeAlias = Mapping[str, Quantity]
"""Amounts by resource name."""

_Amount = TypeVar("_Amount")

_POD_LEVEL = frozenset(("cpu", "memory"))
_HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True)
class PodResourceSpec:
    """The parts of a pod's spec that determine its effective requests."""

    containers: Sequence[Amounts] = ()
    init_containers: Sequence["InitContainerRequest"] = ()
    """The init containers, in start order."""
    overhead: Amounts = field(default_factory=dict)
    pod_level: Amounts = field(default_factory=dict)
    """Pod-level requests; they replace the sum of the containers for the resources that support it."""


@dataclass(frozen=True, slots=True)
class InitContainerRequest:
    """The requests of an init container; a sidecar is an init container that keeps running."""

    amounts: Amounts
    sidecar: bool = False


def with_defaults(requests: Mapping[str, _Amount], limits: Mapping[str, _Amount]) -> dict[str, _Amount]:
    """The requests of a container. A limit without a request counts as a request, as in the API server."""
    return {**limits, **requests}


def effective(pod: PodResourceSpec) -> dict[str, Quantity]:
    """The effective request of each resource; zero amounts are left out."""
    while_starting, sidecars = _during_init(pod.init_containers)
    running = _sum((*pod.containers, sidecars))
    total = _max(running, while_starting)
    total |= {name: amount for name, amount in pod.pod_level.items() if _allowed_at_pod_level(name)}
    return {name: amount for name, amount in _sum((total, pod.overhead)).items() if amount}


def _during_init(
    init_containers: Iterable[InitContainerRequest],
) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """The largest total before the containers start, and the total of the sidecars."""
    most: dict[str, Quantity] = {}
    sidecars: dict[str, Quantity] = {}
    for container in init_containers:
        together = _sum((sidecars, container.amounts))
        if container.sidecar:
            sidecars = together
        most = _max(most, together)
    return most, sidecars


def _sum(parts: Iterable[Amounts]) -> dict[str, Quantity]:
    total: dict[str, Quantity] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def _max(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    return {
        name: max(one.get(name, ZERO), other.get(name, ZERO), key=lambda amount: amount.nanos)
        for name in (*one, *other)
    }


def _allowed_at_pod_level(name: str) -> bool:
    """Kubernetes supports pod-level requests only for these; devices are always requested by a container."""
    return name in _POD_LEVEL or name.startswith(_HUGE_PAGES)
