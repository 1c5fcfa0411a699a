"""A ledger rebuilt from records: no grant is lost, and no invalid record overcommits."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.ledgers import ledger, rebuild
from croupier.core.ledgers.capacity import Device, Report
from croupier.core.ledgers.ledger import Part
from croupier.core.ledgers.pledge import Pledge
from croupier.core.pods.pod import PodView
from croupier.core.pods.want import Shares, Slots
from tests.core import stages
from tests.core.stages import NODE, NOON, cards_of, gpu, half, pci, plain, pledge, pod


def kinds(
    *pods: PodView, report: Report | None = None, pledges: tuple[Pledge, ...] = ()
) -> list[tuple[str, str]]:
    made = rebuild.rebuild(NODE, cards_of(report or plain()), pods, pledges, NOON)
    return [(finding.kind, finding.holder) for finding in made.findings]


def test_pods_hold_the_allocation_of_their_binding():
    held = stages.rebuilt(pod("a", grant=half(gpu(2))), pod("b", grant=half(gpu(2))))

    assert held.grant("ns/a/1") == held.grant("ns/b/1") == half(gpu(2))
    assert not held.held


WITHOUT_CARDS = {
    "that has finished": pod(grant=half(gpu(0)), finished=True),
    "of another node": pod(grant=half(gpu(0)), node="node-2"),
    "that requests no card": pod(wants=()),
    "that requests no card and claims an allocation": pod(wants=(), grant=half(gpu(0))),
}


@pytest.mark.parametrize("view", WITHOUT_CARDS.values(), ids=WITHOUT_CARDS)
def test_nothing_is_held_for_a_pod(view):
    assert stages.rebuilt(view).holders() == set()
    assert kinds(view) == []


def test_a_pod_of_another_scheduler_is_counted_and_reported():
    foreign = pod(wants=(Shares(2),))

    assert len(stages.rebuilt(foreign).grant("ns/a/1")) == 2
    assert kinds(foreign) == [("Ghost", "ns/a/1")]


def test_an_allocation_larger_than_the_request_is_ignored():
    greedy = pod(wants=(Shares(1),), grant=half(gpu(0), gpu(1), share=100))

    assert len(stages.rebuilt(greedy).grant("ns/a/1")) == 1
    assert kinds(greedy) == [("Ghost", "ns/a/1")]


def test_of_two_pods_on_one_card_the_older_one_keeps_it():
    older = pod("b", grant=half(gpu(0), share=60), wants=(Shares(1, 60),), minutes=1)
    younger = pod("a", grant=half(gpu(0), share=60), wants=(Shares(1, 60),), minutes=2)

    assert stages.rebuilt(younger, older).holders() == {"ns/b/1"}
    assert kinds(younger, older) == [("Overlap", "ns/a/1")]


def test_using_more_cards_than_exist_is_an_overlap():
    held = stages.rebuilt(pod("a", wants=(Shares(1),)), pod("b", wants=(Shares(1),)), report=plain(1))

    assert held.holders() == {"ns/a/1"}
    assert kinds(pod("a", wants=(Shares(1),)), pod("b", wants=(Shares(1),)), report=plain(1)) == [
        ("Ghost", "ns/a/1"),
        ("Overlap", "ns/b/1"),
    ]


NAMED = Report(NODE, devices=(Device(pci(0), 0), Device(pci(1), 1)))
RENAMED = {
    "by index, now by inventory": (pod(grant=half(gpu(1))), NAMED, half(pci(1))),
    "by inventory, now by index": (pod(grant=half(pci(7)), indexes=(1,)), plain(2), half(gpu(1))),
    "placeholder MIG devices, now on any card": (
        pod(wants=(Slots("1g.10gb", 1),), grant=(Part(f"{NODE}-mig-1g.10gb-9", slots=("1g.10gb-0",)),)),
        plain(0, **{"1g.10gb": 1}),
        (Part(f"{NODE}-mig-1g.10gb-0", slots=("1g.10gb-0",)),),
    ),
}


@pytest.mark.parametrize(("view", "report", "grant"), RENAMED.values(), ids=RENAMED)
def test_renamed_cards_are_recognised(view, report, grant):
    assert stages.rebuilt(view, report=report).grant("ns/a/1") == grant


def test_a_pod_keeps_unhealthy_and_missing_cards():
    ill = Report(NODE, devices=(Device(pci(0), 0, faulted=True),))
    held = stages.rebuilt(pod("a", grant=half(pci(0))), pod("b", grant=half(pci(9))), report=ill)

    assert {card.id: (card.used, card.healthy) for card in held.cards} == {
        pci(0): (50, False),
        pci(9): (50, False),
    }


PLEDGES = {
    "until it is deleted": (pledge(), None),
    "TTL from its creation": (pledge(ttl=60, since=NOON - timedelta(30)), NOON - timedelta(30, -60)),
    "never longer than its TTL": (pledge(ttl=60, since=NOON + timedelta(1)), NOON + timedelta(seconds=60)),
}


@pytest.mark.parametrize(("hold", "until"), PLEDGES.values(), ids=PLEDGES)
def test_a_reservation_holds_cards_for_its_pod(hold, until):
    held = stages.rebuilt(pledges=(hold,))

    assert held.grant("ns/a") == half(gpu(0))
    assert held.held == {"ns/a": until}
    assert held.reservations == {"ns/a": "rsv-a"}


def test_a_bound_pod_has_the_cards_of_its_reservation():
    for bound in (pod(grant=half(gpu(0))), pod(wants=()), pod(wants=(), grant=half(gpu(0)))):
        held = stages.rebuilt(bound, pledges=(pledge(),))

        assert held.holders() == {"ns/a/1"}
        assert held.reservations == {"ns/a/1": "rsv-a"}
        assert not held.held


def test_a_reservation_keeps_its_card_while_the_plugin_reports_none():
    held = stages.rebuilt(report=plain(0), pledges=(pledge(),))

    assert [(card.id, card.used, card.healthy) for card in held.cards] == [(gpu(0), 50, False)]


def test_a_reservation_that_does_not_fit_is_reported():
    full = pod("b", wants=(Shares(1),), grant=half(gpu(0), share=100))

    assert kinds(full, pledges=(pledge(),)) == [("Overlap", "ns/a")]
    assert kinds(pledges=(pledge(), pledge())) == [("Overlap", "ns/a")]


def test_an_unreadable_request_is_reported():
    assert kinds(pod(wants=(), trouble="ratio is x", marked=True)) == [("Ghost", "ns/a/1")]


@given(stages.reports(), stages.many_pods(), stages.many_pledges(), st.randoms())
def test_any_records_give_a_valid_and_deterministic_ledger(report, pods, pledges, chance):
    made = rebuild.rebuild(NODE, cards_of(report), pods, pledges, NOON)

    assert ledger.faults(made.ledger) == []
    assert len(made.ledger.cards) <= 32
    chance.shuffle(pods)
    chance.shuffle(pledges)
    assert rebuild.rebuild(NODE, cards_of(report), pods, pledges, NOON) == made
    live = {pod.holder for pod in pods if pod.node == NODE and not pod.finished}
    assert made.ledger.holders() <= live | {hold.pod for hold in pledges}
    named = {finding.holder for finding in made.findings}
    asking = {view.holder for view in pods if view.holder in live and view.wants}
    assert asking <= made.ledger.holders() | named


@given(stages.reports(), st.data())
def test_placed_pods_are_rebuilt_exactly(report, data):
    placed = data.draw(stages.honest(report))
    made = rebuild.rebuild(NODE, cards_of(report), placed, (), NOON)

    assert made.findings == ()
    assert {view.holder: made.ledger.grant(view.holder) for view in placed} == {
        view.holder: view.grant for view in placed
    }
