"""The API objects of one node and its cards, converted for planning.

Users and other processes write them, so nothing here stops the agent: invalid objects are reported and
skipped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from croupier.api import convert_pod as reading
from croupier.api.core_v1 import ConfigMap, Node, Pod
from croupier.api.gpu import convert_pool
from croupier.api.gpu.device import OCCUPIED, GPUDevice
from croupier.api.gpu.pool import PoolAllocation
from croupier.api.gpu.pool_config import ALLOCATION_KEY, IDS_KEY, POOL_LABEL
from croupier.core.cards.mig_annotation import ANNOTATION
from croupier.core.ledger import reported_cards
from croupier.core.model import card_name as naming
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.pod_view import PodView
from croupier.core.nodes.layout_plan import ChangeBlockers, LayoutTarget, PoolLayout

IN_PROGRESS: Final = ("Waiting", "Changing", "Failed", "Drifted")
"""Partitioning states during which the card gets no new holders."""

_IDS: Final = msgspec.json.Decoder(tuple[str, ...])
_ALLOCATION: Final = msgspec.json.Decoder(PoolAllocation)


@dataclass(frozen=True, slots=True)
class NodeInformers:
    """The cached objects of one node."""

    name: str
    node: Callable[[], Node | None]
    pods: Callable[[], Iterable[Pod]]
    """The pods bound to the node."""
    devices: Callable[[], Iterable[GPUDevice]]
    pools: Callable[[], tuple[Sequence[PoolLayout], Sequence[str]]]
    """The pools, and errors about pools that cannot be decoded."""

    def layout(self) -> str | None:
        """The text of the annotation run.ai/mig.config."""
        node = self.node()
        return node.metadata.annotations.get(ANNOTATION) if node is not None else None

    def unfinished_pods(self) -> list[PodView]:
        """The pods that have not finished."""
        return [reading.view(pod) for pod in self.pods() if not pod.is_finished]


class PoolConfigMaps:
    """The ConfigMaps of pools. Each version is decoded once, because all nodes of a fleet share them."""

    def __init__(self, config_maps: Iterable[ConfigMap]) -> None:
        self._config_maps = config_maps
        self._read: dict[str, tuple[str, PoolLayout | str]] = {}

    def __call__(self) -> tuple[Sequence[PoolLayout], Sequence[str]]:
        config_maps = sorted(self._config_maps, key=lambda config_map: config_map.metadata.name)
        results = [self._one(config_map) for config_map in config_maps]
        pools = [result for result in results if isinstance(result, PoolLayout)]
        return pools, [result for result in results if isinstance(result, str)]

    def _one(self, config_map: ConfigMap) -> PoolLayout | str:
        name, version = config_map.metadata.name, config_map.metadata.resource_version
        known = self._read.get(name)
        if known is None or known[0] != version:
            known = self._read[name] = (version, _pool_or_error(config_map))
        return known[1]


def _pool_or_error(config_map: ConfigMap) -> PoolLayout | str:
    try:
        return decode_pool(config_map)
    except ValueError as error:
        return f"ConfigMap {config_map.metadata.name}: {error}"


def relevant_change(old: Node, new: Node) -> bool:
    """Whether a field changed that the agent uses. The kubelet's heartbeats change only other fields."""

    def used(node: Node) -> tuple[object, ...]:
        meta, status = node.metadata, node.status
        return meta.annotations, meta.labels, status.allocatable, status.capacity

    return used(old) != used(new)


def decode_pool(config_map: ConfigMap) -> PoolLayout:
    """ValueError explains why the ConfigMap is invalid."""
    name = config_map.metadata.labels.get(POOL_LABEL, "")
    try:
        ids = _IDS.decode(config_map.data.get(IDS_KEY, ""))
        allocation = _ALLOCATION.decode(config_map.data.get(ALLOCATION_KEY, ""))
    except msgspec.MsgspecError as error:
        raise ValueError(f"{IDS_KEY} or {ALLOCATION_KEY} is missing or invalid: {error}") from error
    return PoolLayout(name, frozenset(ids), convert_pool.sharing(allocation))


def with_card_overrides(pools: Sequence[PoolLayout], devices: Iterable[GPUDevice]) -> list[PoolLayout]:
    """The pools, preceded by one for each card that has its own allocation during a rollout."""
    allocations = {device.card_id: convert_pool.card_allocation(device) for device in devices}
    own = [
        PoolLayout(pool.name, frozenset((card,)), convert_pool.sharing(allocation))
        for card, allocation in allocations.items()
        if allocation is not None
        for pool in pools
        if card in pool.cards
    ]
    return [*own, *pools]


def cards_by_id(node: str, seen: Iterable[GpuCard]) -> dict[str, GpuCard]:
    """The cards by inventoryID."""
    return {naming.inventory_id(node, card.address): card for card in seen}


def change_blockers(
    card_id: str, target: LayoutTarget | None, devices: Sequence[GPUDevice], holders: Iterable[str]
) -> ChangeBlockers:
    """What prevents repartitioning the card to `target`.

    If the node has no GPUDevices there is no ledger, and only its pods count.
    """
    names = tuple(sorted(set(holders)))
    if not devices:
        return ChangeBlockers(None, True, names)
    device = next((device for device in devices if device.card_id == card_id), None)
    if device is None:
        return ChangeBlockers(False, False, names)
    cut = device.status.cut
    layout = target.layout_text if target is not None else ""
    known = cut is not None and cut.target == layout and cut.state in IN_PROGRESS
    return ChangeBlockers(_withdrawn(device), known, names)


def _withdrawn(device: GPUDevice) -> bool:
    conditions = device.status.conditions
    return any(condition.type == OCCUPIED and condition.reason == "Withdrawn" for condition in conditions)


def holders_by_card(
    node: str, pods: Iterable[PodView], cards: Mapping[str, GpuCard], *, without_ledger: bool
) -> dict[str, list[str]]:
    """The pods by the cards of their allocation, which may name a card by its inventoryID or its index.

    The card of MIG devices that were only counted is unknown. Without a ledger such a pod counts as a holder
    of every card.
    """
    numbered = {naming.indexed_id(node, card.index): card_id for card_id, card in cards.items()}
    holders: dict[str, list[str]] = {}
    for pod in pods:
        for part in pod.grant:
            unknown = without_ledger and reported_cards.is_placeholder(node, part.card)
            for card_id in cards if unknown else (numbered.get(part.card, part.card),):
                holders.setdefault(card_id, []).append(pod.key)
    return holders
