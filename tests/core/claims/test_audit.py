"""The audit finds differences, repairs them if that is safe, and never takes cards from a live pod."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.claims import audit
from croupier.core.claims.audit import AuditInputs
from croupier.core.ledger import ledger
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.reported_cards import NodeCardReport, ReportedCard
from croupier.core.model.card import CardGrant, Grant, LedgerCard, MigSlot
from croupier.core.model.card_request import CardShares, MigDevices
from croupier.core.model.pod_view import PodView
from tests.core import node_records
from tests.core.node_records import (
    NODE,
    NOON,
    by_key,
    gpu,
    half_of,
    pci,
    plugin_report,
    pod,
    reservation_hold,
)

MINE = pod(grant=half_of(gpu(0)))


def holding(*holders: tuple[str, Grant, HoldTerms], report: NodeCardReport | None = None) -> Ledger:
    held = Ledger(NODE, node_records.cards_of(report or plugin_report()))
    for holder, grant, terms in holders:
        given = ledger.give(held, holder, grant, terms)
        assert isinstance(given, Ledger)
        held = given
    return held


def bound(holder: str, *cards: str, share: int = 50) -> tuple[str, Grant, HoldTerms]:
    return holder, half_of(*cards, share=share), HoldTerms(bound=True)


def world(
    held: Ledger, *pods, report: NodeCardReport | None = None, reservation_holds=(), reservations=()
) -> AuditInputs:
    return AuditInputs(
        held,
        report or plugin_report(),
        by_key(*pods),
        {hold.pod: hold for hold in reservation_holds},
        reservations,
    )


def found(seen: AuditInputs) -> list[tuple[str, str, bool]]:
    return [
        (
            divergence.finding.kind,
            divergence.finding.holder or divergence.finding.card,
            divergence.repair is not None,
        )
        for divergence in audit.compare(seen)
    ]


def using(seen: AuditInputs, *users: str) -> AuditInputs:
    """The node's agent reports these users of the first card, which do not hold it."""
    return replace(seen, strangers={gpu(0): users})


MIG_PLACEHOLDER = f"{NODE}-mig-1g.10gb-0"


def mig_pod(name: str, slot: str) -> PodView:
    return pod(name, wants=(MigDevices("1g.10gb", 1),), grant=(CardGrant(MIG_PLACEHOLDER, slots=(slot,)),))


