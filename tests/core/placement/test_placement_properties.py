"""Properties of every placement, for any node and request."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from croupier.core.ledger import ledger as book
from croupier.core.ledger import totals
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.model.card_request import WHOLE_CARD, CardRequest, CardShares, MigDevices, PoolUnits
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement
from tests.core.ledger_builders import (
    BOUND,
    PERCENT,
    STRATEGIES,
    exclusive,
    ledgers_and_requests,
    mig,
    node,
    shared,
    shared_nodes,
    time_sliced,
)

EVERY = st.sampled_from(STRATEGIES)
MINE = "mine/pod/uid"


def fits(ledger: Ledger, wants: CardRequest) -> bool:
    """Exhaustive search: one item after the other, on every set of cards."""
    amounts = {card.id: _left(card) for card in ledger.cards if card.healthy}
    slots = {
        card.id: Counter(s.profile for s in card.slots if not s.holder)
        for card in ledger.cards
        if card.healthy and card.mode == "MIG"
    }
    return _fits(ledger, list(_added_up(wants)), (amounts, slots), frozenset())


def _left(card: LedgerCard) -> int:
    used = sum(card.holders.values())
    return 0 if card.mode == "Exclusive" and used else card.capacity - used


def _added_up(wants: CardRequest) -> CardRequest:
    units = Counter[str]()
    for want in wants:
        if isinstance(want, PoolUnits):
            units[want.pool] += want.count
    return (*(w for w in wants if not isinstance(w, PoolUnits)), *(PoolUnits(p, n) for p, n in units.items()))


def _fits(ledger, wants, left, used) -> bool:
    if not wants:
        return True
    want, rest = wants[0], wants[1:]
    ours = [card for card in ledger.cards if card.pool == want.pool and card.healthy]
    if isinstance(want, MigDevices):
        return any(
            _fits(ledger, rest, now, used) for now in _without_slots(ours, want.profile, want.count, left)
        )
    if isinstance(want, CardShares):
        modes = ("Percent", "Exclusive") if want.percent == WHOLE_CARD else ("Percent",)
        return _shares_fit(ledger, rest, left, used, [c for c in ours if c.mode in modes], want)
    by_mode = {mode: [card for card in ours if card.mode == mode] for mode in {card.mode for card in ours}}
    return any(
        _units_fit(ledger, rest, left, used, mode=mode, cards=cards, want=want)
        for mode, cards in by_mode.items()
    )


def _shares_fit(ledger, rest, left, used, cards, want) -> bool:
    free = [card.id for card in cards if card.id not in used and left[0][card.id] >= want.percent]
    return any(_fits(ledger, rest, left, used | {*some}) for some in combinations(free, want.cards))


def _units_fit(ledger, rest, left, used, *, mode, cards, want) -> bool:
    if mode == "MIG":
        return any(_fits(ledger, rest, now, used) for now in _without_slots(cards, "", want.count, left))
    if mode == "TimeSlice":
        return sum(left[0][card.id] for card in cards) >= want.count and _fits(ledger, rest, left, used)
    if mode == "Exclusive":
        return _shares_fit(ledger, rest, left, used, cards, CardShares(want.count, WHOLE_CARD))
    if want.count <= WHOLE_CARD:
        return _shares_fit(ledger, rest, left, used, cards, CardShares(1, want.count))
    if want.count % WHOLE_CARD:
        return False
    return _shares_fit(ledger, rest, left, used, cards, CardShares(want.count // WHOLE_CARD, WHOLE_CARD))


def _without_slots(cards, profile, count, left) -> Iterator[Any]:
    """Every way to take `count` slots, by profile and card."""
    amounts, slots = left
    kinds = [
        (card.id, kind)
        for card in cards
        if card.mode == "MIG"
        for kind, number in slots[card.id].items()
        if profile in ("", kind)
        for _ in range(number)
    ]
    for taken in {tuple(sorted(some)) for some in combinations(kinds, count)}:
        after = {card: Counter(counted) for card, counted in slots.items()}
        for card, kind in taken:
            after[card][kind] -= 1
        yield amounts, after


@given(ledgers_and_requests(cards=3), EVERY)
@example((node(shared(0), exclusive(1)), (CardShares(1, 50), CardShares(1))), "Spread")
@example((node(shared(0, 40), shared(1)), (CardShares(1, 10), CardShares(1, 100))), "Spread")
@example(
    (node(mig(0, "medium", pool="red")), (PoolUnits("red", 2), MigDevices("3g.40gb", 1, "red"))), "BinPack"
)
@example(
    (node(exclusive(0, pool="red"), shared(1, pool="red")), (CardShares(1, 100, "red"), PoolUnits("red", 1))),
    "BinPack",
)
@settings(max_examples=250, deadline=None)
def test_a_placement_is_found_if_and_only_if_it_exists(meeting, strategy):
    ledger, wants = meeting
    grant = placement.choose(ledger, wants, strategy)

    assert isinstance(grant, Refusal) != fits(ledger, wants)


@given(ledgers_and_requests(), EVERY)
@example((node(mig(0, "small")), (MigDevices("1g.10gb", 1), MigDevices("1g.10gb", 1))), "BinPack")
@settings(max_examples=120, deadline=None)
def test_a_grant_is_valid_and_matches_the_request(meeting, strategy):
    ledger, wants = meeting
    plan = placement.plan(ledger, wants, strategy)
    if isinstance(plan, Refusal):
        return

    after = book.give(ledger, MINE, plan.grant, BOUND)

    assert not isinstance(after, Refusal), after
    assert not book.invariant_violations(after)
    assert after.grant(MINE) == plan.grant
    if sum(isinstance(want, PoolUnits) for want in wants) in (0, len(wants)):
        assert totals.matches(after, plan.grant, wants)
    of = {part.card for part in plan.grant}
    assert all(card.healthy for card in ledger.cards if card.id in of)
    assert {card.pool for card in ledger.cards if card.id in of} <= {want.pool for want in wants}


@given(ledgers_and_requests(), EVERY, st.randoms(use_true_random=False))
@settings(max_examples=120, deadline=None)
def test_the_order_of_cards_does_not_matter(meeting, strategy, chance):
    ledger, wants = meeting
    shuffled = list(ledger.cards)
    chance.shuffle(shuffled)

    plan = placement.plan(ledger, wants, strategy)
    again = placement.plan(replace(ledger, cards=tuple(shuffled)), wants, strategy)

    if isinstance(plan, Refusal) or isinstance(again, Refusal):
        assert isinstance(plan, Refusal)
        assert isinstance(again, Refusal)
        assert plan.reason == again.reason
    else:
        assert {part.card: set(part.slots) or part.share for part in plan.grant} == {
            part.card: set(part.slots) or part.share for part in again.grant
        }
        assert plan.rank == again.rank


@given(shared_nodes(), PERCENT)
@settings(max_examples=100, deadline=None)
def test_bin_pack_uses_no_unused_card_while_a_used_one_fits(ledger, percent):
    grant = placement.choose(ledger, (CardShares(1, percent),), "BinPack")
    room = {card.id: card.capacity - card.used for card in ledger.cards if card.holders and card.healthy}

    if any(left >= percent for left in room.values()):
        assert not isinstance(grant, Refusal)
        assert grant[0].card in room


@given(shared_nodes(), PERCENT)
@settings(max_examples=100, deadline=None)
def test_spread_takes_the_emptiest_card(ledger, percent):
    grant = placement.choose(ledger, (CardShares(1, percent),), "Spread")
    room = {card.id: card.capacity - card.used for card in ledger.cards if card.healthy}

    if not isinstance(grant, Refusal):
        assert room[grant[0].card] == max(room.values())


@given(ledgers_and_requests(), EVERY)
@settings(max_examples=120, deadline=None)
def test_a_refusal_reason_names_neither_node_nor_card(meeting, strategy):
    ledger, wants = meeting
    refused = placement.rank(ledger, wants, strategy)
    if not isinstance(refused, Refusal):
        return

    assert refused.reason
    assert not refused.reason.endswith(".")
    assert refused.reason[0] == refused.reason[0].lower()
    assert not any(name in refused.reason for name in (ledger.node, "card 0", "card 1", "card 2", "card 3"))


@given(st.integers(1, 12), st.integers(0, 3), EVERY)
@settings(max_examples=60, deadline=None)
def test_slices_are_never_more_than_a_card_has(count, taken, strategy):
    ledger = node(
        time_sliced(0, *([1] * taken), pool="red"),
        time_sliced(1, pool="red"),
        time_sliced(2, pool="red", slices=2),
    )

    grant = placement.choose(ledger, (PoolUnits("red", count),), strategy)

    assert isinstance(grant, Refusal) == (count > 10 - taken)
    if not isinstance(grant, Refusal):
        assert sum(part.share for part in grant) == count
