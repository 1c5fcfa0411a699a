"""Answers the kubelet: which devices a container gets, and with which environment.

The kubelet asks for a number of devices of a resource and does not name the pod. The pod is inferred from the
pods of the node: one that requests exactly this number and has no devices yet. If several match, the pod that
was bound first is chosen, because the kubelet admits pods in this order. If that is wrong, the two pods have
swapped cards of one size, and core/nodes/allocation_check.py corrects their grants.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from croupier.core.model.card import Grant
from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.model.refusal import Refusal
from croupier.core.nodes import kubelet_assignments, plugin_devices
from croupier.core.nodes.kubelet_assignments import BoundPod, KubeletAssignment
from croupier.core.nodes.plugin_devices import NodeCard, ServedResources

_AvailableByCard: TypeAlias = Mapping[str, list[str]]
"""Available device ids by card."""

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
THREADS: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
CARDS: Final = "CROUPIER_CARDS"
POOL: Final = "CROUPIER_POOL"
HAMI_MEMORY: Final = "CUDA_DEVICE_MEMORY_LIMIT"
HAMI_THREADS: Final = "CUDA_DEVICE_SM_LIMIT"
HAMI_CACHE: Final = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
HAMI_CACHE_FILE: Final = "/tmp/croupier-vgpu.cache"  # noqa: S108  # inside the container, which owns its /tmp
"""The file in which the processes of one container count their memory."""
SEVERAL_DAEMONS: Final = (
    "a CUDA program can use only one MPS daemon, and each card has its own, so a container cannot have shares"
    " of several cards; request a share of one card, or whole cards, or use a pool with enforcement HAMiCore"
)


@dataclass(frozen=True, slots=True)
class PreferenceRequest:
    """A GetPreferredAllocation call: `size` devices of `available`, including those `required`."""

    resource: str
    size: int
    available: tuple[str, ...]
    required: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PastAllocation:
    """An allocation that this plugin answered before; the kubelet shows it with a delay."""

    pod: str
    uid: str
    container: str
    resource: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllocationInputs:
    """The state of the node when the kubelet asks."""

    offer: ServedResources
    pods: tuple[BoundPod, ...] = ()
    """The unfinished pods of the node, in the order of their binding."""
    holdings: tuple[KubeletAssignment, ...] = ()
    """The assignments that the kubelet shows."""
    given: tuple[PastAllocation, ...] = ()

    @property
    def cards(self) -> Mapping[str, NodeCard]:
        return self.offer.cards


@dataclass(frozen=True, slots=True)
class PreferredDevices:
    """The devices to allocate, fewer than requested if there are not enough, and the pod if it is known."""

    ids: tuple[str, ...]
    pod: BoundPod | None = None
    container: str = ""


@dataclass(frozen=True, slots=True)
class ContainerAllocation:
    """What a container gets: its environment, and the cards or MIG devices that it sees."""

    env: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[plugin_devices.DeviceUnit, ...] = ()
    """Cards and slots of cards, without duplicates."""


def preferred(asked: PreferenceRequest, scene: AllocationInputs) -> PreferredDevices:
    """The devices granted to the pod that is being admitted; without a grant, unused devices."""
    scene, shelf = _without_contradictions(scene), _by_card(asked.available)
    meant = _inferred(asked, shelf, scene)
    return replace(meant, ids=_filled_up(asked, shelf, meant, scene))


def _by_card(available: Iterable[str]) -> _AvailableByCard:
    shelf: dict[str, list[str]] = {}
    for device in sorted(available):
        shelf.setdefault(plugin_devices.parse_unit(device).card, []).append(device)
    return shelf


def _inferred(asked: PreferenceRequest, shelf: _AvailableByCard, scene: AllocationInputs) -> PreferredDevices:
    """The pod that the call is for, with the devices of its grant."""
    for admitted in (False, True):
        incomplete: PreferredDevices | None = None
        for pod in scene.pods:
            if pod.admitted is not admitted or not (name := _next_container(pod, asked, scene)):
                continue
            preference = PreferredDevices(_granted_devices(asked, shelf, pod, scene), pod, name)
            if len(preference.ids) >= asked.size or not pod.grant:
                return preference
            # A pod whose granted devices are not available has most likely been served already.
            incomplete = preference if incomplete is None else incomplete
        if incomplete is not None:
            return incomplete
    return PreferredDevices(asked.required)


def reused_devices(resource: str, ids: Collection[str], scene: AllocationInputs) -> PreferredDevices | None:
    """The container that reuses the devices of an init container; the kubelet does not ask for those."""
    before = (past for past in scene.given if past.resource == resource and set(ids) <= set(past.ids))
    uids = {past.uid for past in before}
    next_containers = ((pod, name) for pod, name in _next_containers(resource, ids, scene) if pod.uid in uids)
    return next((PreferredDevices(tuple(ids), pod, name) for pod, name in next_containers), None)


def infer_owner(
    resource: str, ids: Collection[str], scene: AllocationInputs, begun: PreferredDevices | None = None
) -> PreferredDevices | None:
    """The container that the kubelet allocates these devices to; `begun` is the preference just answered.

    If the kubelet chose other devices, they belong to the pod that they were granted to, or else to the
    pod of the preference: devices without a known owner could be allocated a second time.
    """
    if begun is not None and set(begun.ids) <= set(ids):
        return begun
    if (reused := reused_devices(resource, ids, scene)) is not None:
        return reused
    parts = kubelet_assignments.parts(ids)
    for pod, name in _next_containers(resource, ids, scene):
        if not pod.admitted and kubelet_assignments.is_within(
            parts, kubelet_assignments.granted(pod, resource, scene.cards)
        ):
            return PreferredDevices(tuple(ids), pod, name)
    return replace(begun, ids=tuple(ids)) if begun is not None else None


def _next_containers(
    resource: str, ids: Collection[str], scene: AllocationInputs
) -> Iterator[tuple[BoundPod, str]]:
    """The pods, each with its next container, that request this number of devices."""
    asked = PreferenceRequest(resource, len(ids), ())
    turns = ((pod, _next_container(pod, asked, scene)) for pod in scene.pods)
    return ((pod, name) for pod, name in turns if name)


def _without_contradictions(scene: AllocationInputs) -> AllocationInputs:
    """Drop own records that contradict the kubelet: it may have meant another pod than inferred."""
    owner = {device: holding.pod for holding in scene.holdings for device in holding.ids}
    given = (past for past in scene.given if all(owner.get(id_, past.pod) == past.pod for id_ in past.ids))
    return replace(scene, given=tuple(given))


def _next_container(pod: BoundPod, asked: PreferenceRequest, scene: AllocationInputs) -> str:
    """The next container of the pod without this resource, if it requests this number; else empty."""
    containers = [container for container in pod.containers if container.counts.get(asked.resource)]
    served = _served(pod, asked.resource, scene)
    # The kubelet serves containers in order, and does not show the devices of init containers.
    index = max((n + 1 for n, container in enumerate(containers) if container.name in served), default=0)
    if index == len(containers) or containers[index].counts[asked.resource] != asked.size:
        return ""
    return containers[index].name


def _served(pod: BoundPod, resource: str, scene: AllocationInputs) -> dict[str, tuple[str, ...]]:
    """The containers of the pod that have devices of the resource, with these devices."""
    earlier = (past for past in scene.given if past.pod == pod.key and past.uid != pod.uid)
    of_earlier_pods = {device for past in earlier for device in past.ids}
    served = {
        holding.container: holding.ids
        for holding in scene.holdings
        # The kubelet names no UID: exclude devices of an earlier pod with the same name.
        if holding.pod == pod.key
        and holding.resource == resource
        and not of_earlier_pods.intersection(holding.ids)
    }
    own = (past for past in scene.given if past.uid == pod.uid and past.resource == resource)
    return {**{past.container: past.ids for past in own}, **served}


def _granted_devices(
    asked: PreferenceRequest, shelf: _AvailableByCard, pod: BoundPod, scene: AllocationInputs
) -> tuple[str, ...]:
    """The available devices of the pod's grant that this container gets."""
    has = {device for ids in _served(pod, asked.resource, scene).values() for device in ids}
    spent = {part.card: part.share for part in kubelet_assignments.parts(has.union(asked.required))}
    due, others = list(asked.required), _others(scene, pod, promises=False)
    for part in kubelet_assignments.granted(pod, asked.resource, scene.cards):
        if any(kubelet_assignments.conflicts((part,), others, scene.cards)):
            continue  # another pod was assigned the wrong card, and this pod was granted it since
        left = part.share - spent.get(part.card, 0)
        for device in shelf.get(part.card, ()):
            unit = plugin_devices.parse_unit(device)
            is_due = unit.slot in part.slots if unit.slot else unit.share <= left
            if len(due) < asked.size and is_due and device not in asked.required:
                left -= unit.share
                due.append(device)
    return tuple(due)


