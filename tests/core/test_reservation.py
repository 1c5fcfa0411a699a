"""The outcomes of Reservations, and their order."""

from dataclasses import replace

import pytest

from croupier.core.ledgers import ledger as book
from croupier.core.ledgers import reservation, verdict
from croupier.core.ledgers.ledger import Ledger
from croupier.core.ledgers.reservation import CHANGES, PHASE, Told
from tests.core.reservations import (
    HOLDER,
    POD,
    after,
    at,
    by,
    cards,
    holds,
    looked_at,
    rsv,
    runs,
    scene,
    waits,
)

GRANTED = Told("Reserved", "Granted")
BOUND = Told("Reserved", "PodBound")


def test_it_holds_cards_for_a_pod_that_does_not_exist_yet():
    ledger, outcomes, judged = after(cards(), scene(rsv()))

    assert outcomes["mine"].phase == "Reserved"
    assert outcomes["mine"].message == "holds 50 % of card node-1-0 and 50 % of card node-1-1 of node-1"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}
    assert ledger.held == {POD: None}
    assert judged.again_after is None


def test_without_the_finalizer_it_holds_nothing_and_needs_the_finalizer():
    what = scene(rsv(guarded=False))

    ledger, outcomes, _ = after(cards(), what)

    assert (ledger, outcomes) == (cards(), {})
    assert reservation.unguarded(cards(), what, "BinPack") == ("default/mine",)


REFUSED = {
    "too little capacity": (
        holds(cards(), "a/b/c", 80),
        scene(rsv()),
        "InsufficientCapacity",
        ["node-1 cannot provide 50 % of 2 cards: ", "short by 30 %", "; available on node-2, node-3"],
    ),
    "too few cards": (
        cards(1),
        scene(rsv()),
        "InsufficientCapacity",
        ["node-1 cannot provide 50 % of 2 cards", "available on"],
    ),
    "no cards": (cards(0), scene(rsv()), "NoCards", ["node-1 has no cards; available on node-2, node-3"]),
    "no ledger": (None, scene(rsv()), "NoCards", ["node-1 has no cards; available on node-2, node-3"]),
    "not available on any node": (
        cards(2),
        scene(rsv(cards=3)),
        "InsufficientCapacity",
        ["node-1 cannot provide 50 % of 3 cards", "not available on any other node"],
    ),
    "a pod of another namespace": (
        cards(),
        scene(rsv(pod="other/my-pod")),
        "WrongNamespace",
        [
            "podKey other/my-pod is in another namespace:",
            "a Reservation in default can only be for a pod of default",
        ],
    ),
    "the pod already holds other cards": (
        holds(cards(), HOLDER, 20),
        scene(rsv(), pods=(runs(),)),
        "PodHoldsOther",
        ["pod default/my-pod already has 20 % of card node-1-0", "not 50 % of 2 cards"],
    ),
    "another Reservation for the pod": (
        holds(cards(), POD, 20, terms=by("first")),
        scene(rsv("first", percent=20, age=9), rsv()),
        "AlreadyReserved",
        ["pod default/my-pod already has cards of node-1 through Reservation first"],
    ),
}


@pytest.mark.parametrize(("ledger", "what", "reason", "sentences"), REFUSED.values(), ids=REFUSED)
def test_refusals(ledger, what, reason, sentences):
    settled, outcomes, judged = after(
        ledger, what, (cards(2, "node-3"), cards(2, "node-2"), cards(1, "node-4"))
    )

    assert (outcomes["mine"].phase, outcomes["mine"].reason) == ("Failed", reason)
    assert [text for text in sentences if text not in outcomes["mine"].message] == []
    assert settled is ledger or settled == ledger
    assert judged.again_after is not None, "it must be checked again"


def test_a_node_that_does_not_exist():
    _, outcomes, _ = after(None, scene(rsv()), (cards(2, "node-2"),), exists=False)

    assert outcomes["mine"].reason == "UnknownNode"
    assert outcomes["mine"].message == "node node-1 does not exist; available on node-2"


