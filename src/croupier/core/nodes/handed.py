"""What the pods of a node were promised, and what the kubelet has handed them.

The promise is the allocation that came with a pod's Binding: so much of these cards. What the kubelet
hands out are devices, container by container. Both are read here as the same thing, a grant of the
ledger, so that they can be compared and added up.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from croupier.core.cards import card as naming
from croupier.core.cards import mig
from croupier.core.ledgers.ledger import Grant, Part
from croupier.core.nodes import devices
from croupier.core.nodes.devices import NodeCard
from croupier.core.pods import request
from croupier.core.pods.want import WHOLE

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Asking:
    """One container and how many it asks for of each of our resources."""

    name: str
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod of the node that asks for cards."""

    key: str
    """`namespace/name`."""
    uid: str
    containers: tuple[Asking, ...] = ()
    """In the order in which the kubelet serves them: init containers first."""
    wants: Mapping[str, int] = field(default_factory=dict)
    """Resource to how many of it the pod as a whole needs at a time."""
    grant: Grant = ()
    """What it was promised; empty if nobody promised anything, or nobody can read it."""
    bound_at: datetime | None = None
    """To the second, as Kubernetes writes it."""
    admitted: bool = False
    """The kubelet has said something about it already, so it is hardly the one being admitted."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a container has of one resource, by the kubelet. It names no UID."""

    pod: str
    """`namespace/name`."""
    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """What a container has of one resource, by the kubelet's own notes: of init containers, too."""

    uid: str
    container: str
    resource: str
    ids: tuple[str, ...]


def complete(
    shown: Iterable[Holding], notes: Iterable[Note], pods: Iterable[BoundPod]
) -> tuple[Holding, ...]:
    """With what the kubelet does not show: what init containers of pods have that are not finished."""
    told, keys = tuple(shown), {pod.uid: pod.key for pod in pods}
    known = {(one.pod, one.container, one.resource, device) for one in told for device in one.ids}
    hidden = (
        Holding(keys[one.uid], one.container, one.resource, one.ids)
        for one in notes
        if one.uid in keys
        and not known.issuperset((keys[one.uid], one.container, one.resource, device) for device in one.ids)
    )
    return (*told, *hidden)


def in_order(pods: Iterable[BoundPod]) -> tuple[BoundPod, ...]:
    """As the kubelet admits them: by when they were bound, and as they were listed within a second."""
    return tuple(sorted(pods, key=lambda pod: pod.bound_at or _LONG_AGO))


def known(holdings: Iterable[Holding], cards: Mapping[str, NodeCard]) -> tuple[Holding, ...]:
    """Those that are of cards, by our names: another device plugin names cards by the driver's UUID."""
    names = {card.uuid: card.id for card in cards.values() if card.uuid}
    for card in cards.values():
        names |= {slot.uuid: f"{card.id}{devices.BETWEEN}{slot.id}" for slot in card.slots if slot.uuid}
    found = []
    for one in holdings:
        ids = (names.get(device, device) for device in one.ids)
        ours = tuple(device for device in ids if devices.unit(device).card in cards)
        if ours:
            found.append(replace(one, ids=ours))
    return tuple(found)


def parts(ids: Iterable[str]) -> Grant:
    """What devices come to, card by card; a whole card is 100 percent of it."""
    shares: Counter[str] = Counter()
    slots: dict[str, list[str]] = {}
    for one in map(devices.unit, ids):
        if one.slot:
            slots.setdefault(one.card, []).append(one.slot)
        else:
            shares[one.card] += one.share
    cards = sorted({*shares, *slots})
    return tuple(Part(card, shares[card], tuple(sorted(slots.get(card, ())))) for card in cards)


def named(grant: Grant, cards: Mapping[str, NodeCard]) -> Grant:
    """With the names cards have now: they are called by their number while nobody knows where they sit."""
    numbered = {f"-gpu-{card.index}": card.id for card in cards.values()}
    return tuple(
        part
        if part.card in cards or not naming.is_indexed(part.card)
        else replace(part, card=numbered.get(part.card[part.card.rindex("-gpu-") :], part.card))
        for part in grant
    )


def promised(pod: BoundPod, resource: str, cards: Mapping[str, NodeCard]) -> Grant:
    """The parts of its promise that it is to be handed as devices of `resource`."""
    mine = [part for part in named(pod.grant, cards) if part.card in cards]
    if resource.startswith(request.POOL):
        pool = resource.removeprefix(request.POOL)
        return tuple(part for part in mine if _pool(cards[part.card]) == pool)
    loose = [part for part in mine if cards[part.card].pool is None]
    if resource.startswith(request.MIG):
        cut = ((part, _slots_of(cards[part.card], part, resource)) for part in loose)
        return tuple(replace(part, share=0, slots=slots) for part, slots in cut if slots)
    # A pod may want cards and shares at once; of a whole card only the request tells which it is.
    whole = [part for part in loose if part.share == WHOLE][: pod.wants.get(request.GPU, 0)]
    if resource == request.GPU:
        return tuple(whole)
    return tuple(part for part in loose if part.share and part not in whole)


def _pool(card: NodeCard) -> str:
    return card.pool.name if card.pool is not None else ""


def _slots_of(card: NodeCard, part: Part, resource: str) -> tuple[str, ...]:
    wanted = {slot.id for slot in card.slots if mig.resource(slot.profile) == resource}
    return tuple(slot for slot in part.slots if slot in wanted)


def is_within(small: Grant, large: Grant) -> bool:
    """Whether `small` takes no card, share or slot that `large` does not have."""
    bounds = {part.card: part for part in large}
    return all(
        part.card in bounds
        and part.share <= bounds[part.card].share
        and set(part.slots) <= set(bounds[part.card].slots)
        for part in small
    )


def merged(grants: Iterable[Grant]) -> Grant:
    """What several grants come to: shares of one card add up."""
    shares: Counter[str] = Counter()
    slots: dict[str, set[str]] = {}
    for part in (part for grant in grants for part in grant):
        shares[part.card] += part.share
        slots.setdefault(part.card, set()).update(part.slots)
    return tuple(Part(card, shares[card], tuple(sorted(slots[card]))) for card in sorted(slots))


def clashes(grant: Grant, others: Mapping[str, Grant], cards: Mapping[str, NodeCard]) -> Iterator[str]:
    """Who else has so much of a card of `grant` that both do not fit on it: the names in `others`."""
    for part in grant:
        capacity = cards[part.card].capacity if part.card in cards else WHOLE
        sharers = {name: theirs for name, parts in others.items() if (theirs := _on(parts, part.card))}
        taken = sum(theirs.share for theirs in sharers.values())
        for name, theirs in sorted(sharers.items()):
            same = set(part.slots) & set(theirs.slots)
            # A card is shared by shares or by slots, never by both.
            mixed = bool(part.share and theirs.slots) or bool(part.slots and theirs.share)
            if same or mixed or (part.share and theirs.share and part.share + taken > capacity):
                yield name


def _on(grant: Grant, card: str) -> Part | None:
    return next((part for part in grant if part.card == card), None)
