"""State machine test of pools: allocation changes, holders, failing agents, drift and faulted cards.

The simulated ledger and agent follow the rules of the real ones: a card is allocated only while its pool, its
annotations and its layout allow it, and repartitioned only while no pod holds it or can get it. In any order
of events no held card is changed, and without further events the pool serves again.
"""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from croupier.core.model import mig
from croupier.core.model.sharing import ReportedLayout, Sharing
from croupier.core.pools import maintenance
from croupier.core.pools.sharing_change import PoolDecision, PoolFacts, PoolMember, SharingChange

FITS = {"1g": 7, "3g": 2}
SHARINGS = (
    Sharing("Exclusive"),
    Sharing("TimeSlice", slices=4),
    Sharing("MIG", profile="1g"),
    Sharing("MIG", layout=(("1g", 1), ("3g", 1))),
)
CARDS = 3
EVENTUALLY = 80
"""Rounds after which an undisturbed pool must be stable."""


def layout(wanted: Sharing) -> dict[str, int]:
    if wanted.mode != "MIG":
        return {}
    return dict(wanted.layout) or {wanted.profile: FITS[wanted.profile]}


@dataclass
class Device:
    """A card: its annotations, layout and holders, and the last reports of ledger and agent."""

    own: Sharing | None = None
    drained: bool = False
    profiles: dict[str, int] = field(default_factory=dict)
    state: str = "Applied"
    target: str = "whole"
    given_as: Sharing | None = None
    """The sharing at the time of the allocation; None while no pod holds the card."""
    withdrawn_in_book: bool = False
    occupancy: str = "Free"
    unavailable: bool = False


