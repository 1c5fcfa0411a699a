"""A snapshot of the cluster as a viewer may see it, from which questions are answered.

Names of other namespaces are replaced, amounts are kept: placement decides the same on the cut snapshot, so
an explanation stays right for a tenant and names only what is theirs. Nodes keep their names, because an
explanation is about nodes.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Final

from msgspec import structs

from croupier.api.core_v1 import Node
from croupier.api.gpu import GPUDevice, GPUPool
from croupier.api.gpu.device import INDEX_LABEL, GPUDeviceStatus, Hardware
from croupier.api.gpu.pool import CONFIRMED, Access, GPUPoolStatus
from croupier.api.meta import ObjectMeta
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.ui.rights import Rights

HIDDEN: Final = "hidden"
"""In place of a name. Hidden holders are `hidden/_1` and so on, which no pod can be called."""


def snapshot(seen: ClusterSnapshot, rights: Rights) -> ClusterSnapshot:
    """Hidden holders are renamed; reservations, pods, pools and findings that are hidden are left out."""
    if rights.everything:
        return seen
    pools = _named_pools(seen, rights)
    aliases = _Aliases(rights, pools)
    return ClusterSnapshot(
        nodes={name: _cut_node(node) for name, node in seen.nodes.items()},
        ledgers={name: aliases.ledger(ledger) for name, ledger in seen.ledgers.items()},
        recorded=seen.recorded,
        reservations=tuple(
            reservation
            for reservation in seen.reservations
            if rights.sees_namespace(reservation.metadata.namespace)
        ),
        pools=tuple(
            pool if rights.whole_pools else _cut_pool(pool, rights)
            for pool in seen.pools
            if rights.sees_pool(pool.metadata.name)
        ),
        devices=seen.devices if rights.all_cards else tuple(_visible_devices(seen, rights)),
        pods={key: pod for key, pod in seen.pods.items() if rights.sees_namespace(pod.metadata.namespace)},
    )


def _named_pools(seen: ClusterSnapshot, rights: Rights) -> frozenset[str] | None:
    """Pools whose names may be shown: also those of cards that pods of visible namespaces hold."""
    if rights.all_cards or rights.pools is None:
        return None
    return rights.pools | {
        card.pool for ledger in seen.ledgers.values() for card in ledger.cards if _holds_own(card, rights)
    }


def _holders(card: LedgerCard) -> Iterator[str]:
    yield from card.holders
    yield from (slot.holder for slot in card.slots if slot.holder)


def _is_own(holder: str, rights: Rights) -> bool:
    return rights.sees_namespace(holder.partition("/")[0])


def _holds_own(card: LedgerCard, rights: Rights) -> bool:
    return any(_is_own(holder, rights) for holder in _holders(card))


class _Aliases:
    """Replaces names of one snapshot; the same name gets the same alias."""

    def __init__(self, rights: Rights, pools: frozenset[str] | None) -> None:
        self._rights = rights
        self._pools = pools
        self._names: dict[str, str] = {}
        self._numbers = count(1)

    def ledger(self, ledger: Ledger) -> Ledger:
        return replace(
            ledger,
            cards=tuple(self._card(card) for card in ledger.cards),
            held={self._holder(holder): until for holder, until in ledger.held.items()},
            reservations={
                self._holder(holder): name if _is_own(holder, self._rights) else HIDDEN
                for holder, name in ledger.reservations.items()
            },
        )

    def _card(self, card: LedgerCard) -> LedgerCard:
        return replace(
            card,
            pool=self._pool(card.pool),
            holders={self._holder(holder): share for holder, share in card.holders.items()},
            slots=tuple(
                replace(slot, holder=self._holder(slot.holder)) if slot.holder else slot
                for slot in card.slots
            ),
        )

    def _holder(self, holder: str) -> str:
        return self._alias(f"holder {holder}") if holder and not _is_own(holder, self._rights) else holder

    def _pool(self, pool: str) -> str:
        return pool if not pool or self._pools is None or pool in self._pools else self._alias(f"pool {pool}")

    def _alias(self, name: str) -> str:
        if name not in self._names:
            self._names[name] = f"{HIDDEN}/_{next(self._numbers)}"
        return self._names[name]


def _cut_node(node: Node) -> Node:
    """Without annotations, in which other programs keep what they like."""
    if not node.metadata.annotations:
        return node
    return structs.replace(node, metadata=structs.replace(node.metadata, annotations={}))


def _cut_pool(pool: GPUPool, rights: Rights) -> GPUPool:
    """How the pool is shared, its amounts and the types of its conditions."""
    meta, status = pool.metadata, pool.status
    annotations = {CONFIRMED: meta.annotations[CONFIRMED]} if CONFIRMED in meta.annotations else {}
    return GPUPool(
        metadata=ObjectMeta(
            name=meta.name,
            generation=meta.generation,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=meta.deletion_timestamp,
            annotations=annotations,
        ),
        spec=structs.replace(pool.spec, access=_cut_access(pool.spec.access, rights)),
        status=GPUPoolStatus(
            allocation=status.allocation,
            capacity=status.capacity,
            conditions=tuple(structs.replace(condition, message="") for condition in status.conditions),
        ),
    )


def _cut_access(access: Access, rights: Rights) -> Access:
    """The entries that admit the viewer's namespaces; an empty value would open the pool."""
    cut = Access(
        namespaces=tuple(filter(rights.sees_namespace, access.namespaces)),
        service_accounts=tuple(
            account for account in access.service_accounts if rights.sees_namespace(account.partition("/")[0])
        ),
    )
    return Access(dex_groups=(HIDDEN,)) if cut == Access() and access != Access() else cut


def _visible_devices(seen: ClusterSnapshot, rights: Rights) -> Iterator[GPUDevice]:
    cards: Mapping[str, LedgerCard] = {
        card.id: card for ledger in seen.ledgers.values() for card in ledger.cards
    }
    for device in seen.devices:
        card = cards.get(device.card_id)
        is_own = card is not None and _holds_own(card, rights)
        if is_own or (device.pool_name and rights.sees_pool(device.pool_name)):
            yield _cut_device(device)


def _cut_device(device: GPUDevice) -> GPUDevice:
    """What the row of a card tells: where it is, its model, its state and its pool."""
    meta, status = device.metadata, device.status
    hardware = status.hardware
    labels = {INDEX_LABEL: meta.labels[INDEX_LABEL]} if INDEX_LABEL in meta.labels else {}
    return GPUDevice(
        metadata=ObjectMeta(name=meta.name, labels=labels),
        status=GPUDeviceStatus(
            node_name=status.node_name,
            inventory_id=status.inventory_id,
            managed=status.managed,
            state=status.state,
            phase=status.phase,
            pool_ref=status.pool_ref,
            hardware=Hardware(product=hardware.product, mig=hardware.mig) if hardware is not None else None,
        ),
    )
