"""What becomes of a Reservation: every ending of it, and who goes first."""

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


def test_it_holds_the_cards_for_a_pod_that_is_not_there_yet():
    ledger, told, judged = after(cards(), scene(rsv()))

    assert told["mine"].phase == "Reserved"
    assert told["mine"].message == "holds 50 % of card node-1-0 and 50 % of card node-1-1 of node-1"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}
    assert ledger.held == {POD: None}
    assert judged.again_after is None


def test_without_the_finalizer_it_holds_nothing_and_is_named_as_needing_it():
    what = scene(rsv(guarded=False))

    ledger, told, _ = after(cards(), what)

    assert (ledger, told) == (cards(), {})
    assert reservation.unguarded(cards(), what, "BinPack") == ("default/mine",)


REFUSED = {
    "too little left": (
        holds(cards(), "a/b/c", 80),
        scene(rsv()),
        "InsufficientCapacity",
        ["node-1 cannot give 50 % of 2 cards: ", "short by 30 %", "; room on node-2, node-3"],
    ),
    "too few cards": (
        cards(1),
        scene(rsv()),
        "InsufficientCapacity",
        ["node-1 cannot give 50 % of 2 cards", "room on"],
    ),
    "no cards": (cards(0), scene(rsv()), "NoCards", ["node-1 has no cards; room on node-2, node-3"]),
    "no ledger": (None, scene(rsv()), "NoCards", ["node-1 has no cards; room on node-2, node-3"]),
    "room nowhere": (
        cards(2),
        scene(rsv(cards=3)),
        "InsufficientCapacity",
        ["node-1 cannot give 50 % of 3 cards", "no other node has room"],
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
    "the pod runs here with something else": (
        holds(cards(), HOLDER, 20),
        scene(rsv(), pods=(runs(),)),
        "PodHoldsOther",
        ["pod default/my-pod has 20 % of card node-1-0", "not 50 % of 2 cards"],
    ),
    "another Reservation of its pod holds": (
        holds(cards(), POD, 20, terms=by("first")),
        scene(rsv("first", percent=20, age=9), rsv()),
        "AlreadyReserved",
        ["pod default/my-pod has cards of node-1 by Reservation first already"],
    ),
}


@pytest.mark.parametrize(("ledger", "what", "reason", "sentences"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_says_why(ledger, what, reason, sentences):
    settled, told, judged = after(ledger, what, (cards(2, "node-3"), cards(2, "node-2"), cards(1, "node-4")))

    assert (told["mine"].phase, told["mine"].reason) == ("Failed", reason)
    assert [text for text in sentences if text not in told["mine"].message] == []
    assert settled is ledger or settled == ledger
    assert judged.again_after is not None, "it must look again for room"


def test_a_node_that_does_not_exist():
    _, told, _ = after(None, scene(rsv()), (cards(2, "node-2"),), exists=False)

    assert told["mine"].reason == "UnknownNode"
    assert told["mine"].message == "there is no node node-1; room on node-2"


def test_a_node_that_is_gone_gives_nothing_and_keeps_nothing():
    before = holds(cards(), POD, terms=by())

    ledger, told, _ = after(before, scene(rsv(told=GRANTED)), exists=False)

    assert told["mine"].reason == "UnknownNode"
    assert ledger == cards()


WHO_GOES_FIRST = {
    "the older": ([rsv("old", pod="default/a", age=9), rsv("new", pod="default/b")], ["old"]),
    "the more important": (
        [rsv("old", pod="default/a", age=9), rsv("urgent", pod="default/b", priority=1)],
        ["urgent"],
    ),
    "the smaller, when the more important does not fit": (
        [rsv("huge", cards=3, pod="default/a", priority=9), rsv("small", cards=1, pod="default/b")],
        ["small"],
    ),
    "of twins the first by name": ([rsv("b", pod="default/b"), rsv("a", pod="default/a")], ["a"]),
}


@pytest.mark.parametrize(("asked", "granted"), WHO_GOES_FIRST.values(), ids=WHO_GOES_FIRST)
def test_who_goes_first(asked, granted):
    half_taken = holds(cards(), "a/b/c", 40)

    _, told, _ = after(half_taken, scene(*asked))

    assert [name for name, outcome in told.items() if outcome.phase == "Reserved"] == granted


def test_what_one_gives_back_the_next_gets_in_the_same_step():
    full = holds(cards(), POD, 100, terms=by("old"))
    waiting = rsv("next", percent=100, pod="default/next", told=Told("Failed", "InsufficientCapacity"))

    ledger, told, judged = after(full, scene(rsv("old", percent=100, deleted=True, told=GRANTED), waiting))

    assert told["next"].phase == "Reserved"
    assert judged.free == {"default/old"}
    assert ledger is not None
    assert ledger.reservations == {"default/next": "next"}


ENDS = {
    "time is up": (by(until=at(120)), rsv(ttl=120, told=GRANTED), (), "Expired"),
    "time is up while it waits": (None, rsv(ttl=120, told=Told("Failed", "NoCards")), (), "Expired"),
    "the pod ended": (by(bound=True), rsv(told=BOUND), (runs(finished=True),), "PodEnded"),
    "the pod ended before we saw it run": (
        by(bound=True),
        rsv(told=GRANTED),
        (runs(finished=True),),
        "PodEnded",
    ),
    "the pod ended and somebody cleaned up": (None, rsv(told=GRANTED), (runs(finished=True),), "PodEnded"),
    "the pod is gone and somebody cleaned up": (None, rsv(told=BOUND), (), "PodEnded"),
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

    ledger, told, judged = after(before, scene(asked, pods=pods, seconds=121), gone=(HOLDER,))

    assert told["mine"].phase == "Released"
    assert told["mine"].reason == reason
    assert ledger == cards()
    assert judged.again_after is None


def test_the_sentence_of_an_expiry():
    _, told, _ = after(cards(), scene(rsv(ttl=120), seconds=120))

    assert told["mine"].message == "expired after 120 s without a bound pod"


LIVES = {
    "without ttl, forever": (by(), rsv(told=GRANTED), ()),
    "within its time": (by(until=at(200000)), rsv(ttl=86400, told=GRANTED), ()),
    "however long its pod runs": (by(bound=True), rsv(ttl=1, told=BOUND), (runs(),)),
    "even if nobody saw its pod being bound": (by(until=at(1)), rsv(ttl=1, told=GRANTED), (runs(),)),
    "while its pod is on the way": (by(until=at(1)), rsv(ttl=1, told=GRANTED), (waits(),)),
    "when a pod comes that it cannot see": (by(bound=True), rsv(told=GRANTED), ()),
    "whatever its status claims": (by(), rsv(told=Told("Released", "Expired")), ()),
}


@pytest.mark.parametrize("name", LIVES)
def test_it_lives(name):
    terms, asked, pods = LIVES[name]
    on_the_way = terms.bound or "on the way" in name
    before = holds(cards(), HOLDER if on_the_way else POD, terms=terms)

    ledger, told, _ = after(before, scene(asked, pods=pods, seconds=3600))

    assert told["mine"].phase == "Reserved"
    assert ledger is not None
    assert [card.used for card in ledger.cards] == [50, 50]


@pytest.mark.parametrize("before", [cards(), holds(cards(), "a/b/c", 80), None], ids=["free", "full", "none"])
@pytest.mark.parametrize("reason", ["Expired", "PodEnded"])
def test_released_is_for_good(before, reason):
    ledger, told, judged = after(before, scene(rsv(told=Told("Released", reason))))

    assert (ledger, told, judged.again_after) == (before, {}, None)


def test_a_pod_that_comes_without_us_takes_over_what_is_held_for_it():
    before = holds(cards(), POD, terms=by(until=at(120)))

    ledger, told, _ = after(before, scene(rsv(ttl=120, told=GRANTED), pods=(runs(),)))

    assert told["mine"].reason == "PodBound"
    assert told["mine"].pod_uid == "uid-1"
    assert ledger is not None
    assert ledger.reservations == {HOLDER: "mine"}
    assert not ledger.held


def test_a_pod_that_runs_already_has_its_cards_mirrored():
    before = holds(cards(), HOLDER)

    ledger, told, _ = after(before, scene(rsv(), pods=(runs(),)))

    assert told["mine"].reason == "PodBound"
    assert ledger == replace(before, reservations={HOLDER: "mine"})


def test_a_pod_that_runs_without_cards_gets_them_bound():
    ledger, told, _ = after(cards(), scene(rsv(ttl=1), pods=(runs(),), seconds=60))

    assert told["mine"].reason == "PodBound"
    assert ledger is not None
    assert HOLDER in ledger.holders()
    assert not ledger.held


def test_a_finished_pod_of_that_name_is_not_its_pod():
    ledger, told, _ = after(cards(), scene(rsv(), pods=(runs(finished=True),)))

    assert told["mine"].reason == "Granted"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}


NEVER_CAME = {
    "gone before it was bound": ((), (HOLDER,)),
    "finished before it was bound": ((runs(node="", finished=True),), ()),
    "bound elsewhere": ((runs(node="node-2"),), ()),
}


@pytest.mark.parametrize(("pods", "gone"), NEVER_CAME.values(), ids=NEVER_CAME)
def test_when_its_pod_never_comes_it_waits_for_the_next(pods, gone):
    before = holds(cards(), HOLDER, terms=by())

    ledger, told, _ = after(before, scene(rsv(told=GRANTED), pods=pods), gone=gone)

    assert told["mine"].reason == "Granted"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}


def test_a_changed_ttl_moves_the_end():
    before = holds(cards(), POD, terms=by(until=at(60)))

    longer, _, judged = after(before, scene(rsv(ttl=120, told=GRANTED), seconds=30))
    forever, _, _ = after(before, scene(rsv(told=GRANTED)))

    assert longer is not None
    assert longer.held == {POD: at(120)}
    assert judged.again_after == 90
    assert forever is not None
    assert forever.held == {POD: None}


DELETED = {
    "frees what waits": (by(), POD, None),
    "leaves a running pod its cards": (by(bound=True), HOLDER, {}),
    "leaves a pod on its way a while": (by(), HOLDER, {HOLDER: at(120)}),
    "makes no expiry later": (by(until=at(5)), HOLDER, {HOLDER: at(5)}),
}


@pytest.mark.parametrize(("terms", "holder", "held"), DELETED.values(), ids=DELETED)
def test_a_deletion(terms, holder, held):
    before = holds(cards(), holder, terms=terms)

    ledger, told, judged = after(before, scene(rsv(deleted=True, told=GRANTED), pods=(waits(),)))

    assert told == {}
    assert judged.free == {"default/mine"}
    assert ledger is not None
    assert not ledger.reservations
    assert ledger == cards() if held is None else ledger.held == held


def test_a_deletion_needs_no_ledger():
    _, _, judged = after(None, scene(rsv(deleted=True, told=GRANTED)))

    assert judged.free == {"default/mine"}


def test_one_whose_ledger_is_still_to_be_made_is_left_alone():
    """In memory, its status is what the ledger is made of at the start."""
    for told in (GRANTED, BOUND):
        _, outcomes, judged = after(None, scene(rsv(told=told)))

        assert outcomes == {}
        assert judged.again_after == verdict.PATIENCE


def test_what_belongs_to_a_reservation_that_is_no_more_is_freed():
    before = holds(cards(), POD, terms=by("gone"))
    what = scene()

    assert reservation.strangers(before, ()) == (POD,)
    assert reservation.settle(before, what, "BinPack") == before, "not before it is certain"
    assert reservation.settle(before, replace(what, orphans=frozenset({POD})), "BinPack") == cards()


def test_a_successor_of_the_same_name_does_not_inherit():
    before = holds(cards(), POD, 20, terms=by())

    ledger, told, _ = after(before, scene(rsv(cards=1, percent=100)))

    assert [part.share for part in told["mine"].grant] == [100]
    assert ledger is not None
    assert sum(card.used for card in ledger.cards) == 100


def test_figures_of_a_refusal_are_told_calmly():
    told = Told("Failed", "InsufficientCapacity", "it was otherwise", since=at(0))
    full = holds(cards(), "a/b/c", 80)

    _, soon, judged = after(full, scene(rsv(told=told), seconds=3))
    _, later, _ = after(full, scene(rsv(told=told), seconds=10))

    assert soon == {}
    assert judged.again_after == verdict.CALM.total_seconds()
    assert "short by 30 %" in later["mine"].message


def test_only_certain_endings_count():
    before = holds(cards(), HOLDER, terms=by(bound=True))

    assert reservation.endings(before, {}) == (frozenset(), (HOLDER,))
    assert reservation.endings(before, {POD: runs(finished=True)}) == (frozenset({HOLDER}), ())
    assert reservation.endings(before, {POD: runs(uid="uid-2")}) == (frozenset(), (HOLDER,))
    assert looked_at(before, scene()).over == frozenset()


def test_a_hold_that_its_binder_prolonged_is_not_shortened():
    before = holds(cards(), HOLDER, terms=by(until=at(200)))

    ledger, _, _ = after(before, scene(rsv(ttl=60, told=GRANTED), pods=(waits(),)))

    assert ledger == before


def test_every_reason_has_a_phase_and_every_phase_its_changes():
    assert set(PHASE.values()) | {"Pending"} == set(CHANGES)
    assert not CHANGES["Released"]


def test_what_is_taken_over_on_a_newer_ledger_is_not_expired():
    """The change may be folded over a ledger in which the pod's hold has just been made."""
    what = scene(rsv(ttl=60, told=GRANTED), pods=(waits(),), seconds=61)
    seen = holds(cards(), POD, terms=by(until=at(60)))
    newer = book.rename(seen, POD, HOLDER)
    assert isinstance(newer, Ledger)

    assert reservation.settle(seen, what, "BinPack") == cards()
    assert reservation.settle(newer, what, "BinPack") == newer
