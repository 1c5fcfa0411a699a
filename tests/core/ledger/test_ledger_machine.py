"""Any interleaving of changes of a node keeps the invariants of the ledger.

The ledger is compared with a simple model, which records the grant of every holder. Both must agree after
every step, whatever happens to the clock, the cards and their names.
"""

from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from croupier.core.claims import claim as claims
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.ledger import change_layout
from croupier.core.ledger import ledger as book
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model import card_name as naming
from croupier.core.model.card import CardGrant, Grant, LedgerCard
from croupier.core.model.card_request import CardRequest, CardShares
from croupier.core.model.refusal import Refusal
from tests.core import ledger_builders
from tests.core.ledger_builders import CARDS, LAYOUTS, NODE, NOON, STRATEGIES

NUMBERS = {name: n for n in range(4) for name in (ledger_builders.card_id(n), naming.indexed_id(NODE, n))}
PODS = st.integers(0, 5).map(lambda n: f"ns/pod-{n}")
TIMES = st.sampled_from([None, *(NOON + timedelta(seconds=seconds) for seconds in (-30, 30, 120))])
STRATEGY = st.sampled_from(STRATEGIES)
NUMBER = st.integers(0, 3)

Has = frozenset[tuple[int, int, tuple[str, ...]]]


def has(grant: Grant) -> Has:
    """A grant by physical cards, independent of their names."""
    return frozenset((NUMBERS[part.card], part.share, tuple(sorted(part.slots))) for part in grant)


