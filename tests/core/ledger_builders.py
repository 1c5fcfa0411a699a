"""Builders and hypothesis strategies for ledgers with cards in every mode, and for card requests."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model import card_name as naming
from croupier.core.model.card import CardMode, Grant, LedgerCard, MigSlot
from croupier.core.model.card_request import CardRequest, CardRequestItem, CardShares, MigDevices, PoolUnits
from croupier.core.model.refusal import Refusal
from croupier.core.placement.card_selection import Strategy

NODE = "node-1"
NOON = datetime(2030, 1, 31, 12, tzinfo=UTC)
STRATEGIES: tuple[Strategy, ...] = ("BinPack", "Spread", "LeastFragmentation")
BOUND = HoldTerms(bound=True)

LAYOUTS: dict[str, tuple[tuple[str, int, int], ...]] = {
    "small": tuple(("1g.10gb", start, 1) for start in range(7)),
    "medium": (("2g.20gb", 0, 2), ("2g.20gb", 2, 2), ("3g.40gb", 4, 4)),
    "mixed": (("3g.40gb", 0, 4), ("1g.10gb", 4, 1), ("1g.10gb", 5, 1), ("2g.20gb", 6, 2)),
    "large": (("7g.80gb", 0, 8),),
}


def card_id(index: int) -> str:
    """The name of a card by its address."""
    return naming.inventory_id(NODE, f"0000:{0x10 + index:02x}:00.0")


def shared(index: int = 0, *taken: int, **about) -> LedgerCard:
    """A card with other holders of `taken` percent each."""
    return _held(LedgerCard(card_id(index), index, **about), taken)


def exclusive(index: int = 0, *, taken: bool = False, **about) -> LedgerCard:
    return _held(LedgerCard(card_id(index), index, "Exclusive", **about), (100,) if taken else ())


def time_sliced(index: int = 0, *taken: int, slices: int = 4, **about) -> LedgerCard:
    return _held(LedgerCard(card_id(index), index, "TimeSlice", capacity=slices, **about), taken)


def mig(index: int = 0, layout: str = "small", *, taken: tuple[int, ...] = (), **about) -> LedgerCard:
    """A MIG card; the slots that start at `taken` have other holders."""
    slots = tuple(
        MigSlot(
            f"{profile}-{start}", profile, start, size, other_holder(index, start) if start in taken else ""
        )
        for profile, start, size in LAYOUTS[layout]
    )
    return LedgerCard(card_id(index), index, "MIG", slots=slots, **about)


def other_holder(index: int, number: int) -> str:
    return f"other/pod-{index}-{number}/uid-{index}-{number}"


def _held(card: LedgerCard, taken: tuple[int, ...]) -> LedgerCard:
    return replace(card, holders={other_holder(card.index, n): share for n, share in enumerate(taken)})


def node(*cards: LedgerCard, name: str = NODE) -> Ledger:
    return Ledger(name, cards)


def with_holder(ledger: Ledger, holder: str, grant: Grant, terms: HoldTerms = BOUND) -> Ledger:
    after = ledger_ops.give(ledger, holder, grant, terms)
    assert not isinstance(after, Refusal), after
    return after


def indexes(ledger: Ledger, grant: Grant) -> list[int]:
    """The indexes of the cards of a grant."""
    return [card.index for card in ledger.cards for part in grant if part.card == card.id]


POOLS = st.sampled_from(["", "", "red", "blue"])
PERCENT = st.sampled_from([1, 10, 20, 25, 30, 33, 50, 67, 99, 100, 100])
_MODES = st.sampled_from(["Percent", "Percent", "Exclusive", "MIG", "TimeSlice"])
_HEALTHY = st.sampled_from([True, True, True, True, False])
_CAPACITY = st.sampled_from([100, 100, 100, 80])
_SLICES = st.integers(1, 6)
_LAYOUT = st.sampled_from(sorted(LAYOUTS))
_STARTS = st.sets(st.integers(0, 7))
_TAKEN = st.lists(st.integers(1, 40), max_size=3)
_COUNT = st.sampled_from([1, 1, 2, 3])
_UNITS = st.sampled_from([1, 1, 2, 3, 5, 50, 130, 200])
_KIND = st.sampled_from([CardShares, MigDevices, PoolUnits])
_SOME = st.integers(0, 1 << 16)


@st.composite
def cards(draw, index: int) -> LedgerCard:
    """A card without holders, in any mode and pool."""
    mode: CardMode = draw(_MODES)
    pool, healthy = draw(POOLS), draw(_HEALTHY)
    if mode == "Percent":
        return shared(index, capacity=draw(_CAPACITY), pool=pool, healthy=healthy)
    if mode == "Exclusive":
        return exclusive(index, pool=pool, healthy=healthy)
    if mode == "TimeSlice":
        return time_sliced(index, slices=draw(_SLICES), pool=pool, healthy=healthy)
    return mig(index, draw(_LAYOUT), pool=pool, healthy=healthy)


CARDS = tuple(cards(index) for index in range(4))


@st.composite
def nodes(draw, most: int = 4) -> Ledger:
    """A node whose cards have some holders."""
    return node(*(_used(draw(CARDS[index]), draw) for index in range(draw(st.integers(0, most)))))


def _used(card: LedgerCard, draw: st.DrawFn) -> LedgerCard:
    if card.mode == "MIG":
        taken = draw(_STARTS)
        slots = (
            replace(s, holder=other_holder(card.index, s.start) if s.start in taken else "")
            for s in card.slots
        )
        return replace(card, slots=tuple(slots))
    shares = [100, 1] if card.mode == "Exclusive" and draw(_COUNT) > 1 else draw(_TAKEN)
    fitting = [share for n, share in enumerate(shares) if sum(shares[: n + 1]) <= card.capacity]
    return _held(card, tuple(share for share in fitting if card.mode != "Exclusive" or share == 100))


@st.composite
def shared_nodes(draw, most: int = 4) -> Ledger:
    """Cards shared by percent, outside pools."""
    return node(*(shared(index, *draw(_TAKEN)[:2], healthy=draw(_HEALTHY)) for index in range(1, most)))


@st.composite
def ledgers_and_requests(draw, cards: int = 4, wants: int = 2) -> tuple[Ledger, CardRequest]:
    ledger = draw(nodes(cards))
    return ledger, tuple(request_item(ledger, draw) for _ in range(1 + draw(_SOME) % wants))


def request_item(ledger: Ledger, draw: st.DrawFn) -> CardRequestItem:
    """A request for something that the node has, perhaps not enough of it."""
    pools = sorted({card.pool for card in ledger.cards}) or [""]
    profiles = sorted({slot.profile for card in ledger.cards for slot in card.slots}) or ["1g.10gb"]
    kind, some = draw(_KIND), draw(_SOME)
    pool = pools[some % len(pools)]
    if kind is CardShares:
        return CardShares(min(2, draw(_COUNT)), draw(PERCENT), pool)
    if kind is MigDevices:
        return MigDevices(profiles[some % len(profiles)], draw(_COUNT), pool)
    return PoolUnits(pool or "red", draw(_UNITS))


def terms() -> st.SearchStrategy[HoldTerms]:
    until = st.one_of(st.none(), st.integers(-60, 240).map(lambda seconds: NOON + timedelta(seconds=seconds)))
    return st.builds(HoldTerms, st.booleans(), until, st.sampled_from(["", "", "mine"]))
