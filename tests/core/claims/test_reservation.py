"""The outcomes of Reservations, and their order."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.claims import reservation, reservation_status
from croupier.core.claims.reservation_inputs import PHASE, PHASE_CHANGES, LastReservationStatus
from croupier.core.claims.rival_hold import RivalHold
from croupier.core.ledger import ledger as book
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card_request import CardShares
from croupier.core.model.withheld import Withheld
from tests.core.reservation_builders import (
    HOLDER,
    POD,
    after_noon,
    cards,
    decided,
    held_by,
    inputs,
    reservation_request,
    rival,
    running_pod,
    waiting_pod,
    with_ended_pods,
    with_holder,
)

GRANTED = LastReservationStatus("Reserved", "Granted")
BOUND = LastReservationStatus("Reserved", "PodBound")


def test_it_holds_cards_for_a_pod_that_does_not_exist_yet():
    ledger, outcomes, judged = decided(cards(), inputs(reservation_request()))

    assert outcomes["mine"].phase == "Reserved"
    assert outcomes["mine"].message == "holds 50 % of card node-1-0 and 50 % of card node-1-1 of node-1"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}
    assert ledger.held == {POD: None}
    assert judged.requeue_after is None


def test_without_the_finalizer_it_holds_nothing_and_needs_the_finalizer():
    what = inputs(reservation_request(has_finalizer=False))

    ledger, outcomes, _ = decided(cards(), what)

    assert (ledger, outcomes) == (cards(), {})
    assert reservation.without_finalizer(cards(), what, "BinPack") == ("default/mine",)


REFUSED = {
    "too little capacity": (
        with_holder(cards(), "a/b/c", 80),
        inputs(reservation_request()),
        "InsufficientCapacity",
        ["node-1 cannot provide 50 % of 2 cards: ", "short by 30 %", "; available on node-2, node-3"],
    ),
    "too few cards": (
        cards(1),
        inputs(reservation_request()),
        "InsufficientCapacity",
        ["node-1 cannot provide 50 % of 2 cards", "available on"],
    ),
    "no cards": (
        cards(0),
        inputs(reservation_request()),
        "NoCards",
        ["node-1 has no cards; available on node-2, node-3"],
    ),
    "no ledger": (
        None,
        inputs(reservation_request()),
        "NoCards",
        ["node-1 has no cards; available on node-2, node-3"],
    ),
    "not available on any node": (
        cards(2),
        inputs(reservation_request(cards=3)),
        "InsufficientCapacity",
        ["node-1 cannot provide 50 % of 3 cards", "not available on any other node"],
    ),
    "a pod of another namespace": (
        cards(),
        inputs(reservation_request(pod="other/my-pod")),
        "WrongNamespace",
        [
            "podKey other/my-pod is in another namespace:",
            "a Reservation in default can only be for a pod of default",
        ],
    ),
    "the pod already holds other cards": (
        with_holder(cards(), HOLDER, 20),
        inputs(reservation_request(), pods=(running_pod(),)),
        "PodHoldsOther",
        ["pod default/my-pod already has 20 % of card node-1-0", "not 50 % of 2 cards"],
    ),
    "another Reservation for the pod": (
        with_holder(cards(), POD, 20, terms=held_by("first")),
        inputs(reservation_request("first", percent=20, age=9), reservation_request()),
        "AlreadyReserved",
        ["pod default/my-pod already has cards of node-1 through Reservation first"],
    ),
    "the pod is bound to another node": (
        cards(),
        inputs(reservation_request(), pods=(running_pod(node="node-2"),)),
        "PodElsewhere",
        ["pod default/my-pod is bound to node-2, so it cannot use cards of node-1"],
    ),
    "another Reservation for the pod on another node": (
        cards(),
        inputs(reservation_request(), rivals=(rival(age=-5),)),
        "AlreadyReserved",
        [
            "pod default/my-pod already has cards of node-2 through Reservation other",
            "a pod can hold cards of one node only",
        ],
    ),
}


@pytest.mark.parametrize(("ledger", "what", "reason", "sentences"), REFUSED.values(), ids=REFUSED)
def test_refusals(ledger, what, reason, sentences):
    settled, outcomes, judged = decided(
        ledger, what, (cards(2, "node-3"), cards(2, "node-2"), cards(1, "node-4"))
    )

    assert (outcomes["mine"].phase, outcomes["mine"].reason) == ("Failed", reason)
    assert [text for text in sentences if text not in outcomes["mine"].message] == []
    assert settled is ledger or settled == ledger
    assert judged.requeue_after is not None, "it must be checked again"


def test_a_node_that_does_not_exist():
    _, outcomes, _ = decided(None, inputs(reservation_request()), (cards(2, "node-2"),), exists=False)

    assert outcomes["mine"].reason == "UnknownNode"
    assert outcomes["mine"].message == "node node-1 does not exist; available on node-2"


def test_a_reservation_on_a_deleted_node_fails_and_is_released():
    before = with_holder(cards(), POD, terms=held_by())

    ledger, outcomes, _ = decided(before, inputs(reservation_request(last_status=GRANTED)), exists=False)

    assert outcomes["mine"].reason == "UnknownNode"
    assert ledger == cards()


WHO_GOES_FIRST = {
    "the older": (
        [reservation_request("old", pod="default/a", age=9), reservation_request("new", pod="default/b")],
        ["old"],
    ),
    "the higher priority": (
        [
            reservation_request("old", pod="default/a", age=9),
            reservation_request("urgent", pod="default/b", priority=1),
        ],
        ["urgent"],
    ),
    "the smaller one, if the higher priority does not fit": (
        [
            reservation_request("huge", cards=3, pod="default/a", priority=9),
            reservation_request("small", cards=1, pod="default/b"),
        ],
        ["small"],
    ),
    "of equals the first by name": (
        [reservation_request("b", pod="default/b"), reservation_request("a", pod="default/a")],
        ["a"],
    ),
}


@pytest.mark.parametrize(("asked", "granted"), WHO_GOES_FIRST.values(), ids=WHO_GOES_FIRST)
def test_the_order_of_reservations(asked, granted):
    half_taken = with_holder(cards(), "a/b/c", 40)

    _, outcomes, _ = decided(half_taken, inputs(*asked))

    assert [name for name, outcome in outcomes.items() if outcome.phase == "Reserved"] == granted


def test_released_cards_are_granted_in_the_same_step():
    full = with_holder(cards(), POD, 100, terms=held_by("old"))
    waiting = reservation_request(
        "next",
        percent=100,
        pod="default/next",
        last_status=LastReservationStatus("Failed", "InsufficientCapacity"),
    )

    ledger, outcomes, judged = decided(
        full, inputs(reservation_request("old", percent=100, deleted=True, last_status=GRANTED), waiting)
    )

    assert outcomes["next"].phase == "Reserved"
    assert judged.free == {"default/old"}
    assert ledger is not None
    assert ledger.reservations == {"default/next": "next"}


ENDS = {
    "expired": (
        held_by(until=after_noon(120)),
        reservation_request(ttl=120, last_status=GRANTED),
        (),
        "Expired",
    ),
    "expired while pending": (
        None,
        reservation_request(ttl=120, last_status=LastReservationStatus("Failed", "NoCards")),
        (),
        "Expired",
    ),
    "the pod ended": (
        held_by(bound=True),
        reservation_request(last_status=BOUND),
        (running_pod(finished=True),),
        "PodEnded",
    ),
    "the pod ended before it was seen running": (
        held_by(bound=True),
        reservation_request(last_status=GRANTED),
        (running_pod(finished=True),),
        "PodEnded",
    ),
    "the pod ended and its hold was released": (
        None,
        reservation_request(last_status=GRANTED),
        (running_pod(finished=True),),
        "PodEnded",
    ),
    "the pod is gone and its hold was released": (
        None,
        reservation_request(last_status=BOUND),
        (),
        "PodEnded",
    ),
    "the pod is gone": (held_by(bound=True), reservation_request(last_status=GRANTED), (), "PodEnded"),
    "another pod has the name": (
        held_by(bound=True),
        reservation_request(last_status=BOUND),
        (waiting_pod(uid="uid-2"),),
        "PodEnded",
    ),
}


@pytest.mark.parametrize(("terms", "asked", "pods", "reason"), ENDS.values(), ids=ENDS)
def test_it_ends(terms, asked, pods, reason):
    holder = POD if terms is None or terms.until else HOLDER
    before = cards() if terms is None else with_holder(cards(), holder, terms=terms)

    ledger, outcomes, judged = decided(before, inputs(asked, pods=pods, seconds=121), gone=(HOLDER,))

    assert outcomes["mine"].phase == "Released"
    assert outcomes["mine"].reason == reason
    assert ledger == cards()
    assert judged.requeue_after is None


def test_the_message_of_an_expiry():
    _, outcomes, _ = decided(cards(), inputs(reservation_request(ttl=120), seconds=120))

    assert outcomes["mine"].message == "expired after 120 s without a bound pod"


LIVES = {
    "without ttl, forever": (held_by(), reservation_request(last_status=GRANTED), ()),
    "within its time": (
        held_by(until=after_noon(200000)),
        reservation_request(ttl=86400, last_status=GRANTED),
        (),
    ),
    "while its pod runs": (
        held_by(bound=True),
        reservation_request(ttl=1, last_status=BOUND),
        (running_pod(),),
    ),
    "while its pod runs and is not promoted yet": (
        held_by(until=after_noon(1)),
        reservation_request(ttl=1, last_status=GRANTED),
        (running_pod(),),
    ),
    "while its pod is being bound": (
        held_by(until=after_noon(1)),
        reservation_request(ttl=1, last_status=GRANTED),
        (waiting_pod(),),
    ),
    "while its pod is not in the cache": (held_by(bound=True), reservation_request(last_status=GRANTED), ()),
    "regardless of its status": (
        held_by(),
        reservation_request(last_status=LastReservationStatus("Released", "Expired")),
        (),
    ),
}


@pytest.mark.parametrize("name", LIVES)
def test_it_keeps_its_cards(name):
    terms, asked, pods = LIVES[name]
    on_the_way = terms.bound or "being bound" in name
    before = with_holder(cards(), HOLDER if on_the_way else POD, terms=terms)

    ledger, outcomes, _ = decided(before, inputs(asked, pods=pods, seconds=3600))

    assert outcomes["mine"].phase == "Reserved"
    assert ledger is not None
    assert [card.used for card in ledger.cards] == [50, 50]


@pytest.mark.parametrize(
    "before", [cards(), with_holder(cards(), "a/b/c", 80), None], ids=["free", "full", "none"]
)
@pytest.mark.parametrize("reason", ["Expired", "PodEnded"])
def test_released_is_final(before, reason):
    ledger, outcomes, judged = decided(
        before, inputs(reservation_request(last_status=LastReservationStatus("Released", reason)))
    )

    assert (ledger, outcomes, judged.requeue_after) == (before, {}, None)


def test_a_pod_bound_by_another_scheduler_takes_over_the_hold():
    before = with_holder(cards(), POD, terms=held_by(until=after_noon(120)))

    ledger, outcomes, _ = decided(
        before, inputs(reservation_request(ttl=120, last_status=GRANTED), pods=(running_pod(),))
    )

    assert outcomes["mine"].reason == "PodBound"
    assert outcomes["mine"].pod_uid == "uid-1"
    assert ledger is not None
    assert ledger.reservations == {HOLDER: "mine"}
    assert not ledger.held


def test_the_status_mirrors_the_cards_of_a_running_pod():
    before = with_holder(cards(), HOLDER)

    ledger, outcomes, _ = decided(before, inputs(reservation_request(), pods=(running_pod(),)))

    assert outcomes["mine"].reason == "PodBound"
    assert ledger == replace(before, reservations={HOLDER: "mine"})


def test_a_running_pod_without_cards_gets_them_bound():
    ledger, outcomes, _ = decided(
        cards(), inputs(reservation_request(ttl=1), pods=(running_pod(),), seconds=60)
    )

    assert outcomes["mine"].reason == "PodBound"
    assert ledger is not None
    assert HOLDER in ledger.holders()
    assert not ledger.held


def test_a_finished_pod_of_that_name_is_not_its_pod():
    ledger, outcomes, _ = decided(cards(), inputs(reservation_request(), pods=(running_pod(finished=True),)))

    assert outcomes["mine"].reason == "Granted"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}


NEVER_CAME = {
    "gone before it was bound": ((), (HOLDER,)),
    "finished before it was bound": ((running_pod(node="", finished=True),), ()),
}


@pytest.mark.parametrize(("pods", "gone"), NEVER_CAME.values(), ids=NEVER_CAME)
def test_if_its_pod_is_not_bound_here_it_waits_for_the_next_one(pods, gone):
    before = with_holder(cards(), HOLDER, terms=held_by())

    ledger, outcomes, _ = decided(
        before, inputs(reservation_request(last_status=GRANTED), pods=pods), gone=gone
    )

    assert outcomes["mine"].reason == "Granted"
    assert ledger is not None
    assert ledger.reservations == {POD: "mine"}


@pytest.mark.parametrize("holder", [POD, HOLDER])
def test_the_cards_are_released_when_its_pod_is_bound_elsewhere(holder):
    before = with_holder(cards(), holder, terms=held_by())
    asked = reservation_request(last_status=GRANTED)

    ledger, outcomes, judged = decided(before, inputs(asked, pods=(running_pod(node="node-2"),)))

    assert ledger == cards()
    assert (outcomes["mine"].phase, outcomes["mine"].reason) == ("Failed", "PodElsewhere")
    assert judged.requeue_after is not None

    ended = running_pod(node="node-2", finished=True)
    refused = LastReservationStatus("Failed", "PodElsewhere")
    _, outcomes, _ = decided(ledger, inputs(reservation_request(last_status=refused), pods=(ended,)))
    assert outcomes["mine"].reason == "Granted"


def test_cards_that_are_gone_are_replaced_or_released():
    before = with_holder(cards(3), POD, terms=held_by())
    unhealthy = tuple(replace(card, healthy=card.id != "node-1-0") for card in before.cards)
    before = replace(before, cards=unhealthy)
    scene = replace(inputs(reservation_request(last_status=GRANTED)), lost=frozenset({"node-1-0"}))

    ledger, outcomes, _ = decided(before, scene)
    assert ledger is not None
    assert {part.card for part in ledger.grant(POD)} == {"node-1-1", "node-1-2"}
    assert outcomes["mine"].reason == "Granted"

    ledger, outcomes, _ = decided(replace(before, cards=before.cards[:2]), scene)
    assert ledger is not None
    assert not ledger.holders()
    assert outcomes["mine"].reason == "InsufficientCapacity"


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "being bound"])
def test_a_pod_keeps_cards_that_are_gone(bound):
    before = with_holder(cards(), HOLDER, terms=held_by(bound=bound))
    pods = (running_pod(),) if bound else ()
    scene = replace(inputs(reservation_request(last_status=GRANTED), pods=pods), lost=frozenset({"node-1-0"}))

    ledger, outcomes, _ = decided(before, scene)

    assert ledger == before
    assert outcomes["mine"].phase == "Reserved"


def test_unhealthy_cards_are_kept_and_named():
    before = with_holder(cards(), POD, terms=held_by())
    before = replace(before, cards=(before.cards[0], replace(before.cards[1], healthy=False)))

    ledger, outcomes, _ = decided(before, inputs(reservation_request(last_status=GRANTED)))

    assert ledger == before
    assert outcomes["mine"].message.endswith("; the pod waits, because node-1-1 is not healthy")


def test_drained_cards_are_kept_and_named_with_the_reason():
    before = with_holder(cards(), POD, terms=held_by())
    drained = replace(before.cards[1], healthy=False, withheld=Withheld("Drained", "swap the fan"))
    before = replace(before, cards=(before.cards[0], drained))

    _, outcomes, _ = decided(before, inputs(reservation_request(last_status=GRANTED)))

    assert outcomes["mine"].message.endswith("; the pod waits, because node-1-1 is drained: swap the fan")


@pytest.mark.parametrize("ledger", [None, cards(0)], ids=["no ledger", "no cards in the ledger"])
def test_nothing_is_decided_before_the_cards_of_the_node_are_known(ledger):
    scene = replace(inputs(reservation_request()), expected=True)

    _, outcomes, judged = decided(ledger, scene)

    assert (outcomes["mine"].phase, outcomes["mine"].reason) == ("Pending", "AwaitingCards")
    assert outcomes["mine"].message == "waiting for the cards of node-1, which are not in its ledger yet"
    assert judged.requeue_after is not None
    for status in (GRANTED, LastReservationStatus("Failed", "InsufficientCapacity", "no")):
        known = replace(inputs(reservation_request(last_status=status)), expected=True)
        _, outcomes, judged = decided(ledger, known)
        assert outcomes == {}
        assert judged.requeue_after is not None


RIVALS = {
    "an older one": (rival(age=5), False),
    "a younger one": (rival(age=-5), True),
    "of the same age, by name": (rival("a"), False),
    "of the same age, later by name": (rival("z"), True),
    "a younger one with a pod": (rival(age=-5, has_pod=True), False),
}


@pytest.mark.parametrize(("other", "kept"), RIVALS.values(), ids=RIVALS)
def test_which_of_two_holds_for_one_pod_stays(other, kept):
    before = with_holder(cards(), POD, terms=held_by())

    ledger, outcomes, _ = decided(before, inputs(reservation_request(last_status=GRANTED), rivals=(other,)))

    assert ledger == (before if kept else cards())
    assert outcomes["mine"].reason == ("Granted" if kept else "AlreadyReserved")


@pytest.mark.parametrize("bound", [True, False], ids=["bound", "being bound"])
def test_a_hold_that_a_pod_took_over_is_never_released_for_another_one(bound):
    before = with_holder(cards(), HOLDER, terms=held_by(bound=bound))
    pods = (running_pod(),) if bound else ()

    ledger, outcomes, _ = decided(
        before, inputs(reservation_request(last_status=GRANTED), pods=pods, rivals=(rival(age=5),))
    )

    assert ledger == before
    assert outcomes["mine"].phase == "Reserved"


@given(st.data())
def test_of_the_reservations_for_one_pod_exactly_one_holds_in_the_end(data):
    """Whatever held cards before, and in whatever order nodes are decided, some with old views."""
    nodes = data.draw(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=2, unique=True))
    asked = {node: reservation_request(node, age=data.draw(st.integers(0, 1))) for node in nodes}
    ledgers = {
        node: with_holder(cards(2, node), POD, terms=held_by(node))
        if data.draw(st.booleans())
        else cards(2, node)
        for node in nodes
    }

    def decide(node: str, view: dict[str, Ledger]) -> None:
        rivals = tuple(
            RivalHold(asked[other].key, other, asked[other].created)
            for other in nodes
            if other != node and view[other].reservations
        )
        scene = inputs(asked[node], rivals=rivals, node=node)
        ledgers[node] = reservation.apply(ledgers[node], scene, "BinPack")

    for _ in range(data.draw(st.integers(0, 4))):
        stale = dict(ledgers)
        for node in data.draw(st.lists(st.sampled_from(nodes), unique=True)):
            decide(node, stale)
    for node in (*nodes, *nodes):
        decide(node, ledgers)

    assert [node for node in nodes if ledgers[node].reservations] == [
        node for node in nodes if ledgers[node].holders()
    ]
    assert sum(bool(ledgers[node].holders()) for node in nodes) == 1


def test_a_changed_ttl_changes_the_expiry():
    before = with_holder(cards(), POD, terms=held_by(until=after_noon(60)))

    longer, _, judged = decided(before, inputs(reservation_request(ttl=120, last_status=GRANTED), seconds=30))
    forever, _, _ = decided(before, inputs(reservation_request(last_status=GRANTED)))

    assert longer is not None
    assert longer.held == {POD: after_noon(120)}
    assert judged.requeue_after == 90
    assert forever is not None
    assert forever.held == {POD: None}


def test_a_deleted_reservation_stays_while_a_pod_holds_cards_that_it_does_not_request():
    """Otherwise quotas would count neither of them."""
    before = with_holder(cards(), HOLDER, terms=held_by(bound=True))
    asked = reservation_request(deleted=True, last_status=BOUND)

    ledger, _, judged = decided(before, inputs(asked, pods=(running_pod(),)))
    assert (ledger, judged.free) == (before, frozenset())

    ended = replace(inputs(asked, pods=(running_pod(finished=True),)), over=frozenset({HOLDER}))
    ledger, _, judged = decided(before, ended)
    assert (ledger, judged.free) == (cards(), frozenset({"default/mine"}))


DELETED = {
    "releases a waiting hold": (held_by(), POD, None),
    "leaves a running pod its cards": (held_by(bound=True), HOLDER, {}),
    "leaves the cards to a pod that is being bound, for a while": (
        held_by(),
        HOLDER,
        {HOLDER: after_noon(120)},
    ),
    "does not extend an expiry": (held_by(until=after_noon(5)), HOLDER, {HOLDER: after_noon(5)}),
}


@pytest.mark.parametrize(("terms", "holder", "held"), DELETED.values(), ids=DELETED)
def test_a_deletion(terms, holder, held):
    before = with_holder(cards(), holder, terms=terms)
    pod = replace(waiting_pod(), wants=(CardShares(2, 50),))

    ledger, outcomes, judged = decided(
        before, inputs(reservation_request(deleted=True, last_status=GRANTED), pods=(pod,))
    )

    assert outcomes == {}
    assert judged.free == {"default/mine"}
    assert ledger is not None
    assert not ledger.reservations
    assert ledger == cards() if held is None else ledger.held == held


def test_a_deletion_needs_no_ledger():
    _, _, judged = decided(None, inputs(reservation_request(deleted=True, last_status=GRANTED)))

    assert judged.free == {"default/mine"}


def test_a_reservation_without_ledger_keeps_its_status():
    """The in-memory ledger is rebuilt from the status at the start."""
    for status in (GRANTED, BOUND):
        _, outcomes, judged = decided(None, inputs(reservation_request(last_status=status)))

        assert outcomes == {}
        assert judged.requeue_after == reservation_status.POLL_INTERVAL


def test_the_hold_of_a_deleted_reservation_is_released():
    before = with_holder(cards(), POD, terms=held_by("gone"))
    what = inputs()

    assert reservation.unknown_reservations(before, ()) == (POD,)
    assert reservation.apply(before, what, "BinPack") == before, "not before the deletion is verified"
    assert reservation.apply(before, replace(what, orphans=frozenset({POD})), "BinPack") == cards()


def test_a_new_reservation_of_the_same_name_does_not_inherit_the_hold():
    before = with_holder(cards(), POD, 20, terms=held_by())

    ledger, outcomes, _ = decided(before, inputs(reservation_request(cards=1, percent=100)))

    assert [part.share for part in outcomes["mine"].grant] == [100]
    assert ledger is not None
    assert sum(card.used for card in ledger.cards) == 100


def test_new_figures_of_a_refusal_are_debounced():
    status = LastReservationStatus("Failed", "InsufficientCapacity", "it was otherwise", since=after_noon(0))
    full = with_holder(cards(), "a/b/c", 80)

    _, soon, judged = decided(full, inputs(reservation_request(last_status=status), seconds=3))
    _, later, _ = decided(full, inputs(reservation_request(last_status=status), seconds=10))

    assert soon == {}
    assert judged.requeue_after == reservation_status.MESSAGE_DEBOUNCE.total_seconds()
    assert "short by 30 %" in later["mine"].message


def test_only_verified_endings_count():
    before = with_holder(cards(), HOLDER, terms=held_by(bound=True))

    assert reservation.ended_holders(before, {}) == (frozenset(), (HOLDER,))
    assert reservation.ended_holders(before, {POD: running_pod(finished=True)}) == (frozenset({HOLDER}), ())
    assert reservation.ended_holders(before, {POD: running_pod(uid="uid-2")}) == (frozenset(), (HOLDER,))
    assert with_ended_pods(before, inputs()).over == frozenset()


def test_a_hold_that_a_bind_extended_is_not_shortened():
    before = with_holder(cards(), HOLDER, terms=held_by(until=after_noon(200)))

    ledger, _, _ = decided(
        before, inputs(reservation_request(ttl=60, last_status=GRANTED), pods=(waiting_pod(),))
    )

    assert ledger == before


def test_every_reason_has_a_phase_and_every_phase_its_changes():
    assert set(PHASE.values()) | {"Pending"} == set(PHASE_CHANGES)
    assert not PHASE_CHANGES["Released"]


def test_a_hold_that_was_taken_over_in_a_newer_ledger_does_not_expire():
    """The change may be applied to a newer ledger in which the pod has just taken over the hold."""
    what = inputs(reservation_request(ttl=60, last_status=GRANTED), pods=(waiting_pod(),), seconds=61)
    seen = with_holder(cards(), POD, terms=held_by(until=after_noon(60)))
    newer = book.rename(seen, POD, HOLDER)
    assert isinstance(newer, Ledger)

    assert reservation.apply(seen, what, "BinPack") == cards()
    assert reservation.apply(newer, what, "BinPack") == newer