class Node(RuleBasedStateMachine):
    @initialize(cards=st.tuples(*CARDS))
    def opens(self, cards: tuple[LedgerCard, ...]) -> None:
        self.start = dict(enumerate(cards))
        self.cards = dict(self.start)
        self.absent: set[int] = set()
        self.indexed = False
        self.now = NOON
        self.model: dict[str, Has] = {}
        self.until: dict[str, datetime | None] = {}
        self.reservations: dict[str, str] = {}
        self.ledger = change_layout.apply_report(Ledger(NODE), self._report())
        self.before = self.ledger

    def _report(self) -> list[LedgerCard]:
        """Without an inventory the cards are only counted."""
        there = [self.cards[number] for number in self.cards if number not in self.absent]
        if self.indexed:
            return [LedgerCard(naming.indexed_id(NODE, card.index), card.index) for card in there]
        return there

    def _reported(self) -> None:
        report = self._report()
        self.ledger = change_layout.apply_report(self.ledger, report)
        assert change_layout.apply_report(self.ledger, report) is self.ledger
        for card in report:
            ours = self.ledger.card(card.id)
            assert ours is not None
            assert ours.healthy == card.healthy
            assert not ours.is_free or change_layout.same_layout(ours, card)

    def _claimed(self, claim: CardClaim, strategy) -> bool:
        answer = claims.decide(self.ledger, claim, strategy)
        assert isinstance(answer, Refusal) == isinstance(claims.rank(self.ledger, claim, strategy), Refusal)
        if isinstance(answer, Refusal):
            return False
        again = claims.decide(answer.ledger, claim, strategy)
        assert isinstance(again, Granted)
        assert again.ledger is answer.ledger
        assert again.grant == answer.grant == answer.ledger.grant(claim.holder)
        if claim.holder in self.model:
            assert replace(answer.ledger, held=self.ledger.held) == self.ledger
            self.ledger = answer.ledger
            self._prolonged(claim)
            return False
        sick = {card.id for card in self.ledger.cards if not card.healthy}
        assert not sick & {part.card for part in answer.grant}
        self.ledger = answer.ledger
        return True

    def _prolonged(self, claim: CardClaim) -> None:
        """A repeated claim extends the hold and never shortens it."""
        until, wanted = self.until.get(claim.holder), claim.terms.until
        if until is not None and wanted is not None and not claim.terms.bound:
            self.until[claim.holder] = max(until, wanted)

    def _given(self, claim: CardClaim) -> None:
        self.model[claim.holder] = has(self.ledger.grant(claim.holder))
        if not claim.terms.bound:
            self.until[claim.holder] = claim.terms.until
        if claim.terms.reservation:
            self.reservations[claim.holder] = claim.terms.reservation

    def _gone(self, holder: str) -> None:
        for kept in (self.model, self.until, self.reservations):
            kept.pop(holder, None)

    @rule(
        pod=PODS, uid=st.integers(0, 1), bound=st.booleans(), until=TIMES, strategy=STRATEGY, data=st.data()
    )
    def claim(self, pod, uid, bound, until, strategy, data) -> None:
        wants: CardRequest = tuple(
            ledger_builders.request_item(self.ledger, data.draw) for _ in range(data.draw(st.integers(1, 2)))
        )
        if pod in self.model:
            return
        claim = CardClaim(f"{pod}/uid-{uid}", wants, HoldTerms(bound, until))
        if self._claimed(claim, strategy):
            self._given(claim)

    @rule(pod=PODS, cards=st.integers(1, 2), percent=ledger_builders.PERCENT, until=TIMES, strategy=STRATEGY)
    def reserve(self, pod, cards, percent, until, strategy) -> None:
        claim = CardClaim(
            pod, (CardShares(cards, percent),), HoldTerms(until=until, reservation=f"of-{pod[3:]}")
        )
        if self._claimed(claim, strategy):
            self._given(claim)

    @rule(
        pod=PODS,
        wants=st.sampled_from([(), (), (CardShares(1, 50),), (CardShares(7, 3),)]),
        bound=st.booleans(),
        until=TIMES,
    )
    def take_over(self, pod, wants, bound, until) -> None:
        """The pod of a Reservation appears."""
        if pod not in self.model or f"{pod}/uid-0" in self.model:
            return
        reserved, fits = self.model[pod], not wants or wants == (CardShares(1, 50),)
        claim = CardClaim(f"{pod}/uid-0", wants, HoldTerms(bound, until))
        if not self._claimed(claim, "Spread"):
            return
        assert fits
        assert not wants or [share for _, share, _ in reserved] == [50]
        self.model[f"{pod}/uid-0"] = self.model.pop(pod)
        self.reservations[f"{pod}/uid-0"] = self.reservations.pop(pod)
        before = self.until.pop(pod)
        if not bound:
            self.until[claim.holder] = before
            self._prolonged(claim)

    @rule(pod=PODS, number=NUMBER, spare=st.integers(-1, 1), data=st.data())
    def seize(self, pod, number, spare, data) -> None:
        """A grant without placement: about as much as is free, or any slots."""
        card = next((card for card in self.ledger.cards if NUMBERS[card.id] == number), None)
        if card is None or pod in self.model or f"{pod}/uid-0" in self.model:
            return
        slots = tuple(slot.id for slot in card.slots if data.draw(st.booleans()))
        share = 0 if card.mode == "MIG" else card.capacity - sum(card.holders.values()) + spare
        after = book.give(
            self.ledger, f"{pod}/uid-0", (CardGrant(card.id, share, slots),), HoldTerms(bound=True)
        )
        if not isinstance(after, Refusal):
            assert card.healthy
            self.ledger = after
            self._given(CardClaim(f"{pod}/uid-0", (), HoldTerms(bound=True)))

    @rule(pod=PODS, uid=st.sampled_from(["", "/uid-0", "/uid-1"]))
    def release(self, pod, uid) -> None:
        """Its pod or its Reservation is deleted."""
        self.ledger = book.release(self.ledger, f"{pod}{uid}")
        assert book.release(self.ledger, f"{pod}{uid}") is self.ledger
        self._gone(f"{pod}{uid}")

    @rule(seconds=st.sampled_from([-3600, -30, 30, 120, 7200]))
    def time_moves(self, seconds) -> None:
        self.now += timedelta(seconds=seconds)
        late = book.expired(self.ledger, self.now)
        assert set(late) == {h for h, until in self.until.items() if until is not None and until <= self.now}
        for holder in late:
            self.ledger = book.release(self.ledger, holder)
            self._gone(holder)

    @rule(pod=PODS, uid=st.integers(0, 1))
    def bind(self, pod, uid) -> None:
        holder = f"{pod}/uid-{uid}"
        self.ledger = book.bind(self.ledger, holder)
        self.until.pop(holder, None)

    @rule(pod=PODS, uid=st.sampled_from(["", "/uid-0"]), until=TIMES)
    def prolong(self, pod, uid, until) -> None:
        self.ledger = book.extend(self.ledger, f"{pod}{uid}", until)
        if f"{pod}{uid}" in self.until:
            self.until[f"{pod}{uid}"] = until

    @rule(number=NUMBER, data=st.data())
    def is_repartitioned(self, number, data) -> None:
        self.cards[number] = data.draw(CARDS[number])
        self._reported()

    @rule(number=NUMBER, layout=st.sampled_from(sorted(LAYOUTS)), slices=st.integers(1, 6))
    def is_partitioned_finer_or_coarser(self, number, layout, slices) -> None:
        card = self.cards[number]
        if card.mode == "MIG":
            self.cards[number] = replace(card, slots=ledger_builders.mig(number, layout).slots)
        elif card.mode == "TimeSlice":
            self.cards[number] = replace(card, capacity=slices)
        self._reported()

    @rule(number=NUMBER)
    def becomes_unhealthy_or_recovers(self, number) -> None:
        self.cards[number] = replace(self.cards[number], healthy=not self.cards[number].healthy)
        self._reported()

    @rule(number=NUMBER)
    def vanishes_or_returns(self, number) -> None:
        if number in self.absent and self._has_lost_holder():
            return
        self.absent ^= {number}
        self._reported()

    def _has_lost_holder(self) -> bool:
        """A holder is on a missing card with another kind of name than the current cards.

        The next new card could be that card and takes over the holder, so the model would not match.
        """
        names = {
            card.id for card in self.ledger.cards if not card.is_free and NUMBERS[card.id] in self.absent
        }
        return any(naming.is_indexed(name) != self.indexed for name in names)

    @rule()
    def the_inventory_appears_or_disappears(self) -> None:
        self.indexed = not self.indexed
        self._reported()

    @invariant()
    def has_no_invariant_violations(self) -> None:
        assert not book.invariant_violations(self.ledger)
        for card in self.ledger.cards:
            used = sum(card.holders.values())
            assert used <= (0 if card.mode == "MIG" else card.capacity)
            assert card.mode != "Exclusive" or used in (0, 100)
            covered = [slice_ for s in card.slots for slice_ in range(s.start, s.start + s.size)]
            assert len(covered) == len(set(covered))
        numbers = [NUMBERS[card.id] for card in self.ledger.cards]
        assert len(numbers) == len(set(numbers)), "one card under two names"

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert {holder: has(self.ledger.grant(holder)) for holder in self.ledger.holders()} == self.model
        assert self.ledger.held == self.until
        assert self.ledger.reservations == self.reservations

    @invariant()
    def epochs_rise(self) -> None:
        for old in self.before.cards:
            new = self.ledger.card(old.id)
            if new is not None:
                changed = (old.mode, old.healthy) != (new.mode, new.healthy)
                assert new.epoch > old.epoch if changed else new.epoch >= old.epoch
        self.before = self.ledger

    def teardown(self) -> None:
        """After all holders are released, the free capacity is the original one."""
        if not hasattr(self, "ledger"):
            return
        for holder in list(self.model):
            self.ledger = book.release(self.ledger, holder)
        self.cards, self.absent, self.indexed = dict(self.start), set(), False
        self.ledger = change_layout.apply_report(self.ledger, self._report())

        assert not self.ledger.held
        assert not self.ledger.reservations
        assert [replace(card, epoch=1) for card in self.ledger.cards] == list(self.start.values())


TestNode = Node.TestCase
TestNode.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
