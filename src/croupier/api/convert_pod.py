"""Convert a Pod to the values that placement, the ledger and the device plugins use.

The content comes from users who may create pods, so nothing here raises: an invalid request becomes
`trouble`, and an invalid allocation counts as no allocation.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from croupier.api.core_v1 import Container, Pod, PodSpec
from croupier.api.mps import allocation
from croupier.api.mps.allocation import AllocationEntry
from croupier.core import quantity
from croupier.core.model.card_request import CardRequest
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.nodes.kubelet_assignments import BoundPod, ContainerRequest
from croupier.core.pods import effective_requests, request_parser
from croupier.core.pods.effective_requests import Amounts, InitContainerRequest, PodResourceSpec
from croupier.core.quantity import Quantity


def view(pod: Pod) -> PodView:
    """The fields of the pod that decisions about cards need."""
    wants, trouble, marked = _card_requests(pod)
    granted = _allocation_entries(pod)
    return PodView(
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        node=pod.spec.node_name,
        finished=pod.is_finished,
        wants=wants,
        trouble=trouble,
        grant=allocation.grant(granted),
        indexes=tuple(entry.index for entry in granted),
        priority=pod.spec.priority,
        marked=marked,
        created=pod.metadata.creation_timestamp,
    )


def bound(pod: Pod) -> BoundPod | None:
    """The pod as device plugins need it. None if it is not bound, has finished, or requests no devices."""
    if not pod.spec.node_name or pod.is_finished:
        return None
    asking = tuple(
        ContainerRequest(container.name, _whole(amounts))
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if (amounts := _devices(container))
    )
    if not asking:
        return None
    return BoundPod(
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        containers=asking,
        wants=_whole(effective_requests.effective(_resource_spec(pod.spec, _devices))),
        grant=allocation.grant(_allocation_entries(pod)),
        bound_at=_bound_at(pod),
        admitted=pod.status.start_time is not None,
    )


def _card_requests(pod: Pod) -> tuple[CardRequest, str, bool]:
    """The requested cards, why the request is invalid, and whether the pod requests the ledger resource."""
    try:
        spec = replace(_resource_spec(pod.spec, _cards), overhead=_card_amounts(pod.spec.overhead))
        requests = effective_requests.effective(spec)
    except quantity.InvalidQuantityError as error:
        return (), str(error), False
    wants = request_parser.read(requests, pod.metadata.annotations)
    marked = request_parser.LEDGER in requests
    if isinstance(wants, Refusal):
        return (), str(wants), marked
    return wants, "", marked


def _allocation_entries(pod: Pod) -> tuple[AllocationEntry, ...]:
    """The allocation of a bound pod. On an unbound pod the annotation comes from its owner and is ignored."""
    written = pod.metadata.annotations.get(allocation.ALLOCATION)
    if written is None or not pod.spec.node_name:
        return ()
    try:
        return allocation.entries(written)
    except ValueError:
        return ()


def _bound_at(pod: Pod) -> datetime | None:
    """The time of binding. A pod that was created with a node name has no PodScheduled condition at first."""
    times = (
        condition.last_transition_time
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "True"
    )
    return next(times, None) or pod.metadata.creation_timestamp


def _resource_spec(spec: PodSpec, read: Callable[[Container], Amounts]) -> PodResourceSpec:
    return PodResourceSpec(
        containers=[read(container) for container in spec.containers],
        init_containers=[
            InitContainerRequest(read(init), sidecar=init.is_sidecar) for init in spec.init_containers
        ],
    )


def _cards(container: Container) -> Amounts:
    resources = container.resources
    return _card_amounts(effective_requests.with_defaults(resources.requests, resources.limits))


def _devices(container: Container) -> Amounts:
    """The card resources that a plugin serves. The kubelet would not admit an invalid quantity either."""
    try:
        amounts = _cards(container)
    except quantity.InvalidQuantityError:
        return {}
    return {
        name: amount for name, amount in amounts.items() if name != request_parser.LEDGER and amount.whole > 0
    }


def _card_amounts(written: dict[str, str]) -> dict[str, Quantity]:
    return {
        name: quantity.parse(text) for name, text in written.items() if request_parser.is_card_resource(name)
    }


def _whole(amounts: Amounts) -> dict[str, int]:
    return {name: amount.whole for name, amount in amounts.items()}
