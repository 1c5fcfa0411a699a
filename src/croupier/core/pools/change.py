"""What is known of a pool that may have to change how its cards are shared, and what is decided of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.core.pools import sharing
from croupier.core.pools.sharing import Cut, Sharing

WITHDRAWN: Final = "Withdrawn"
"""Nobody holds anything of the card, and the ledger gives it to nobody."""


@dataclass(frozen=True, slots=True)
class Member:
    """A card that serves the pool."""

    id: str
    follows: Sharing
    """How it is shared, or shall be: as its pool, or ahead of it."""
    ahead: bool = False
    """It has a word of its own (rollout PerCard)."""
    occupancy: str = ""
    """What the ledger says: Free, Withdrawn, Reserved, InUse; empty where nobody says."""
    cut: Cut | None = None
    fits: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    """New holders are kept off it because of our change."""
    out: bool = False
    """Faulted, or its node is silent: nothing can be expected of it, so nothing waits for it."""
    holdings: tuple[str, ...] = ()
    """Who holds what of it, in sentences."""

    def suits(self, wanted: Sharing) -> bool:
        return sharing.suits(self.cut, wanted, self.fits)

    def failed(self, wanted: Sharing) -> bool:
        return not self.out and sharing.failed(self.cut, wanted)


@dataclass(frozen=True, slots=True)
class Change:
    """What is being rebuilt; with `failed`, why it is taken back, until it is `over`."""

    before: Sharing
    after: Sharing
    failed: str = ""
    over: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    wanted: Sharing
    """spec.allocation."""
    carried: Sharing | None = None
    """status.allocation."""
    change: Change | None = None
    per_card: bool = False
    members: tuple[Member, ...] = ()
    leaving: bool = False
    closed: bool = False
    """It was in Maintenance already when last looked at, so that the ledger knows."""
    misconfigured: str = ""
    """The reason it was Misconfigured for when last looked at; empty if it was not."""
    confirmed: bool = False
    """A person says of this very generation: it is right as it is."""
    overdue: bool = False
    """The change takes longer than maintenance.deadline."""
    conflicts: tuple[str, ...] = ()
    """Cards that another pool claims too, in sentences."""
    elder: str = ""
    """An older pool with the same resource."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition: whether it holds, why in a word, why in a sentence."""

    holds: bool
    reason: str
    sentence: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What a card's own annotations must say: its sharing (None: as its pool), and whether it is drained."""

    card: str
    sharing: Sharing | None
    drained: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    sharing: Sharing
    """What is carried out from now on."""
    change: Change | None
    maintenance: Verdict
    configured: Verdict
    misconfigured: Verdict
    steps: tuple[Step, ...] = ()
    release: bool = False
    """Take the assignment from every card: the pool goes, and nobody holds any."""
