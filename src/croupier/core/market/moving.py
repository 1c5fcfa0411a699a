"""From the target limits to the limits that are written now: decreases first, raises only into free supply.

A pod may use a raised limit as soon as it is written, and keeps a lowered one until the kubelet reports the
decrease. So a pod holds the larger of both, and raises share the supply minus everything that is held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from croupier.core.market import churn, filling, units
from croupier.core.market.clearing import Clearing, Share
from croupier.core.market.filling import Claimant
from croupier.core.market.policy import Policy
from croupier.core.market.standing import Standing
from croupier.core.market.terms import Terms

NOT_WORTH: Final = "the difference is too small for a resize"
NOT_IN_FORCE: Final = "its last desired limit is not applied yet"
NO_MOVES: Final = "the resize budget of the node is used up for now"


@dataclass(frozen=True, slots=True)
class Moved:
    """The new limits and the reasons for postponed changes, both by pod key, and the node's token bucket."""

    limits: Mapping[str, int]
    held: Mapping[str, str]
    tokens: int


@dataclass(frozen=True, slots=True)
class _Wish:
    standing: Standing
    to: int

    @property
    def key(self) -> str:
        return self.standing.pod.key

    @property
    def urgency(self) -> tuple[bool, int, str]:
        """Throttled pods first, then the largest ratio; names break ties."""
        larger, smaller = sorted((self.standing.current, self.to), reverse=True)
        return (not self.standing.throttled, -(1000 * larger // max(1, smaller)), self.key)


@dataclass(slots=True)
class _Desk:
    """The state of one book during one tick."""

    policy: Policy
    now: int
    tokens: int
    limits: dict[str, int]
    held: dict[str, str]

    def left(self) -> int:
        return churn.available(self.tokens, self.policy.churn.node, self.now)

    def move(self, wish: _Wish, limit: int) -> None:
        self.limits[wish.key] = limit
        self.tokens = churn.take(self.tokens, self.policy.churn.node, self.now)


def settle(book: Clearing, bidders: Sequence[Standing], *, policy: Policy, tokens: int, now: int) -> Moved:
    """`bidders` are in the order of the book's shares.

    A pod with a pending write is not changed again before the write is observed.
    """
    desk = _Desk(policy, now, tokens, {}, {})
    raises = _raises(desk, bidders, book.shares)
    # A decrease that is not applied yet counts as free here; otherwise every tick would lower more pods.
    granted = sum(state.current for state in bidders)
    missing = granted + sum(wish.to - wish.standing.current for wish in raises) - book.supply
    lowered = [
        (state, share)
        for state, share in zip(bidders, book.shares, strict=True)
        if share.amount < state.current and state.record.order is None
    ]
    _lower(desk, lowered, missing=missing, awaited=bool(raises))
    _raise(desk, raises, book.supply - sum(state.held for state in bidders))
    return Moved(desk.limits, desk.held, desk.tokens)


def _raises(desk: _Desk, bidders: Sequence[Standing], shares: Sequence[Share]) -> list[_Wish]:
    """The raises that are large enough and within the budget of their pod; the most urgent first."""
    budget, wishes = desk.policy.churn, []
    for state, share in zip(bidders, shares, strict=True):
        if share.amount <= state.current or state.record.order is not None:
            continue
        if not churn.worth(state.current, share.amount, churn=budget, throttled=state.throttled):
            desk.held[state.pod.key] = NOT_WORTH
        elif state.pod.applied is not None and state.pod.applied < state.current:
            desk.held[state.pod.key] = NOT_IN_FORCE  # it may never be: a namespace quota, a full node
        elif held := churn.raise_held(state.record.history, churn=budget, now=desk.now):
            desk.held[state.pod.key] = held.reason
        else:
            wishes.append(_Wish(state, churn.step(state.current, share.amount)))
    return sorted(wishes, key=lambda wish: wish.urgency)


def _lower(desk: _Desk, pairs: Sequence[tuple[Standing, Share]], *, missing: int, awaited: bool) -> None:
    """Lower the largest excess first. `awaited`: some pod could be raised if CPU were free."""
    wishes = [_Wish(state, churn.step(state.current, share.amount)) for state, share in pairs]
    for wish in sorted(wishes, key=lambda wish: (wish.to - wish.standing.current, wish.key)):
        if held := _lower_held(desk, wish, called=missing > 0, awaited=awaited):
            desk.held[wish.key] = held
        else:
            desk.move(wish, wish.to)
            missing -= wish.standing.current - wish.to


def _lower_held(desk: _Desk, wish: _Wish, *, called: bool, awaited: bool) -> str:
    """Why the limit is not lowered now; empty if it is.

    CPU that another pod waits for is taken even if the difference is small. Otherwise many pods with a small
    excess could keep another pod from being raised at all.
    """
    budget, state = desk.policy.churn, wish.standing
    worth = churn.worth(state.current, wish.to, churn=budget, throttled=state.throttled)
    if not worth and not (called and awaited):
        return NOT_WORTH
    if held := churn.decrease_held(state.record.history, called=called, churn=budget, now=desk.now):
        return held.reason
    return "" if desk.left() > (0 if called else budget.node.burst // 2) else NO_MOVES


def _raise(desk: _Desk, wishes: Sequence[_Wish], room: int) -> None:
    """Raise the pods that fit into the free supply, the most urgent first, within the budget of the node."""
    granted = _granted(desk, wishes, room)
    for wish in wishes:
        if wish.key in granted and desk.left() > 0:
            desk.move(wish, granted[wish.key])
            room -= max(0, granted[wish.key] - wish.standing.held)
    for wish in wishes:
        if wish.key not in granted:
            free = units.text(max(0, room))
            desk.held[wish.key] = f"only {free} is free until the limits of other pods are lowered"
        elif wish.key not in desk.limits:
            desk.held[wish.key] = NO_MOVES


def _granted(desk: _Desk, wishes: Sequence[_Wish], room: int) -> dict[str, int]:
    """Divide the free supply by weight; drop pods that would get too little, the least urgent first."""
    able = list(wishes)
    while able:
        amounts = _divided(able, room)
        useless = [wish for wish in able if not _useful(desk, wish, amounts[wish.key])]
        if not useless:
            return amounts
        able.remove(useless[-1])
    return {}


def _divided(wishes: Sequence[_Wish], room: int) -> dict[str, int]:
    claimants = []
    for wish in wishes:
        allowed = wish.standing.terms
        weight = allowed.weight if isinstance(allowed, Terms) else 1
        held = wish.standing.held
        claimants.append(Claimant(wish.key, held, max(held, wish.to), weight))
    amounts = filling.fill(claimants, sum(claimant.low for claimant in claimants) + max(0, room)).amounts
    return {wish.key: min(wish.to, amount) for wish, amount in zip(wishes, amounts, strict=True)}


def _useful(desk: _Desk, wish: _Wish, amount: int) -> bool:
    current = wish.standing.current
    return amount > current and churn.worth(
        current, amount, churn=desk.policy.churn, throttled=wish.standing.throttled
    )
