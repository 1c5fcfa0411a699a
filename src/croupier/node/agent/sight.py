"""What the API server shows of one node and its cards, as planning takes it in.

Others wrote all of it, so nothing in it may stop the agent: what cannot be read is told and left out.
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
"""The label of a pool's ConfigMap."""
IDS: Final = "inventoryIDs"
ALLOCATION: Final = "allocation"
UNDER_WAY: Final = ("Waiting", "Changing", "Failed", "Drifted")
"""States of a cut that keep new holders off the card."""

_IDS: Final = msgspec.json.Decoder(tuple[str, ...])
_ALLOCATION: Final = msgspec.json.Decoder(Allocation)


@dataclass(frozen=True, slots=True)
class Window:
    """The objects that concern one node, as they are now."""

    name: str
    node: Callable[[], Node | None]
    pods: Callable[[], Iterable[Pod]]
    """Those bound to it."""
    devices: Callable[[], Iterable[GPUDevice]]
    pools: Callable[[], tuple[Sequence[Pool], Sequence[str]]]
    """Their wishes, and what of them cannot be read."""

    def layout(self) -> str | None:
        """The text of run.ai/mig.config."""
        node = self.node()
        return node.metadata.annotations.get(ANNOTATION) if node is not None else None

    def live(self) -> list[PodView]:
        """Pods that have, or will get, something of a card."""
        return [reading.view(pod) for pod in self.pods() if not pod.is_finished]


class Pools:
    """The ConfigMaps of pools, each read once: all nodes of a fleet look at the same ones."""

    def __init__(self, config_maps: Iterable[ConfigMap]) -> None:
        self._config_maps = config_maps
        self._read: dict[str, tuple[str, Pool | str]] = {}

    def __call__(self) -> tuple[Sequence[Pool], Sequence[str]]:
        found = [self._one(one) for one in sorted(self._config_maps, key=lambda one: one.metadata.name)]
        return [one for one in found if isinstance(one, Pool)], [one for one in found if isinstance(one, str)]

    def _one(self, found: ConfigMap) -> Pool | str:
        name, version = found.metadata.name, found.metadata.resource_version
        known = self._read.get(name)
        if known is None or known[0] != version:
            known = self._read[name] = (version, _pool_or_trouble(found))
        return known[1]


def _pool_or_trouble(found: ConfigMap) -> Pool | str:
    try:
        return pool(found)
    except ValueError as error:
        return f"ConfigMap {found.metadata.name}: {error}"


def differ(old: Node, new: Node) -> bool:
    """Whether anything changed that an agent minds; the kubelet's own heartbeats do not count."""

    def minded(node: Node) -> tuple[object, ...]:
        meta, status = node.metadata, node.status
        return meta.annotations, meta.labels, status.allocatable, status.capacity

    return minded(old) != minded(new)


def pool(found: ConfigMap) -> Pool:
    """ValueError says what is wrong with it."""
    name = found.metadata.labels.get(POOL, "")
    try:
        ids = _IDS.decode(found.data.get(IDS, ""))
        allocation = _ALLOCATION.decode(found.data.get(ALLOCATION, ""))
    except msgspec.MsgspecError as error:
        raise ValueError(f"it does not say which cards the pool has and how: {error}") from error
    return _shared(name, frozenset(ids), allocation)


def ahead(pools: Sequence[Pool], devices: Iterable[GPUDevice]) -> list[Pool]:
    """The pools as each card follows them: one that is ahead of its pool has a word of its own."""
    words = {_id(one): pooling.own(one) for one in devices}
    own = [
        _shared(pool.name, frozenset((card,)), word)
        for card, word in words.items()
        if word is not None
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
        layout=mig.canonical((one.profile, one.count) for one in allocation.mig_layout or ()),
    )


def cards(node: str, seen: Iterable[Seen]) -> dict[str, Seen]:
    """By the names the ledger has for them."""
    return {naming.inventory_id(node, one.address): one for one in seen}


def planned(card_id: str, seen: Seen, unfinished: Container[str] = ()) -> Card:
    """`unfinished` are addresses."""
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
    """What stands in the way of cutting the card as `target` says.

    Where no GPUDevice of the node exists nobody keeps a ledger by them, and its pods are all there is to ask.
    """
    names = tuple(sorted(set(holders)))
    if not devices:
        return Ties(None, True, names)
    device = next((one for one in devices if _id(one) == card_id), None)
    if device is None:
        return Ties(False, False, names)
    cut = device.status.cut
    wanted = target.spelled if target is not None else ""
    known = cut is not None and cut.target == wanted and cut.state in UNDER_WAY
    return Ties(_withdrawn(device), known, names)


def _id(device: GPUDevice) -> str:
    return device.status.inventory_id or device.metadata.name


def _withdrawn(device: GPUDevice) -> bool:
    return any(one.type == OCCUPIED and one.reason == "Withdrawn" for one in device.status.conditions)


def holders(
    node: str, pods: Iterable[PodView], cards: Mapping[str, Seen], *, alone: bool
) -> dict[str, list[str]]:
    """Pods by the cards that their allocation names, whatever cards were called when it was written.

    Of MIG devices that were only counted nobody can say which card they are on; where no ledger knows better
    such a pod keeps every card as it is.
    """
    numbered = {naming.indexed_id(node, card.index): card_id for card_id, card in cards.items()}
    found: dict[str, list[str]] = {}
    for pod in pods:
        for part in pod.grant:
            guessed = alone and capacity.is_made_up(node, part.card)
            for card_id in cards if guessed else (numbered.get(part.card, part.card),):
                found.setdefault(card_id, []).append(pod.key)
    return found
