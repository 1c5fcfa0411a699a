"""Convert a node's objects (Node, GPUDevices, GPUPools, GPUNodeInventory) to its capacity report."""

from collections.abc import Iterable
from typing import Final

from croupier.api.core_v1 import Node
from croupier.api.gpu import convert_pool
from croupier.api.gpu.device import (
    DRAIN,
    IGNORE,
    INDEX_LABEL,
    RETIRED,
    VANISHED,
    DevicePartitioning,
    GPUDevice,
)
from croupier.api.gpu.node import AGENT_SILENT, GPUNodeInventory
from croupier.api.gpu.pool import GPUPool
from croupier.api.meta import is_true
from croupier.core import quantity
from croupier.core.cards import features
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard, ReportedPool
from croupier.core.model.card import MigSlot
from croupier.core.model.withheld import Withheld, by_person
from croupier.core.pods import request_parser
from croupier.core.pools import sharing_change
from croupier.core.pools.assignment import ASSIGNMENT
from croupier.core.pools.sharing_change import MAINTENANCE, MISCONFIGURED

PER_CARD: Final = "PerCard"
"""The reason of the condition Maintenance during a rollout card by card: the other cards stay usable."""

_REPARTITIONING: Final = {
    "Waiting": Withheld("Changing", "it is waiting to be repartitioned"),
    "Changing": Withheld("Changing", "it is being repartitioned"),
    "Failed": Withheld("Unhealthy", "its repartitioning failed"),
    "Drifted": Withheld("Unhealthy", "its MIG partitions were changed from outside"),
}
_VANISHED: Final = Withheld("Unhealthy", "it is gone from its node")
_NO_DEVICES: Final = Withheld("Unhealthy", "its MIG mode is enabled and it has no MIG devices")
_UNENFORCED: Final = Withheld("Unhealthy", "its shares cannot be enforced now")
_MAINTENANCE: Final = Withheld("Changing", "its pool is in Maintenance")
_MISCONFIGURED: Final = Withheld("Unhealthy", "its pool is misconfigured")


def node_report(
    name: str,
    node: Node | None,
    devices: Iterable[GPUDevice],
    pools: Iterable[GPUPool],
    inventory: GPUNodeInventory | None = None,
    *,
    smallest: int = 0,
) -> NodeCardReport:
    """The report. `devices` are those of the node; `pools` may be all pools."""
    return NodeCardReport(
        node=name,
        present=node is not None,
        allocatable=allocatable_gpus(node) if node is not None else {},
        devices=tuple(device(source) for source in devices),
        pools={source.metadata.name: pool(source) for source in pools},
        silent=inventory is not None and is_true(inventory.status.conditions, AGENT_SILENT),
        expected=_has_cards(node, inventory),
        smallest=smallest,
    )


def _has_cards(node: Node | None, inventory: GPUNodeInventory | None) -> bool:
    """As the inventory says, or the labels until there is an inventory with a status."""
    if inventory is not None and inventory.status.conditions:
        return inventory.status.hw.present
    labels = node.metadata.labels if node is not None else {}
    return inventory is not None or any(label.startswith(features.DEVICE) for label in labels)


def device(source: GPUDevice) -> ReportedCard:
    status, labels = source.status, source.metadata.labels
    hardware = status.hardware
    mig = hardware.mig if hardware is not None else None
    index = labels.get(INDEX_LABEL, "")
    return ReportedCard(
        id=source.card_id,
        index=int(index) if index.isascii() and index.isdigit() else None,
        pool=source.pool_name,
        faulted=status.state == "Faulted",
        unmanaged=status.managed is False,
        withheld=withheld(source),
        vanished=is_true(status.conditions, VANISHED),
        fits={mig_type.name: mig_type.count for mig_type in mig.types} if mig is not None else {},
        cut=_slots(status.cut) if status.cut is not None else None,
        ahead=convert_pool.sharing(own) if (own := convert_pool.card_allocation(source)) else None,
    )


def withheld(device: GPUDevice) -> Withheld | None:
    """Why nothing on the card is allocated now, apart from faults. None if it can be allocated."""
    if is_true(device.status.conditions, VANISHED):
        return _VANISHED
    if by_person := retired(device) or drained(device):
        return by_person
    cut = device.status.cut
    if cut is not None and cut.state in _REPARTITIONING:
        return _REPARTITIONING[cut.state]
    if cut is not None and cut.enabled and not cut.slots:
        return _NO_DEVICES
    serves, assigned = device.pool_name, device.metadata.annotations.get(ASSIGNMENT, "")
    if assigned == serves or is_declined(device):
        return _unenforced(device)
    return Withheld(
        "Changing", f"it is leaving pool {serves}" if serves else f"it is joining pool {assigned}"
    )


def is_declined(device: GPUDevice) -> bool:
    """The pool that the card is annotated with does not take it, so it serves as without annotation."""
    assigned, declined = device.metadata.annotations.get(ASSIGNMENT, ""), device.status.declined
    return not device.pool_name and declined is not None and declined.name == assigned


def retired(device: GPUDevice) -> Withheld | None:
    if device.metadata.labels.get(IGNORE) != "true":
        return None
    return by_person("Retired", device.metadata.annotations.get(RETIRED, ""))


def drained(device: GPUDevice) -> Withheld | None:
    """A pool that changes its cards one by one drains them with the same annotation, and lifts it itself."""
    reason = device.metadata.annotations.get(DRAIN)
    if reason is None:
        return None
    if sharing_change.is_drain_reason(reason):
        return Withheld("Changing", reason)
    return by_person("Drained", reason)


def _unenforced(device: GPUDevice) -> Withheld | None:
    """A card without a pool can be used as a whole, so there only the node's agent withholds shares."""
    state = device.status.enforcement
    withheld = device.pool_name and state is not None and not state.ready
    return _UNENFORCED if withheld else None


def _slots(cut: DevicePartitioning) -> tuple[MigSlot, ...]:
    return tuple(MigSlot(f"{s.profile}-{s.start}", s.profile, s.start, s.size) for s in cut.slots)


def pool(source: GPUPool) -> ReportedPool:
    """The pool as it is shared now. The spec counts only after its change has been rolled out."""
    allocation = source.status.allocation or source.spec.allocation
    return ReportedPool(
        convert_pool.sharing(allocation), _pool_withheld(source), source.spec.resource.min_percent
    )


def _pool_withheld(pool: GPUPool) -> Withheld | None:
    for condition in pool.status.conditions:
        if condition.status != "True":
            continue
        if condition.type == MAINTENANCE and condition.reason != PER_CARD:
            return _MAINTENANCE
        if condition.type == MISCONFIGURED:
            return _MISCONFIGURED
    return None


def allocatable_gpus(node: Node) -> dict[str, int]:
    """The allocatable cards and MIG devices of the node. An invalid quantity counts as 0."""
    amounts = {}
    for name, written in node.status.allocatable.items():
        if name != request_parser.GPU and request_parser.profile(name) is None:
            continue
        try:
            amounts[name] = max(0, quantity.parse(written).nanos // quantity.NANO)
        except quantity.InvalidQuantityError:
            amounts[name] = 0
    return amounts
