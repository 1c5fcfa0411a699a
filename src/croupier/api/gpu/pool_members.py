"""A card of a pool as decisions about the pool need it: whether it serves, its holders, its partitions."""

from croupier.api import meta
from croupier.api.gpu import convert_node, convert_pool
from croupier.api.gpu.device import DRAIN, OCCUPIED, VANISHED, GPUDevice
from croupier.api.gpu.node import AGENT_SILENT, GPUNodeInventory
from croupier.core.model.card import LedgerCard
from croupier.core.model.sharing import Sharing
from croupier.core.model.withheld import NOT_MANAGED
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools import sharing_change
from croupier.core.pools.capacity import CountedCard
from croupier.core.pools.sharing_change import PoolMember


def trouble(device: GPUDevice, inventory: GPUNodeInventory | None) -> str:
    """Why the card is unavailable; empty if it is available."""
    if why := defect(device, inventory):
        return why
    if device.status.managed is False:
        return NOT_MANAGED
    retired = convert_node.retired(device)
    return retired.sentence if retired is not None else ""


def defect(device: GPUDevice, inventory: GPUNodeInventory | None) -> str:
    """Why the card or its node fails; empty if both work."""
    status = device.status
    if inventory is not None and meta.is_true(inventory.status.conditions, AGENT_SILENT):
        return "the agent of its node is silent"
    if meta.is_true(status.conditions, VANISHED):
        return "it is gone from its node"
    if status.state == "Faulted":
        health = status.health
        return health.last_error if health is not None and health.last_error else "it is faulted"
    return ""


def member(
    pool: str,
    device: GPUDevice,
    shared: Sharing,
    *,
    inventory: GPUNodeInventory | None,
    held: LedgerCard | None,
) -> PoolMember:
    """The card. `shared` is the sharing of the pool, `held` the card in the ledger."""
    own = convert_pool.card_allocation(device)
    occupied = meta.condition(device.status.conditions, OCCUPIED)
    return PoolMember(
        id=device.card_id,
        desired_sharing=convert_pool.sharing(own) if own is not None else shared,
        has_own_sharing=convert_pool.CARD_ALLOCATION in device.metadata.annotations,
        occupancy=occupied.reason if occupied is not None else "",
        cut=convert_pool.partitioning(device),
        fits=convert_pool.mig_capacity(device),
        drained=device.metadata.annotations.get(DRAIN) == sharing_change.drain_reason(pool),
        unavailable=bool(trouble(device, inventory)),
        holdings=tuple(pool_capacity.holdings(held)) if held is not None else (),
    )


def counted(
    pool: str,
    device: GPUDevice,
    *,
    inventory: GPUNodeInventory | None,
    held: LedgerCard | None,
    closed: bool,
) -> CountedCard | None:
    """The card to count; in a closed pool also a card that only waits for it to open."""
    if held is None or held.pool != pool:
        return None
    held_back = trouble(device, inventory) or convert_node.withheld(device)
    return CountedCard(held, serves=not held_back and (held.healthy or closed))