def test_a_reservation_on_a_deleted_node_fails_and_is_released():
    before = holds(cards(), POD, terms=by())

    ledger, outcomes, _ = after(before, scene(rsv(told=GRANTED)), exists=False)

    assert outcomes["mine"].reason == "UnknownNode"
    assert ledger == cards()


WHO_GOES_FIRST = {
    "the older": ([rsv("old", pod="default/a", age=9), rsv("new", pod="default/b")], ["old"]),
    "the higher priority": (
        [rsv("old", pod="default/a", age=9), rsv("urgent", pod="default/b", priority=1)],
        ["urgent"],
    ),
    "the smaller one, if the higher priority does not fit": (
        [rsv("huge", cards=3, pod="default/a", priority=9), rsv("small", cards=1, pod="default/b")],
        ["small"],
    ),
    "of equals the first by name": ([rsv("b", pod="default/b"), rsv("a", pod="default/a")], ["a"]),
}


@pytest.mark.parametrize(("asked", "granted"), WHO_GOES_FIRST.values(), ids=WHO_GOES_FIRST)
def test_the_order_of_reservations(asked, granted):
    half_taken = holds(cards(), "a/b/c", 40)

    _, outcomes, _ = after(half_taken, scene(*asked))

    assert [name for name, outcome in outcomes.items() if outcome.phase == "Reserved"] == granted


def test_released_cards_are_granted_in_the_same_step():
    full = holds(cards(), POD, 100, terms=by("old"))
    waiting = rsv("next", percent=100, pod="default/next", told=Told("Failed", "InsufficientCapacity"))

    ledger, outcomes, judged = after(
        full, scene(rsv("old", percent=100, deleted=True, told=GRANTED), waiting)
    )

    assert outcomes["next"].phase == "Reserved"
    assert judged.free == {"default/old"}
    assert ledger is not None
    assert ledger.reservations == {"default/next": "next"}


ENDS = {
    "expired": (by(until=at(120)), rsv(ttl=120, told=GRANTED), (), "Expired"),
    "expired while pending": (None, rsv(ttl=120, told=Told("Failed", "NoCards")), (), "Expired"),
    "the pod ended": (by(bound=True), rsv(told=BOUND), (runs(finished=True),), "PodEnded"),
    "the pod ended before it was seen running": (
        by(bound=True),
        rsv(told=GRANTED),
        (runs(finished=True),),
        "PodEnded",
    ),
    "the pod ended and its hold was released": (None, rsv(told=GRANTED), (runs(finished=True),), "PodEnded"),
    "the pod is gone and its hold was released": (None, rsv(told=BOUND), (), "PodEnded"),
    "the pod is gone": (by(bound=True), rsv(told=GRANTED), (), "PodEnded"),
    "another pod has the name": (
        by(bound=True),
        rsv(told=BOUND),
        (waits(uid="uid-2"),),
        "PodEnded",
    ),
}


@pytest.mark.parametrize(("terms", "asked", "pods", "reason"), ENDS.values(), ids=ENDS)
def test_it_ends(terms, asked, pods, reason):
    holder = POD if terms is None or terms.until else HOLDER
    before = cards() if terms is None else holds(cards(), holder, terms=terms)

    ledger, outcomes, judged = after(before, scene(asked, pods=pods, seconds=121), gone=(HOLDER,))

    assert outcomes["mine"].phase == "Released"
    assert outcomes["mine"].reason == reason
    assert ledger == cards()
    assert judged.again_after is None


def test_the_message_of_an_expiry():
    _, outcomes, _ = after(cards(), scene(rsv(ttl=120), seconds=120))

    assert outcomes["mine"].message == "expired after 120 s without a bound pod"


