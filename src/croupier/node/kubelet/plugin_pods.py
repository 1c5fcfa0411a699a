"""The pods of a node as device plugins need them, from Kubernetes' own objects; a promise, written back."""

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
    """None for a pod that is not bound, has ended, or asks for nothing of ours."""
    if not pod.spec.node_name or pod.is_finished:
        return None
    early = [(one, _asked(one)) for one in pod.spec.init_containers]
    main = [(one, _asked(one)) for one in pod.spec.containers]
    asking = tuple(
        Asking(one.name, {name: amount.whole for name, amount in asked.items()})
        for one, asked in (*early, *main)
        if asked
    )
    if not asking:
        return None
    before = [Early(asked, sidecar=one.is_sidecar) for one, asked in early]
    needs = effective.requests(Footprint(containers=[asked for _, asked in main], before=before, overhead={}))
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
    """A pod that was made with its node's name in it has no such condition at first."""
    conditions = (one for one in pod.status.conditions if one.type == "PodScheduled" and one.status == "True")
    moments = (one.last_transition_time for one in conditions)
    return next(moments, None) or pod.metadata.creation_timestamp


def _asked(container: Container) -> Amounts:
    """By its limits, as the kubelet counts devices; what cannot be read, it would not admit either."""
    limits = container.resources.limits or container.resources.requests
    try:
        amounts = {name: quantity.parse(text) for name, text in limits.items() if _is_device(name)}
    except quantity.InvalidQuantityError:
        return _NOTHING
    return {name: amount for name, amount in amounts.items() if amount.whole > 0}


def _is_device(resource: str) -> bool:
    """Our mark is a resource that nobody serves."""
    return request.concerns(resource) and resource != request.MARK


def _promise(pod: Pod) -> Grant:
    try:
        return allocation.decode(pod.metadata.annotations.get(allocation.ALLOCATION, ""))
    except ValueError:
        return ()


def annotation(grant: Grant, cards: Mapping[str, NodeCard]) -> str:
    """The allocation annotation that promises `grant`; all its cards must be among `cards`."""
    return msgspec.json.encode([_entry(part, cards[part.card]) for part in grant]).decode()


def _entry(part: Part, card: NodeCard) -> Entry:
    if part.slots:
        return Entry(card=card.id, index=card.index, slots=part.slots)
    if card.pool is not None and card.pool.sharing == "TimeSlice":
        return Entry(card=card.id, index=card.index, slices=part.share)
    return Entry(card=card.id, index=card.index, percent=part.share)
