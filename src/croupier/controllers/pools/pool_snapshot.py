"""The inputs of a pool decision: its cards, matches, bookings and the change in progress."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from croupier.api import meta
from croupier.api.core_v1 import ConfigMap
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_pool, pool_members
from croupier.api.gpu.pool import CONFIRMED, PoolAllocation
from croupier.api.wire import Wire
from croupier.controllers.pools.node_matches import NodeMatch
from croupier.core.model.card import LedgerCard
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.sharing import Sharing
from croupier.core.pools import access_subjects, maintenance, mig_support
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools.capacity import CountedCard
from croupier.core.pools.sharing_change import PoolFacts, SharingChange

CHANGE: Final = "change"
"""The key of the pool's ConfigMap that stores the change in progress."""


@dataclass(frozen=True, slots=True)
class PoolCardView:
    """A card of the pool, with the inventory of its node and its entry in the ledger."""

    device: GPUDevice
    inventory: GPUNodeInventory | None = None
    card: LedgerCard | None = None

    @property
    def id(self) -> str:
        return self.device.card_id

    @property
    def node(self) -> str:
        return self.device.status.node_name or ""

    @property
    def trouble(self) -> str:
        """Why the card is unavailable; empty if it is available."""
        return pool_members.trouble(self.device, self.inventory)


@dataclass(frozen=True, slots=True)
class PoolSnapshot:
    pool: GPUPool
    cards: tuple[PoolCardView, ...] = ()
    claims: Mapping[str, NodeMatch] | None = None
    config: ConfigMap | None = None
    booked: int = 0
    older_duplicate: str = ""
    access: DesiredCondition = access_subjects.RESOLVED

    @property
    def name(self) -> str:
        return self.pool.metadata.name

    @property
    def closed(self) -> bool:
        return any(
            meta.is_true(self.pool.status.conditions, kind) for kind in ("Maintenance", "Misconfigured")
        )


class StoredChange(Wire, frozen=True, kw_only=True):
    """A change in progress, as stored in the ConfigMap."""

    before: PoolAllocation
    after: PoolAllocation
    failed: str = ""
    over: bool = False


def facts(snapshot: PoolSnapshot, now: datetime, deadline: timedelta) -> PoolFacts:
    pool, status = snapshot.pool, snapshot.pool.status
    misconfigured = meta.condition(status.conditions, "Misconfigured")
    claims = (snapshot.claims or {}).values()
    wanted = convert_pool.sharing(pool.spec.allocation)
    carried = convert_pool.sharing(status.allocation) if status.allocation is not None else None
    return PoolFacts(
        wanted=wanted,
        applied=carried,
        change=_change(snapshot),
        per_card=pool.spec.allocation.rollout == "PerCard",
        members=tuple(
            pool_members.member(
                snapshot.name, seen.device, carried or wanted, inventory=seen.inventory, held=seen.card
            )
            for seen in snapshot.cards
        ),
        deleting=pool.metadata.deletion_timestamp is not None,
        closed=meta.is_true(status.conditions, "Maintenance"),
        misconfigured=misconfigured.reason if misconfigured and misconfigured.status == "True" else "",
        confirmed=confirmed(pool),
        overdue=(begun := change_started(pool)) is not None and now - begun >= deadline,
        conflicts=tuple(sentence for claim in claims for sentence in claim.conflicts),
        older_duplicate=snapshot.older_duplicate,
        impossible=mig_support.impossible(mig_support.together(claim.selected for claim in claims)),
    )


def change_started(pool: GPUPool) -> datetime | None:
    """When the change in progress began, from the conditions."""
    closed = meta.condition(pool.status.conditions, "Maintenance")
    if closed is not None and closed.status == "True":
        return closed.last_transition_time
    behind = meta.condition(pool.status.conditions, "Configured")
    rolls = behind is not None and behind.reason in (maintenance.ROLLING_OUT, maintenance.STUCK)
    return behind.last_transition_time if behind is not None and rolls else None


def confirmed(pool: GPUPool) -> bool:
    return pool.metadata.annotations.get(CONFIRMED) == str(pool.metadata.generation)


def _change(snapshot: PoolSnapshot) -> SharingChange | None:
    """The stored change; the ConfigMap of a deleted pool with the same name is ignored."""
    config = snapshot.config
    if config is None:
        return None
    if snapshot.pool.metadata.uid not in {owner.uid for owner in config.metadata.owner_references}:
        return None
    try:
        stored = msgspec.json.decode(config.data[CHANGE], type=StoredChange)
    except (KeyError, msgspec.MsgspecError):
        return None
    return SharingChange(
        convert_pool.sharing(stored.before), convert_pool.sharing(stored.after), stored.failed, stored.over
    )


def encode_change(change: SharingChange, like: PoolAllocation) -> str:
    wire = StoredChange(
        before=convert_pool.allocation_for(change.before, like),
        after=convert_pool.allocation_for(change.after, like),
        failed=change.failed,
        over=change.over,
    )
    return msgspec.json.encode(wire).decode()


def possible_cards(snapshot: PoolSnapshot, sharings: Collection[Sharing]) -> Iterator[tuple[str, int]]:
    """The node and the most units of every card of the pool and of every candidate, available or not."""
    for seen in snapshot.cards:
        fits = convert_pool.mig_capacity(seen.device)
        yield seen.node, max(pool_capacity.card_units(sharing, fits) for sharing in sharings)
    for node, claim in (snapshot.claims or {}).items():
        for _ in claim.candidates:
            yield node, max(pool_capacity.card_units(sharing, {}) for sharing in sharings)


def counted_cards(snapshot: PoolSnapshot) -> Sequence[CountedCard]:
    """The cards to count; in a closed pool also the cards that only wait for it to open."""
    return tuple(line for seen in snapshot.cards if (line := _counted_card(snapshot, seen)) is not None)


def _counted_card(snapshot: PoolSnapshot, seen: PoolCardView) -> CountedCard | None:
    return pool_members.counted(
        snapshot.name, seen.device, inventory=seen.inventory, held=seen.card, closed=snapshot.closed
    )