LIVES = {
    "without ttl, forever": (by(), rsv(told=GRANTED), ()),
    "within its time": (by(until=at(200000)), rsv(ttl=86400, told=GRANTED), ()),
    "while its pod runs": (by(bound=True), rsv(ttl=1, told=BOUND), (runs(),)),
    "while its pod runs and is not promoted yet": (by(until=at(1)), rsv(ttl=1, told=GRANTED), (runs(),)),
    "while its pod is being bound": (by(until=at(1)), rsv(ttl=1, told=GRANTED), (waits(),)),
    "while its pod is not in the cache": (by(bound=True), rsv(told=GRANTED), ()),
    "regardless of its status": (by(), rsv(told=Told("Released", "Expired")), ()),
}


@pytest.mark.parametrize("name", LIVES)
def test_it_keeps_its_cards(name):
    terms, asked, pods = LIVES[name]
    on_the_way = terms.bound or "being bound" in name
    before = holds(cards(), HOLDER if on_the_way else POD, terms=terms)

    ledger, outcomes, _ = after(before, scene(asked, pods=pods, seconds=3600))

    assert outcomes["mine"].phase == "Reserved"
    assert ledger is not None
    assert [card.used for card in ledger.cards] == [50, 50]


@pytest.mark.parametrize("before", [cards(), holds(cards(), "a/b/c", 80), None], ids=["free", "full", "none"])
@pytest.mark.parametrize("reason", ["Expired", "PodEnded"])
def test_released_is_final(before, reason):
    ledger, outcomes, judged = after(before, scene(rsv(told=Told("Released", reason))))

    assert (ledger, outcomes, judged.again_after) == (before, {}, None)


def test_a_pod_bound_by_another_scheduler_takes_over_the_hold():
    before = holds(cards(), POD, terms=by(until=at(120)))

    ledger, outcomes, _ = after(before, scene(rsv(ttl=120, told=GRANTED), pods=(runs(),)))

    assert outcomes["mine"].reason == "PodBound"
    assert outcomes["mine"].pod_uid == "uid-1"
    assert ledger is not None
    assert ledger.reservations == {HOLDER: "mine"}
    assert not ledger.held


def test_the_status_mirrors_the_cards_of_a_running_pod():
    before = holds(cards(), HOLDER)

    ledger, outcomes, _ = after(before, scene(rsv(), pods=(runs(),)))

    assert outcomes["mine"].reason == "PodBound"
    assert ledger == replace(before, reservations={HOLDER: "mine"})


def test_a_running_pod_without_cards_gets_them_bound():
    ledger, outcomes, _ = after(cards(), scene(rsv(ttl=1), pods=(runs(),), seconds=60))

    assert outcomes["mine"].reason == "PodBound"
    assert ledger is not None
    assert HOLDER in ledger.holders()
    assert not ledger.held


def test_a_finished_pod_of_that_name_is_not_its_pod():
    ledger, outcomes, _ = after(cards(), scene(rsv(), pods=(runs(finished=True),)))

    assert outcomes["mine"].reason == "Granted"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}


NEVER_CAME = {
    "gone before it was bound": ((), (HOLDER,)),
    "finished before it was bound": ((runs(node="", finished=True),), ()),
    "bound elsewhere": ((runs(node="node-2"),), ()),
}


@pytest.mark.parametrize(("pods", "gone"), NEVER_CAME.values(), ids=NEVER_CAME)
def test_if_its_pod_is_not_bound_here_it_waits_for_the_next_one(pods, gone):
    before = holds(cards(), HOLDER, terms=by())

    ledger, outcomes, _ = after(before, scene(rsv(told=GRANTED), pods=pods), gone=gone)

    assert outcomes["mine"].reason == "Granted"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}


def test_a_changed_ttl_changes_the_expiry():
    before = holds(cards(), POD, terms=by(until=at(60)))

    longer, _, judged = after(before, scene(rsv(ttl=120, told=GRANTED), seconds=30))
    forever, _, _ = after(before, scene(rsv(told=GRANTED)))

    assert longer is not None
    assert longer.held == {POD: at(120)}
    assert judged.again_after == 90
    assert forever is not None
    assert forever.held == {POD: None}


