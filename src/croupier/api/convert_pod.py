"""Convert a Pod to the `PodView` that placement and the ledger use.

The content comes from users who may create pods, so nothing here raises: an invalid request becomes
`trouble`, and an invalid allocation counts as no allocation.
"""

from croupier.api.core_v1 import Container, Pod, PodSpec, ResourceRequirements
from croupier.api.mps import allocation
from croupier.api.mps.allocation import AllocationEntry
from croupier.core import quantity
from croupier.core.model.card_request import CardRequest
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.pods import effective_requests, request_parser
from croupier.core.pods.effective_requests import Amounts, InitContainerRequest, PodResourceSpec


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


def _card_requests(pod: Pod) -> tuple[CardRequest, str, bool]:
    """The requested cards, why the request is invalid, and whether the pod requests the ledger resource."""
    try:
        requests = effective_requests.effective(_footprint(pod.spec))
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


def _footprint(spec: PodSpec) -> PodResourceSpec:
    return PodResourceSpec(
        containers=[_amounts(container) for container in spec.containers],
        init_containers=[
            InitContainerRequest(_amounts(init), sidecar=init.is_sidecar) for init in spec.init_containers
        ],
        overhead={
            name: quantity.parse(text)
            for name, text in spec.overhead.items()
            if request_parser.is_card_resource(name)
        },
    )


def _amounts(container: Container) -> Amounts:
    """The requests for cards. A limit without a request counts as the request, as in the API server."""
    asked = _requests_or_limits(container.resources)
    return {
        name: quantity.parse(text) for name, text in asked.items() if request_parser.is_card_resource(name)
    }


def _requests_or_limits(resources: ResourceRequirements) -> dict[str, str]:
    return {**resources.limits, **resources.requests} if resources.limits else resources.requests
