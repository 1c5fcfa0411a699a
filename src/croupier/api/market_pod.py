"""A pod as the CPU market sees it: what its limit is, and whether and how far that may move.

Containers and sidecars bear a limit; other init containers are over before there is anything to move.
"""

from collections.abc import Mapping
from typing import Final, cast

from croupier.api.core_v1 import Container, ContainerStatus, Pod, ResourceRequirements
from croupier.core import quantity
from croupier.core.market import units
from croupier.core.market.terms import Kind, QoS, Shape
from croupier.core.quantity import Quantity

CPU: Final = "cpu"
MIRROR: Final = "kubernetes.io/config.mirror"
SOURCE: Final = "kubernetes.io/config.source"
VPA_UPDATES: Final = "vpaUpdates"
VPA_IN_PLACE: Final = "vpaInPlaceUpdated"


def bearing(pod: Pod) -> tuple[Container, ...]:
    """The containers whose limits make up the pod's."""
    return (*pod.spec.containers, *(one for one in pod.spec.init_containers if one.is_sidecar))


def statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """What the kubelet says of them, by name."""
    told = {one.name: one for one in (*pod.status.container_statuses, *pod.status.init_container_statuses)}
    return {one.name: told[one.name] for one in bearing(pod) if one.name in told}


def limit(pod: Pod) -> int:
    """What its spec says, all containers together; in quanta, a started one counted in full."""
    return units.at_least(_sum([_cpu(one.resources.limits) for one in bearing(pod)]))


def applied(pod: Pod) -> int | None:
    """What the kubelet enforces; None as long as it has not said so for every container."""
    told = statuses(pod)
    amounts = []
    for one in bearing(pod):
        has = told[one.name].resources if one.name in told else None
        if has is None or CPU not in has.limits:
            return None
        amounts.append(_cpu(has.limits))
    return units.at_least(_sum(amounts))


def request(pod: Pod) -> int:
    return units.at_least(_sum([_requested(one.resources) for one in bearing(pod)]))


def shape(pod: Pod, original: int | None = None) -> Shape:
    """`original`: the limit it came with where that is on record; else what its spec says."""
    containers = bearing(pod)
    return Shape(
        namespace=pod.metadata.namespace,
        request=request(pod),
        original=limit(pod) if original is None else original,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
        qos=cast("QoS", pod.status.qos_class or "Burstable"),
        kind=_kind(pod),
        memory_pinned=all(_pinned(one.resources) for one in containers),
        unlimited=tuple(one.name for one in containers if not _cpu(one.resources.limits).nanos),
        restarting=tuple(one.name for one in containers if _restarts(one)),
        autoscaler=_autoscaler(pod.metadata.annotations),
    )


def _kind(pod: Pod) -> Kind:
    if MIRROR in pod.metadata.annotations:
        return "mirror"
    if pod.metadata.annotations.get(SOURCE, "api") != "api":
        return "static"
    return "Windows" if pod.spec.os.name == "windows" else ""


def _autoscaler(annotations: Mapping[str, str]) -> str:
    """The VerticalPodAutoscaler that writes CPU limits of this pod; it leaves a note on what it wrote."""
    note = annotations.get(VPA_UPDATES, "")
    if "cpu limit" not in note and annotations.get(VPA_IN_PLACE) != "true":
        return ""
    return note.removeprefix("Pod resources updated by ").partition(":")[0] or "of this pod"


def _pinned(resources: ResourceRequirements) -> bool:
    """Its memory request equals its memory limit; without a request the API server makes it so."""
    most = resources.limits.get("memory")
    if most is None:
        return False
    return quantity.parse(resources.requests.get("memory", most)) == quantity.parse(most)


def _restarts(container: Container) -> bool:
    return any(
        one.resource_name == CPU and one.restart_policy == "RestartContainer"
        for one in container.resize_policy
    )


def _requested(resources: ResourceRequirements) -> Quantity:
    return _cpu(resources.requests) if CPU in resources.requests else _cpu(resources.limits)


def _cpu(amounts: dict[str, str]) -> Quantity:
    return quantity.parse(amounts.get(CPU, "0"))


def _sum(amounts: list[Quantity]) -> Quantity:
    return Quantity(sum(one.nanos for one in amounts))
