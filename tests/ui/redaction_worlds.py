"""Hypothesis strategies for clusters of several tenants, and for the rights of one of them.

Everything that belongs to a namespace contains its name, so a leak is a substring. Texts of GPUPools and
GPUDevices contain a marker, because they are readable with the right to list these kinds.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st

from croupier.api.core_v1 import Node, Pod
from croupier.api.gpu import GPUDevice, GPUPool
from croupier.api.gpu.device import DRAIN, GPUDeviceStatus, PoolReference
from croupier.api.gpu.pool import Access, GPUPoolSpec, GPUPoolStatus, PoolAllocation, PoolCandidate
from croupier.api.meta import Condition, ObjectMeta
from croupier.api.mps import Reservation
from croupier.api.mps.reservation import ReservationSpec
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.ui import rows
from croupier.ui.rights import ALL, Rights
from croupier.ui.tables import PARTS, Tables
from tests.core import ledger_builders

NAMESPACES = ("apple", "banana", "cherry")
POOLS = ("red", "blue")
POOL_TEXT = "text-of-a-gpupool"
DEVICE_TEXT = "text-of-a-gpudevice"
TIME = datetime(2026, 11, 18, tzinfo=UTC)


@st.composite
def worlds(draw: st.DrawFn) -> ClusterSnapshot:
    names = [f"node-{number}" for number in range(1, 1 + draw(st.integers(1, 3)))]
    ledgers = {name: _tenants(draw(ledger_builders.nodes()), name, draw) for name in names}
    holders = sorted({holder for ledger in ledgers.values() for holder in ledger.holders()})
    return ClusterSnapshot(
        nodes={name: Node(metadata=ObjectMeta(name=name)) for name in names},
        ledgers=ledgers,
        findings={
            name: (LedgerFinding("Leak", f"{ledger.holders()} leak", holder=next(iter(ledger.holders()))),)
            for name, ledger in ledgers.items()
            if ledger.holders()
        },
        recorded=frozenset(names[:1]),
        reservations=tuple(_reservation(namespace, names[0]) for namespace in NAMESPACES),
        pools=tuple(_pool(name, draw) for name in POOLS),
        devices=tuple(_device(ledger.node, card) for ledger in ledgers.values() for card in ledger.cards),
        pods={"/".join(holder.split("/")[:2]): _pod(holder) for holder in holders},
    )


def _tenants(ledger: Ledger, node: str, draw: st.DrawFn) -> Ledger:
    """The node of the builder, with its holders spread over the namespaces."""
    owners = {holder: draw(st.sampled_from(NAMESPACES)) for holder in sorted(ledger.holders())}

    def rename(holder: str) -> str:
        owner, number = owners[holder], "-".join(holder.split("-")[-2:])
        return f"{owner}/{owner}-{node}-{number}/{owner}-uid-{number}"

    held = {rename(holder): draw(st.sampled_from([None, TIME])) for holder in owners if draw(st.booleans())}
    return Ledger(
        node,
        tuple(_renamed(card, node, rename) for card in ledger.cards),
        held,
        {holder: f"{holder.split('/')[0]}-reservation" for holder in held if draw(st.booleans())},
    )


def _renamed(card: LedgerCard, node: str, rename: Callable[[str], str]) -> LedgerCard:
    return replace(
        card,
        id=card.id.replace(ledger_builders.NODE, node),
        holders={rename(holder): share for holder, share in card.holders.items()},
        slots=tuple(
            replace(slot, holder=rename(slot.holder)) if slot.holder else slot for slot in card.slots
        ),
    )


def _reservation(namespace: str, node: str) -> Reservation:
    return Reservation(
        metadata=ObjectMeta(namespace=namespace, name=f"{namespace}-reservation"),
        spec=ReservationSpec(
            pod_key=f"{namespace}/{namespace}-pod", node_name=node, num_cards=1, percent_per_card=10
        ),
    )


def _pool(name: str, draw: st.DrawFn) -> GPUPool:
    admitted = tuple(draw(st.sets(st.sampled_from(NAMESPACES))))
    condition = Condition(
        type="Maintenance",
        status="True",
        reason="Draining",
        message=f"{POOL_TEXT}: waits for {admitted}",
        last_transition_time=TIME,
    )
    return GPUPool(
        metadata=ObjectMeta(name=name, annotations={"note": POOL_TEXT}),
        spec=GPUPoolSpec(
            allocation=PoolAllocation(mode="MPS"),
            access=Access(namespaces=admitted, dex_groups=(POOL_TEXT,) if draw(st.booleans()) else ()),
        ),
        status=GPUPoolStatus(
            conditions=(condition,), candidates=(PoolCandidate(inventory_id="c", reason=POOL_TEXT),)
        ),
    )


def _device(node: str, card: LedgerCard) -> GPUDevice:
    return GPUDevice(
        metadata=ObjectMeta(name=card.id, annotations={DRAIN: DEVICE_TEXT}),
        status=GPUDeviceStatus(
            node_name=node,
            inventory_id=card.id,
            state="Assigned" if card.pool else "Unassigned",
            pool_ref=PoolReference(name=card.pool) if card.pool else None,
        ),
    )


def _pod(holder: str) -> Pod:
    namespace, name, uid = holder.split("/")
    return Pod(metadata=ObjectMeta(namespace=namespace, name=name, uid=uid))


@st.composite
def rights(draw: st.DrawFn) -> Rights:
    return draw(
        st.one_of(
            st.just(ALL),
            st.builds(
                Rights,
                cards=st.booleans(),
                namespaces=st.one_of(st.none(), st.frozensets(st.sampled_from(NAMESPACES))),
                pools=st.one_of(st.none(), st.frozensets(st.sampled_from(POOLS))),
            ),
        )
    )


def filled(world: ClusterSnapshot) -> Tables:
    """The tables of the world."""
    tables = Tables("test")
    fill(tables, world)
    tables.flush(0)
    return tables


def fill(tables: Tables, world: ClusterSnapshot) -> None:
    """Put every row; rows of another world are deleted."""
    wanted = _rows(tables, world)
    for part in PARTS:
        for table, current in tables.rows(part).items():
            for key in [*current, *wanted.get(table, {})]:
                tables.put(table, key, wanted.get(table, {}).get(key))


def _rows(tables: Tables, world: ClusterSnapshot) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {
        "cluster": {
            "cluster": {"server": "https://api", "unreadable": {"Pod": "forbidden: apple/banana/cherry"}}
        },
        "pools": {pool.metadata.name: rows.pool(pool) for pool in world.pools},
        "reservations": {
            reservation.metadata.key: rows.reservation(reservation, None)
            for reservation in world.reservations
        },
        "findings": {name: rows.findings(listed) for name, listed in world.findings.items()},
        "waiting": {f"{name}/{name}-waits": {"sentence": f"{name} waits"} for name in NAMESPACES},
        "market": {name: rows.market(None, alive=True, last_seen=0) for name in world.nodes},
        "changes": {
            str(number): {"at": 0, "kind": "pod", "object": name, "namespace": name, "text": name}
            for number, name in enumerate(NAMESPACES)
        }
        | {
            "10": {"at": 0, "kind": "pool", "object": "red", "namespace": "", "text": POOL_TEXT},
            "11": {"at": 0, "kind": "card", "object": "card", "namespace": "", "text": DEVICE_TEXT},
        },
    }
    for name, ledger in world.ledgers.items():
        seen = rows.NodeObjects(
            name,
            world.nodes[name],
            devices=[device for device in world.devices if device.status.node_name == name],
            ledger=ledger,
            offers={card.id: POOLS for card in ledger.cards if not card.pool},
        )
        found.setdefault("nodes", {})[name] = rows.node(seen)
        found.setdefault("cards", {}).update(rows.cards(seen, partial(tables.number, name)))
        found.setdefault("holders", {}).update(
            {str(tables.number(name, key)): rows.holder(key, ledger) for key in ledger.holders()}
        )
    return found


def encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def leaks(text: str, rights: Rights) -> list[str]:
    """What occurs in the text although the viewer may not see it."""
    secrets = [name for name in NAMESPACES if not rights.sees_namespace(name)]
    secrets += [] if rights.whole_pools else [POOL_TEXT]
    secrets += [] if rights.all_cards else [DEVICE_TEXT]
    return [secret for secret in secrets if secret in text]