def _filled_up(
    asked: PreferenceRequest, shelf: _AvailableByCard, meant: PreferredDevices, scene: AllocationInputs
) -> tuple[str, ...]:
    """The granted devices, filled up with devices of cards that no pod has or was granted."""
    ids = meant.ids
    if len(ids) >= asked.size:
        return ids
    if any(plugin_devices.parse_unit(device).is_percent for device in ids):
        ids = asked.required  # a share must not be split over several cards
    need = asked.size - len(ids)
    others = _others(scene, meant.pod, promises=True)
    room = [
        (
            scene.cards[card].gpu.index,
            _fitting([id_ for id_ in free if id_ not in ids], scene.cards[card], others),
        )
        for card, free in shelf.items()
        if card in scene.cards
    ]
    # The fullest card on which all devices fit; if there is none, the emptiest cards first.
    fitting = sorted((len(free), index, free) for index, free in room if len(free) >= need)
    rest = sorted((-len(free), index, free) for index, free in room if len(free) < need)
    more = [device for _, _, free in (*fitting, *rest) for device in free]
    return (*ids, *more[:need])


def _fitting(free: list[str], card: NodeCard, others: Mapping[str, Grant]) -> list[str]:
    """The devices of a card that fit next to those of other pods."""
    taken = [part for grant in others.values() for part in grant if part.card == card.id]
    shares = sum(part.share for part in taken)
    slots = {slot for part in taken for slot in part.slots}
    roomy, left = [], 0 if slots else card.capacity - shares
    for device in free:
        unit = plugin_devices.parse_unit(device)
        if (unit.slot and unit.slot not in slots and not shares) or 0 < unit.share <= left:
            left -= unit.share
            roomy.append(device)
    return roomy


