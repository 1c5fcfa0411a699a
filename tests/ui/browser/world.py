"""A small cluster that has every state which the page draws: modes, faults, unknown cards, waiting pods."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from bench import card_objects
from bench.card_objects import Raw, WrittenCard, condition, exclusive, mig, percent, time_slices
from croupier.api import kinds, market_report
from croupier.api.market_report import MarketPodLine, MarketReport, SupplyLine
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.kube.client.api_client import Client
from croupier_lab import nodes
from croupier_lab.nodes import SimulatedNode
from tests.ui.untainted import untaint_nodes

NAMESPACES: Final = ("team-a", "team-b", "team-c")
FLEET: Final = {
    "gpu-a-1": ("zone-a", "H100:8"),
    "gpu-a-2": ("zone-a", "H100:8"),
    "gpu-b-1": ("zone-b", "H100:4"),
    "gpu-b-2": ("zone-b", "A100-80GB:4"),
    "gpu-c-1": ("zone-c", "T4:4"),
    "gpu-c-2": ("zone-c", "H100:4"),
}
SILENT: Final = "gpu-c-1"
PARTLY_UNKNOWN: Final = "gpu-c-2"
"""The ledger of this node lacks its last two cards."""
UNKNOWN_CARDS: Final = tuple(card_objects.name(PARTLY_UNKNOWN, index) for index in (2, 3))
DRAINED: Final = card_objects.name("gpu-a-1", 7)
OFFERED: Final = tuple(card_objects.name("gpu-a-2", index) for index in (6, 7))
"""These cards match pool shared and wait for approval."""
FAULTED: Final = card_objects.name("gpu-b-2", 3)
BIG: Final = "team-a/big"
"""A pod that asks for more cards than a node has."""
RESERVED: Final = "team-a/next-week"
DRAIN_REASON: Final = "fan <b>rattles</b>, ticket 4711"
"""A reason with markup: the page must show it as text."""


async def write_namespaces(api: Client) -> None:
    """What also an empty cluster has."""
    await card_objects.write_namespaces(api, (*NAMESPACES, DEFAULT_NAMESPACE))


async def write(api: Client) -> None:
    """Write everything but the namespaces."""
    holders = await _pods(api)
    cards = _cards(holders)
    for node, (zone, models) in FLEET.items():
        await card_objects.write_node(api, SimulatedNode(node, zone, nodes.parse_cards(models)))
    await untaint_nodes(api)
    for card in cards:
        await card_objects.write_device(api, card)
    for node in FLEET:
        await _write_node(api, node, [card for card in cards if card.node == node], holders)
    for body, status in _pools():
        await card_objects.write_pool(api, body, status)
    await _waiting(api)
    await _reservations(api)
    await _market(api)


async def _pods(api: Client) -> dict[str, str]:
    """Bound pods; name to holder."""
    places = {
        "team-a/trainer": "gpu-a-1",
        "team-a/notebook": "gpu-a-1",
        "team-b/etl": "gpu-a-1",
        "team-b/serve": "gpu-a-2",
        "team-b/small-1": "gpu-b-1",
        "team-a/small-2": "gpu-b-1",
        "team-b/medium": "gpu-b-1",
        "team-c/whole": "gpu-b-2",
        "team-a/slice": "gpu-c-1",
    }
    made = {}
    for key, node in places.items():
        namespace, _, name = key.partition("/")
        made[key] = await card_objects.write_pod(api, card_objects.pod(namespace, name, node=node))
    return made


def _cards(holders: dict[str, str]) -> list[WrittenCard]:
    trainer, notebook, etl = holders["team-a/trainer"], holders["team-a/notebook"], holders["team-b/etl"]
    drain = {"gpu.deckhouse.io/drain": DRAIN_REASON}
    a_1 = [
        WrittenCard("gpu-a-1", 0, percent({trainer: 100}), "shared"),
        WrittenCard("gpu-a-1", 1, percent({trainer: 100}), "shared"),
        WrittenCard("gpu-a-1", 2, percent({notebook: 25, etl: 50}), "shared"),
        WrittenCard("gpu-a-1", 3, percent({etl: 10}), "shared"),
        *(WrittenCard("gpu-a-1", index, percent(), "shared") for index in (4, 5, 6)),
        WrittenCard("gpu-a-1", 7, percent({notebook: 40}, healthy=False), "shared", annotations=drain),
    ]
    reserved = {RESERVED: 50}
    a_2 = [
        WrittenCard("gpu-a-2", 0, percent({holders["team-b/serve"]: 60}), "shared"),
        WrittenCard("gpu-a-2", 1, percent(reserved), "shared"),
        *(WrittenCard("gpu-a-2", index, percent(), "shared") for index in (2, 3, 4, 5)),
        *(WrittenCard("gpu-a-2", index, percent(), phase="PendingAssignment") for index in (6, 7)),
    ]
    small = [holders["team-b/small-1"], holders["team-a/small-2"], *[""] * 5]
    b_1 = [
        WrittenCard("gpu-b-1", 0, mig("1g.10gb", 1, small), "inference"),
        WrittenCard("gpu-b-1", 1, mig("2g.20gb", 2, [holders["team-b/medium"], "", ""]), "inference"),
        WrittenCard("gpu-b-1", 2, mig("3g.40gb", 4, ["", ""]), "inference"),
        WrittenCard("gpu-b-1", 3, mig("1g.10gb", 1, [""] * 7), "inference"),
    ]
    a100 = "NVIDIA-A100-SXM4-80GB"
    b_2 = [
        WrittenCard("gpu-b-2", 0, exclusive(holders["team-c/whole"]), "training", a100),
        *(WrittenCard("gpu-b-2", index, exclusive(), "training", a100) for index in (1, 2)),
        WrittenCard("gpu-b-2", 3, exclusive(healthy=False), "training", a100, "Faulted", status=_fault()),
    ]
    slices = [{holders["team-a/slice"]: 2}, {}, {}, {}]
    c_1 = [
        WrittenCard(SILENT, index, time_slices(8, share), "notebooks", "Tesla-T4")
        for index, share in enumerate(slices)
    ]
    c_2 = [WrittenCard(PARTLY_UNKNOWN, index, percent() if index < 2 else None) for index in range(4)]
    return [*a_1, *a_2, *b_1, *b_2, *c_1, *c_2]


def _fault() -> Raw:
    sentence = "XID 79: the card has fallen off the bus"
    return {
        "health": {"xid": 79, "lastError": sentence, "lastErrorReason": "XIDError", "temperatureC": 84},
        "conditions": [condition("Faulted", "True", "XIDError", sentence)],
    }


async def _write_node(api: Client, node: str, cards: Sequence[WrittenCard], holders: dict[str, str]) -> None:
    conditions = [
        condition("InventoryIncomplete", "False", "InventorySynced"),
        condition("ReadyForPooling", "True", "Ready"),
        condition("AgentSilent", str(node == SILENT), "NoHeartbeat" if node == SILENT else "Heard"),
    ]
    await card_objects.write_inventory(api, node, cards, conditions=conditions)
    maps: dict[str, Any] = {}
    if node == "gpu-a-2":
        maps = {"held": {RESERVED: "never"}, "reservations": {RESERVED: "next-week"}}
    status: Raw = {"cards": len(cards)}
    if node == "gpu-b-2":
        leak = {
            "class": "Leak",
            "message": "holder team-c/whole holds card 0, and its pod does not use it",
            "card": cards[0].name,
            "holder": holders["team-c/whole"],
            "since": card_objects.SINCE,
        }
        status |= {"findings": [leak]}
    await card_objects.write_ledger(api, node, cards, status=status, **maps)


def _pools() -> list[tuple[Raw, Raw]]:
    only = {"namespaces": ["team-b"]}
    serving = [condition("Available", "True", "Serving"), condition("Configured", "True", "Configured")]
    draining = condition("Maintenance", "True", "Draining", "waits for the holders of 2 of 4 cards")
    waiting = condition(
        "Maintenance", "True", "AwaitingConfirmation", "confirm generation 1 to change sharing"
    )
    return [
        _pool("shared", {"mode": "MPS"}, (1400, 360, 50), serving, ("gpu-a-1", "gpu-a-2")),
        _pool(
            "inference",
            {"mode": "MIG", "migProfile": "1g.10gb"},
            (19, 3, 0),
            [*serving, draining],
            ("gpu-b-1",),
            access=only,
        ),
        _pool("training", {"mode": "Exclusive"}, (3, 1, 0), [*serving, waiting], ("gpu-b-2",)),
        _pool(
            "notebooks",
            {"mode": "TimeSlice", "timeSlice": {"maxSlicesPerDevice": 8}},
            (0, 2, 0),
            [condition("Available", "False", "AgentSilent", "the agent of node gpu-c-1 is silent")],
            ("gpu-c-1",),
        ),
    ]


def _pool(
    name: str,
    allocation: Raw,
    amounts: tuple[int, int, int],
    conditions: list[Raw],
    members: tuple[str, ...],
    **spec: Any,
) -> tuple[Raw, Raw]:
    total, used, booked = amounts
    units = {"MPS": "Percent", "MIG": "MIG", "Exclusive": "Card", "TimeSlice": "TimeSlice"}
    cards = [card for node in members for card in range(int(FLEET[node][1].partition(":")[2]))]
    values = {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(members)}]
    }
    status = {
        "allocation": allocation,
        "capacity": {
            "total": total,
            "used": used,
            "booked": booked,
            "available": max(0, total - used - booked),
            "unit": units[allocation["mode"]],
        },
        "devices": [
            {"inventoryID": card_objects.name(node, index), "node": node, "state": "Assigned"}
            for node in members
            for index in range(int(FLEET[node][1].partition(":")[2]))
            if card_objects.name(node, index) not in OFFERED
        ],
        "nodes": [
            {"name": node, "totalDevices": len(cards) // len(members), "assignedDevices": len(cards)}
            for node in members
        ],
        "conditions": conditions,
    }
    return {
        "metadata": {"name": name},
        "spec": {"allocation": allocation, "nodeSelector": values, **spec},
    }, status


async def _waiting(api: Client) -> None:
    for key, (cards, ratio) in {
        BIG: (9, 100),
        "team-a/half": (1, 50),
        "team-b/pair": (2, 100),
        "team-c/many": (16, 80),
    }.items():
        namespace, _, name = key.partition("/")
        limits = {"gpu.deckhouse.io/shared": str(cards * ratio), "gpu.mps.io/ledger": "1"}
        body = card_objects.pod(namespace, name, limits=limits, asks={"cards": cards, "ratio": ratio})
        await card_objects.write_pod(api, body)
    slots = {"gpu.deckhouse.io/training": "4", "gpu.mps.io/ledger": "1"}
    await card_objects.write_pod(api, card_objects.pod("team-b", "four", limits=slots, asks={}))


async def _reservations(api: Client) -> None:
    namespace, _, name = RESERVED.partition("/")
    held = card_objects.name("gpu-a-2", 1)
    spec = {"podKey": RESERVED, "nodeName": "gpu-a-2", "numCards": 1, "percentPerCard": 50, "owner": "ada"}
    status: Raw = {"phase": "Reserved", "cards": [{"id": held, "percent": 50}]}
    await reservation(api, namespace, name, spec=spec, status=status)
    spec = {"podKey": "team-b/later", "nodeName": "gpu-b-2", "numCards": 4, "percentPerCard": 100}
    status = {"phase": "Failed", "message": "node gpu-b-2 has 2 free cards of the 4 that are requested"}
    await reservation(api, "team-b", "later", spec=spec, status=status)


async def reservation(api: Client, namespace: str, name: str, *, spec: Raw, status: Raw) -> None:
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    await api.create(kinds.RESERVATIONS.raw, body)
    await card_objects.write_status(api, kinds.RESERVATIONS, name, status, namespace=namespace)


async def _market(api: Client) -> None:
    for node, dry_run in {"gpu-a-1": False, "gpu-b-1": True}.items():
        report = MarketReport(
            node=node,
            capacity="64",
            at=datetime.now(UTC),
            dry_run=dry_run,
            factor=1.4,
            outside="3500m",
            books=(
                SupplyLine(name="latency", supply="40", given="31500m", left="8500m", price=0.7),
                SupplyLine(name="batch", supply="20", given="20", short="4", price=2.5),
            ),
            pods=(
                MarketPodLine(pod="team-a/trainer", book="batch", limit="8", target="10", usage="7900m"),
                MarketPodLine(pod="team-b/etl", book="latency", limit="2", target="2", usage="400m"),
            ),
        )
        label = market_report.DRY_RUN if dry_run else market_report.ACTIVE
        moment = (datetime.now(UTC) + timedelta(seconds=600)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        body = market_report.LEASE.body(
            node,
            DEFAULT_NAMESPACE,
            market_report.encode(report),
            labels={market_report.AGENT_LABEL: label},
            seconds=3600,
            moment=moment,
        )
        await api.create(kinds.LEASES.raw, body, namespace=DEFAULT_NAMESPACE)
