"""Any sequence of changes of Reservations and pods, with lost status writes."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from croupier.core.claims import claim, reservation, reservation_inputs, reservation_status
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.claims.reservation_inputs import PHASE_CHANGES, LastReservationStatus, ReservationRequest
from croupier.core.ledger import ledger as book
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, Grant
from croupier.core.model.pod_view import PodView
from tests.core.reservation_builders import (
    NODE,
    after_noon,
    cards,
    inputs,
    reservation_request,
    with_ended_pods,
)

NAMES = st.sampled_from(["a", "b", "c", "d"])
PODS = st.sampled_from(["default/p", "default/q", "default/r"])


class Node(RuleBasedStateMachine):
    """One node of three cards, four Reservations at most, three pods."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = cards(3)
        self.asked: dict[str, ReservationRequest] = {}
        self.pods: dict[str, PodView] = {}
        self.seconds = 0.0
        self.born = 0

    @rule(
        name=NAMES,
        pod=PODS,
        count=st.integers(1, 4),
        percent=st.integers(1, 100),
        ttl=st.none() | st.integers(1, 90),
        priority=st.integers(-1, 1),
    )
    def create(self, name, pod, count, percent, ttl, priority):
        if name not in self.asked:
            self.asked[name] = reservation_request(
                name,
                count,
                percent,
                pod=pod,
                ttl=ttl,
                priority=priority,
                age=-self.seconds,
                has_finalizer=False,
            )

    @rule(name=NAMES)
    def delete(self, name):
        if name in self.asked:
            self.asked[name] = replace(self.asked[name], deleted=True)
            if not self.asked[name].has_finalizer:
                del self.asked[name]

    @rule(name=NAMES, ttl=st.none() | st.integers(1, 90))
    def change(self, name, ttl):
        if name in self.asked:
            self.asked[name] = replace(
                self.asked[name],
                until=None if ttl is None else self.asked[name].created + timedelta(seconds=ttl),
            )

    @rule(pod=PODS)
    def pod_is_created(self, pod):
        if pod not in self.pods:
            self.born += 1
            self.pods[pod] = PodView(pod, f"uid-{self.born}")

    @rule(pod=PODS)
    def scheduler_holds(self, pod):
        """Like the extender: an empty request takes the cards of the Reservation."""
        view = self.pods.get(pod)
        if view is not None and not view.node and not view.finished:
            taken = claim.decide(
                self.ledger,
                CardClaim(view.holder, (), HoldTerms(until=after_noon(self.seconds + 60))),
                "BinPack",
            )
            self.ledger = taken.ledger if isinstance(taken, Granted) else self.ledger

    @rule(pod=PODS, node=st.sampled_from([NODE, "node-2"]))
    def pod_is_bound(self, pod, node):
        view = self.pods.get(pod)
        if view is not None and not view.node and not view.finished:
            self.pods[pod] = replace(view, node=node)

    @rule(pod=PODS)
    def pod_ends(self, pod):
        if pod in self.pods:
            self.pods[pod] = replace(self.pods[pod], finished=True)

    @rule(pod=PODS)
    def pod_is_deleted(self, pod):
        self.pods.pop(pod, None)

    @rule(seconds=st.integers(1, 60))
    def time_passes(self, seconds):
        self.seconds += seconds

    @rule(percent=st.integers(1, 100))
    def another_pod_takes(self, percent):
        grant = (CardGrant(self.ledger.cards[0].id, percent),)
        given = book.give(self.ledger, "other/pod/uid", grant, HoldTerms(bound=True))
        self.ledger = given if isinstance(given, Ledger) else self.ledger

    @rule()
    def another_pod_is_released(self):
        self.ledger = book.release(self.ledger, "other/pod/uid")

    @rule(lost=st.sets(NAMES))
    def controller_reconciles(self, lost):
        """Status and finalizers of `lost` are not written, as after a crash or a conflict."""
        self.look(lost)

    def look(self, lost: set[str]) -> None:
        what = self.scene()
        for key in reservation.without_finalizer(self.ledger, what, "BinPack"):
            name = key.partition("/")[2]
            if name not in lost:
                self.asked[name] = replace(self.asked[name], has_finalizer=True)
        what = replace(what, reservations=tuple(self.asked.values()))
        running = self.running()
        self.ledger = reservation.apply(self.ledger, what, "BinPack")
        assert self.running().items() >= running.items(), "a running pod lost its cards"
        assert reservation.apply(self.ledger, what, "BinPack") == self.ledger
        judged = reservation_status.decide(self.ledger, what, {}, "BinPack")
        for key, outcome in judged.outcomes.items():
            name = key.partition("/")[2]
            old = self.asked[name].last_status
            if name in lost:
                continue
            if (old.phase, old.reason) != (outcome.phase, outcome.reason):
                assert outcome.phase in PHASE_CHANGES[old.phase], f"{old} became {outcome}"
            status = LastReservationStatus(outcome.phase, outcome.reason, outcome.message, what.now)
            self.asked[name] = replace(self.asked[name], last_status=status)
        for key in judged.free:
            if key.partition("/")[2] not in lost:
                del self.asked[key.partition("/")[2]]

    def scene(self) -> reservation_inputs.ReservationInputs:
        gone = tuple(reservation.ended_holders(self.ledger, self.pods)[1])
        orphans = frozenset(reservation.unknown_reservations(self.ledger, self.asked.values()))
        what = inputs(*self.asked.values(), pods=tuple(self.pods.values()), seconds=self.seconds)
        return replace(with_ended_pods(self.ledger, what, gone), orphans=orphans)

    def running(self) -> dict[str, Grant]:
        """The grants of the pods that run here."""
        alive = [pod for pod in self.pods.values() if pod.node == NODE and not pod.finished]
        return {pod.holder: grant for pod in alive if (grant := self.ledger.grant(pod.holder))}

    @invariant()
    def the_ledger_is_valid(self):
        assert book.invariant_violations(self.ledger) == []

    @invariant()
    def no_reservation_holds_without_finalizer(self):
        guarded = {request.name for request in self.asked.values() if request.has_finalizer}
        waiting = {name for holder, name in self.ledger.reservations.items() if holder.count("/") == 1}
        assert waiting <= guarded

    def teardown(self) -> None:
        """Without further events the state converges, and the statuses mirror the ledger."""
        for _ in range(3):
            self.look(set())
        rested = (self.ledger, dict(self.asked))
        self.look(set())
        assert (self.ledger, self.asked) == rested

        holding = set(self.ledger.reservations.values())
        assert {
            request.name for request in self.asked.values() if request.last_status.phase == "Reserved"
        } == holding
        self.everything_can_be_given_back()

    def everything_can_be_given_back(self) -> None:
        self.asked = {name: replace(request, deleted=True) for name, request in self.asked.items()}
        self.pods = {}
        self.ledger = book.release(self.ledger, "other/pod/uid")
        self.look(set())
        assert self.asked == {}
        for holder in tuple(self.ledger.holders()):  # holds that a pod has taken over
            assert holder.count("/") == 2
            self.ledger = book.release(self.ledger, holder)
        assert self.ledger == cards(3)


Node.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestNode = Node.TestCase
