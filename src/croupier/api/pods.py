"""A pod as the ledger sees it.

Everything here was written by whoever may create pods, so nothing in it may raise: a
request that cannot be read becomes `trouble`, an allocation that cannot, none.
"""

from croupier.api.core_v1 import Container, Pod, PodSpec, ResourceRequirements
from croupier.api.mps import allocation
from croupier.api.mps.allocation import Entry
from croupier.core import quantity
from croupier.core.ledgers.ledger import Refused
from croupier.core.pods import effective, request
from croupier.core.pods.effective import Amounts, Early, Footprint
from croupier.core.pods.pod import PodView
from croupier.core.pods.want import Wants


def view(pod: Pod) -> PodView:
    """What deciding about cards needs to know of it."""
    wants, trouble, marked = _asked(pod)
    granted = _granted(pod)
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


def _asked(pod: Pod) -> tuple[Wants, str, bool]:
    """What it asks for, or why that cannot be read; and whether it carries our mark."""
    try:
        requests = effective.requests(_footprint(pod.spec))
    except quantity.InvalidQuantityError as error:
        return (), str(error), False
    found = request.read(requests, pod.metadata.annotations)
    marked = request.MARK in requests
    if isinstance(found, Refused):
        return (), str(found), marked
    return found, "", marked


def _granted(pod: Pod) -> tuple[Entry, ...]:
    """Only a Binding brings an allocation: on a pod that waits, its owner wrote it."""
    written = pod.metadata.annotations.get(allocation.ALLOCATION)
    if written is None or not pod.spec.node_name:
        return ()
    try:
        return allocation.entries(written)
    except ValueError:
        return ()


def _footprint(spec: PodSpec) -> Footprint:
    return Footprint(
        containers=[_amounts(container) for container in spec.containers],
        before=[Early(_amounts(one), sidecar=one.is_sidecar) for one in spec.init_containers],
        overhead={
            name: quantity.parse(text) for name, text in spec.overhead.items() if request.concerns(name)
        },
    )


def _amounts(container: Container) -> Amounts:
    """What concerns us of its requests; a limit without one is a request, as the API server makes it."""
    asked = _asked_for(container.resources)
    return {name: quantity.parse(text) for name, text in asked.items() if request.concerns(name)}


def _asked_for(resources: ResourceRequirements) -> dict[str, str]:
    return {**resources.limits, **resources.requests} if resources.limits else resources.requests
