"""Convert a snapshot of the cluster to the values that the preview of an action needs."""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias

from msgspec import structs

from croupier.api import convert_affinity, convert_pod, meta
from croupier.api.core_v1 import Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_node, convert_pool, pool_members
from croupier.api.gpu.device import DRAIN, IGNORE, RETIRED
from croupier.api.gpu.node import AGENT_SILENT
from croupier.api.gpu.pool import CONFIRMED, UNIT_OF_MODE, PoolAllocation
from croupier.capacity import pod_explanation
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.explanation.fleet import Fleet, FleetCard, FleetNode, FleetPool
from croupier.core.explanation.pod_starts import QueuedPod
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.pools import assignment, sharing_change
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools.assignment import ASSIGNMENT, MANUAL_APPROVAL, Approval
from croupier.core.pools.capacity import CountedCard
from croupier.core.pools.sharing_change import PoolFacts

InventoryOf: TypeAlias = Callable[[str], GPUNodeInventory | None]
"""The inventory of a node by its name."""


def fleet(
    seen: ClusterSnapshot,
    nodes: Collection[str],
    inventory: InventoryOf,
    approval: Approval = MANUAL_APPROVAL,
) -> Fleet:
    """The cards of these nodes, all pools, and the capacity of the pools on the other nodes."""
    here: dict[str, list[GPUDevice]] = {name: [] for name in nodes}
    elsewhere: dict[str, list[CountedCard]] = {}
    pools = {source.metadata.name: pool(source) for source in seen.pools}
    for device in seen.devices:
        name = device.status.node_name or ""
        if name in here:
            here[name].append(device)
        elif (known := pools.get(device.pool_name)) and (line := _counted(seen, device, known, inventory)):
            elsewhere.setdefault(known.name, []).append(line)
    return Fleet(
        nodes={name: _node(seen, name, devices, inventory(name)) for name, devices in here.items()},
        pools=pools,
        elsewhere={
            name: pool_capacity.count(lines, pools[name].reported.sharing.mode)
            for name, lines in elsewhere.items()
        },
        approval=approval,
    )


def _counted(
    seen: ClusterSnapshot, device: GPUDevice, pool: FleetPool, inventory: InventoryOf
) -> CountedCard | None:
    node = inventory(device.status.node_name or "")
    held = _held(seen.ledgers, device)
    return pool_members.counted(pool.name, device, inventory=node, held=held, closed=pool.closed)


def _node(
    seen: ClusterSnapshot, name: str, devices: Iterable[GPUDevice], inventory: GPUNodeInventory | None
) -> FleetNode:
    node = seen.nodes.get(name)
    return FleetNode(
        name,
        seen.ledgers.get(name) or Ledger(name),
        cards={device.card_id: card(device, inventory) for device in devices},
        labels=node.metadata.labels if node is not None else {},
        silent=inventory is not None and meta.is_true(inventory.status.conditions, AGENT_SILENT),
    )


def card(device: GPUDevice, inventory: GPUNodeInventory | None) -> FleetCard:
    drain = device.metadata.annotations.get(DRAIN)
    return FleetCard(
        convert_pool.card(device, obstacle=convert_pool.obstacle(device, inventory)),
        convert_node.device(device),
        retired=device.metadata.labels.get(IGNORE) == "true",
        retired_for=device.metadata.annotations.get(RETIRED, ""),
        managed=device.status.managed is not False,
        drain=drain,
        drained_by_pool=drain is not None and sharing_change.is_drain_reason(drain),
        blocked=convert_node.withheld(_settled(device)),
        defect=pool_members.defect(device, inventory),
        declined=convert_node.is_declined(device),
    )


def _settled(device: GPUDevice) -> GPUDevice:
    """The card as if it were neither drained nor retired, with the annotation of its pool."""
    meta = device.metadata
    annotations = {key: value for key, value in meta.annotations.items() if key != DRAIN}
    annotations[ASSIGNMENT] = device.pool_name
    labels = {key: value for key, value in meta.labels.items() if key != IGNORE}
    return structs.replace(device, metadata=structs.replace(meta, annotations=annotations, labels=labels))


def pool(source: GPUPool) -> FleetPool:
    conditions, capacity = source.status.conditions, source.status.capacity
    return FleetPool(
        convert_pool.pool(source),
        convert_node.pool(source),
        unit=UNIT_OF_MODE[(source.status.allocation or source.spec.allocation).mode],
        closed=any(meta.is_true(conditions, kind) for kind in ("Maintenance", "Misconfigured")),
        booked=capacity.booked if capacity is not None else 0,
    )


def pool_facts(
    seen: ClusterSnapshot, source: GPUPool, wanted: PoolAllocation, inventory: InventoryOf
) -> PoolFacts:
    """The inputs of the decision about a new allocation of the pool."""
    status, name = source.status, source.metadata.name
    misconfigured = meta.condition(status.conditions, "Misconfigured")
    applied = convert_pool.sharing(status.allocation or source.spec.allocation)
    return PoolFacts(
        wanted=convert_pool.sharing(wanted),
        applied=applied,
        per_card=wanted.rollout == "PerCard",
        members=tuple(
            pool_members.member(
                name,
                device,
                applied,
                inventory=inventory(device.status.node_name or ""),
                held=_held(seen.ledgers, device),
            )
            for device in members(seen, name)
        ),
        deleting=source.metadata.deletion_timestamp is not None,
        closed=meta.is_true(status.conditions, "Maintenance"),
        misconfigured=misconfigured.reason if misconfigured and misconfigured.status == "True" else "",
        confirmed=source.metadata.annotations.get(CONFIRMED) == str(source.metadata.generation),
        older_duplicate=assignment.older_duplicate(
            convert_pool.pool(source), map(convert_pool.pool, seen.pools)
        )
        or "",
    )


def members(seen: ClusterSnapshot, pool: str) -> list[GPUDevice]:
    return [device for device in seen.devices if device.pool_name == pool]


def _held(ledgers: Mapping[str, Ledger], device: GPUDevice) -> LedgerCard | None:
    ledger = ledgers.get(device.status.node_name or "")
    return ledger.card(device.card_id) if ledger is not None else None


def queued(pods: Iterable[Pod], seen: ClusterSnapshot) -> list[QueuedPod]:
    """The pods that wait for cards, as placement needs them."""
    found = []
    for source in pods:
        view = convert_pod.view(source)
        if view.wants and not view.node and not view.finished:
            strategy = pod_explanation.pool_strategy(seen, view.wants)
            found.append(QueuedPod(view, convert_affinity.pod_needs(source), strategy))
    return found
