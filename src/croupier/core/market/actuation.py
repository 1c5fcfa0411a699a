"""From the target limits to the limits that are written now: decreases first, raises only into free supply.

A pod may use a raised limit as soon as it is written, and keeps a lowered one until the kubelet reports the
decrease. So a pod holds the larger of both, and raises share the supply minus everything that is held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from croupier.core.market import churn, units, water_filling
from croupier.core.market.clearing import Clearing, Share
from croupier.core.market.pod_state import PodState
from croupier.core.market.policy import MarketPolicy
from croupier.core.market.water_filling import Claimant

TOO_SMALL: Final = "the difference is too small for a resize"
NOT_APPLIED: Final = "its last desired limit is not applied yet"
NODE_BUDGET_USED_UP: Final = "the resize budget of the node is used up for now"


@dataclass(frozen=True, slots=True)
class ActuationResult:
    """The new limits and the reasons for postponed changes, both by pod key, and the node's token bucket."""

    limits: Mapping[str, int]
    held: Mapping[str, str]
    tokens: int


@dataclass(frozen=True, slots=True)
class _DesiredChange:
    state: PodState
    to: int

    @property
    def key(self) -> str:
        return self.state.pod.key

    @property
    def urgency(self) -> tuple[bool, int, str]:
        """Throttled pods first, then the largest ratio; names break ties."""
        larger, smaller = sorted((self.state.current, self.to), reverse=True)
        return (not self.state.throttled, -(1000 * larger // max(1, smaller)), self.key)


@dataclass(slots=True)
class _BookActuation:
    """The state of one book during one tick."""

    policy: MarketPolicy
    now: int
    tokens: int
    limits: dict[str, int]
    held: dict[str, str]

    def left(self) -> int:
        return churn.available_tokens(self.tokens, self.policy.churn.node, self.now)

    def move(self, wish: _DesiredChange, limit: int) -> None:
        self.limits[wish.key] = limit
        self.tokens = churn.take_token(self.tokens, self.policy.churn.node, self.now)


def actuate(
    book: Clearing, bidders: Sequence[PodState], *, policy: MarketPolicy, tokens: int, now: int
) -> ActuationResult:
    """`bidders` are in the order of the book's shares.

    A pod with a pending write is not changed again before the write is observed.
    """
    desk = _BookActuation(policy, now, tokens, {}, {})
    raises = _raises(desk, bidders, book.shares)
    # A decrease that is not applied yet counts as free here; otherwise every tick would lower more pods.
    granted = sum(state.current for state in bidders)
    missing = granted + sum(wish.to - wish.state.current for wish in raises) - book.supply
    lowered = [
        (state, share)
        for state, share in zip(bidders, book.shares, strict=True)
        if share.amount < state.current and state.record.pending_write is None
    ]
    _lower(desk, lowered, missing=missing, awaited=bool(raises))
    _raise(desk, raises, book.supply - sum(state.held for state in bidders))
    return ActuationResult(desk.limits, desk.held, desk.tokens)


def _raises(
    desk: _BookActuation, bidders: Sequence[PodState], shares: Sequence[Share]
) -> list[_DesiredChange]:
    """The raises that are large enough and within the budget of their pod; the most urgent first."""
    budget, wishes = desk.policy.churn, []
    for state, share in zip(bidders, shares, strict=True):
        if share.amount <= state.current or state.record.pending_write is not None:
            continue
        if not churn.is_worthwhile(state.current, share.amount, churn=budget, throttled=state.throttled):
            desk.held[state.pod.key] = TOO_SMALL
        elif state.pod.applied is not None and state.pod.applied < state.current:
            desk.held[state.pod.key] = NOT_APPLIED  # it may never be: a namespace quota, a full node
        elif held := churn.raise_postponed(state.record.history, churn=budget, now=desk.now):
            desk.held[state.pod.key] = held.reason
        else:
            wishes.append(_DesiredChange(state, churn.step(state.current, share.amount)))
    return sorted(wishes, key=lambda wish: wish.urgency)


def _lower(
    desk: _BookActuation, pairs: Sequence[tuple[PodState, Share]], *, missing: int, awaited: bool
) -> None:
    """Lower the largest excess first. `awaited`: some pod could be raised if CPU were free."""
    wishes = [_DesiredChange(state, churn.step(state.current, share.amount)) for state, share in pairs]
    for wish in sorted(wishes, key=lambda wish: (wish.to - wish.state.current, wish.key)):
        if held := _lower_postponed(desk, wish, called=missing > 0, awaited=awaited):
            desk.held[wish.key] = held
        else:
            desk.move(wish, wish.to)
            missing -= wish.state.current - wish.to


def _lower_postponed(desk: _BookActuation, wish: _DesiredChange, *, called: bool, awaited: bool) -> str:
    """Why the limit is not lowered now; empty if it is.

    CPU that another pod waits for is taken even if the difference is small. Otherwise many pods with a small
    excess could keep another pod from being raised at all.
    """
    budget, state = desk.policy.churn, wish.state
    worth = churn.is_worthwhile(state.current, wish.to, churn=budget, throttled=state.throttled)
    if not worth and not (called and awaited):
        return TOO_SMALL
    if held := churn.decrease_postponed(state.record.history, called=called, churn=budget, now=desk.now):
        return held.reason
    return "" if desk.left() > (0 if called else budget.node.burst // 2) else NODE_BUDGET_USED_UP


def _raise(desk: _BookActuation, wishes: Sequence[_DesiredChange], room: int) -> None:
    """Raise the pods that fit into the free supply, the most urgent first, within the budget of the node."""
    granted = _granted_raises(desk, wishes, room)
    for wish in wishes:
        if wish.key in granted and desk.left() > 0:
            desk.move(wish, granted[wish.key])
            room -= max(0, granted[wish.key] - wish.state.held)
    for wish in wishes:
        if wish.key not in granted:
            free = units.text(max(0, room))
            desk.held[wish.key] = f"only {free} is free until the limits of other pods are lowered"
        elif wish.key not in desk.limits:
            desk.held[wish.key] = NODE_BUDGET_USED_UP


def _granted_raises(desk: _BookActuation, wishes: Sequence[_DesiredChange], room: int) -> dict[str, int]:
    """Divide the free supply by weight; drop pods that would get too little, the least urgent first."""
    able = list(wishes)
    while able:
        amounts = _divided(able, room)
        useless = [wish for wish in able if not _is_useful(desk, wish, amounts[wish.key])]
        if not useless:
            return amounts
        able.remove(useless[-1])
    return {}


def _divided(wishes: Sequence[_DesiredChange], room: int) -> dict[str, int]:
    claimants = []
    for wish in wishes:
        held = wish.state.held
        claimants.append(Claimant(wish.key, held, max(held, wish.to), wish.state.bid().weight))
    amounts = water_filling.fill(
        claimants, sum(claimant.low for claimant in claimants) + max(0, room)
    ).amounts
    return {wish.key: min(wish.to, amount) for wish, amount in zip(wishes, amounts, strict=True)}


def _is_useful(desk: _BookActuation, wish: _DesiredChange, amount: int) -> bool:
    current = wish.state.current
    return amount > current and churn.is_worthwhile(
        current, amount, churn=desk.policy.churn, throttled=wish.state.throttled
    )
