"""The grants of the pods of a node, and the devices that the kubelet assigned to them.

A pod's grant comes with its Binding: shares or slots of cards. The kubelet assigns devices to each container.
Both are represented here as a `Grant` of the ledger, so that they can be compared and added.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from croupier.core.model import card_name as naming
from croupier.core.model.card import CardGrant, Grant
from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.nodes import plugin_devices
from croupier.core.nodes.plugin_devices import NodeCard
from croupier.core.pods import request_parser

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """One container and its requests of our resources."""

    name: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of the node that requests cards."""

    key: str
    """`namespace/name`."""
    uid: str
    containers: tuple[ContainerRequest, ...] = ()
    """In the order of the kubelet: init containers first."""
    wants: Mapping[str, int] = field(default_factory=dict)
    """The effective requests of the pod by resource."""
    grant: Grant = ()
    """The grant of the pod; empty if it has none or it cannot be read."""
    bound_at: datetime | None = None
    """With the precision of Kubernetes timestamps, one second."""
    admitted: bool = False
    """The kubelet has already reported a status, so the pod is most likely not being admitted now."""


@dataclass(frozen=True, slots=True)
class KubeletAssignment:
    """The devices of a container for one resource, from the kubelet's API, which names no pod UID."""

    pod: str
    """`namespace/name`."""
    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """The devices of a container for one resource, from the kubelet's checkpoint (init containers too)."""

    uid: str
    container: str
    resource: str
    ids: tuple[str, ...]


def with_checkpoint(
    shown: Iterable[KubeletAssignment], notes: Iterable[CheckpointEntry], pods: Iterable[BoundPod]
) -> tuple[KubeletAssignment, ...]:
    """Add what the kubelet's API does not show: the devices of init containers of unfinished pods."""
    listed, keys = tuple(shown), {pod.uid: pod.key for pod in pods}
    known = {(held.pod, held.container, held.resource, device) for held in listed for device in held.ids}
    hidden = (
        KubeletAssignment(keys[note.uid], note.container, note.resource, note.ids)
        for note in notes
        if note.uid in keys
        and not known.issuperset((keys[note.uid], note.container, note.resource, id_) for id_ in note.ids)
    )
    return (*listed, *hidden)


def admission_order(pods: Iterable[BoundPod]) -> tuple[BoundPod, ...]:
    """In the order of admission: by binding time, then in the given order within one second."""
    return tuple(sorted(pods, key=lambda pod: pod.bound_at or _LONG_AGO))


def of_known_cards(
    holdings: Iterable[KubeletAssignment], cards: Mapping[str, NodeCard]
) -> tuple[KubeletAssignment, ...]:
    """Only devices of known cards, with our names: other device plugins use the driver's UUID."""
    names = {card.gpu.uuid: card.id for card in cards.values() if card.gpu.uuid}
    for card in cards.values():
        names |= {
            slot.uuid: f"{card.id}{plugin_devices.SEPARATOR}{slot.id}" for slot in card.gpu.slots if slot.uuid
        }
    result = []
    for holding in holdings:
        ids = (names.get(device, device) for device in holding.ids)
        ours = tuple(device for device in ids if plugin_devices.parse_unit(device).card in cards)
        if ours:
            result.append(replace(holding, ids=ours))
    return tuple(result)


def parts(ids: Iterable[str]) -> Grant:
    """The sum of devices by card; a whole card is 100 percent."""
    shares: Counter[str] = Counter()
    slots: dict[str, list[str]] = {}
    for unit in map(plugin_devices.parse_unit, ids):
        if unit.slot:
            slots.setdefault(unit.card, []).append(unit.slot)
        else:
            shares[unit.card] += unit.share
    cards = sorted({*shares, *slots})
    return tuple(CardGrant(card, shares[card], tuple(sorted(slots.get(card, ())))) for card in cards)


def with_current_names(grant: Grant, cards: Mapping[str, NodeCard]) -> Grant:
    """With the current names of cards: a card without a known PCI address was named by its index."""
    numbered = {f"-gpu-{card.gpu.index}": card.id for card in cards.values()}
    return tuple(
        part
        if part.card in cards or not naming.is_indexed(part.card)
        else replace(part, card=numbered.get(part.card[part.card.rindex("-gpu-") :], part.card))
        for part in grant
    )


def granted(pod: BoundPod, resource: str, cards: Mapping[str, NodeCard]) -> Grant:
    """The parts of the pod's grant that are served as devices of `resource`."""
    known = [part for part in with_current_names(pod.grant, cards) if part.card in cards]
    if resource.startswith(request_parser.POOL):
        pool = resource.removeprefix(request_parser.POOL)
        return tuple(part for part in known if _pool(cards[part.card]) == pool)
    unpooled = [part for part in known if cards[part.card].pool is None]
    if resource.startswith(request_parser.MIG):
        slotted = ((part, _slots_of(cards[part.card], part, resource)) for part in unpooled)
        return tuple(replace(part, share=0, slots=slots) for part, slots in slotted if slots)
    # A pod may request cards and shares; only the request tells whether 100 % is a whole card.
    whole = [part for part in unpooled if part.share == WHOLE_CARD][: pod.wants.get(request_parser.GPU, 0)]
    if resource == request_parser.GPU:
        return tuple(whole)
    return tuple(part for part in unpooled if part.share and part not in whole)


def _pool(card: NodeCard) -> str:
    return card.pool.name if card.pool is not None else ""


def _slots_of(card: NodeCard, part: CardGrant, resource: str) -> tuple[str, ...]:
    wanted = {slot.id for slot in card.gpu.slots if request_parser.mig_resource(slot.profile) == resource}
    return tuple(slot for slot in part.slots if slot in wanted)


def is_within(small: Grant, large: Grant) -> bool:
    """Whether `large` contains every card, share and slot of `small`."""
    bounds = {part.card: part for part in large}
    return all(
        part.card in bounds
        and part.share <= bounds[part.card].share
        and set(part.slots) <= set(bounds[part.card].slots)
        for part in small
    )


def merged(grants: Iterable[Grant]) -> Grant:
    """The sum of several grants: shares of one card add up."""
    shares: Counter[str] = Counter()
    slots: dict[str, set[str]] = {}
    for part in (part for grant in grants for part in grant):
        shares[part.card] += part.share
        slots.setdefault(part.card, set()).update(part.slots)
    return tuple(CardGrant(card, shares[card], tuple(sorted(slots[card]))) for card in sorted(slots))


def conflicts(grant: Grant, others: Mapping[str, Grant], cards: Mapping[str, NodeCard]) -> Iterator[str]:
    """The names in `others` whose grants do not fit together with `grant` on one card."""
    for part in grant:
        capacity = cards[part.card].capacity if part.card in cards else WHOLE_CARD
        sharers = {
            name: theirs for name, parts in others.items() if (theirs := _part_of_card(parts, part.card))
        }
        taken = sum(theirs.share for theirs in sharers.values())
        for name, theirs in sorted(sharers.items()):
            same = set(part.slots) & set(theirs.slots)
            # A card is shared by shares or by slots, never by both.
            mixed = bool(part.share and theirs.slots) or bool(part.slots and theirs.share)
            if same or mixed or (part.share and theirs.share and part.share + taken > capacity):
                yield name


def _part_of_card(grant: Grant, card: str) -> CardGrant | None:
    return next((part for part in grant if part.card == card), None)
