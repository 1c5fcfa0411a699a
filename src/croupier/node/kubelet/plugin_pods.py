"""Convert Pods to what device plugins need, and a grant to its annotation."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from croupier.api.core_v1 import Container, Pod
from croupier.api.mps import allocation
from croupier.api.mps.allocation import Entry
from croupier.core import quantity
from croupier.core.ledgers.ledger import Grant, Part
from croupier.core.nodes.devices import NodeCard
from croupier.core.nodes.handed import Asking, BoundPod
from croupier.core.pods import effective, request
from croupier.core.pods.effective import Amounts, Early, Footprint

_NOTHING: Final[Amounts] = {}


def bound(pod: Pod) -> BoundPod | None:
    """None if the pod is not bound, has finished, or requests no devices."""
    if not pod.spec.node_name or pod.is_finished:
        return None
    init = [(container, _asked(container)) for container in pod.spec.init_containers]
    main = [(container, _asked(container)) for container in pod.spec.containers]
    asking = tuple(
        Asking(container.name, {name: amount.whole for name, amount in amounts.items()})
        for container, amounts in (*init, *main)
        if amounts
    )
    if not asking:
        return None
    before = [Early(amounts, sidecar=container.is_sidecar) for container, amounts in init]
    containers = [amounts for _, amounts in main]
    needs = effective.requests(Footprint(containers=containers, before=before, overhead={}))
    return BoundPod(
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        containers=asking,
        wants={name: amount.whole for name, amount in needs.items()},
        grant=_promise(pod),
        bound_at=_bound_at(pod),
        admitted=pod.status.start_time is not None,
    )


def _bound_at(pod: Pod) -> datetime | None:
    """The time of binding. A pod that was created with a node name has no PodScheduled condition at first."""
    times = (
        condition.last_transition_time
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "True"
    )
    return next(times, None) or pod.metadata.creation_timestamp


def _asked(container: Container) -> Amounts:
    """The devices in its limits, which the kubelet counts. It would not admit an invalid quantity either."""
    limits = container.resources.limits or container.resources.requests
    try:
        amounts = {name: quantity.parse(text) for name, text in limits.items() if _is_device(name)}
    except quantity.InvalidQuantityError:
        return _NOTHING
    return {name: amount for name, amount in amounts.items() if amount.whole > 0}


def _is_device(resource: str) -> bool:
    """Whether a plugin serves the resource. No plugin serves the ledger resource."""
    return request.concerns(resource) and resource != request.MARK


def _promise(pod: Pod) -> Grant:
    try:
        return allocation.decode(pod.metadata.annotations.get(allocation.ALLOCATION, ""))
    except ValueError:
        return ()


def annotation(grant: Grant, cards: Mapping[str, NodeCard]) -> str:
    """The allocation annotation for `grant`. All its cards must be in `cards`."""
    return msgspec.json.encode([_entry(part, cards[part.card]) for part in grant]).decode()


def _entry(part: Part, card: NodeCard) -> Entry:
    if part.slots:
        return Entry(card=card.id, index=card.index, slots=part.slots)
    if card.pool is not None and card.pool.sharing == "TimeSlice":
        return Entry(card=card.id, index=card.index, slices=part.share)
    return Entry(card=card.id, index=card.index, percent=part.share)
