"""Which devices the kubelet should hand a container, and what the container must be told of them.

The kubelet asks for so many of a resource and does not say for whom. So the pod is found by what is
known of the pods of the node: one that asks for just that many and has not been served. When several
fit, the first that was bound is meant, which is the order the kubelet admits them in; should it be the
other, both have swapped cards of one size, and core/nodes/aftercheck.py puts that right.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from croupier.core.ledgers.ledger import Grant, Refused
from croupier.core.nodes import devices, handed
from croupier.core.nodes.devices import NodeCard, Offer
from croupier.core.nodes.handed import BoundPod, Holding
from croupier.core.pods.want import WHOLE

_Shelf: TypeAlias = Mapping[str, list[str]]
"""What is to be had, card by card."""

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
CARDS: Final = "CROUPIER_CARDS"
POOL: Final = "CROUPIER_POOL"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the kubelet wants to know: `size` devices of `available`, among them those `required`."""

    resource: str
    size: int
    available: tuple[str, ...]
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """What we answered before, and for whom: the kubelet shows it late."""

    pod: str
    uid: str
    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    """All that is known when the kubelet asks."""

    offer: Offer
    pods: tuple[BoundPod, ...] = ()
    """Of the node, not finished, in the order in which they were bound."""
    holdings: tuple[Holding, ...] = ()
    """By the kubelet."""
    given: tuple[Given, ...] = ()

    @property
    def cards(self) -> Mapping[str, NodeCard]:
        return self.offer.cards