RESERVED = ("ns/a", half_of(gpu(0)), HoldTerms(reservation="rsv-a"))
FULL = bound("ns/b/1", gpu(0), share=100)
B = pod("b", wants=(CardShares(1),), grant=half_of(gpu(0), share=100))
STRANGER = pod("c", wants=())
WORLDS = {
    "Stranger: a pod without cards": (
        using(world(holding(), STRANGER), STRANGER.holder),
        [("Stranger", STRANGER.holder, False)],
    ),
    "Stranger: a pod that holds another card": (
        using(world(holding(bound("ns/a/1", gpu(1))), replace(MINE, grant=half_of(gpu(1)))), "ns/a/1"),
        [("Stranger", "ns/a/1", False)],
    ),
    "Stranger: a process of no pod": (
        using(world(holding()), "process a/b/c"),
        [("Stranger", gpu(0), False)],
    ),
    "no Stranger: it holds the card": (using(world(holding(bound("ns/a/1", gpu(0))), MINE), "ns/a/1"), []),
    "no Stranger: the pod has ended": (
        using(world(holding(), replace(STRANGER, finished=True)), STRANGER.holder),
        [],
    ),
    "no Stranger: the pod is gone": (using(world(holding()), STRANGER.holder), []),
    "no differences": (world(holding(bound("ns/a/1", gpu(0))), MINE), []),
    "Leak: no such pod": (world(holding(bound("ns/a/1", gpu(0)))), [("Leak", "ns/a/1", True)]),
    "Leak: the pod has ended": (
        world(holding(bound("ns/a/1", gpu(0))), replace(MINE, finished=True)),
        [("Leak", "ns/a/1", True)],
    ),
    "Leak: the pod is on another node": (
        world(holding(bound("ns/a/1", gpu(0))), replace(MINE, node="node-2")),
        [("Leak", "ns/a/1", True)],
    ),
    "Leak: the Reservation does not exist": (world(holding(RESERVED)), [("Leak", "ns/a", True)]),
    "no Leak: the Reservation exists": (world(holding(RESERVED), reservations={"ns/rsv-a"}), []),
    "no Leak: the hold has not expired": (
        world(holding(("ns/a", half_of(gpu(0)), HoldTerms(until=NOON)))),
        [],
    ),
    "no Leak: held, and the pod is pending": (
        world(holding(("ns/a/1", half_of(gpu(0)), HoldTerms(until=NOON))), replace(MINE, node="")),
        [],
    ),
    "Ghost with an allocation": (world(holding(), MINE), [("Ghost", "ns/a/1", True)]),
    "Ghost without an allocation": (world(holding(), pod()), [("Ghost", "ns/a/1", True)]),
    "Ghost with an unreadable request": (
        world(holding(), pod(wants=(), trouble="?", marked=True)),
        [("Ghost", "ns/a/1", False)],
    ),
    "no Ghost: the pod requests no cards": (world(holding(), pod(wants=(), grant=half_of(gpu(0)))), []),
    "no Ghost: the pod is about to take over its Reservation's hold": (
        world(holding(RESERVED), MINE, reservations={"ns/rsv-a"}, reservation_holds=(reservation_hold(),)),
        [],
    ),
    "Overlap: pods use more than exists": (
        world(holding(FULL), B, MINE),
        [("Overlap", "ns/a/1", False)],
    ),
    "Overlap: one pod under two names": (
        world(
            holding(bound("ns/a/1", gpu(0)), ("ns/a", half_of(gpu(1)), HoldTerms(until=NOON))),
            MINE,
        ),
        [("Overlap", "ns/a", True)],
    ),
    "Overlap: a Reservation in addition to the pod's own grant": (
        world(holding(bound("ns/a/1", gpu(1)), RESERVED), pod(), reservations={"ns/rsv-a"}),
        [("Overlap", "ns/a", False)],
    ),
    "WrongCard": (world(holding(bound("ns/a/1", gpu(1))), MINE), [("WrongCard", "ns/a/1", True)]),
    "WrongCard: another pod holds its card": (
        world(holding(bound("ns/a/1", gpu(1)), FULL), MINE, B),
        [("WrongCard", "ns/a/1", False)],
    ),
    "WrongCard twice: two pods are swapped": (
        world(
            holding(bound("ns/a/1", gpu(1), share=100), FULL),
            pod("a", wants=(CardShares(1),), grant=half_of(gpu(0), share=100)),
            pod("b", wants=(CardShares(1),), grant=half_of(gpu(1), share=100)),
        ),
        [("WrongCard", "ns/a/1", True), ("WrongCard", "ns/b/1", True)],
    ),
    "no WrongCard: the same card under another name": (
        world(
            holding(bound("ns/a/1", pci(0)), report=NodeCardReport(NODE, devices=(ReportedCard(pci(0), 0),))),
            MINE,
            report=NodeCardReport(NODE, devices=(ReportedCard(pci(0), 0),)),
        ),
        [],
    ),
    "Drift: an additional card": (world(holding(), report=plugin_report(5)), [("Drift", gpu(4), True)]),
    "Drift: a missing card": (world(holding(), report=plugin_report(3)), [("Drift", gpu(3), True)]),
    "Drift: a held card is missing": (
        world(holding(bound("ns/a/1", gpu(0))), MINE, report=plugin_report(0)),
        [
            (kind, card, repairable)
            for kind, card, repairable in (
                ("Drift", gpu(0), True),
                ("Drift", gpu(1), True),
                ("Drift", gpu(2), True),
                ("Drift", gpu(3), True),
                ("Drift", gpu(0), False),
            )
        ],
    ),
}


@pytest.mark.parametrize(("seen", "findings"), WORLDS.values(), ids=WORLDS)
def test_differences_are_found(seen, findings):
    assert found(seen) == findings


def test_only_differences_of_two_comparisons_are_confirmed():
    leak, ghost = world(holding(bound("ns/a/1", gpu(0)))), world(holding(), MINE)

    assert audit.confirmed(audit.compare(leak), audit.compare(ghost)) == ()
    assert [
        divergence.finding.kind for divergence in audit.confirmed(audit.compare(leak), audit.compare(leak))
    ] == ["Leak"]


