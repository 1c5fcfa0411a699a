"""A ledger rebuilt from records: no grant is lost, and no invalid record overcommits."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.claims import rebuild
from croupier.core.ledger import ledger
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard, ReportedPool
from croupier.core.ledger.reservation_hold import ReservationHold
from croupier.core.model.card import CardGrant
from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits
from croupier.core.model.pod_view import PodView
from croupier.core.model.sharing import Sharing
from croupier.core.model.withheld import Withheld
from tests.core import node_records
from tests.core.node_records import (
    NODE,
    NOON,
    gpu,
    half_of,
    pci,
    plugin_report,
    pod,
    reservation_hold,
)


def kinds(
    *pods: PodView, report: NodeCardReport | None = None, reservation_holds: tuple[ReservationHold, ...] = ()
) -> list[tuple[str, str]]:
    made = rebuild.rebuild(report or plugin_report(), pods, reservation_holds, NOON)
    return [(finding.kind, finding.holder) for finding in made.findings]


def test_pods_hold_the_allocation_of_their_binding():
    held = node_records.rebuilt(pod("a", grant=half_of(gpu(2))), pod("b", grant=half_of(gpu(2))))

    assert held.grant("ns/a/1") == held.grant("ns/b/1") == half_of(gpu(2))
    assert not held.held


def test_a_card_without_a_pool_is_in_the_pool_of_its_pod():
    """The record of a card is lost with its Node; it stays in the pool while a pod of the pool holds it."""
    pools = {"small": ReportedPool(Sharing("TimeSlice", slices=4)), "other": ReportedPool(Sharing("MPS"))}
    devices = tuple(ReportedCard(pci(index), index) for index in range(3))
    report = NodeCardReport(NODE, devices=devices, pools=pools)
    user = pod(wants=(PoolUnits("small", 2),), grant=(CardGrant(pci(1), 2),))
    stranger = pod("b", wants=(PoolUnits("unknown", 1),), grant=(CardGrant(pci(2), 1),))
    greedy = pod("c", wants=(PoolUnits("other", 1),), grant=half_of(pci(0), pci(2), share=100))

    rebuilt = rebuild.rebuild(report, [user, stranger, greedy], (), NOON).ledger

    assert [(card.pool, card.mode) for card in rebuilt.cards] == [
        ("", "Percent"),
        ("small", "TimeSlice"),
        ("", "Percent"),
    ]
    assert rebuilt.grant(user.holder) == user.grant


WITHOUT_CARDS = {
    "that has finished": pod(grant=half_of(gpu(0)), finished=True),
    "of another node": pod(grant=half_of(gpu(0)), node="node-2"),
    "that requests no card": pod(wants=()),
    "that requests no card and claims an allocation": pod(wants=(), grant=half_of(gpu(0))),
}


@pytest.mark.parametrize("view", WITHOUT_CARDS.values(), ids=WITHOUT_CARDS)
def test_nothing_is_held_for_a_pod(view):
    assert node_records.rebuilt(view).holders() == set()
    assert kinds(view) == []


def test_a_pod_of_another_scheduler_is_counted_and_reported():
    foreign = pod(wants=(CardShares(2),))

    assert len(node_records.rebuilt(foreign).grant("ns/a/1")) == 2
    assert kinds(foreign) == [("Ghost", "ns/a/1")]


def test_an_allocation_larger_than_the_request_is_ignored():
    greedy = pod(wants=(CardShares(1),), grant=half_of(gpu(0), gpu(1), share=100))

    assert len(node_records.rebuilt(greedy).grant("ns/a/1")) == 1
    assert kinds(greedy) == [("Ghost", "ns/a/1")]


def test_of_two_pods_on_one_card_the_older_one_keeps_it():
    older = pod("b", grant=half_of(gpu(0), share=60), wants=(CardShares(1, 60),), minutes=1)
    younger = pod("a", grant=half_of(gpu(0), share=60), wants=(CardShares(1, 60),), minutes=2)

    assert node_records.rebuilt(younger, older).holders() == {"ns/b/1"}
    assert kinds(younger, older) == [("Overlap", "ns/a/1")]


def test_using_more_cards_than_exist_is_an_overlap():
    held = node_records.rebuilt(
        pod("a", wants=(CardShares(1),)), pod("b", wants=(CardShares(1),)), report=plugin_report(1)
    )

    assert held.holders() == {"ns/a/1"}
    assert kinds(
        pod("a", wants=(CardShares(1),)), pod("b", wants=(CardShares(1),)), report=plugin_report(1)
    ) == [
        ("Ghost", "ns/a/1"),
        ("Overlap", "ns/b/1"),
    ]


NAMED = NodeCardReport(NODE, devices=(ReportedCard(pci(0), 0), ReportedCard(pci(1), 1)))
RENAMED = {
    "by index, now by inventory": (pod(grant=half_of(gpu(1))), NAMED, half_of(pci(1))),
    "by inventory, now by index": (
        pod(grant=half_of(pci(7)), indexes=(1,)),
        plugin_report(2),
        half_of(gpu(1)),
    ),
    "placeholder MIG devices, now on any card": (
        pod(
            wants=(MigDevices("1g.10gb", 1),),
            grant=(CardGrant(f"{NODE}-mig-1g.10gb-99", slots=("1g.10gb-0",)),),
        ),
        plugin_report(0, **{"1g.10gb": 1}),
        (CardGrant(f"{NODE}-mig-1g.10gb-0", slots=("1g.10gb-0",)),),
    ),
}


@pytest.mark.parametrize(("view", "report", "grant"), RENAMED.values(), ids=RENAMED)
def test_renamed_cards_are_recognised(view, report, grant):
    assert node_records.rebuilt(view, report=report).grant("ns/a/1") == grant


def test_a_pod_keeps_unhealthy_and_missing_cards():
    ill = NodeCardReport(NODE, devices=(ReportedCard(pci(0), 0, faulted=True),))
    held = node_records.rebuilt(pod("a", grant=half_of(pci(0))), pod("b", grant=half_of(pci(9))), report=ill)

    assert {card.id: (card.used, card.healthy) for card in held.cards} == {
        pci(0): (50, False),
        pci(9): (50, False),
    }


def test_a_rebuilt_ledger_says_why_a_card_takes_no_new_pods():
    fan = Withheld("Drained", "swap the fan")
    drained = NodeCardReport(NODE, devices=(ReportedCard(pci(0), 0, withheld=fan), ReportedCard(pci(1), 1)))
    held = node_records.rebuilt(pod("a", grant=half_of(pci(0))), report=drained)

    assert {card.id: (card.used, card.withheld) for card in held.cards} == {
        pci(0): (50, fan),
        pci(1): (0, None),
    }


PLEDGES = {
    "until it is deleted": (reservation_hold(), None),
    "TTL from its creation": (
        reservation_hold(ttl=60, since=NOON - timedelta(30)),
        NOON - timedelta(30, -60),
    ),
    "never longer than its TTL": (
        reservation_hold(ttl=60, since=NOON + timedelta(1)),
        NOON + timedelta(seconds=60),
    ),
}


@pytest.mark.parametrize(("hold", "until"), PLEDGES.values(), ids=PLEDGES)
def test_a_reservation_holds_cards_for_its_pod(hold, until):
    held = node_records.rebuilt(reservation_holds=(hold,))

    assert held.grant("ns/a") == half_of(gpu(0))
    assert held.held == {"ns/a": until}
    assert held.reservations == {"ns/a": "rsv-a"}


def test_a_bound_pod_has_the_cards_of_its_reservation():
    for bound in (pod(grant=half_of(gpu(0))), pod(wants=()), pod(wants=(), grant=half_of(gpu(0)))):
        held = node_records.rebuilt(bound, reservation_holds=(reservation_hold(),))

        assert held.holders() == {"ns/a/1"}
        assert held.reservations == {"ns/a/1": "rsv-a"}
        assert not held.held


def test_a_reservation_keeps_its_card_while_the_plugin_reports_none():
    held = node_records.rebuilt(report=plugin_report(0), reservation_holds=(reservation_hold(),))

    assert [(card.id, card.used, card.healthy) for card in held.cards] == [(gpu(0), 50, False)]


def test_a_reservation_that_does_not_fit_is_reported():
    full = pod("b", wants=(CardShares(1),), grant=half_of(gpu(0), share=100))

    assert kinds(full, reservation_holds=(reservation_hold(),)) == [("Overlap", "ns/a")]
    assert kinds(reservation_holds=(reservation_hold(), reservation_hold())) == [("Overlap", "ns/a")]


def test_an_unreadable_request_is_reported():
    assert kinds(pod(wants=(), trouble="ratio is x", marked=True)) == [("Ghost", "ns/a/1")]


@given(node_records.reports(), node_records.many_pods(), node_records.reservation_holds(), st.randoms())
def test_any_records_give_a_valid_and_deterministic_ledger(report, pods, reservation_holds, chance):
    made = rebuild.rebuild(report, pods, reservation_holds, NOON)

    assert ledger.invariant_violations(made.ledger) == []
    assert len(made.ledger.cards) <= 32
    chance.shuffle(pods)
    chance.shuffle(reservation_holds)
    assert rebuild.rebuild(report, pods, reservation_holds, NOON) == made
    live = {pod.holder for pod in pods if pod.node == NODE and not pod.finished}
    assert made.ledger.holders() <= live | {hold.pod for hold in reservation_holds}
    named = {finding.holder for finding in made.findings}
    asking = {view.holder for view in pods if view.holder in live and view.wants}
    assert asking <= made.ledger.holders() | named


@given(node_records.reports(), st.data())
def test_placed_pods_are_rebuilt_exactly(report, data):
    placed = data.draw(node_records.placed_pods(report))
    made = rebuild.rebuild(report, placed, (), NOON)

    assert made.findings == ()
    assert {view.holder: made.ledger.grant(view.holder) for view in placed} == {
        view.holder: view.grant for view in placed
    }
