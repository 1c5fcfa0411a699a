"""The inputs of a pool decision: its cards, matches, bookings and the change in progress."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from croupier.api.core_v1 import ConfigMap
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, pooling, report
from croupier.api.gpu.device import DRAIN, IGNORE, OCCUPIED, VANISHED
from croupier.api.gpu.node import AGENT_SILENT
from croupier.api.gpu.pool import CONFIRMED, Allocation
from croupier.api.wire import Wire
from croupier.controllers.pools.claims import Claim
from croupier.core.ledgers.ledger import Card
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools import maintenance
from croupier.core.pools.capacity import Line
from croupier.core.pools.change import Change, Facts, Member
from croupier.core.pools.sharing import Sharing

CHANGE: Final = "change"
"""The key of the pool's ConfigMap that stores the change in progress."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A card of the pool, with the inventory of its node and its entry in the ledger."""

    device: GPUDevice
    inventory: GPUNodeInventory | None = None
    card: Card | None = None

    @property
    def id(self) -> str:
        return self.device.status.inventory_id or self.device.metadata.name

    @property
    def node(self) -> str:
        return self.device.status.node_name or ""

    @property
    def trouble(self) -> str:
        """Why the card is unavailable; empty if it is available."""
        status = self.device.status
        if self.inventory is not None and report.holds(self.inventory.status.conditions, AGENT_SILENT):
            return "the agent of its node is silent"
        if report.holds(status.conditions, VANISHED):
            return "it is gone from its node"
        if status.state == "Faulted":
            health = status.health
            return health.last_error if health is not None and health.last_error else "it is faulted"
        if self.device.metadata.labels.get(IGNORE) == "true" or status.managed is False:
            return "it is ignored"
        return ""


@dataclass(frozen=True, slots=True)
class Look:
    pool: GPUPool
    cards: tuple[Seen, ...] = ()
    claims: Mapping[str, Claim] | None = None
    config: ConfigMap | None = None
    booked: int = 0
    elder: str = ""

    @property
    def name(self) -> str:
        return self.pool.metadata.name

    @property
    def closed(self) -> bool:
        return any(
            report.holds(self.pool.status.conditions, kind) for kind in ("Maintenance", "Misconfigured")
        )


class Remembered(Wire, frozen=True, kw_only=True):
    """A change in progress, as stored in the ConfigMap."""

    before: Allocation
    after: Allocation
    failed: str = ""
    over: bool = False


def facts(snapshot: Look, now: datetime, deadline: timedelta) -> Facts:
    pool, status = snapshot.pool, snapshot.pool.status
    misconfigured = pooling.condition(status.conditions, "Misconfigured")
    claims = (snapshot.claims or {}).values()
    wanted = pooling.sharing(pool.spec.allocation)
    carried = pooling.sharing(status.allocation) if status.allocation is not None else None
    return Facts(
        wanted=wanted,
        carried=carried,
        change=_change(snapshot),
        per_card=pool.spec.allocation.rollout == "PerCard",
        members=tuple(_member(snapshot.name, card, carried or wanted) for card in snapshot.cards),
        leaving=pool.metadata.deletion_timestamp is not None,
        closed=report.holds(status.conditions, "Maintenance"),
        misconfigured=misconfigured.reason if misconfigured and misconfigured.status == "True" else "",
        confirmed=confirmed(pool),
        overdue=(begun := since(pool)) is not None and now - begun >= deadline,
        conflicts=tuple(sentence for claim in claims for sentence in claim.conflicts),
        elder=snapshot.elder,
    )


def since(pool: GPUPool) -> datetime | None:
    """When the change in progress began, from the conditions."""
    closed = pooling.condition(pool.status.conditions, "Maintenance")
    if closed is not None and closed.status == "True":
        return closed.last_transition_time
    behind = pooling.condition(pool.status.conditions, "Configured")
    rolls = behind is not None and behind.reason in (maintenance.ROLLING_OUT, maintenance.STUCK)
    return behind.last_transition_time if behind is not None and rolls else None


def confirmed(pool: GPUPool) -> bool:
    return pool.metadata.annotations.get(CONFIRMED) == str(pool.metadata.generation)


def _change(snapshot: Look) -> Change | None:
    """The stored change; the ConfigMap of a deleted pool with the same name is ignored."""
    config = snapshot.config
    if config is None:
        return None
    if snapshot.pool.metadata.uid not in {owner.uid for owner in config.metadata.owner_references}:
        return None
    try:
        stored = msgspec.json.decode(config.data[CHANGE], type=Remembered)
    except (KeyError, msgspec.MsgspecError):
        return None
    return Change(pooling.sharing(stored.before), pooling.sharing(stored.after), stored.failed, stored.over)


def remembered(change: Change, like: Allocation) -> str:
    wire = Remembered(
        before=pooling.allocated(change.before, like),
        after=pooling.allocated(change.after, like),
        failed=change.failed,
        over=change.over,
    )
    return msgspec.json.encode(wire).decode()


def drain(pool: str) -> str:
    """The value of the drain annotation during a change of the pool; other values are from users and stay."""
    return f"pool {pool} changes how it is shared"


def _member(pool: str, seen: Seen, shared: Sharing) -> Member:
    device, own = seen.device, pooling.own(seen.device)
    occupied = pooling.condition(device.status.conditions, OCCUPIED)
    return Member(
        id=seen.id,
        follows=pooling.sharing(own) if own is not None else shared,
        ahead=pooling.CARD_ALLOCATION in device.metadata.annotations,
        occupancy=occupied.reason if occupied is not None else "",
        cut=pooling.cut(device),
        fits=pooling.fits(device),
        drained=device.metadata.annotations.get(DRAIN) == drain(pool),
        out=bool(seen.trouble),
        holdings=tuple(pool_capacity.holdings(seen.card)) if seen.card is not None else (),
    )


def lines(snapshot: Look) -> Sequence[Line]:
    """The cards to count; in a closed pool also the cards that only wait for it to open."""
    return tuple(line for seen in snapshot.cards if (line := _line(snapshot, seen)) is not None)


def _line(snapshot: Look, seen: Seen) -> Line | None:
    if seen.card is None or seen.card.pool != snapshot.name:
        return None
    held_back = seen.trouble or report.withheld(seen.device)
    return Line(seen.card, serves=not held_back and (seen.card.healthy or snapshot.closed))
