"""Convert Pods to what device plugins need, and a grant to its annotation."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from croupier.api.core_v1 import Container, Pod
from croupier.api.mps import allocation
from croupier.api.mps.allocation import AllocationEntry
from croupier.core import quantity
from croupier.core.model.card import CardGrant, Grant
from croupier.core.nodes.kubelet_assignments import BoundPod, ContainerRequest
from croupier.core.nodes.plugin_devices import NodeCard
from croupier.core.pods import effective_requests, request_parser
from croupier.core.pods.effective_requests import Amounts, InitContainerRequest, PodResourceSpec

_NO_AMOUNTS: Final[Amounts] = {}


def bound(pod: Pod) -> BoundPod | None:
    """None if the pod is not bound, has finished, or requests no devices."""
    if not pod.spec.node_name or pod.is_finished:
        return None
    init = [(container, _device_limits(container)) for container in pod.spec.init_containers]
    main = [(container, _device_limits(container)) for container in pod.spec.containers]
    asking = tuple(
        ContainerRequest(container.name, {name: amount.whole for name, amount in amounts.items()})
        for container, amounts in (*init, *main)
        if amounts
    )
    if not asking:
        return None
    before = [InitContainerRequest(amounts, sidecar=container.is_sidecar) for container, amounts in init]
    containers = [amounts for _, amounts in main]
    needs = effective_requests.effective(
        PodResourceSpec(containers=containers, init_containers=before, overhead={})
    )
    return BoundPod(
        key=pod.metadata.key,
        uid=pod.metadata.uid,
        containers=asking,
        wants={name: amount.whole for name, amount in needs.items()},
        grant=_grant(pod),
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


def _device_limits(container: Container) -> Amounts:
    """The devices in its limits, which the kubelet counts. It would not admit an invalid quantity either."""
    limits = container.resources.limits or container.resources.requests
    try:
        amounts = {name: quantity.parse(text) for name, text in limits.items() if _is_device(name)}
    except quantity.InvalidQuantityError:
        return _NO_AMOUNTS
    return {name: amount for name, amount in amounts.items() if amount.whole > 0}


def _is_device(resource: str) -> bool:
    """Whether a plugin serves the resource. No plugin serves the ledger resource."""
    return request_parser.is_card_resource(resource) and resource != request_parser.LEDGER


def _grant(pod: Pod) -> Grant:
    try:
        return allocation.decode(pod.metadata.annotations.get(allocation.ALLOCATION, ""))
    except ValueError:
        return ()


def annotation(grant: Grant, cards: Mapping[str, NodeCard]) -> str:
    """The allocation annotation for `grant`. All its cards must be in `cards`."""
    return msgspec.json.encode([_entry(part, cards[part.card]) for part in grant]).decode()


def _entry(part: CardGrant, card: NodeCard) -> AllocationEntry:
    if part.slots:
        return AllocationEntry(card=card.id, index=card.index, slots=part.slots)
    if card.pool is not None and card.pool.sharing == "TimeSlice":
        return AllocationEntry(card=card.id, index=card.index, slices=part.share)
    return AllocationEntry(card=card.id, index=card.index, percent=part.share)
