"""The API objects of one node and its cards, converted for planning.

Users and other processes write them, so nothing here stops the agent: invalid objects are reported and
skipped.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from croupier.api import pods as reading
from croupier.api.core_v1 import ConfigMap, Node, Pod
from croupier.api.gpu import pooling
from croupier.api.gpu.device import OCCUPIED, GPUDevice
from croupier.api.gpu.pool import DEFAULT_SLICES, Allocation
from croupier.core.cards import card as naming
from croupier.core.cards import mig
from croupier.core.ledgers import capacity
from croupier.core.nodes.plan import ANNOTATION, Card, Pool, Target, Ties
from croupier.core.pods.pod import PodView
from croupier.node.cards.cards import Seen

POOL: Final = "gpu.deckhouse.io/pool"
"""The label on the ConfigMap of a pool."""
IDS: Final = "inventoryIDs"
ALLOCATION: Final = "allocation"
UNDER_WAY: Final = ("Waiting", "Changing", "Failed", "Drifted")
"""Partitioning states during which the card gets no new holders."""

_IDS: Final = msgspec.json.Decoder(tuple[str, ...])
_ALLOCATION: Final = msgspec.json.Decoder(Allocation)


@dataclass(frozen=True, slots=True)
class Window:
    """The cached objects of one node."""

    name: str
    node: Callable[[], Node | None]
    pods: Callable[[], Iterable[Pod]]
    """The pods bound to the node."""
    devices: Callable[[], Iterable[GPUDevice]]
    pools: Callable[[], tuple[Sequence[Pool], Sequence[str]]]
    """The pools, and errors about pools that cannot be decoded."""

    def layout(self) -> str | None:
        """The text of the annotation run.ai/mig.config."""
        node = self.node()
        return node.metadata.annotations.get(ANNOTATION) if node is not None else None

    def live(self) -> list[PodView]:
        """The pods that have not finished."""
        return [reading.view(pod) for pod in self.pods() if not pod.is_finished]


class Pools:
    """The ConfigMaps of pools. Each version is decoded once, because all nodes of a fleet share them."""

    def __init__(self, config_maps: Iterable[ConfigMap]) -> None:
        self._config_maps = config_maps
        self._read: dict[str, tuple[str, Pool | str]] = {}

    def __call__(self) -> tuple[Sequence[Pool], Sequence[str]]:
        config_maps = sorted(self._config_maps, key=lambda config_map: config_map.metadata.name)
        results = [self._one(config_map) for config_map in config_maps]
        pools = [result for result in results if isinstance(result, Pool)]
        return pools, [result for result in results if isinstance(result, str)]

    def _one(self, config_map: ConfigMap) -> Pool | str:
        name, version = config_map.metadata.name, config_map.metadata.resource_version
        known = self._read.get(name)
        if known is None or known[0] != version:
            known = self._read[name] = (version, _pool_or_trouble(config_map))
        return known[1]


def _pool_or_trouble(config_map: ConfigMap) -> Pool | str:
    try:
        return pool(config_map)
    except ValueError as error:
        return f"ConfigMap {config_map.metadata.name}: {error}"


def differ(old: Node, new: Node) -> bool:
    """Whether a field changed that the agent uses. The kubelet's heartbeats change only other fields."""

    def used(node: Node) -> tuple[object, ...]:
        meta, status = node.metadata, node.status
        return meta.annotations, meta.labels, status.allocatable, status.capacity

    return used(old) != used(new)


def pool(config_map: ConfigMap) -> Pool:
    """ValueError explains why the ConfigMap is invalid."""
    name = config_map.metadata.labels.get(POOL, "")
    try:
        ids = _IDS.decode(config_map.data.get(IDS, ""))
        allocation = _ALLOCATION.decode(config_map.data.get(ALLOCATION, ""))
    except msgspec.MsgspecError as error:
        raise ValueError(f"{IDS} or {ALLOCATION} is missing or invalid: {error}") from error
    return _shared(name, frozenset(ids), allocation)


def ahead(pools: Sequence[Pool], devices: Iterable[GPUDevice]) -> list[Pool]:
    """The pools, preceded by one for each card that has its own allocation during a rollout."""
    allocations = {_id(device): pooling.own(device) for device in devices}
    own = [
        _shared(pool.name, frozenset((card,)), allocation)
        for card, allocation in allocations.items()
        if allocation is not None
        for pool in pools
        if card in pool.cards
    ]
    return [*own, *pools]


def _shared(name: str, cards: frozenset[str], allocation: Allocation) -> Pool:
    return Pool(
        name=name,
        cards=cards,
        sharing=allocation.mode,
        slices=allocation.time_slice.max_slices_per_device if allocation.time_slice else DEFAULT_SLICES,
        profile=allocation.mig_profile or "",
        layout=mig.canonical((line.profile, line.count) for line in allocation.mig_layout or ()),
    )


def cards(node: str, seen: Iterable[Seen]) -> dict[str, Seen]:
    """The cards by inventoryID."""
    return {naming.inventory_id(node, card.address): card for card in seen}


def planned(card_id: str, seen: Seen, unfinished: Container[str] = ()) -> Card:
    """The card for planning. `unfinished` contains the addresses of cards with an interrupted change."""
    return Card(
        card_id,
        seen.index,
        seen.layout,
        seen.mig_enabled,
        seen.kinds,
        seen.health.healthy,
        seen.address in unfinished,
    )


def ties(card_id: str, target: Target | None, devices: Sequence[GPUDevice], holders: Iterable[str]) -> Ties:
    """What prevents repartitioning the card to `target`.

    If the node has no GPUDevices there is no ledger, and only its pods count.
    """
    names = tuple(sorted(set(holders)))
    if not devices:
        return Ties(None, True, names)
    device = next((device for device in devices if _id(device) == card_id), None)
    if device is None:
        return Ties(False, False, names)
    cut = device.status.cut
    layout = target.spelled if target is not None else ""
    known = cut is not None and cut.target == layout and cut.state in UNDER_WAY
    return Ties(_withdrawn(device), known, names)


def _id(device: GPUDevice) -> str:
    return device.status.inventory_id or device.metadata.name


def _withdrawn(device: GPUDevice) -> bool:
    conditions = device.status.conditions
    return any(condition.type == OCCUPIED and condition.reason == "Withdrawn" for condition in conditions)


def holders(
    node: str, pods: Iterable[PodView], cards: Mapping[str, Seen], *, alone: bool
) -> dict[str, list[str]]:
    """The pods by the cards of their allocation, which may name a card by its inventoryID or its index.

    The card of MIG devices that were only counted is unknown. Without a ledger such a pod counts as a holder
    of every card.
    """
    numbered = {naming.indexed_id(node, card.index): card_id for card_id, card in cards.items()}
    holders: dict[str, list[str]] = {}
    for pod in pods:
        for part in pod.grant:
            unknown = alone and capacity.is_made_up(node, part.card)
            for card_id in cards if unknown else (numbered.get(part.card, part.card),):
                holders.setdefault(card_id, []).append(pod.key)
    return holders