class Pools(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.wanted = self.applied = SHARINGS[0]
        self.per_card = False
        self.change: SharingChange | None = None
        self.maintenance = self.misconfigured = False
        self.reason = ""
        self.confirmed = False
        self.fails = False
        self.last: PoolDecision | None = None
        self.cards = {f"card-{number}": Device() for number in range(CARDS)}
        self.troubles: set[str] = set()

    @initialize(troubles=st.sets(st.sampled_from(["failure", "drift", "fault"]), max_size=2))
    def choose(self, troubles: set[str]) -> None:
        """Not every run has every fault, or no change would ever get far."""
        self.troubles = troubles

    def desired_sharing(self, card: Device) -> Sharing:
        return card.own or self.applied

    def is_withheld(self, card: Device) -> bool:
        right = card.profiles == layout(self.desired_sharing(card))
        closed = self.maintenance or self.misconfigured
        return closed or card.drained or card.unavailable or card.state != "Applied" or not right

    # What people do.

    @rule(wanted=st.sampled_from(SHARINGS), per_card=st.booleans())
    def wish(self, wanted: Sharing, per_card: bool) -> None:
        self.wanted, self.per_card = wanted, per_card

    @rule()
    def confirm(self) -> None:
        self.confirmed = True

    @rule(number=st.integers(0, CARDS - 1))
    def take(self, number: int) -> None:
        card = self.cards[f"card-{number}"]
        if not card.withdrawn_in_book and card.given_as is None and not self.is_withheld(card):
            card.given_as = self.desired_sharing(card)

    @rule(number=st.integers(0, CARDS - 1))
    def leave(self, number: int) -> None:
        self.cards[f"card-{number}"].given_as = None

    # What goes wrong.

    @precondition(lambda self: "failure" in self.troubles)
    @rule(fails=st.booleans())
    def agents_fail(self, fails: bool) -> None:
        self.fails = fails

    @precondition(lambda self: "drift" in self.troubles)
    @rule(number=st.integers(0, CARDS - 1))
    def drift(self, number: int) -> None:
        card = self.cards[f"card-{number}"]
        if card.state == "Applied" and card.profiles == layout(self.desired_sharing(card)):
            card.profiles, card.state = {"1g": 2}, "Drifted"

    @precondition(lambda self: "fault" in self.troubles)
    @rule(number=st.integers(0, CARDS - 1), unavailable=st.booleans())
    def fault(self, number: int, unavailable: bool) -> None:
        self.cards[f"card-{number}"].unavailable = unavailable

    # What the machinery does, each in its own time.

    @rule()
    def ledger(self) -> None:
        for card in self.cards.values():
            card.withdrawn_in_book = self.is_withheld(card)
            if card.given_as is not None:
                card.occupancy = "InUse"
            else:
                card.occupancy = "Withdrawn" if card.withdrawn_in_book else "Free"

    @rule()
    def agents(self) -> None:
        for card in self.cards.values():
            if not card.unavailable:
                self.cut(card)

    def cut(self, card: Device) -> None:
        wanted = layout(self.desired_sharing(card))
        aimed = mig.layout_text(mig.canonical(wanted.items()))
        if card.profiles == wanted:
            card.state, card.target = "Applied", aimed
        elif card.occupancy != "Withdrawn" or card.given_as is not None or not self.is_withheld(card):
            card.state = "Drifted" if card.state == "Drifted" else "Waiting"
            card.target = aimed
        elif self.fails:
            card.state, card.target = "Failed", aimed
        else:
            card.profiles, card.state, card.target = dict(wanted), "Applied", aimed

    @rule()
    def look(self) -> None:
        found = maintenance.decide(self.facts())
        if found.sharing != self.applied:
            rides = [card for card in self.cards.values() if card.own is None]
            assert all(card.given_as is None for card in rides), "a pool changed under a holder"
        self.applied, self.change = found.sharing, found.change
        self.maintenance, self.misconfigured = found.maintenance.holds, found.misconfigured.holds
        self.reason = found.misconfigured.reason if found.misconfigured.holds else ""
        for step in found.steps:
            self.cards[step.card].own, self.cards[step.card].drained = step.sharing, step.drained
        self.confirmed = False
        self.last = found

    def facts(self) -> PoolFacts:
        return PoolFacts(
            wanted=self.wanted,
            applied=self.applied,
            change=self.change,
            per_card=self.per_card,
            members=tuple(self.member(name, card) for name, card in self.cards.items()),
            closed=self.maintenance,
            misconfigured=self.reason,
            confirmed=self.confirmed,
        )

    def member(self, name: str, card: Device) -> PoolMember:
        return PoolMember(
            name,
            desired_sharing=self.desired_sharing(card),
            has_own_sharing=card.own is not None,
            occupancy=card.occupancy,
            cut=ReportedLayout(card.state, card.profiles, card.target),
            fits=FITS,
            drained=card.drained,
            unavailable=card.unavailable,
            holdings=("ml/p holds it",) if card.given_as is not None else (),
        )

    @invariant()
    def who_holds_a_card_keeps_it(self) -> None:
        for card in self.cards.values():
            if card.given_as is not None and card.state != "Drifted":
                drifted = card.profiles == {"1g": 2}
                assert drifted or card.profiles == layout(card.given_as)

    @precondition(lambda self: not any(card.unavailable for card in self.cards.values()))
    @rule()
    def it_comes_to_rest(self) -> None:
        """No more disturbances: holders end, agents work, and the change is confirmed."""
        self.fails = False
        for card in self.cards.values():
            card.given_as = None
        for _ in range(EVENTUALLY):
            self.confirmed = self.reason == "AwaitingConfirmation"
            self.look()
            self.ledger()
            self.agents()
        assert self.last is not None
        assert not self.maintenance, self.last.maintenance
        assert not self.misconfigured
        assert self.last.steps == ()
        assert not any(card.own or card.drained for card in self.cards.values())
        assert all(card.profiles == layout(self.applied) for card in self.cards.values())
        refused = self.change is not None and self.change.failed
        assert self.applied == (self.change.before if self.change and refused else self.wanted)
        assert replace(self.last, change=self.change) == maintenance.decide(self.facts())


TestPools = Pools.TestCase
TestPools.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
