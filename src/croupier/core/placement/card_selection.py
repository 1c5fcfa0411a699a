"""Selects cards of a node by strategy, for one kind of request at a time.

All comparisons use whole numbers, and ties are broken by the card's index and id: two schedulers
with the same ledger select the same cards, independent of their order.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, Literal, TypeAlias

from croupier.core.model.card import CardGrant, LedgerCard, MigSlot
from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.placement import fragmentation

Strategy: TypeAlias = Literal["BinPack", "Spread", "LeastFragmentation"]
"""Fill used cards first; use the emptiest cards; or keep the most usable capacity for later requests."""

Rank: TypeAlias = tuple[int, ...]
"""Rank of a placement; lower is better. Comparable for the same request and strategy."""

_SortKey: TypeAlias = tuple[int, ...]

_SIZE_AND_START: Final = attrgetter("size", "start", "id")


@dataclass(frozen=True, slots=True)
class CardSelection:
    parts: tuple[CardGrant, ...]
    rank: Rank


@dataclass(frozen=True, slots=True)
class _LeftAfter:
    """What is left on the cards after the selection, in percent of a card."""

    opened: int
    """Selected cards that had no holder before."""
    left: int
    """Free capacity left on the selected cards."""
    untouched: int
    """Cards that have no holder after the selection."""
    total: int
    """Free capacity left on all cards."""
    capacity: int
    loss: int = 0


def _rank(state: _LeftAfter, strategy: Strategy) -> Rank:
    if strategy == "BinPack":
        return state.opened, state.left, state.untouched, state.total
    if strategy == "Spread":
        return -state.left, 1000 - 1000 * state.total // max(1, state.capacity), -state.total
    return state.loss, state.untouched, state.total


def shares(
    cards: Sequence[LedgerCard], *, count: int, percent: int, strategy: Strategy
) -> CardSelection | None:
    """`percent` of each of `count` different cards."""
    fits: list[tuple[LedgerCard, int]] = []
    total = untouched = 0
    for card in cards:
        free = card.free
        total += free
        untouched += free == WHOLE_CARD
        if free >= percent >= card.smallest and (percent == WHOLE_CARD or card.mode == "Percent"):
            fits.append((card, free))
    if len(fits) < count:
        return None
    if strategy == "LeastFragmentation":
        chosen = _least_loss(fits, count=count, percent=percent, untouched=untouched)
    else:
        fits.sort(key=_fullest if strategy == "BinPack" else _emptiest)
        chosen = fits[:count]
    opened = sum(free == WHOLE_CARD for _, free in chosen)
    state = _LeftAfter(
        opened=sum(not card.holders for card, _ in chosen),
        left=sum(free for _, free in chosen) - count * percent,
        untouched=untouched - opened,
        total=total - count * percent,
        capacity=WHOLE_CARD * len(cards),
        loss=_loss(chosen, percent)
        + fragmentation.CARDS_WORTH[untouched]
        - fragmentation.CARDS_WORTH[untouched - opened],
    )
    return CardSelection(tuple(CardGrant(card.id, percent) for card, _ in chosen), _rank(state, strategy))


def _fullest(fit: tuple[LedgerCard, int]) -> tuple[bool, bool, int, int, str]:
    """Exclusive cards come first: they can only serve requests for whole cards."""
    card, free = fit
    return card.mode != "Exclusive", not card.holders, free, card.index, card.id


def _emptiest(fit: tuple[LedgerCard, int]) -> tuple[bool, int, int, str]:
    card, free = fit
    return card.mode != "Exclusive", -free, card.index, card.id


def _loss(chosen: Iterable[tuple[LedgerCard, int]], percent: int) -> int:
    worth = fragmentation.SHARE_WORTH
    return sum(worth[free] - worth[free - percent] for _, free in chosen)


def _least_loss(
    fits: list[tuple[LedgerCard, int]], *, count: int, percent: int, untouched: int
) -> list[tuple[LedgerCard, int]]:
    """Also weighs how many unused cards to start using: they are worth more together."""
    worth = fragmentation.SHARE_WORTH
    fits.sort(
        key=lambda f: (f[0].mode != "Exclusive", worth[f[1]] - worth[f[1] - percent], f[0].index, f[0].id)
    )
    whole = [fit for fit in fits if fit[1] == WHOLE_CARD]
    begun = [fit for fit in fits if fit[1] != WHOLE_CARD]
    fewest = max(0, count - len(begun))

    def cost(opened: int) -> int:
        chosen = begun[: count - opened] + whole[:opened]
        return _loss(chosen, percent) - fragmentation.CARDS_WORTH[untouched - opened]

    opened = min(range(fewest, min(count, len(whole)) + 1), key=cost) if begun else count
    return begun[: count - opened] + whole[:opened]


def slices(cards: Sequence[LedgerCard], *, count: int, strategy: Strategy) -> CardSelection | None:
    """`count` time slices on as few cards as possible, or on as many as possible with Spread."""
    free = {card.id: card.free for card in cards}
    if sum(free.values()) < count:
        return None
    ordered = sorted(cards, key=LedgerCard.order)
    select = _spread_slices if strategy == "Spread" else _packed_slices
    given = select(ordered, dict(free), count=count, strategy=strategy)
    worth = fragmentation.SLICES_WORTH
    state = _LeftAfter(
        opened=sum(card.is_free for card in ordered if card.id in given),
        left=sum(_percent(card, free[card.id] - given[card.id]) for card in ordered if card.id in given),
        untouched=sum(card.is_free for card in ordered if card.id not in given),
        total=sum(_percent(card, free[card.id] - given.get(card.id, 0)) for card in ordered),
        capacity=WHOLE_CARD * len(ordered),
        loss=sum(worth[free[card]] - worth[free[card] - n] for card, n in given.items()),
    )
    parts = tuple(CardGrant(card.id, given[card.id]) for card in ordered if card.id in given)
    return CardSelection(parts, _rank(state, strategy))


def _percent(card: LedgerCard, amount: int) -> int:
    return WHOLE_CARD * amount // card.capacity


def _spread_slices(
    cards: Sequence[LedgerCard], free: dict[str, int], *, count: int, strategy: Strategy
) -> dict[str, int]:
    given: dict[str, int] = {}
    for _ in range(count):
        emptiest = max(cards, key=lambda card: (free[card.id], -card.index))
        free[emptiest.id] -= 1
        given[emptiest.id] = given.get(emptiest.id, 0) + 1
    return given


def _packed_slices(
    cards: Sequence[LedgerCard], free: dict[str, int], *, count: int, strategy: Strategy
) -> dict[str, int]:
    """Use up the emptiest cards until the rest fits on one card, which the strategy chooses."""
    worth = fragmentation.SLICES_WORTH
    given: dict[str, int] = {}
    rest = count
    while not (fits := [card for card in cards if free[card.id] >= rest]):
        emptiest = max(cards, key=lambda card: free[card.id])
        given[emptiest.id] = free.pop(emptiest.id)
        rest -= given[emptiest.id]
        cards = [card for card in cards if card is not emptiest]

    def key(card: LedgerCard) -> _SortKey:
        left = free[card.id]
        if strategy == "BinPack":
            return card.is_free, left
        return card.is_free, worth[left] - worth[left - rest], left

    given[min(fits, key=key).id] = rest
    return given


def slots(
    cards: Sequence[LedgerCard], *, profile: str, count: int, strategy: Strategy
) -> CardSelection | None:
    """`count` MIG devices of one profile (any profile if empty) on one or several cards."""
    healthy = sorted((card for card in cards if card.healthy), key=LedgerCard.order)
    free = {card.id: available for card in healthy if (available := _free_slots(card, profile))}
    if sum(map(len, free.values())) < count:
        return None
    after = {card.id: _uncovered(card) for card in healthy}
    chosen: dict[str, list[str]] = {}
    for _ in range(count):
        card_id, slot = _next_slot(free, after, strategy)
        after[card_id] &= ~_mask(slot)
        free[card_id].remove(slot)
        if not free[card_id]:
            del free[card_id]
        chosen.setdefault(card_id, []).append(slot.id)
    parts = tuple(CardGrant(card_id, slots=tuple(ids)) for card_id, ids in chosen.items())
    return CardSelection(parts, _rank(_slot_state(healthy, chosen, after), strategy))


def _free_slots(card: LedgerCard, profile: str) -> list[MigSlot]:
    free = (slot for slot in card.slots if not slot.holder and (not profile or slot.profile == profile))
    return sorted(free, key=_SIZE_AND_START)


def _next_slot(
    free: dict[str, list[MigSlot]], uncovered: dict[str, int], strategy: Strategy
) -> tuple[str, MigSlot]:
    """The best card and slot; the first one of equals."""
    if strategy != "LeastFragmentation":
        sign = 1 if strategy == "BinPack" else -1
        card = min(free, key=lambda card: sign * uncovered[card].bit_count())
        return card, free[card][0]
    worth = fragmentation.MEMORY_WORTH
    best: tuple[int, int] | None = None
    for card, candidates in free.items():
        rest = uncovered[card]
        for slot in candidates:
            key = worth[rest] - worth[rest & ~_mask(slot)], rest.bit_count()
            if best is None or key < best:
                best, pick = key, (card, slot)
    return pick


def _slot_state(cards: Sequence[LedgerCard], chosen: Collection[str], after: dict[str, int]) -> _LeftAfter:
    opened = left = untouched = total = loss = 0
    for card in cards:
        rest, memory = after[card.id], _memory(card)
        percent = WHOLE_CARD * rest.bit_count() // memory.bit_count()
        total += percent
        if card.id in chosen:
            before = _uncovered(card)
            left += percent
            opened += before == memory
            loss += fragmentation.MEMORY_WORTH[before] - fragmentation.MEMORY_WORTH[rest]
        else:
            untouched += rest == memory
    return _LeftAfter(opened, left, untouched, total, WHOLE_CARD * len(cards), loss)


def _memory(card: LedgerCard) -> int:
    """Bit set of the memory slices of a card: eight, or four on small cards."""
    return 0xFF if any(slot.start + slot.size > 4 for slot in card.slots) else 0xF


def _uncovered(card: LedgerCard) -> int:
    """Memory slices that no used device covers."""
    uncovered = _memory(card)
    for slot in card.slots:
        if slot.holder:
            uncovered &= ~_mask(slot)
    return uncovered


def _mask(slot: MigSlot) -> int:
    return ((1 << slot.size) - 1) << slot.start
