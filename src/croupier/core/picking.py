"""Which cards of a node a strategy picks, one kind of demand at a time.

Everything is compared by whole numbers, and ties are broken by the card's index and id: two
schedulers that see the same cards pick the same ones, in whatever order they see them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from croupier.core import fragmentation
from croupier.core.ledger import Card, Part, Slot
from croupier.core.want import WHOLE

Strategy: TypeAlias = Literal["BinPack", "Spread", "LeastFragmentation"]
"""Fill what is used already; use what is emptiest; or keep most for those who come later."""

Rank: TypeAlias = tuple[int, ...]
"""How good a placement is; the lower, the better. Comparable for the same wants and strategy."""

_Key: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Picked:
    parts: tuple[Part, ...]
    rank: Rank


@dataclass(frozen=True, slots=True)
class _State:
    """What the cards in question are left with, in percent of a card."""

    opened: int
    """Cards of which nobody held anything before."""
    left: int
    """On the cards that were picked."""
    untouched: int
    """Cards of which nobody holds anything now."""
    total: int
    """On all of the cards."""
    capacity: int
    loss: int = 0


def _rank(state: _State, strategy: Strategy) -> Rank:
    if strategy == "BinPack":
        return state.opened, state.left, state.untouched, state.total
    if strategy == "Spread":
        return -state.left, 1000 - 1000 * state.total // max(1, state.capacity), -state.total
    return state.loss, state.untouched, state.total


def shares(cards: Sequence[Card], *, count: int, percent: int, strategy: Strategy) -> Picked | None:
    """`percent` of each of `count` different cards."""
    fits: list[tuple[Card, int]] = []
    total = untouched = 0
    for card in cards:
        free = card.free
        total += free
        untouched += free == WHOLE
        if free >= percent and (percent == WHOLE or card.mode == "Percent"):
            fits.append((card, free))
    if len(fits) < count:
        return None
    if strategy == "LeastFragmentation":
        chosen = _least_loss(fits, count=count, percent=percent, untouched=untouched)
    else:
        fits.sort(key=_fullest if strategy == "BinPack" else _emptiest)
        chosen = fits[:count]
    opened = sum(free == WHOLE for _, free in chosen)
    state = _State(
        opened=sum(not card.holders for card, _ in chosen),
        left=sum(free for _, free in chosen) - count * percent,
        untouched=untouched - opened,
        total=total - count * percent,
        capacity=WHOLE * len(cards),
        loss=_loss(chosen, percent)
        + fragmentation.CARDS[untouched]
        - fragmentation.CARDS[untouched - opened],
    )
    return Picked(tuple(Part(card.id, percent) for card, _ in chosen), _rank(state, strategy))


def _fullest(fit: tuple[Card, int]) -> tuple[bool, bool, int, int, str]:
    """An exclusive card first: it serves nobody but those who want it whole."""
    card, free = fit
    return card.mode != "Exclusive", not card.holders, free, card.index, card.id


def _emptiest(fit: tuple[Card, int]) -> tuple[bool, int, int, str]:
    card, free = fit
    return card.mode != "Exclusive", -free, card.index, card.id


def _loss(chosen: Iterable[tuple[Card, int]], percent: int) -> int:
    worth = fragmentation.SHARE
    return sum(worth[free] - worth[free - percent] for _, free in chosen)


def _least_loss(
    fits: list[tuple[Card, int]], *, count: int, percent: int, untouched: int
) -> list[tuple[Card, int]]:
    """How many untouched cards to open is weighed too: they are worth more together."""
    worth = fragmentation.SHARE
    fits.sort(
        key=lambda f: (f[0].mode != "Exclusive", worth[f[1]] - worth[f[1] - percent], f[0].index, f[0].id)
    )
    whole = [fit for fit in fits if fit[1] == WHOLE]
    begun = [fit for fit in fits if fit[1] != WHOLE]
    fewest = max(0, count - len(begun))

    def cost(opened: int) -> int:
        chosen = begun[: count - opened] + whole[:opened]
        return _loss(chosen, percent) - fragmentation.CARDS[untouched - opened]

    opened = min(range(fewest, min(count, len(whole)) + 1), key=cost) if begun else count
    return begun[: count - opened] + whole[:opened]


def slices(cards: Sequence[Card], *, count: int, strategy: Strategy) -> Picked | None:
    """`count` time slices, of as few cards as can be, or of as many when they are to be spread."""
    free = {card.id: card.free for card in cards}
    if sum(free.values()) < count:
        return None
    ordered = sorted(cards, key=lambda card: (card.index, card.id))
    deal = _spread_slices if strategy == "Spread" else _packed_slices
    given = deal(ordered, dict(free), count=count, strategy=strategy)
    worth = fragmentation.SLICES
    state = _State(
        opened=sum(card.is_free for card in ordered if card.id in given),
        left=sum(_percent(card, free[card.id] - given[card.id]) for card in ordered if card.id in given),
        untouched=sum(card.is_free for card in ordered if card.id not in given),
        total=sum(_percent(card, free[card.id] - given.get(card.id, 0)) for card in ordered),
        capacity=WHOLE * len(ordered),
        loss=sum(worth[free[card]] - worth[free[card] - n] for card, n in given.items()),
    )
    parts = tuple(Part(card.id, given[card.id]) for card in ordered if card.id in given)
    return Picked(parts, _rank(state, strategy))


def _percent(card: Card, amount: int) -> int:
    return WHOLE * amount // card.capacity


def _spread_slices(
    cards: Sequence[Card], free: dict[str, int], *, count: int, strategy: Strategy
) -> dict[str, int]:
    given: dict[str, int] = {}
    for _ in range(count):
        emptiest = max(cards, key=lambda card: (free[card.id], -card.index))
        free[emptiest.id] -= 1
        given[emptiest.id] = given.get(emptiest.id, 0) + 1
    return given


def _packed_slices(
    cards: Sequence[Card], free: dict[str, int], *, count: int, strategy: Strategy
) -> dict[str, int]:
    """The emptiest are used up until the rest fits on one card; it goes where the strategy likes it."""
    worth = fragmentation.SLICES
    given: dict[str, int] = {}
    rest = count
    while not (fits := [card for card in cards if free[card.id] >= rest]):
        emptiest = max(cards, key=lambda card: free[card.id])
        given[emptiest.id] = free.pop(emptiest.id)
        rest -= given[emptiest.id]
        cards = [card for card in cards if card is not emptiest]

    def key(card: Card) -> _Key:
        left = free[card.id]
        if strategy == "BinPack":
            return card.is_free, left
        return card.is_free, worth[left] - worth[left - rest], left

    given[min(fits, key=key).id] = rest
    return given


def slots(cards: Sequence[Card], *, profile: str, count: int, strategy: Strategy) -> Picked | None:
    """`count` MIG devices of one profile, or of any when it is empty, of one card or several."""
    candidates = [
        (card, slot)
        for card in sorted(cards, key=lambda card: (card.index, card.id))
        for slot in sorted(card.free_slots(profile), key=lambda slot: (slot.size, slot.start, slot.id))
    ]
    if len(candidates) < count:
        return None
    before = {card.id: _uncovered(card) for card in cards}
    after = dict(before)
    chosen: dict[str, set[str]] = {}
    for _ in range(count):
        card, slot = min(candidates, key=lambda pair: _slot_key(pair[1], after[pair[0].id], strategy))
        candidates.remove((card, slot))
        after[card.id] &= ~_mask(slot)
        chosen.setdefault(card.id, set()).add(slot.id)
    parts = tuple(
        Part(card.id, slots=tuple(slot.id for slot in card.slots if slot.id in chosen[card.id]))
        for card in cards
        if card.id in chosen
    )
    return Picked(parts, _rank(_slot_state(cards, chosen, before, after), strategy))


def _slot_state(
    cards: Sequence[Card], chosen: dict[str, set[str]], before: dict[str, int], after: dict[str, int]
) -> _State:
    worth = fragmentation.SPANS
    room = {card.id: WHOLE * after[card.id].bit_count() // 8 if card.healthy else 0 for card in cards}
    return _State(
        opened=sum(card.is_free for card in cards if card.id in chosen),
        left=sum(room[card] for card in chosen),
        untouched=sum(card.is_free for card in cards if card.id not in chosen),
        total=sum(room.values()),
        capacity=WHOLE * len(cards),
        loss=sum(worth[before[card]] - worth[after[card]] for card in chosen),
    )


def _slot_key(slot: Slot, uncovered: int, strategy: Strategy) -> _Key:
    """The first of equal candidates wins; they come in order."""
    if strategy == "BinPack":
        return (uncovered.bit_count(),)
    if strategy == "Spread":
        return (-uncovered.bit_count(),)
    loss = fragmentation.SPANS[uncovered] - fragmentation.SPANS[uncovered & ~_mask(slot)]
    return loss, uncovered.bit_count()


def _uncovered(card: Card) -> int:
    """The memory slices of a card that no device in use covers, one bit each."""
    end = max((slot.start + slot.size for slot in card.slots), default=8)
    uncovered = 0xFF if end > 4 else 0xF  # small cards have four
    for slot in card.slots:
        if slot.holder:
            uncovered &= ~_mask(slot)
    return uncovered


def _mask(slot: Slot) -> int:
    return ((1 << slot.size) - 1) << slot.start