DELETED = {
    "releases a waiting hold": (by(), POD, None),
    "leaves a running pod its cards": (by(bound=True), HOLDER, {}),
    "leaves the cards to a pod that is being bound, for a while": (by(), HOLDER, {HOLDER: at(120)}),
    "does not extend an expiry": (by(until=at(5)), HOLDER, {HOLDER: at(5)}),
}


@pytest.mark.parametrize(("terms", "holder", "held"), DELETED.values(), ids=DELETED)
def test_a_deletion(terms, holder, held):
    before = holds(cards(), holder, terms=terms)

    ledger, outcomes, judged = after(before, scene(rsv(deleted=True, told=GRANTED), pods=(waits(),)))

    assert outcomes == {}
    assert judged.free == {"default/mine"}
    assert ledger is not None
    assert not ledger.reservations
    assert ledger == cards() if held is None else ledger.held == held


def test_a_deletion_needs_no_ledger():
    _, _, judged = after(None, scene(rsv(deleted=True, told=GRANTED)))

    assert judged.free == {"default/mine"}


def test_a_reservation_without_ledger_keeps_its_status():
    """The in-memory ledger is rebuilt from the status at the start."""
    for status in (GRANTED, BOUND):
        _, outcomes, judged = after(None, scene(rsv(told=status)))

        assert outcomes == {}
        assert judged.again_after == verdict.PATIENCE


def test_the_hold_of_a_deleted_reservation_is_released():
    before = holds(cards(), POD, terms=by("gone"))
    what = scene()

    assert reservation.strangers(before, ()) == (POD,)
    assert reservation.settle(before, what, "BinPack") == before, "not before the deletion is verified"
    assert reservation.settle(before, replace(what, orphans=frozenset({POD})), "BinPack") == cards()


def test_a_new_reservation_of_the_same_name_does_not_inherit_the_hold():
    before = holds(cards(), POD, 20, terms=by())

    ledger, outcomes, _ = after(before, scene(rsv(cards=1, percent=100)))

    assert [part.share for part in outcomes["mine"].grant] == [100]
    assert ledger is not None
    assert sum(card.used for card in ledger.cards) == 100


def test_new_figures_of_a_refusal_are_debounced():
    status = Told("Failed", "InsufficientCapacity", "it was otherwise", since=at(0))
    full = holds(cards(), "a/b/c", 80)

    _, soon, judged = after(full, scene(rsv(told=status), seconds=3))
    _, later, _ = after(full, scene(rsv(told=status), seconds=10))

    assert soon == {}
    assert judged.again_after == verdict.CALM.total_seconds()
    assert "short by 30 %" in later["mine"].message


def test_only_verified_endings_count():
    before = holds(cards(), HOLDER, terms=by(bound=True))

    assert reservation.endings(before, {}) == (frozenset(), (HOLDER,))
    assert reservation.endings(before, {POD: runs(finished=True)}) == (frozenset({HOLDER}), ())
    assert reservation.endings(before, {POD: runs(uid="uid-2")}) == (frozenset(), (HOLDER,))
    assert looked_at(before, scene()).over == frozenset()


def test_a_hold_that_a_bind_extended_is_not_shortened():
    before = holds(cards(), HOLDER, terms=by(until=at(200)))

    ledger, _, _ = after(before, scene(rsv(ttl=60, told=GRANTED), pods=(waits(),)))

    assert ledger == before


def test_every_reason_has_a_phase_and_every_phase_its_changes():
    assert set(PHASE.values()) | {"Pending"} == set(CHANGES)
    assert not CHANGES["Released"]


def test_a_hold_that_was_taken_over_in_a_newer_ledger_does_not_expire():
    """The change may be applied to a newer ledger in which the pod has just taken over the hold."""
    what = scene(rsv(ttl=60, told=GRANTED), pods=(waits(),), seconds=61)
    seen = holds(cards(), POD, terms=by(until=at(60)))
    newer = book.rename(seen, POD, HOLDER)
    assert isinstance(newer, Ledger)

    assert reservation.settle(seen, what, "BinPack") == cards()
    assert reservation.settle(newer, what, "BinPack") == newer
