"""Cards, ledgers, pools and their pods as objects of the API server, written without controllers.

A fleet for the tests and the benchmark of the page is written directly: controllers and agents would need
minutes for thousands of cards, and states such as a ledger without one of its cards would not last.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from bench.filled_cluster import ACCOUNTS, in_parallel
from croupier.api import kinds
from croupier.core.model import card_name
from croupier.kube.client.api_client import Client
from croupier.kube.client.resource import Resource
from croupier_lab import nodes
from croupier_lab.nodes import SimulatedNode

Raw = dict[str, Any]

SINCE: Final = "2026-01-01T00:00:00Z"
NO_SCHEDULER: Final = "no-such-scheduler"
"""Pods with this schedulerName stay pending."""
MIB: Final = 81559
MIG_TYPES: Final = [
    {"name": "1g.10gb", "count": 7},
    {"name": "2g.20gb", "count": 3},
    {"name": "3g.40gb", "count": 2},
]


@dataclass(frozen=True, slots=True)
class WrittenCard:
    """One card: its GPUDevice and, unless `entry` is None, its entry in the ledger of the node."""

    node: str
    index: int
    entry: Raw | None
    pool: str = ""
    product: str = "NVIDIA-H100-80GB-HBM3"
    phase: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return name(self.node, self.index)

    @property
    def holders(self) -> list[str]:
        entry = self.entry or {}
        slots = [slot.get("holder", "") for slot in entry.get("slots", ())]
        return [*entry.get("holders", {}), *filter(None, slots)]

    def ledger_entry(self) -> Raw:
        pool = {"pool": self.pool} if self.pool else {}
        base = {"id": self.name, "index": self.index, "epoch": 1, "healthy": True}
        return {**base, **pool, **(self.entry or {})}

    def device(self) -> tuple[Raw, Raw]:
        """The GPUDevice and its status."""
        labels = {"gpu.deckhouse.io/node": self.node, "gpu.deckhouse.io/device-index": str(self.index)}
        assigned = {"gpu.deckhouse.io/assignment": self.pool} if self.pool else {}
        meta = {
            "name": self.name,
            "labels": {**labels, **self.labels},
            "annotations": {**assigned, **self.annotations},
        }
        return {"metadata": meta}, {**self._known(), **self._phase(), **self.status}

    def _known(self) -> Raw:
        mig = {"capable": True, "profilesSupported": [one["name"] for one in MIG_TYPES], "types": MIG_TYPES}
        hardware = {"product": self.product, "memoryMiB": MIB, "mig": mig}
        return {"nodeName": self.node, "inventoryID": self.name, "managed": True, "hardware": hardware}

    def _phase(self) -> Raw:
        busy = bool(self.holders)
        phase = self.phase or ("InUse" if self.pool and busy else "Assigned" if self.pool else "Ready")
        state = {"Faulted": "Faulted", "InUse": "Reserved", "Assigned": "Assigned"}.get(phase, "Unassigned")
        pool = {"name": self.pool, "resource": f"gpu.deckhouse.io/{self.pool}"}
        ready = condition("ReadyForPooling", "False" if phase == "Faulted" else "True", phase)
        occupied = condition("Occupied", str(busy), "InUse" if busy else "Free")
        return {
            "phase": phase,
            "state": state,
            "conditions": [ready, occupied],
            **({"poolRef": pool} if self.pool else {}),
        }


def name(node: str, index: int) -> str:
    return card_name.inventory_id(node, f"0000:{index + 16:02x}:00.0")


def condition(kind: str, status: str, reason: str, message: str = "") -> Raw:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def percent(holders: Mapping[str, int] | None = None, **changes: Any) -> Raw:
    return _shared({"mode": "Percent", "capacityPercent": 100}, holders, changes)


def exclusive(holder: str = "", **changes: Any) -> Raw:
    return _shared({"mode": "Exclusive"}, {holder: 100} if holder else None, changes)


def time_slices(slices: int, holders: Mapping[str, int] | None = None, **changes: Any) -> Raw:
    return _shared({"mode": "TimeSlice", "slices": slices}, holders, changes)


def mig(profile: str, size: int, holders: Sequence[str], **changes: Any) -> Raw:
    """Slots of one profile, one for each of `holders`; an empty text is a free slot."""
    slots = [
        {"id": f"{profile}-{place * size}", "profile": profile, "start": place * size, "size": size}
        | ({"holder": holder} if holder else {})
        for place, holder in enumerate(holders)
    ]
    return {"mode": "MIG", "slots": slots, **changes}


def _shared(entry: Raw, holders: Mapping[str, int] | None, changes: Mapping[str, Any]) -> Raw:
    return {**entry, **({"holders": dict(holders)} if holders else {}), **changes}


def pod(namespace: str, name: str, *, node: str = "", **changes: Any) -> Raw:
    """A pod that asks for a share of one card; without a node it waits."""
    asks = {f"gpu.mps.io/{key}": str(value) for key, value in changes.pop("asks", {"cards": 1}).items()}
    limits = changes.pop("limits", {"gpu.mps.io/ledger": "1"})
    place = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": name, "namespace": namespace, "annotations": asks},
        "spec": {
            "schedulerName": NO_SCHEDULER,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}],
            **place,
            **changes,
        },
    }


async def write_namespaces(api: Client, names: Iterable[str]) -> None:
    for namespace in names:
        await api.create(kinds.NAMESPACES.raw, {"metadata": {"name": namespace}})
        await api.create(ACCOUNTS, {"metadata": {"name": "default"}}, namespace=namespace)


async def write_node(api: Client, node: SimulatedNode, labels: dict[str, str] | None = None) -> None:
    body = nodes.manifest(node, datetime.now(UTC))
    body["metadata"]["labels"] |= labels or {}
    await api.create(kinds.NODES, body)


async def write_pod(api: Client, body: Raw) -> str:
    """Create the pod; returns its name as a holder."""
    created = await api.create(kinds.PODS, body)
    key = f"{created.metadata.namespace}/{created.metadata.name}/{created.metadata.uid}"
    if body["spec"].get("nodeName"):
        status = {"phase": "Running", "startTime": SINCE}
        await write_status(
            api, kinds.PODS, created.metadata.name, status, namespace=created.metadata.namespace
        )
    return key


async def write_device(api: Client, card: WrittenCard) -> None:
    body, status = card.device()
    await api.create(kinds.GPU_DEVICES, body)
    await write_status(api, kinds.GPU_DEVICES, card.name, status)


async def write_ledger(
    api: Client, node: str, cards: Sequence[WrittenCard], *, status: Raw | None = None, **maps: Any
) -> None:
    """The NodeReservation of a node. Cards without an entry are left out; `maps` are held, reservations."""
    entries = [card.ledger_entry() for card in cards if card.entry is not None]
    body = {"metadata": {"name": node}, "spec": {"cards": entries, **maps}}
    await api.create(kinds.NODE_RESERVATIONS.raw, body)
    if status:
        await write_status(api, kinds.NODE_RESERVATIONS, node, status)


async def write_inventory(
    api: Client, node: str, cards: Sequence[WrittenCard], *, conditions: Sequence[Raw] = (), **status: Any
) -> None:
    devices = [{"inventoryID": card.name, "index": card.index, "product": card.product} for card in cards]
    conditions = conditions or [
        condition("InventoryIncomplete", "False", "InventorySynced"),
        condition("ReadyForPooling", "True", "Ready"),
        condition("AgentSilent", "False", "Heard"),
    ]
    told = {
        "hw": {"present": bool(cards), "devices": devices},
        "bootstrap": {"phase": "Ready"},
        "conditions": list(conditions),
        **status,
    }
    await api.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": node}})
    await write_status(api, kinds.GPU_NODE_INVENTORIES, node, told)


async def write_pool(api: Client, body: Raw, status: Raw) -> None:
    await api.create(kinds.GPU_POOLS, body)
    await write_status(api, kinds.GPU_POOLS, body["metadata"]["name"], status)


async def write_status(
    api: Client, kind: Resource[Any], name: str, status: Raw, *, namespace: str | None = None
) -> None:
    await api.patch(kind, name, {"status": status}, subresource="status", namespace=namespace)


async def write_cards(api: Client, cards: Sequence[WrittenCard]) -> None:
    """The GPUDevices of these cards, and the ledger and the inventory of each of their nodes."""
    by_node: dict[str, list[WrittenCard]] = {}
    for card in cards:
        by_node.setdefault(card.node, []).append(card)
    names = list(by_node)
    await in_parallel(lambda number: write_device(api, cards[number]), range(len(cards)))
    await in_parallel(
        lambda number: write_ledger(api, names[number], by_node[names[number]]), range(len(names))
    )
    await in_parallel(
        lambda number: write_inventory(api, names[number], by_node[names[number]]), range(len(names))
    )


def allocation(entries: Sequence[Raw]) -> Mapping[str, str]:
    """The annotation of a bound pod with its cards."""
    return {"gpu.mps.io/allocation": msgspec.json.encode(entries).decode()}