@dataclass(frozen=True, slots=True)
class Preference:
    """The devices to hand out, fewer than asked for when there is no room; and for whom, if that is known."""

    ids: tuple[str, ...]
    pod: BoundPod | None = None
    container: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a container gets: its environment, and the cards or MIG devices it must see."""

    env: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[devices.Unit, ...] = ()
    """Each once: a card, or a slot of a card."""


def preferred(asked: Asked, scene: Scene) -> Preference:
    """What the pod being admitted was promised; where nobody promised anything, what nobody else has."""
    scene, shelf = _settled(scene), _shelf(asked.available)
    meant = _meant(asked, shelf, scene)
    return replace(meant, ids=_filled(asked, shelf, meant, scene))


def _shelf(available: Iterable[str]) -> _Shelf:
    shelf: dict[str, list[str]] = {}
    for device in sorted(available):
        shelf.setdefault(devices.unit(device).card, []).append(device)
    return shelf


def _meant(asked: Asked, shelf: _Shelf, scene: Scene) -> Preference:
    """For whom it is, with what is due to it."""
    for admitted in (False, True):
        late: Preference | None = None
        for pod in scene.pods:
            if pod.admitted is not admitted or not (name := _turn(pod, asked, scene)):
                continue
            found = Preference(_due(asked, shelf, pod, scene), pod, name)
            if len(found.ids) >= asked.size or not pod.grant:
                return found
            # One whose promise is not to be had any more has most likely been served already.
            late = found if late is None else late
        if late is not None:
            return late
    return Preference(asked.required)


def inherited(resource: str, ids: Collection[str], scene: Scene) -> Preference | None:
    """For whom devices are that an init container had: the kubelet hands them on without asking."""
    before = (one for one in scene.given if one.resource == resource and set(ids) <= set(one.ids))
    uids = {one.uid for one in before}
    heirs = ((pod, name) for pod, name in _turns(resource, ids, scene) if pod.uid in uids)
    return next((Preference(tuple(ids), pod, name) for pod, name in heirs), None)


def meant(
    resource: str, ids: Collection[str], scene: Scene, begun: Preference | None = None
) -> Preference | None:
    """For whom devices are that the kubelet hands out; `begun` is what we preferred a moment ago.

    Where it did otherwise they are for whom they were promised to, or else for the one we were asked about:
    what nobody is known to have could be handed out again, under another name.
    """
    if begun is not None and set(begun.ids) <= set(ids):
        return begun
    if (heir := inherited(resource, ids, scene)) is not None:
        return heir
    parts = handed.parts(ids)
    for pod, name in _turns(resource, ids, scene):
        if not pod.admitted and handed.is_within(parts, handed.promised(pod, resource, scene.cards)):
            return Preference(tuple(ids), pod, name)
    return replace(begun, ids=tuple(ids)) if begun is not None else None


def _turns(resource: str, ids: Collection[str], scene: Scene) -> Iterator[tuple[BoundPod, str]]:
    """The pods, and their containers, that ask for so many next."""
    asked = Asked(resource, len(ids), ())
    turns = ((pod, _turn(pod, asked, scene)) for pod in scene.pods)
    return ((pod, name) for pod, name in turns if name)


def _settled(scene: Scene) -> Scene:
    """Where the kubelet shows that it meant another pod than we thought, it is right."""
    owner = {device: one.pod for one in scene.holdings for device in one.ids}
    given = (one for one in scene.given if all(owner.get(each, one.pod) == one.pod for each in one.ids))
    return replace(scene, given=tuple(given))


def _turn(pod: BoundPod, asked: Asked, scene: Scene) -> str:
    """The container of the pod that is next to be handed this resource, if it asks for that many."""
    asking = [one for one in pod.containers if one.counts.get(asked.resource)]
    served = _served(pod, asked.resource, scene)
    # The kubelet goes through them in order, and does not show what init containers had.
    next_one = max((n + 1 for n, one in enumerate(asking) if one.name in served), default=0)
    if next_one == len(asking) or asking[next_one].counts[asked.resource] != asked.size:
        return ""
    return asking[next_one].name


def _served(pod: BoundPod, resource: str, scene: Scene) -> dict[str, tuple[str, ...]]:
    """Its containers that have devices of the resource already, and which."""
    earlier = (one for one in scene.given if one.pod == pod.key and one.uid != pod.uid)
    strangers = {device for one in earlier for device in one.ids}
    served = {
        one.container: one.ids
        for one in scene.holdings
        # The kubelet names no UID: what an earlier pod of this name still has is not this one's.
        if one.pod == pod.key and one.resource == resource and not strangers.intersection(one.ids)
    }
    mine = (one for one in scene.given if one.uid == pod.uid and one.resource == resource)
    return {**{one.container: one.ids for one in mine}, **served}


def _due(asked: Asked, shelf: _Shelf, pod: BoundPod, scene: Scene) -> tuple[str, ...]:
    """Of what it was promised, the devices this container gets now, as far as they are to be had."""
    has = {device for ids in _served(pod, asked.resource, scene).values() for device in ids}
    spent = {part.card: part.share for part in handed.parts(has.union(asked.required))}
    due, others = list(asked.required), _others(scene, pod, promises=False)
    for part in handed.promised(pod, asked.resource, scene.cards):
        if any(handed.clashes((part,), others, scene.cards)):
            continue  # somebody was handed the wrong card, and this pod was promised it since
        left = part.share - spent.get(part.card, 0)
        for device in shelf.get(part.card, ()):
            one = devices.unit(device)
            is_due = one.slot in part.slots if one.slot else one.share <= left
            if len(due) < asked.size and is_due and device not in asked.required:
                left -= one.share
                due.append(device)
    return tuple(due)


def _filled(asked: Asked, shelf: _Shelf, meant: Preference, scene: Scene) -> tuple[str, ...]:
    """What is due and, where that is too little, devices of cards that nobody has or was promised."""
    ids = meant.ids
    if len(ids) >= asked.size:
        return ids
    if any(devices.unit(device).is_percent for device in ids):
        ids = asked.required  # a part of what was promised is no use with a part of another card
    need = asked.size - len(ids)
    others = _others(scene, meant.pod, promises=True)
    room = [
        (scene.cards[card].index, _roomy([one for one in found if one not in ids], scene.cards[card], others))
        for card, found in shelf.items()
        if card in scene.cards
    ]
    # The fullest card on which all fit; if there is none, the emptiest first.
    fitting = sorted((len(found), index, found) for index, found in room if len(found) >= need)
    rest = sorted((-len(found), index, found) for index, found in room if len(found) < need)
    more = [device for _, _, found in (*fitting, *rest) for device in found]
    return (*ids, *more[:need])


def _roomy(free: list[str], card: NodeCard, others: Mapping[str, Grant]) -> list[str]:
    """As many devices of a card as fit beside what others have of it."""
    taken = [part for grant in others.values() for part in grant if part.card == card.id]
    shares = sum(part.share for part in taken)
    slots = {slot for part in taken for slot in part.slots}
    roomy, left = [], 0 if slots else card.capacity - shares
    for device in free:
        one = devices.unit(device)
        if (one.slot and one.slot not in slots and not shares) or 0 < one.share <= left:
            left -= one.share
            roomy.append(device)
    return roomy


def _others(scene: Scene, pod: BoundPod | None, *, promises: bool) -> dict[str, Grant]:
    """What everybody else has, and what they were promised where they have nothing yet."""
    ids: dict[str, set[str]] = {}
    had = [(one.pod, one.ids) for one in scene.holdings] + [(one.pod, one.ids) for one in scene.given]
    for key, found in had:
        if pod is None or key != pod.key:
            ids.setdefault(key, set()).update(found)
    others = {key: handed.parts(found) for key, found in ids.items()}
    if promises:
        waiting = (one for one in scene.pods if one.key not in others and one is not pod)
        others.update((one.key, handed.named(one.grant, scene.cards)) for one in waiting)
    return others


def answer(resource: str, ids: Collection[str], scene: Scene, meant: Preference | None) -> Answer | Refused:
    """What the container gets with these devices; `meant` is the preference they follow, or complete."""
    scene = _settled(scene)
    if (absent := _not_served(resource, ids, scene)) is not None:
        return absent
    given = handed.parts(ids)
    pod = meant.pod if meant is not None else None
    kept = pod is not None and handed.is_within(given, handed.named(pod.grant, scene.cards))
    if not kept and (mixed := _mixed(given, ids)) is not None:
        return mixed
    others = _others(scene, pod, promises=pod is not None and not kept)
    for name in handed.clashes(given, others, scene.cards):
        return Refused(f"pod {name} has the card, or was promised it", ", ".join(part.card for part in given))
    return _told(ids, scene.cards)


def _not_served(resource: str, ids: Iterable[str], scene: Scene) -> Refused | None:
    """The kubelet may know an older list than we: a card is being cut, moved, or has fallen ill."""
    listed = {device.id: device.healthy for device in scene.offer.resources.get(resource, ())}
    for device in sorted(ids):
        card = scene.cards.get(devices.unit(device).card)
        if card is None:
            return Refused("the card is gone", device)
        if card.changing:
            return Refused("the card is being cut anew", device)
        if device not in listed:
            return Refused(f"the card does not serve {resource} any more", device)
        if not listed[device]:
            return Refused("the card is not healthy", device)
    return None


def _mixed(given: Grant, ids: Iterable[str]) -> Refused | None:
    """Percent is of one card, or the same of each: units gathered from everywhere are of no use."""
    if not all(devices.unit(device).is_percent for device in ids):
        return None
    if len({part.share for part in given}) == 1:
        return None
    sentence = "the kubelet mixed units of several cards, and a share is of one card, or the same of each"
    return Refused(sentence, ", ".join(f"{part.share} % of {part.card}" for part in given))


def _told(ids: Collection[str], cards: Mapping[str, NodeCard]) -> Answer:
    units = [devices.unit(device) for device in ids]
    seen = sorted(
        {devices.Unit(one.card, one.slot) for one in units}, key=lambda one: (cards[one.card].index, one.part)
    )
    env = {
        VISIBLE: ",".join(_uuid(one, cards[one.card]) for one in seen),
        CARDS: ",".join(dict.fromkeys(one.card for one in seen)),
    }
    if pools := {pool.name for one in seen if (pool := cards[one.card].pool) is not None}:
        env[POOL] = ",".join(sorted(pools))
    shares = Counter(one.card for one in units if one.is_percent)
    if shares:
        env |= dict(_limits([(cards[one.card], shares[one.card]) for one in seen]))
    return Answer(env, tuple(seen))


def _uuid(part: devices.Unit, card: NodeCard) -> str:
    return next((slot.uuid for slot in card.slots if slot.id == part.part), card.uuid)


def _limits(shares: list[tuple[NodeCard, int]]) -> Iterator[tuple[str, str]]:
    """MPS takes one percentage for all cards, so the smallest; memory by the number of a card in there."""
    yield THREADS, str(min(percent for _, percent in shares))
    limits = (card.memory_mib * percent // WHOLE for card, percent in shares)
    known = [f"{number}={mib}M" for number, mib in enumerate(limits) if mib]
    if known:
        yield MEMORY, ",".join(known)
