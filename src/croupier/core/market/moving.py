"""From what a book would give to what is written now: decreases first, raises only into room that is free.

A pod may use what it was told to have as soon as it is told, and keeps what it had until the kubelet
reports the decrease. So what it holds is the larger of both, and raises share the supply less everything
held.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from croupier.core.market import churn, filling, units
from croupier.core.market.churn import Held
from croupier.core.market.clearing import Clearing, Share
from croupier.core.market.filling import Claimant
from croupier.core.market.policy import Policy
from croupier.core.market.standing import Standing
from croupier.core.market.terms import Terms


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
    """`standings` are those who bid, in the order of the book's shares."""
    desk = _Desk(policy, now, tokens, {}, {})
    pressed = book.contested or book.short > 0 or sum(one.held for one in standings) > book.supply
    wishes = [
        wish
        for one, share in zip(standings, book.shares, strict=True)
        if (wish := _wish(desk, one, share, pressed))
    ]
    _lower(
        desk,
        sorted((one for one in wishes if one.to < one.standing.current), key=lambda one: one.urgency),
        pressed,
    )
    taken = sum(max(one.held, desk.limits.get(one.pod.key, 0)) for one in standings)
    _raise(
        desk,
        sorted((one for one in wishes if one.to > one.standing.current), key=lambda one: one.urgency),
        book.supply - taken,
    )
    return Moved(desk.limits, desk.held, desk.tokens)


def _wish(desk: _Desk, one: Standing, share: Share, pressed: bool) -> _Wish | None:
    """The move its own budget allows, if it is worth one."""
    budget, target = desk.policy.churn, share.amount
    if target == one.current:
        return None
    if not churn.worth(one.current, target, churn=budget, throttled=one.throttled):
        desk.held[one.pod.key] = "the difference is not worth a move"
        return None
    history = one.record.history
    held: Held | None
    if target > one.current:
        held = churn.raise_held(history, churn=budget, now=desk.now)
    else:
        held = churn.decrease_held(history, called=pressed, churn=budget, now=desk.now)
    if held is not None:
        desk.held[one.pod.key] = held.reason
        return None
    return _Wish(one, churn.step(one.current, target))


def _lower(desk: _Desk, wishes: Sequence[_Wish], pressed: bool) -> None:
    """Half of the node's moves are kept for raises, unless somebody waits for what is given back."""
    kept = 0 if pressed else desk.policy.churn.node.burst // 2
    for wish in wishes:
        if desk.left() > kept:
            desk.move(wish, wish.to)
        else:
            desk.held[wish.key] = "the node has used up its moves for now"


def _raise(desk: _Desk, wishes: Sequence[_Wish], room: int) -> None:
    """Round by round until nobody can move any more, so that asking again right away changes nothing."""
    waiting = list(wishes)
    while waiting:
        able = waiting[: max(0, desk.left())]
        granted = _granted(desk, able, room)
        if not granted:
            break
        for wish in able:
            if wish.key in granted:
                room -= max(0, granted[wish.key] - wish.standing.held)
                desk.move(wish, granted[wish.key])
        waiting = [wish for wish in waiting if wish.key not in granted]
    for wish in waiting:
        desk.held[wish.key] = _why_waiting(desk, room)


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


def _why_waiting(desk: _Desk, room: int) -> str:
    if desk.left() < 1:
        return "the node has used up its moves for now"
    return f"only {units.text(max(0, room))} is free until others have given back"
