"""How the cards of a pool are shared, and whether a card has the matching layout.

Values are normalized: an allocation that is written differently but means the same compares equal, so it
starts no change.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from croupier.core.model import mig
from croupier.core.model.card import CardMode
from croupier.core.model.enforcement import Enforcement

PoolMode: TypeAlias = Literal["Exclusive", "MIG", "TimeSlice", "MPS"]


@dataclass(frozen=True, slots=True)
class Sharing:
    """`profile` or `layout` is set in mode MIG, `slices` in mode TimeSlice, `enforcement` in mode MPS.

    The layout is sorted.
    """

    mode: PoolMode
    profile: str = ""
    layout: tuple[tuple[str, int], ...] = ()
    slices: int = 0
    enforcement: Enforcement | None = None

    def __str__(self) -> str:
        if self.mode == "MIG":
            return f"MIG {self.profile or mig.layout_text(mig.canonical(self.layout))}"
        if self.enforcement in ("HAMiCore", "None"):
            return f"{self.mode} with enforcement {self.enforcement}"
        return f"TimeSlice with {self.slices} slices" if self.mode == "TimeSlice" else self.mode


def card_mode(mode: PoolMode) -> CardMode:
    """The mode of the cards of a pool in the ledger."""
    return "Percent" if mode == "MPS" else mode


@dataclass(frozen=True, slots=True)
class ReportedLayout:
    """The MIG layout of a card, as the agent of its node reports it."""

    state: str = "Applied"
    profiles: Mapping[str, int] = field(default_factory=dict)
    """The number of MIG devices by profile."""
    target: str = ""
    message: str = ""


def matches(cut: ReportedLayout | None, sharing: Sharing, fits: Mapping[str, int]) -> bool:
    """The layout matches the sharing, or is unknown. `fits` is the largest number of devices by profile."""
    if cut is None:
        return True
    return cut.state == "Applied" and is_partitioned_as(cut.profiles, sharing, fits)


def failed(cut: ReportedLayout | None, sharing: Sharing) -> bool:
    """The agent failed to apply exactly this sharing. A failure with another target does not count."""
    return cut is not None and cut.state == "Failed" and _is_target(cut.target, sharing)


def _is_target(text: str, sharing: Sharing) -> bool:
    if sharing.mode == "MIG" and sharing.profile:
        # The number depends on the card; for an unsupported profile the agent reports none.
        return text.partition(":")[0] == sharing.profile and "," not in text
    return text == mig.layout_text(mig.canonical(sharing.layout))


def is_partitioned_as(profiles: Mapping[str, int], sharing: Sharing, fits: Mapping[str, int]) -> bool:
    """The number of devices by profile matches; any number matches if it is unknown how many fit."""
    if sharing.mode != "MIG":
        return not profiles
    if sharing.layout:
        return Counter(profiles) == Counter(dict(sharing.layout))
    most = fits.get(sharing.profile) or None
    return set(profiles) == {sharing.profile} and most in (None, profiles[sharing.profile])
