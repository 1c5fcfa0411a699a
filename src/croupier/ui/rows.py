"""Objects of the cluster as the rows that browsers get; docs/ui-api.md describes them. Pure.

Rows are plain values, so that they can be compared, cut for a viewer and read back from the history alike.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from croupier.api import meta
from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_node, convert_pool
from croupier.api.gpu.device import INDEX_LABEL, OCCUPIED
from croupier.api.gpu.node import AGENT_SILENT
from croupier.api.gpu.pool import CONFIRMED, UNIT_OF_MODE, PoolAllocation
from croupier.api.market_report import MarketReport
from croupier.api.mps import Reservation
from croupier.capacity import reservation_data
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.model.pod_view import PodView
from croupier.core.pools.assignment import ASSIGNMENT, Assignment

MODES: Final = {"Percent": 1, "Exclusive": 2, "MIG": 3, "TimeSlice": 4}
STATES: Final = {"Unassigned": 1, "Reserved": 2, "Assigned": 3, "Faulted": 4}
UNHEALTHY, DRAINED, RETIRED, WITHDRAWN, SILENT, REPARTITIONING, UNMANAGED = (1 << bit for bit in range(7))
ZONE: Final = "topology.kubernetes.io/zone"
GROUP_LABELS: Final = {
    "region": "topology.kubernetes.io/region",
    "rack": "topology.kubernetes.io/rack",
    "group": "node.deckhouse.io/group",
    "type": "node.kubernetes.io/instance-type",
}
MAX_REASON: Final = 256
_PARTITION_CHANGES: Final = ("Waiting", "Changing")

Row = tuple[Any, ...]
Number = Callable[[str], int]
"""The number of a holder."""


@dataclass(frozen=True, slots=True)
class NodeObjects:
    """Everything that the rows of one node are computed from."""

    name: str
    node: Node | None = None
    inventory: GPUNodeInventory | None = None
    devices: Sequence[GPUDevice] = ()
    ledger: Ledger | None = None
    recorded: bool = False
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By card: the pools that wait for approval to take it."""

    @property
    def silent(self) -> bool:
        return self.inventory is not None and meta.is_true(self.inventory.status.conditions, AGENT_SILENT)


def seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment is not None else None


def node(seen: NodeObjects) -> dict[str, Any]:
    labels = seen.node.metadata.labels if seen.node is not None else {}
    products = Counter(product(device) for device in seen.devices)
    status = seen.inventory.status if seen.inventory is not None else None
    return {
        "zone": labels.get(ZONE, ""),
        "model": products.most_common(1)[0][0] if products else "",
        "silent": seen.silent,
        "recorded": seen.recorded,
        "cordoned": seen.node.spec.unschedulable if seen.node is not None else False,
        "phase": (status.bootstrap.phase or "") if status is not None else "",
        "message": _node_message(seen),
        "groups": {name: labels[label] for name, label in GROUP_LABELS.items() if label in labels},
    }


def _node_message(seen: NodeObjects) -> str:
    if seen.node is None:
        return f"node {seen.name} does not exist any more; its cards and holders are still recorded"
    conditions = seen.inventory.status.conditions if seen.inventory is not None else ()
    ready = meta.condition(conditions, convert_pool.READY)
    if ready is not None and ready.status != "True":
        return (ready.message or ready.reason)[:MAX_REASON]
    return ""


def product(device: GPUDevice) -> str:
    return device.status.hardware.product if device.status.hardware is not None else ""


def cards(seen: NodeObjects, number: Number) -> dict[str, Row]:
    """The rows of all cards of a node: those of its inventory, and those that only its ledger has."""
    held = {card.id: card for card in seen.ledger.cards} if seen.ledger is not None else {}
    rows = {
        device.metadata.name: _card(seen, device, held.pop(device.metadata.name, None), number)
        for device in seen.devices
    }
    return rows | {name: _card(seen, None, card, number) for name, card in held.items()}


def _card(seen: NodeObjects, device: GPUDevice | None, held: LedgerCard | None, number: Number) -> Row:
    pool = device.pool_name if device is not None else held.pool if held is not None else ""
    assigned = device.metadata.annotations.get(ASSIGNMENT, "") if device is not None else ""
    return (
        seen.name,
        _index(device, held),
        MODES[held.mode] if held is not None else 0,
        pool,
        STATES.get(device.status.state or "", 0) if device is not None else 0,
        _flags(seen, device, held),
        _capacity(device, held),
        _free(held),
        tuple((number(holder), share) for holder, share in held.holders.items()) if held is not None else (),
        _slots(held, number),
        product(device) if device is not None else "",
        reason(device) if device is not None else "",
        assigned if assigned != pool else "",
        seen.offers.get(device.metadata.name, ()) if device is not None else (),
        held.pool if held is not None and held.pool != pool else "",
    )


def _index(device: GPUDevice | None, held: LedgerCard | None) -> int:
    label = device.metadata.labels.get(INDEX_LABEL, "") if device is not None else ""
    if label.isascii() and label.isdigit():
        return int(label)
    return held.index if held is not None else -1


def _flags(seen: NodeObjects, device: GPUDevice | None, held: LedgerCard | None) -> int:
    flags = SILENT if seen.silent else 0
    if held is not None and not held.healthy:
        flags |= UNHEALTHY
    if device is None:
        return flags
    status, drained = device.status, convert_node.drained(device)
    occupied = meta.condition(status.conditions, OCCUPIED)
    found = {
        DRAINED: drained is not None and drained.state == "Drained",
        RETIRED: convert_node.retired(device) is not None,
        WITHDRAWN: occupied is not None and occupied.reason == "Withdrawn",
        REPARTITIONING: _is_changing(device),
        UNMANAGED: status.managed is False,
    }
    return flags | sum(flag for flag, holds in found.items() if holds)