def _others(scene: AllocationInputs, pod: BoundPod | None, *, promises: bool) -> dict[str, Grant]:
    """The devices of all other pods; with `promises` also the grants of pods that have none yet."""
    ids: dict[str, set[str]] = {}
    assigned = [(holding.pod, holding.ids) for holding in scene.holdings]
    assigned += [(past.pod, past.ids) for past in scene.given]
    for key, device_ids in assigned:
        if pod is None or key != pod.key:
            ids.setdefault(key, set()).update(device_ids)
    others = {key: kubelet_assignments.parts(device_ids) for key, device_ids in ids.items()}
    if promises:
        waiting = (other for other in scene.pods if other.key not in others and other is not pod)
        others.update(
            (other.key, kubelet_assignments.with_current_names(other.grant, scene.cards)) for other in waiting
        )
    return others


def allocate(
    resource: str, ids: Collection[str], scene: AllocationInputs, meant: PreferredDevices | None
) -> ContainerAllocation | Refusal:
    """The allocation of these devices to the container of `meant`, or a refusal."""
    scene = _without_contradictions(scene)
    if (absent := _unavailable(resource, ids, scene)) is not None:
        return absent
    given = kubelet_assignments.parts(ids)
    pod = meant.pod if meant is not None else None
    kept = pod is not None and kubelet_assignments.is_within(
        given, kubelet_assignments.with_current_names(pod.grant, scene.cards)
    )
    if not kept and (mixed := _mixed(given, ids)) is not None:
        return mixed
    if (split := _split_client(given, ids, scene.cards)) is not None:
        return split
    others = _others(scene, pod, promises=pod is not None and not kept)
    for name in kubelet_assignments.conflicts(given, others, scene.cards):
        return Refusal(f"pod {name} has the card or was granted it", ", ".join(part.card for part in given))
    return _container_allocation(ids, scene.cards)