def test_swapped_pods_are_repaired_together():
    seen, _ = WORLDS["WrongCard twice: two pods are swapped"]
    after = mended(seen)

    assert after.ledger.grant("ns/a/1") == half_of(gpu(0), share=100)
    assert after.ledger.grant("ns/b/1") == half_of(gpu(1), share=100)


def test_a_pod_moved_from_a_placeholder_stays_while_another_pod_holds_the_placeholder():
    """Found by the property below: the sync moved the pod, WrongCard moved it back, without end."""
    device = MigSlot("1g.10gb-0", "1g.10gb", 0, 1)
    slots = (replace(device, holder="ns/a/1"), MigSlot("1g.10gb-1", "1g.10gb", 1, 1, "ns/b/1"))
    seen = world(
        Ledger(NODE, (LedgerCard(MIG_PLACEHOLDER, 0, "MIG", slots=slots),)),
        mig_pod("a", "1g.10gb-0"),
        mig_pod("b", "1g.10gb-1"),
        report=NodeCardReport(NODE, devices=(ReportedCard(pci(0), 0, cut=(device,)),)),
    )

    after = mended(seen)

    assert after.ledger.grant("ns/a/1") == (CardGrant(pci(0), slots=("1g.10gb-0",)),)
    assert after.ledger.grant("ns/b/1") == (CardGrant(MIG_PLACEHOLDER, slots=("1g.10gb-1",)),)
    assert found(after) == [("Drift", MIG_PLACEHOLDER, False)]


def test_a_repair_does_nothing_if_the_difference_no_longer_exists():
    (leak,) = audit.compare(world(holding(bound("ns/a/1", gpu(0)))))
    (ghost,) = audit.compare(world(holding(), MINE))
    assert leak.repair is not None
    assert ghost.repair is not None

    assert audit.apply(holding(), leak.repair) == holding()
    for name in ("ns/a/1", "ns/a"):
        held = holding(bound(name, gpu(3)))
        assert audit.apply(held, ghost.repair) == held


def mended(seen: AuditInputs) -> AuditInputs:
    for _ in range(12):
        held = seen.ledger
        for divergence in audit.compare(seen):
            held = held if divergence.repair is None else audit.apply(held, divergence.repair)
        if held == seen.ledger:
            return seen
        seen = replace(seen, ledger=held)
    raise AssertionError(f"repairs do not terminate: {found(seen)}")


@st.composite
def worlds(draw: st.DrawFn) -> AuditInputs:
    """A ledger of some records, compared with other records."""
    report = draw(node_records.reports())
    pledges = draw(node_records.reservation_holds())
    other = draw(st.one_of(st.just(report), node_records.reports()))
    pods = draw(st.one_of(node_records.placed_pods(report), node_records.many_pods()))
    recorded = draw(st.one_of(st.just(pods), node_records.many_pods()))
    held = node_records.rebuilt(*recorded, report=report, reservation_holds=tuple(pledges))
    kept = {f"ns/{hold.name}" for hold in pledges if draw(st.booleans())}
    return world(held, *pods, report=other, reservation_holds=pledges, reservations=kept)


@given(worlds())
def test_repairs_terminate_never_overcommit_and_never_take_from_a_live_pod(seen):
    after = mended(seen)

    assert ledger.invariant_violations(after.ledger) == []
    assert [divergence for divergence in audit.compare(after) if divergence.repair is not None] == []
    for live in after.live():
        if seen.ledger.grant(live.holder):
            assert after.ledger.grant(live.holder)
    for holder, until in seen.ledger.held.items():
        key = "/".join(holder.split("/")[:2])
        waiting = seen.pods.get(key)
        if waiting is not None and waiting.holder == holder and not waiting.node and not waiting.finished:
            assert after.ledger.held[holder] == until


@given(node_records.reports(), st.data())
def test_consistent_inputs_have_no_findings(report, data):
    pods = data.draw(node_records.placed_pods(report))
    seen = world(node_records.rebuilt(*pods, report=report), *pods, report=report)

    assert audit.compare(seen) == ()
