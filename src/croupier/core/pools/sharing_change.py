"""Inputs and results of the decision how a pool changes the sharing of its cards."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.core.model import enforcement, sharing
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.sharing import ReportedLayout, Sharing

MAINTENANCE: Final = "Maintenance"
CONFIGURED: Final = "Configured"
MISCONFIGURED: Final = "Misconfigured"
WITHDRAWN: Final = "Withdrawn"
"""The occupancy of a card of which no pod holds a part and the ledger allocates nothing."""

_DRAIN: Final = ("pool ", " changes how it is shared")


@dataclass(frozen=True, slots=True)
class PoolMember:
    """A card of the pool."""

    id: str
    desired_sharing: Sharing
    """The desired sharing of the card: that of its pool, or its own during a rollout."""
    has_own_sharing: bool = False
    """The card has its own sharing annotation (rollout PerCard)."""
    occupancy: str = ""
    """The occupancy by the ledger: Free, Withdrawn, Reserved or InUse; empty if unknown."""
    cut: ReportedLayout | None = None
    fits: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    """The card is drained because of a change of the pool."""
    unavailable: bool = False
    """The card is faulted or its node is silent, so no change waits for it."""
    holdings: tuple[str, ...] = ()
    """The holders of the card, as sentences."""

    def matches(self, wanted: Sharing) -> bool:
        return sharing.matches(self.cut, wanted, self.fits)

    def failed(self, wanted: Sharing) -> bool:
        return not self.unavailable and sharing.failed(self.cut, wanted)


@dataclass(frozen=True, slots=True)
class SharingChange:
    """A change in progress. `failed` is why it is rolled back; `over` once the rollback is done."""

    before: Sharing
    after: Sharing
    failed: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class PoolFacts:
    wanted: Sharing
    """spec.allocation."""
    applied: Sharing | None = None
    """status.allocation."""
    change: SharingChange | None = None
    per_card: bool = False
    members: tuple[PoolMember, ...] = ()
    deleting: bool = False
    closed: bool = False
    """The pool was already in Maintenance at the last reconcile, so the ledger knows."""
    misconfigured: str = ""
    """The reason of the condition Misconfigured at the last reconcile; empty if it was False."""
    confirmed: bool = False
    """A user confirmed this generation of the pool."""
    overdue: bool = False
    """The change takes longer than maintenance.deadline."""
    conflicts: tuple[str, ...] = ()
    """Cards that another pool claims too, as sentences."""
    older_duplicate: str = ""
    """An older pool with the same resource."""
    impossible: str = ""
    """Why no card that the pool selects can be shared as wanted; empty if one can."""


@dataclass(frozen=True, slots=True)
class MemberStep:
    """New annotations of a card: its sharing (None for that of its pool), and whether it is drained."""

    card: str
    sharing: Sharing | None
    drained: bool


@dataclass(frozen=True, slots=True)
class PoolDecision:
    sharing: Sharing
    """The sharing that the pool applies from now on."""
    change: SharingChange | None
    maintenance: DesiredCondition
    configured: DesiredCondition
    misconfigured: DesiredCondition
    steps: tuple[MemberStep, ...] = ()
    release: bool = False
    """Unassign every card: the pool is being deleted and no pod holds a part of its cards."""


def drain_reason(pool: str) -> str:
    """The value of the drain annotation during a change of the pool; other values are from users and stay."""
    return pool.join(_DRAIN)


def is_drain_reason(text: str) -> bool:
    """Whether a pool drained the card for a change, and lifts the drain itself."""
    start, end = _DRAIN
    return text.startswith(start) and text.endswith(end) and len(text) > len(start) + len(end)


def unenforced(applied: Sharing) -> str:
    """Why nothing keeps pods within their shares, in the words of the cards. Empty if something does."""
    if applied.mode == "TimeSlice":
        return enforcement.TIME_SLICES.message
    return enforcement.NOT_ENFORCED.message if applied.enforcement == "None" else ""