def _is_changing(device: GPUDevice) -> bool:
    """The agent repartitions the card, or its pool drained it for a change, which is not a person's drain."""
    cut, drained = device.status.cut, convert_node.drained(device)
    by_pool = drained is not None and drained.state == "Changing"
    return by_pool or (cut is not None and cut.state in _PARTITION_CHANGES)


def _capacity(device: GPUDevice | None, held: LedgerCard | None) -> int:
    if held is None:
        return 0
    if held.mode != "MIG":
        return held.capacity
    profiles = convert_pool.traits(device).profiles if device is not None else ()
    if any(profile.startswith("7g.") for profile in profiles):
        return 8
    return 4 if any(profile.startswith("4g.") for profile in profiles) else 0


def _free(held: LedgerCard | None) -> int:
    if held is None:
        return 0
    return len(held.free_slots()) if held.mode == "MIG" else held.free


def _slots(held: LedgerCard | None, number: Number) -> tuple[Row, ...]:
    if held is None:
        return ()
    return tuple(
        (slot.id, slot.profile, slot.start, slot.size, number(slot.holder) if slot.holder else 0)
        for slot in held.slots
    )


def reason(device: GPUDevice) -> str:
    """The reason of a person, of a change by its pool, or of a fault."""
    if (withheld := convert_node.retired(device) or convert_node.drained(device)) is not None:
        return withheld.reason[:MAX_REASON]
    if device.status.state != "Faulted":
        return ""
    fault = meta.condition(device.status.conditions, "Faulted")
    if fault is not None and fault.status == "True":
        return (fault.message or fault.reason)[:MAX_REASON]
    return device.status.health.last_error[:MAX_REASON] if device.status.health is not None else ""


def offers(decisions: Mapping[str, Assignment]) -> dict[str, tuple[str, ...]]:
    """By card: the pools that wait for approval."""
    waiting = {
        card: tuple(entry.pool for entry in decision.pending if entry.reason == "AwaitingApproval")
        for card, decision in decisions.items()
    }
    return {card: pools for card, pools in waiting.items() if pools}


def holder(key: str, ledger: Ledger) -> Row:
    until = ledger.held.get(key)
    state = 0 if key in ledger.held else 1
    return key, state, seconds(until) or 0, ledger.reservations.get(key, "")


def pool(source: GPUPool) -> dict[str, Any]:
    spec, status = source.spec, source.status
    capacity = status.capacity
    unit = capacity.unit if capacity is not None else None
    amounts = ("total", "used", "booked", "available")
    return {
        "mode": (status.allocation or spec.allocation).mode,
        "unit": unit or UNIT_OF_MODE[(status.allocation or spec.allocation).mode],
        "sharing": sharing(spec.allocation),
        "applied": sharing(status.allocation) if status.allocation is not None else "",
        "strategy": spec.scheduling.strategy or "",
        **{name: getattr(capacity, name) if capacity is not None else None for name in amounts},
        "cards": len(status.devices),
        "nodes": sum(1 for entry in status.nodes if entry.assigned_devices),
        "candidates": len(status.candidates),
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "since": seconds(condition.last_transition_time),
            }
            for condition in status.conditions
        ],
        "generation": source.metadata.generation,
        "confirmed": _number(source.metadata.annotations.get(CONFIRMED, "")),
    }


def sharing(allocation: PoolAllocation) -> str:
    return str(convert_pool.sharing(allocation))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0


def waiting(pod: Pod, view: PodView) -> dict[str, Any]:
    """A pending pod before it is explained: with the scheduler's own message."""
    said = scheduler_message(pod)
    return {
        "asks": [str(want) for want in view.wants],
        "since": seconds(view.created) or 0,
        "pool": next((want.pool for want in view.wants if want.pool), ""),
        "priority": view.priority,
        "state": "Pending",
        "sentence": said or "the scheduler has not reported on the pod yet",
        "scheduler": said,
    }


def scheduler_message(pod: Pod) -> str:
    scheduled = meta.condition(pod.status.conditions, "PodScheduled")
    if scheduled is None or scheduled.status == "True":
        return ""
    return scheduled.message.replace("%%", "%")  # kube-scheduler doubles percent signs


def reservation(source: Reservation, ledger: Ledger | None) -> dict[str, Any]:
    row = reservation_data.of_reservation(ledger, source, reservation_data.holding(ledger, source))
    return {
        "pod": row.pod,
        "node": row.node,
        "state": row.state,
        "until": seconds(row.until) or 0,
        "cards": [part["card"] for part in row.cards],
        "share": row.share,
        "owner": row.owner or "",
        "priority": row.priority,
        "created": seconds(row.created) or 0,
        "message": row.message or "",
    }


def market(report: MarketReport | None, *, alive: bool, last_seen: float | None) -> dict[str, Any]:
    row: dict[str, Any] = {"alive": alive, "lastSeen": last_seen}
    if report is None:
        unknown = dict.fromkeys(("capacity", "outside", "factor", "strict", "dryRun"))
        return {**row, **unknown, "books": []}
    return {
        **row,
        "capacity": report.capacity,
        "outside": report.outside,
        "factor": report.factor,
        "strict": report.strict,
        "dryRun": report.dry_run,
        "books": [msgspec.structs.asdict(book) for book in report.books],
    }


def findings(found: Iterable[LedgerFinding]) -> list[dict[str, Any]]:
    return [
        {"class": entry.kind, "message": entry.message, "card": entry.card, "holder": entry.holder}
        for entry in found
    ]
