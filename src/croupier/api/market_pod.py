"""Convert a Pod for the market and for resizes: its CPU limit, and what decides whether it may change.

The limit of a pod is the sum over its containers and sidecars. Other init containers have finished before the
limit can change.
"""

from collections.abc import Mapping
from typing import Final, cast

from croupier.api.core_v1 import MIRROR, Container, ContainerStatus, Pod, PodCondition, ResourceRequirements
from croupier.core import quantity
from croupier.core.market import units
from croupier.core.market.terms import PodShape, QoS, SpecialPodKind
from croupier.core.pods import effective_requests
from croupier.core.quantity import Quantity
from croupier.core.resizing.model import ResizeCondition, ResizeContainer, ResizePod

CPU: Final = "cpu"
SOURCE: Final = "kubernetes.io/config.source"
VPA_UPDATES: Final = "vpaUpdates"
VPA_IN_PLACE: Final = "vpaInPlaceUpdated"


def limited_containers(pod: Pod) -> tuple[Container, ...]:
    """The containers whose limits add up to the limit of the pod."""
    return (*pod.spec.containers, *(init for init in pod.spec.init_containers if init.is_sidecar))


def container_statuses(pod: Pod) -> dict[str, ContainerStatus]:
    """The status of each of these containers by name, as far as the kubelet has reported it."""
    reported = {
        status.name: status
        for status in (*pod.status.container_statuses, *pod.status.init_container_statuses)
    }
    names = [container.name for container in limited_containers(pod)]
    return {name: reported[name] for name in names if name in reported}


def limit(pod: Pod) -> int:
    """The CPU limit of the pod in the spec, in quanta rounded up."""
    return units.at_least(_sum([_cpu(container.resources.limits) for container in limited_containers(pod)]))


def applied(pod: Pod) -> int | None:
    """The CPU limit that the kubelet enforces, in quanta. None until it is reported for every container."""
    statuses = container_statuses(pod)
    amounts = [_reported(statuses.get(container.name)) for container in limited_containers(pod)]
    known = [amount for amount in amounts if amount is not None]
    return units.at_least(_sum(known)) if len(known) == len(amounts) else None


def request(pod: Pod) -> int:
    return units.at_least(_sum([requested(container.resources) for container in limited_containers(pod)]))


def shape(pod: Pod, original: int | None = None) -> PodShape:
    """`original` is the recorded original limit. Without it the limit in the spec counts as the original."""
    containers = limited_containers(pod)
    return PodShape(
        namespace=pod.metadata.namespace,
        request=request(pod),
        original=limit(pod) if original is None else original,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
        qos=cast("QoS", pod.status.qos_class or "Burstable"),
        kind=_kind(pod),
        memory_pinned=all(_pinned(container.resources) for container in containers),
        unlimited=tuple(
            container.name for container in containers if not _cpu(container.resources.limits).nanos
        ),
        restarting=tuple(container.name for container in containers if restarts(container)),
        autoscaler=_autoscaler(pod.metadata.annotations),
    )


def resize_pod(pod: Pod) -> ResizePod:
    meta, status = pod.metadata, pod.status
    statuses = container_statuses(pod)
    return ResizePod(
        meta.uid,
        tuple(_container(container, statuses.get(container.name)) for container in limited_containers(pod)),
        shape(pod),
        node=pod.spec.node_name,
        generation=meta.generation,
        observed=status.observed_generation,
        phase=status.phase,
        terminating=meta.deletion_timestamp is not None,
        pod_level=bool(pod.spec.resources.limits or pod.spec.resources.requests),
        pending=_condition(status.conditions, "PodResizePending"),
        in_progress=_condition(status.conditions, "PodResizeInProgress"),
    )


def _container(spec: Container, status: ContainerStatus | None) -> ResizeContainer:
    return ResizeContainer(
        spec.name,
        limit=_cpu(spec.resources.limits),
        request=requested(spec.resources),
        reported=_reported(status),
        state=_state(status),
        restarts=0 if status is None else status.restart_count,
        restarting=restarts(spec),
        sidecar=spec.is_sidecar,
    )


def _reported(status: ContainerStatus | None) -> Quantity | None:
    if status is None or status.resources is None or CPU not in status.resources.limits:
        return None
    return _cpu(status.resources.limits)


def _state(status: ContainerStatus | None) -> str:
    """Why it is not running; empty while it runs."""
    if status is None:
        return "not started"
    state = status.state
    if state.running is not None:
        return ""
    if state.terminated is not None:
        return state.terminated.reason or "terminated"
    return (state.waiting.reason if state.waiting is not None else "") or "waiting"


def _condition(conditions: tuple[PodCondition, ...], kind: str) -> ResizeCondition | None:
    for condition in conditions:
        if condition.type == kind and condition.status == "True":
            return ResizeCondition(condition.reason, condition.message, condition.observed_generation)
    return None


def _kind(pod: Pod) -> SpecialPodKind:
    if MIRROR in pod.metadata.annotations:
        return "mirror"
    if pod.metadata.annotations.get(SOURCE, "api") != "api":
        return "static"
    return "Windows" if pod.spec.os.name == "windows" else ""


def _autoscaler(annotations: Mapping[str, str]) -> str:
    """The VerticalPodAutoscaler that sets CPU limits of this pod, from the annotations that it writes."""
    note = annotations.get(VPA_UPDATES, "")
    if "cpu limit" not in note and annotations.get(VPA_IN_PLACE) != "true":
        return ""
    return note.removeprefix("Pod resources updated by ").partition(":")[0] or "of this pod"


def _pinned(resources: ResourceRequirements) -> bool:
    """Whether the memory request equals the memory limit."""
    most = resources.limits.get("memory")
    if most is None:
        return False
    asked = effective_requests.with_defaults(resources.requests, resources.limits)
    return quantity.parse(asked["memory"]) == quantity.parse(most)


def restarts(container: Container) -> bool:
    return any(
        policy.resource_name == CPU and policy.restart_policy == "RestartContainer"
        for policy in container.resize_policy
    )


def requested(resources: ResourceRequirements) -> Quantity:
    """The CPU request of a container."""
    return _cpu(effective_requests.with_defaults(resources.requests, resources.limits))


def _cpu(amounts: dict[str, str]) -> Quantity:
    return quantity.parse(amounts.get(CPU, "0"))


def _sum(amounts: list[Quantity]) -> Quantity:
    return Quantity(sum(amount.nanos for amount in amounts))
