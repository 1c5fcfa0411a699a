"""A pool with everything that is decided about it: its cards, what they give, and the change under way."""

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
"""The key of the pool's ConfigMap in which the change under way is remembered."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A card that serves the pool, with its node and what the ledger has of it."""

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
        """Why nothing can be expected of the card; empty if something can."""
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
    """A change under way, as it stands in the ConfigMap."""

    before: Allocation
    after: Allocation
    failed: str = ""
    over: bool = False


def facts(look: Look, now: datetime, deadline: timedelta) -> Facts:
    pool, status = look.pool, look.pool.status
    misconfigured = pooling.condition(status.conditions, "Misconfigured")
    claims = (look.claims or {}).values()
    wanted = pooling.sharing(pool.spec.allocation)
    carried = pooling.sharing(status.allocation) if status.allocation is not None else None
    return Facts(
        wanted=wanted,
        carried=carried,
        change=_change(look),
        per_card=pool.spec.allocation.rollout == "PerCard",
        members=tuple(_member(look.name, one, carried or wanted) for one in look.cards),
        leaving=pool.metadata.deletion_timestamp is not None,
        closed=report.holds(status.conditions, "Maintenance"),
        misconfigured=misconfigured.reason if misconfigured and misconfigured.status == "True" else "",
        confirmed=confirmed(pool),
        overdue=(begun := since(pool)) is not None and now - begun >= deadline,
        conflicts=tuple(sentence for claim in claims for sentence in claim.conflicts),
        elder=look.elder,
    )


def since(pool: GPUPool) -> datetime | None:
    """When the change under way began, as far as the conditions tell."""
    closed = pooling.condition(pool.status.conditions, "Maintenance")
    if closed is not None and closed.status == "True":
        return closed.last_transition_time
    behind = pooling.condition(pool.status.conditions, "Configured")
    rolls = behind is not None and behind.reason in (maintenance.ROLLING_OUT, maintenance.STUCK)
    return behind.last_transition_time if behind is not None and rolls else None


def confirmed(pool: GPUPool) -> bool:
    return pool.metadata.annotations.get(CONFIRMED) == str(pool.metadata.generation)


def _change(look: Look) -> Change | None:
    """What another pool of the same name left behind says nothing of this one."""
    config = look.config
    if config is None or look.pool.metadata.uid not in {one.uid for one in config.metadata.owner_references}:
        return None
    try:
        found = msgspec.json.decode(config.data[CHANGE], type=Remembered)
    except (KeyError, msgspec.MsgspecError):
        return None
    return Change(pooling.sharing(found.before), pooling.sharing(found.after), found.failed, found.over)


def remembered(change: Change, like: Allocation) -> str:
    wire = Remembered(
        before=pooling.allocated(change.before, like),
        after=pooling.allocated(change.after, like),
        failed=change.failed,
        over=change.over,
    )
    return msgspec.json.encode(wire).decode()


def drain(pool: str) -> str:
    """The drain of a card that changes with its pool; a person's says something else and stays."""
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


def lines(look: Look) -> Sequence[Line]:
    """Of a pool that is closed, every card counts that only waits for it to open."""
    return tuple(line for seen in look.cards if (line := _line(look, seen)) is not None)


def _line(look: Look, seen: Seen) -> Line | None:
    if seen.card is None or seen.card.pool != look.name:
        return None
    held_back = seen.trouble or report.withheld(seen.device)
    return Line(seen.card, serves=not held_back and (seen.card.healthy or look.closed))
