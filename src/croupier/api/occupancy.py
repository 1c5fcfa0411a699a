"""What a pod occupies of its node, counted as the scheduler counts it.

While a resize is under way three numbers exist: what the spec asks for, what the kubelet promised room for,
and what the container has. The largest counts, because each of them may be true a moment later. A resize that
can never happen (Infeasible) is not counted: only what the container has and was promised.
"""

from collections.abc import Mapping
from typing import Final

from croupier.api.core_v1 import Container, ContainerStatus, Pod, ResourceList, ResourceRequirements
from croupier.core import effective, quantity
from croupier.core.availability import POD_SLOTS, Occupant
from croupier.core.effective import Amounts, Early, Footprint
from croupier.core.quantity import NANO, Quantity

_ONE: Final = {POD_SLOTS: Quantity(NANO)}


def occupant(pod: Pod) -> Occupant | None:
    """None while it waits for a node, and when it has finished."""
    node = pod.spec.node_name
    if not node or pod.is_finished:
        return None
    return Occupant(pod.metadata.key, pod.metadata.uid, node, requests(pod))


def requests(pod: Pod) -> dict[str, Quantity]:
    """What it asks for in the end, resizes and overhead included; and one of `pods`, as every pod takes."""
    spec, status = pod.spec, pod.status
    infeasible = _infeasible(pod)
    statuses = {one.name: one for one in (*status.container_statuses, *status.init_container_statuses)}
    footprint = Footprint(
        containers=[_resized(one, statuses.get(one.name), infeasible) for one in spec.containers],
        before=[
            Early(
                _resized(one, statuses.get(one.name) if one.is_sidecar else None, infeasible), one.is_sidecar
            )
            for one in spec.init_containers
        ],
        overhead=_amounts(spec.overhead),
        pod_level=_pod_level(pod, infeasible),
    )
    return effective.requests(footprint) | _ONE


def _infeasible(pod: Pod) -> bool:
    return any(
        condition.type == "PodResizePending" and condition.reason == "Infeasible"
        for condition in pod.status.conditions
    )


def _resized(container: Container, status: ContainerStatus | None, infeasible: bool) -> Amounts:
    if status is None or status.resources is None:
        return _amounts(container.resources.requests)
    return _largest(container.resources, status.resources, status.allocated_resources, infeasible)


def _pod_level(pod: Pod, infeasible: bool) -> Amounts:
    spec, has = pod.spec.resources, pod.status.resources
    if has is None or not spec.requests:
        return _amounts(spec.requests)
    most = _largest(spec, has, pod.status.allocated_resources, infeasible)
    return {name: most.get(name, quantity.ZERO) for name in spec.requests}


def _largest(
    asked: ResourceRequirements, has: ResourceRequirements, promised: ResourceList, infeasible: bool
) -> Amounts:
    found: dict[str, Quantity] = {}
    for written in (has.requests, promised) if infeasible else (asked.requests, has.requests, promised):
        for name, amount in _amounts(written).items():
            if name not in found or found[name] < amount:
                found[name] = amount
    return found


def _amounts(written: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: quantity.parse(text) for name, text in written.items()}
