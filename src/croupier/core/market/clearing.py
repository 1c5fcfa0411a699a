"""Divides the supply of a book among bids: how much each gets, at what price, and why.

Weights are budgets: a bidder gets weight × theta quanta, but not more than its demand. So a quantum costs
1/theta of weight, and nothing if all demands are met. This is weighted max-min fairness: a bidder does not
gain by overstating its demand, and gets at least its weight's share of the supply if it can use it. The
supply that is left is spread as slack, up to the `keep` of each bid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from croupier.core.market import water_filling
from croupier.core.market.water_filling import Claimant, ClaimantColumns

ShareReason: TypeAlias = Literal["floor", "cap", "demand", "share", "slack"]


@dataclass(frozen=True, slots=True)
class Bid:
    """In quanta. `keep`: idle supply is given to the bidder as slack up to this amount."""

    name: str
    demand: int
    weight: int = 1
    floor: int = 0
    cap: int = 2**31
    keep: int = 0

    @property
    def want(self) -> int:
        return max(self.floor, min(self.demand, self.cap))


class Share(NamedTuple):
    """`why`: what bounds the amount. `share` is the price; `demand` means that the bid asks for no more."""

    name: str
    amount: int
    why: ShareReason


@dataclass(frozen=True, slots=True)
class Clearing:
    supply: int
    shares: tuple[Share, ...]
    """In the order of the bids."""
    theta: Fraction
    """Quanta per unit of weight."""
    contested: bool
    """At least one bid is not met in full."""
    left: int
    short: int
    """How far the floors alone exceed the supply."""

    @property
    def price(self) -> Fraction:
        """Weight per quantum."""
        return 1 / self.theta if self.contested and self.theta else Fraction(0)


def clear(bids: Sequence[Bid], supply: int) -> Clearing:
    wants = [bid.want for bid in bids]
    names = [bid.name for bid in bids]
    floors = [bid.floor for bid in bids]
    columns = ClaimantColumns(names, floors, wants, [bid.weight for bid in bids], [0] * len(bids))
    filled = water_filling.fill_columns(columns, supply)
    kept = _spread_slack(bids, filled.amounts, filled.left) if filled.left else filled.amounts
    shares = tuple(map(Share, names, kept, map(_why, bids, wants, kept)))
    contested = sum(wants) > sum(filled.amounts)
    left = supply - sum(kept) + filled.short
    return Clearing(supply, shares, filled.theta, contested=contested, left=left, short=filled.short)


def _spread_slack(bids: Sequence[Bid], amounts: Sequence[int], left: int) -> Sequence[int]:
    """Spread the remaining supply above the demands, by weight."""
    if not any(bid.keep > amount for bid, amount in zip(bids, amounts, strict=True)):
        return amounts
    claimants = [
        Claimant(bid.name, amount, max(amount, min(bid.keep, bid.cap)), bid.weight, min(bid.demand, bid.cap))
        for bid, amount in zip(bids, amounts, strict=True)
    ]
    return water_filling.fill(claimants, left + sum(amounts)).amounts


def _why(bid: Bid, want: int, amount: int) -> ShareReason:
    if amount > want:
        return "slack"
    if amount < want:
        return "floor" if amount == bid.floor else "share"
    if bid.demand > bid.cap > bid.floor:
        return "cap"
    return "floor" if bid.demand < bid.floor else "demand"


@dataclass(frozen=True, slots=True)
class ContainerBid:
    """One container of a pod: its original limit, its minimum and its demand."""

    name: str
    original: int
    floor: int = 1
    demand: int = 0


def split(limit: int, parts: Sequence[ContainerBid]) -> dict[str, int]:
    """Split a pod's limit over its containers: their demands, and the rest in proportion to their originals.

    The sum equals the limit, unless the floors alone exceed it.
    """
    floors = sum(part.floor for part in parts)
    bids = [
        Bid(part.name, part.demand, max(1, part.original), part.floor, keep=max(limit, part.floor))
        for part in parts
    ]
    shares = clear(bids, max(limit, floors)).shares
    return {share.name: share.amount for share in shares}
