"""Nodes with cards in every mode, and those who want some: builders for tables, strategies for properties."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from croupier.core import card as naming
from croupier.core import ledger as book
from croupier.core.ledger import Card, Grant, Ledger, Mode, Refused, Slot, Terms
from croupier.core.picking import Strategy
from croupier.core.want import Shares, Slots, Units, Want, Wants

NODE = "node-1"
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
STRATEGIES: tuple[Strategy, ...] = ("BinPack", "Spread", "LeastFragmentation")
BOUND = Terms(bound=True)

LAYOUTS: dict[str, tuple[tuple[str, int, int], ...]] = {
    "small": tuple(("1g.10gb", start, 1) for start in range(7)),
    "medium": (("2g.20gb", 0, 2), ("2g.20gb", 2, 2), ("3g.40gb", 4, 4)),
    "mixed": (("3g.40gb", 0, 4), ("1g.10gb", 4, 1), ("1g.10gb", 5, 1), ("2g.20gb", 6, 2)),
    "large": (("7g.80gb", 0, 8),),
}


def place(index: int) -> str:
    """The name of a card by where it sits."""
    return naming.inventory_id(NODE, f"0000:{0x10 + index:02x}:00.0")


def shared(index: int = 0, *taken: int, **about) -> Card:
    """A card of which strangers have `taken` percent each."""
    return _held(Card(place(index), index, **about), taken)


def exclusive(index: int = 0, *, taken: bool = False, **about) -> Card:
    return _held(Card(place(index), index, "Exclusive", **about), (100,) if taken else ())


def sliced(index: int = 0, *taken: int, slices: int = 4, **about) -> Card:
    return _held(Card(place(index), index, "TimeSlice", capacity=slices, **about), taken)


def cut(index: int = 0, layout: str = "small", *, taken: tuple[int, ...] = (), **about) -> Card:
    """A MIG card; strangers have the slots that start at `taken`."""
    slots = tuple(
        Slot(f"{profile}-{start}", profile, start, size, stranger(index, start) if start in taken else "")
        for profile, start, size in LAYOUTS[layout]
    )
    return Card(place(index), index, "MIG", slots=slots, **about)


def stranger(index: int, number: int) -> str:
    return f"other/pod-{index}-{number}/uid-{index}-{number}"


def _held(card: Card, taken: tuple[int, ...]) -> Card:
    return replace(card, holders={stranger(card.index, n): share for n, share in enumerate(taken)})


def node(*cards: Card, name: str = NODE) -> Ledger:
    return Ledger(name, cards)


def given(ledger: Ledger, holder: str, grant: Grant, terms: Terms = BOUND) -> Ledger:
    after = book.give(ledger, holder, grant, terms)
    assert not isinstance(after, Refused), after
    return after


def indexes(ledger: Ledger, grant: Grant) -> list[int]:
    """The cards of a grant by their numbers."""
    return [card.index for card in ledger.cards for part in grant if part.card == card.id]


POOLS = st.sampled_from(["", "", "red", "blue"])
PERCENT = st.one_of(st.sampled_from([10, 20, 25, 30, 50, 100]), st.integers(1, 100))


@st.composite
def cards(draw, index: int, card_id: str = "") -> Card:
    """A card nobody holds, in any mode and any pool."""
    mode: Mode = draw(st.sampled_from(["Percent", "Percent", "Exclusive", "MIG", "TimeSlice"]))
    about = {"pool": draw(POOLS), "healthy": draw(st.integers(0, 5)) > 0}
    made = {
        "Percent": lambda: shared(index, capacity=draw(st.sampled_from([100, 100, 100, 80])), **about),
        "Exclusive": lambda: exclusive(index, **about),
        "TimeSlice": lambda: sliced(index, slices=draw(st.integers(1, 6)), **about),
        "MIG": lambda: cut(index, draw(st.sampled_from(sorted(LAYOUTS))), **about),
    }[mode]()
    return replace(made, id=card_id) if card_id else made


@st.composite
def held_cards(draw, index: int) -> Card:
    """A card of which strangers have some."""
    card: Card = draw(cards(index))
    if card.mode == "MIG":
        taken = draw(st.sets(st.sampled_from([slot.start for slot in card.slots])))
        slots = (replace(s, holder=stranger(index, s.start) if s.start in taken else "") for s in card.slots)
        return replace(card, slots=tuple(slots))
    if card.mode == "Exclusive":
        return _held(card, (100,) if draw(st.booleans()) else ())
    shares: list[int] = []
    for _ in range(draw(st.integers(0, 3))):
        if (left := card.capacity - sum(shares)) > 0:
            shares.append(draw(st.integers(1, left)))
    return _held(card, tuple(shares))


@st.composite
def nodes(draw, most: int = 4) -> Ledger:
    return node(*(draw(held_cards(index)) for index in range(draw(st.integers(0, most)))))


@st.composite
def shared_nodes(draw, most: int = 4) -> Ledger:
    """Cards shared by percent, outside pools."""
    taken = st.lists(st.integers(1, 33), max_size=3)
    return node(
        *(shared(index, *draw(taken), healthy=draw(st.integers(0, 5)) > 0) for index in range(1, most))
    )


@st.composite
def asked(draw, ledger: Ledger, most: int = 3) -> Wants:
    """Something the node has, though perhaps not enough of it; now and then something else."""
    pools = sorted({card.pool for card in ledger.cards}) or [""]
    profiles = sorted({slot.profile for card in ledger.cards for slot in card.slots}) or ["1g.10gb"]
    pool = st.sampled_from(pools) if draw(st.integers(0, 9)) else POOLS
    named = [name for name in pools if name] or ["red"]
    one: st.SearchStrategy[Want] = st.one_of(
        st.builds(Shares, st.integers(1, 2), PERCENT, pool),
        st.builds(Slots, st.sampled_from(profiles), st.integers(1, 3), pool),
        st.builds(Units, st.sampled_from(named), st.sampled_from([1, 1, 2, 3, 5, 50, 130, 200])),
    )
    return tuple(draw(st.lists(one, min_size=1, max_size=most)))


@st.composite
def meetings(draw, cards: int = 4, wants: int = 2) -> tuple[Ledger, Wants]:
    ledger = draw(nodes(cards))
    return ledger, draw(asked(ledger, wants))


def terms() -> st.SearchStrategy[Terms]:
    until = st.one_of(st.none(), st.integers(-60, 240).map(lambda seconds: NOON + timedelta(seconds=seconds)))
    return st.builds(Terms, st.booleans(), until, st.sampled_from(["", "", "mine"]))
