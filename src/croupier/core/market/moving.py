"""From what a book would give to what is written now: decreases first, raises only into room that is free.

A pod may use what it was told to have as soon as it is told, and keeps what it had until the kubelet
reports the decrease. So what it holds is the larger of both, and raises share the supply less everything
held.
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

NOT_WORTH: Final = "the difference is not worth a move"
NOT_IN_FORCE: Final = "what it was told last is not in force yet"
NO_MOVES: Final = "the node has used up its moves for now"


@dataclass(frozen=True, slots=True)
class Moved:
    """The new limits by pod key, why others were held, and the node's bucket after it."""

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
        """The held back first, then by how far it is off; names decide between equals."""
        larger, smaller = sorted((self.standing.current, self.to), reverse=True)
        return (not self.standing.throttled, -(1000 * larger // max(1, smaller)), self.key)


@dataclass(slots=True)
class _Desk:
    """One tick at one book, while it is being decided."""

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


def settle(book: Clearing, standings: Sequence[Standing], *, policy: Policy, tokens: int, now: int) -> Moved:
    """`standings` are those who bid, in the order of the book's shares.

    Who was told to move is not told again before the first is seen written.
    """
    desk = _Desk(policy, now, tokens, {}, {})
    raises = _raises(desk, standings, book.shares)
    # What is on its way down counts as given back here, or every tick until it lands would call in more.
    told = sum(one.current for one in standings)
    missing = told + sum(wish.to - wish.standing.current for wish in raises) - book.supply
    lowered = [
        (one, share)
        for one, share in zip(standings, book.shares, strict=True)
        if share.amount < one.current and one.record.order is None
    ]
    _lower(desk, lowered, missing=missing, awaited=bool(raises))
    _raise(desk, raises, book.supply - sum(one.held for one in standings))
    return Moved(desk.limits, desk.held, desk.tokens)


def _raises(desk: _Desk, standings: Sequence[Standing], shares: Sequence[Share]) -> list[_Wish]:
    """Those its own budget allows a raise that is worth one; the most urgent first."""
    budget, wishes = desk.policy.churn, []
    for one, share in zip(standings, shares, strict=True):
        if share.amount <= one.current or one.record.order is not None:
            continue
        if not churn.worth(one.current, share.amount, churn=budget, throttled=one.throttled):
            desk.held[one.pod.key] = NOT_WORTH
        elif one.pod.applied is not None and one.pod.applied < one.current:
            desk.held[one.pod.key] = NOT_IN_FORCE  # it may never be: a quota of the namespace, a full node
        elif held := churn.raise_held(one.record.history, churn=budget, now=desk.now):
            desk.held[one.pod.key] = held.reason
        else:
            wishes.append(_Wish(one, churn.step(one.current, share.amount)))
    return sorted(wishes, key=lambda wish: wish.urgency)


def _lower(desk: _Desk, pairs: Sequence[tuple[Standing, Share]], *, missing: int, awaited: bool) -> None:
    """Who has most above his share gives first. `awaited`: somebody would be raised if there were room."""
    wishes = [_Wish(one, churn.step(one.current, share.amount)) for one, share in pairs]
    for wish in sorted(wishes, key=lambda wish: (wish.to - wish.standing.current, wish.key)):
        if held := _lower_held(desk, wish, called=missing > 0, awaited=awaited):
            desk.held[wish.key] = held
        else:
            desk.move(wish, wish.to)
            missing -= wish.standing.current - wish.to


def _lower_held(desk: _Desk, wish: _Wish, *, called: bool, awaited: bool) -> str:
    """What somebody waits for is given back even if it is not worth a move.

    Without that, many who keep a little too much could keep one from getting anything.
    """
    budget, one = desk.policy.churn, wish.standing
    worth = churn.worth(one.current, wish.to, churn=budget, throttled=one.throttled)
    if not worth and not (called and awaited):
        return NOT_WORTH
    if held := churn.decrease_held(one.record.history, called=called, churn=budget, now=desk.now):
        return held.reason
    return "" if desk.left() > (0 if called else budget.node.burst // 2) else NO_MOVES


def _raise(desk: _Desk, wishes: Sequence[_Wish], room: int) -> None:
    """Those the room is enough for, the most urgent first as long as the node has moves."""
    granted = _granted(desk, wishes, room)
    for wish in wishes:
        if wish.key in granted and desk.left() > 0:
            desk.move(wish, granted[wish.key])
            room -= max(0, granted[wish.key] - wish.standing.held)
    for wish in wishes:
        if wish.key not in granted:
            free = units.text(max(0, room))
            desk.held[wish.key] = f"only {free} is free until others have given back"
        elif wish.key not in desk.limits:
            desk.held[wish.key] = NO_MOVES


def _granted(desk: _Desk, wishes: Sequence[_Wish], room: int) -> dict[str, int]:
    """The room among them by weight; who gets too little to be worth a move makes way, least urgent first."""
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
    amounts = filling.fill(claimants, sum(one.low for one in claimants) + max(0, room)).amounts
    return {wish.key: min(wish.to, amount) for wish, amount in zip(wishes, amounts, strict=True)}


def _useful(desk: _Desk, wish: _Wish, amount: int) -> bool:
    current = wish.standing.current
    return amount > current and churn.worth(
        current, amount, churn=desk.policy.churn, throttled=wish.standing.throttled
    )