def _unavailable(resource: str, ids: Iterable[str], scene: AllocationInputs) -> Refusal | None:
    """The kubelet may have an older list: the card may be changing, have moved, or be unhealthy."""
    listed = {device.id: device.healthy for device in scene.offer.resources.get(resource, ())}
    for device in sorted(ids):
        card = scene.cards.get(plugin_devices.parse_unit(device).card)
        if card is None:
            return Refusal("the card is gone", device)
        if card.changing:
            return Refusal("the card is being repartitioned", device)
        if device not in listed:
            return Refusal(f"the card no longer serves {resource}", device)
        if not listed[device] and card.gpu.health.healthy and card.enforcement is not None:
            return Refusal(card.enforcement.message or "the card is not ready", device)
        if not listed[device]:
            return Refusal("the card is not healthy", device)
    return None


def _mixed(given: Grant, ids: Iterable[str]) -> Refusal | None:
    """A percentage must come from one card, or be equal on every card."""
    if not all(plugin_devices.parse_unit(device).is_percent for device in ids):
        return None
    if len({part.share for part in given}) == 1:
        return None
    sentence = "the kubelet mixed units of several cards; a share must be of one card, or equal on every card"
    return Refusal(sentence, ", ".join(f"{part.share} % of {part.card}" for part in given))


def _split_client(given: Grant, ids: Iterable[str], cards: Mapping[str, NodeCard]) -> Refusal | None:
    """A CUDA program is the client of one MPS daemon, and every card has its own."""
    if len(given) < 2 or not all(plugin_devices.parse_unit(device).is_percent for device in ids):
        return None
    owned = [
        part.card for part in given if (kind := cards[part.card].enforcement) is not None and kind.by_mps
    ]
    if not owned:
        return None
    return Refusal(SEVERAL_DAEMONS, ", ".join(owned))


def _container_allocation(ids: Collection[str], cards: Mapping[str, NodeCard]) -> ContainerAllocation:
    units = [plugin_devices.parse_unit(device) for device in ids]
    visible = sorted(
        {plugin_devices.DeviceUnit(unit.card, unit.slot) for unit in units},
        key=lambda unit: (cards[unit.card].gpu.index, unit.part),
    )
    env = {
        VISIBLE: ",".join(_uuid(unit, cards[unit.card]) for unit in visible),
        CARDS: ",".join(dict.fromkeys(unit.card for unit in visible)),
    }
    if pools := {pool.name for unit in visible if (pool := cards[unit.card].pool) is not None}:
        env[POOL] = ",".join(sorted(pools))
    shares = Counter(unit.card for unit in units if unit.is_percent)
    if shares:
        env |= _limits([(cards[unit.card], shares[unit.card]) for unit in visible])
    return ContainerAllocation(env, tuple(visible))


def _uuid(part: plugin_devices.DeviceUnit, card: NodeCard) -> str:
    return next((slot.uuid for slot in card.gpu.slots if slot.id == part.part), card.gpu.uuid)


def _limits(shares: list[tuple[NodeCard, int]]) -> dict[str, str]:
    """The variables that limit a container, by the enforcement of its cards; without a pool it is MPS."""
    pool = shares[0][0].pool
    enforcement = pool.sharing.enforcement if pool is not None else "MPS"
    threads = str(min(percent for _, percent in shares))
    limits = [card.gpu.memory_mib * percent // WHOLE_CARD for card, percent in shares]
    if enforcement == "None":
        return {}
    if enforcement == "HAMiCore":
        memory = {f"{HAMI_MEMORY}_{number}": f"{mib}m" for number, mib in enumerate(limits) if mib}
        return {HAMI_THREADS: threads, HAMI_CACHE: HAMI_CACHE_FILE, **memory}
    # MPS takes one percentage for all cards: the smallest. Memory limits are by card number.
    known = ",".join(f"{number}={mib}M" for number, mib in enumerate(limits) if mib)
    return {THREADS: threads, **({MEMORY: known} if known else {})}
