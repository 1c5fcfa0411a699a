"""A ledger made from records: nothing that was given is lost, nothing wrong overcommits."""

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


def test_pods_hold_what_came_with_their_binding():
    book = stages.rebuilt(pod("a", grant=half(gpu(2))), pod("b", grant=half(gpu(2))))

    assert book.grant("ns/a/1") == book.grant("ns/b/1") == half(gpu(2))
    assert not book.held


NOBODY = {
    "that has ended": pod(grant=half(gpu(0)), finished=True),
    "of another node": pod(grant=half(gpu(0)), node="node-2"),
    "that asks for no card": pod(wants=()),
    "that asks for no card and says it has one": pod(wants=(), grant=half(gpu(0))),
}


@pytest.mark.parametrize("one", NOBODY.values(), ids=NOBODY)
def test_nothing_is_held_for_a_pod(one):
    assert stages.rebuilt(one).holders() == set()
    assert kinds(one) == []


def test_a_pod_that_another_scheduler_bound_is_counted_and_named():
    foreign = pod(wants=(Shares(2),))

    assert len(stages.rebuilt(foreign).grant("ns/a/1")) == 2
    assert kinds(foreign) == [("Ghost", "ns/a/1")]


def test_an_allocation_that_is_more_than_the_pod_asks_for_is_not_believed():
    greedy = pod(wants=(Shares(1),), grant=half(gpu(0), gpu(1), share=100))

    assert len(stages.rebuilt(greedy).grant("ns/a/1")) == 1
    assert kinds(greedy) == [("Ghost", "ns/a/1")]


def test_of_two_pods_on_one_card_the_older_has_it():
    older = pod("b", grant=half(gpu(0), share=60), wants=(Shares(1, 60),), minutes=1)
    younger = pod("a", grant=half(gpu(0), share=60), wants=(Shares(1, 60),), minutes=2)

    assert stages.rebuilt(younger, older).holders() == {"ns/b/1"}
    assert kinds(younger, older) == [("Overlap", "ns/a/1")]


def test_more_cards_used_than_there_are_is_an_overlap():
    book = stages.rebuilt(pod("a", wants=(Shares(1),)), pod("b", wants=(Shares(1),)), report=plain(1))

    assert book.holders() == {"ns/a/1"}
    assert kinds(pod("a", wants=(Shares(1),)), pod("b", wants=(Shares(1),)), report=plain(1)) == [
        ("Ghost", "ns/a/1"),
        ("Overlap", "ns/b/1"),
    ]


NAMED = Report(NODE, devices=(Device(pci(0), 0), Device(pci(1), 1)))
RENAMED = {
    "by index, now by inventory": (pod(grant=half(gpu(1))), NAMED, half(pci(1))),
    "by inventory, now by index": (pod(grant=half(pci(7)), indexes=(1,)), plain(2), half(gpu(1))),
    "counted MIG devices, now on any": (
        pod(wants=(Slots("1g.10gb", 1),), grant=(Part(f"{NODE}-mig-1g.10gb-9", slots=("1g.10gb-0",)),)),
        plain(0, **{"1g.10gb": 1}),
        (Part(f"{NODE}-mig-1g.10gb-0", slots=("1g.10gb-0",)),),
    ),
}


@pytest.mark.parametrize(("one", "report", "grant"), RENAMED.values(), ids=RENAMED)
def test_cards_that_changed_their_names_are_recognised(one, report, grant):
    assert stages.rebuilt(one, report=report).grant("ns/a/1") == grant


def test_a_pod_keeps_a_card_that_is_ill_and_one_that_is_gone():
    ill = Report(NODE, devices=(Device(pci(0), 0, faulted=True),))
    book = stages.rebuilt(pod("a", grant=half(pci(0))), pod("b", grant=half(pci(9))), report=ill)

    assert {card.id: (card.used, card.healthy) for card in book.cards} == {
        pci(0): (50, False),
        pci(9): (50, False),
    }


PLEDGES = {
    "until it is deleted": (pledge(), None),
    "from when it was created": (pledge(ttl=60, since=NOON - timedelta(30)), NOON - timedelta(30, -60)),
    "never longer than its time": (pledge(ttl=60, since=NOON + timedelta(1)), NOON + timedelta(seconds=60)),
}


@pytest.mark.parametrize(("one", "until"), PLEDGES.values(), ids=PLEDGES)
def test_a_reservation_holds_for_its_pod(one, until):
    book = stages.rebuilt(pledges=(one,))

    assert book.grant("ns/a") == half(gpu(0))
    assert book.held == {"ns/a": until}
    assert book.reservations == {"ns/a": "rsv-a"}


def test_a_pod_that_is_bound_has_what_its_reservation_held():
    for bound in (pod(grant=half(gpu(0))), pod(wants=()), pod(wants=(), grant=half(gpu(0)))):
        book = stages.rebuilt(bound, pledges=(pledge(),))

        assert book.holders() == {"ns/a/1"}
        assert book.reservations == {"ns/a/1": "rsv-a"}
        assert not book.held


def test_a_reservation_keeps_its_card_while_the_plugin_is_away():
    book = stages.rebuilt(report=plain(0), pledges=(pledge(),))

    assert [(card.id, card.used, card.healthy) for card in book.cards] == [(gpu(0), 50, False)]


def test_a_reservation_that_does_not_fit_is_named():
    full = pod("b", wants=(Shares(1),), grant=half(gpu(0), share=100))

    assert kinds(full, pledges=(pledge(),)) == [("Overlap", "ns/a")]
    assert kinds(pledges=(pledge(), pledge())) == [("Overlap", "ns/a")]


def test_a_request_nobody_can_read_is_named():
    assert kinds(pod(wants=(), trouble="ratio is x", marked=True)) == [("Ghost", "ns/a/1")]


@given(stages.reports(), stages.many_pods(), stages.many_pledges(), st.randoms())
def test_whatever_the_records_say_the_ledger_is_sound_and_the_same(report, pods, pledges, chance):
    made = rebuild.rebuild(NODE, cards_of(report), pods, pledges, NOON)

    assert ledger.faults(made.ledger) == []
    assert len(made.ledger.cards) <= 32
    chance.shuffle(pods)
    chance.shuffle(pledges)
    assert rebuild.rebuild(NODE, cards_of(report), pods, pledges, NOON) == made
    live = {pod.holder for pod in pods if pod.node == NODE and not pod.finished}
    assert made.ledger.holders() <= live | {one.pod for one in pledges}
    named = {finding.holder for finding in made.findings}
    asking = {one.holder for one in pods if one.holder in live and one.wants}
    assert asking <= made.ledger.holders() | named


@given(stages.reports(), st.data())
def test_what_was_placed_is_found_again_exactly(report, data):
    placed = data.draw(stages.honest(report))
    made = rebuild.rebuild(NODE, cards_of(report), placed, (), NOON)

    assert made.findings == ()
    assert {one.holder: made.ledger.grant(one.holder) for one in placed} == {
        one.holder: one.grant for one in placed
    }
