"""How the cards of a pool are shared, and whether a card is cut for it.

Two ways of writing the same are equal here, so that rewriting an allocation without changing it
drains nobody.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Mode: TypeAlias = Literal["Exclusive", "MIG", "TimeSlice", "MPS"]

WHOLE: Final = "whole"
"""The target of a card that shall not be cut."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """`profile` or `layout` in mode MIG, `slices` in TimeSlice; the layout is sorted."""

    mode: Mode
    profile: str = ""
    layout: tuple[tuple[str, int], ...] = ()
    slices: int = 0

    def __str__(self) -> str:
        if self.mode == "MIG":
            return f"MIG {self.profile or spelled(dict(self.layout))}"
        return f"TimeSlice with {self.slices} slices" if self.mode == "TimeSlice" else self.mode


@dataclass(frozen=True, slots=True)
class Cut:
    """How a card is cut, as the agent of its node sees it."""

    state: str = "Applied"
    profiles: Mapping[str, int] = field(default_factory=dict)
    """MIG devices it has, by profile."""
    target: str = ""
    message: str = ""


def suits(cut: Cut | None, sharing: Sharing, fits: Mapping[str, int]) -> bool:
    """The card is cut for it, or nobody tells how it is cut. `fits`: how many of a profile it can have."""
    if cut is None:
        return True
    return cut.state == "Applied" and _is(cut.profiles, sharing, fits)


def failed(cut: Cut | None, sharing: Sharing) -> bool:
    """Its agent tried to cut it for just this, and could not: an older failure says nothing of it."""
    if cut is None or cut.state != "Failed" or not cut.target:
        return False
    aimed = read(cut.target)
    # Where a profile cannot be had at all, its agent names it without a number.
    return set(aimed) == {sharing.profile} if sharing.profile else _is(aimed, sharing, {})


def _is(profiles: Mapping[str, int], sharing: Sharing, fits: Mapping[str, int]) -> bool:
    if sharing.mode != "MIG":
        return not profiles
    if sharing.layout:
        return Counter(profiles) == Counter(dict(sharing.layout))
    most = fits.get(sharing.profile)
    return set(profiles) == {sharing.profile} and most in (None, profiles[sharing.profile])


def read(target: str) -> dict[str, int]:
    """`2g.20gb:2,3g.30gb:1`; nothing for `whole` and for what cannot be read."""
    found: dict[str, int] = {}
    for piece in target.split(",") if target not in ("", WHOLE) else ():
        profile, _, number = piece.partition(":")
        found[profile] = int(number) if number.isascii() and number.isdigit() else 0
    return found


def spelled(layout: Mapping[str, int]) -> str:
    return ",".join(f"{profile}:{number}" for profile, number in sorted(layout.items()))
