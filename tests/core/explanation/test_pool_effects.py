"""A new sharing of a pool is previewed as its controller will decide, and impossible ones are declined."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.explanation import pool_effects
from croupier.core.explanation.pool_effects import SharingEffect
from croupier.core.model.sharing import Sharing
from croupier.core.pools import maintenance
from croupier.core.pools.capacity import Capacity
from croupier.core.pools.sharing_change import SharingChange
from tests.core.explanation import fleet_worlds as worlds
from tests.core.explanation.fleet_worlds import FITS, NODE, SHARED, SLICED, SMALL, WHOLE, card, pool, world
from tests.core.pools.test_maintenance import card as member
from tests.core.pools.test_maintenance import cut
from tests.core.pools.test_maintenance import pool as facts

BUSY = member(occupancy="InUse", holdings=("ml/trainer holds card card-0",))
HIDDEN = member("card-1", occupancy="InUse", holdings=("hidden/_1 holds 40 % of card card-1",))
FREE = member("card-2", occupancy="Free")
LOST = member("card-3", unavailable=True)
CLOSED = ("the pool gives no cards to new pods until the change is complete",)
DRIFTED = member(desired_sharing=SMALL, cut=cut(WHOLE, "Drifted"))
LARGE = Sharing("MIG", layout=(("3g.40gb", 2),))

SHARE = {
    "the sharing that it has": (facts(BUSY), SharingEffect("unchanged", "is shared as Exclusive already")),
    "free cards": (
        facts(FREE, LOST, wanted=SMALL),
        SharingEffect("now", "closes, changes its 2 cards from Exclusive to MIG 1g.10gb, and opens again"),
    ),
    "held cards, hidden holders not named": (
        facts(BUSY, HIDDEN, wanted=SMALL),
        SharingEffect(
            "later",
            "closes now: the pool changes from Exclusive to MIG 1g.10gb once no pod holds its cards: "
            "ml/trainer holds card card-0, a pod of another namespace holds 40 % of card card-1",
            CLOSED,
        ),
    ),
    "card by card, free": (
        facts(FREE, wanted=SMALL, per_card=True),
        SharingEffect("now", "changes from Exclusive to MIG 1g.10gb card by card and stays open"),
    ),
    "card by card, held": (
        facts(BUSY, FREE, wanted=SMALL, per_card=True),
        SharingEffect(
            "later",
            "changes from Exclusive to MIG 1g.10gb card by card and stays open; "
            "1 of 2 cards changes when its pods have ended",
        ),
    ),
    "card by card, no change waits for a lost card": (
        facts(replace(BUSY, unavailable=True), FREE, wanted=SMALL, per_card=True),
        SharingEffect("now", "changes from Exclusive to MIG 1g.10gb card by card and stays open"),
    ),
    "a held card that is faulted": (
        facts(replace(BUSY, unavailable=True), wanted=SMALL),
        SharingEffect(
            "later",
            "closes now: the pool changes from Exclusive to MIG 1g.10gb once no pod holds its cards: "
            "ml/trainer holds card card-0",
            CLOSED,
        ),
    ),
    "a pool that waits for a confirmation": (
        facts(FREE, wanted=SMALL, misconfigured="AwaitingConfirmation"),
        SharingEffect(
            "later",
            "changes, but stays closed until it is confirmed: the cards match the allocation of the pool "
            "again; confirm with: croupier pools confirm",
        ),
    ),
    "a pool that is being deleted": (
        facts(FREE, wanted=SMALL, deleting=True),
        SharingEffect("declined", "is being deleted, so its sharing does not change any more"),
    ),
    "back, while a change is in progress": (
        facts(FREE, member("card-0"), change=SharingChange(WHOLE, SMALL)),
        SharingEffect("now", "closes, changes its 2 cards from Exclusive to Exclusive, and opens again"),
    ),
    "drift": (
        facts(DRIFTED, applied=SMALL),
        SharingEffect(
            "later",
            "changes after its drift is repaired: another program repartitioned cards of the pool, which "
            "must be MIG 1g.10gb: 1 card to go: card-0 (Drifted)",
        ),
    ),
}


@pytest.mark.parametrize(("seen", "found"), SHARE.values(), ids=SHARE)
def test_share(seen, found):
    assert pool_effects.share(seen, ()) == found


KNOWN = card(fits=FITS, known_profiles=True)
FIVE = Sharing("MIG", layout=(("1g.10gb", 5), ("3g.40gb", 1)))
DECLINED = "cannot be shared as {}: {}; the pool would stay as it is"
POSSIBLE = {
    "a mode without MIG": (card(known_profiles=True), SLICED, ""),
    "a profile that fits": (KNOWN, SMALL, ""),
    "a layout that fits": (KNOWN, LARGE, ""),
    "profiles are unknown": (card(), SMALL, ""),
    "numbers are unknown": (card(profiles=("1g.10gb",), known_profiles=True), SMALL, ""),
    "a faulted card": (replace(card(known_profiles=True), defect="it is faulted"), SMALL, ""),
    "an unsupported profile": (
        card(known_profiles=True),
        SMALL,
        "card card-0 does not support the MIG profiles 1g.10gb",
    ),
    "unsupported profiles of a layout": (
        card(fits={"3g.40gb": 2}, known_profiles=True),
        Sharing("MIG", layout=(("1g.10gb", 1), ("2g.20gb", 1), ("3g.40gb", 1))),
        "card card-0 does not support the MIG profiles 1g.10gb, 2g.20gb",
    ),
    "too many of a profile": (
        KNOWN,
        Sharing("MIG", layout=(("3g.40gb", 3),)),
        "MIG 3g.40gb:3 does not fit on card card-0",
    ),
    "more than the card has, though its memory suffices": (
        KNOWN,
        Sharing("MIG", layout=(("1g.10gb", 8),)),
        "MIG 1g.10gb:8 does not fit on card card-0",
    ),
    "devices that do not fit together": (KNOWN, FIVE, f"{FIVE} does not fit on card card-0"),
}


@pytest.mark.parametrize(("one", "wanted", "why"), POSSIBLE.values(), ids=POSSIBLE)
def test_an_impossible_sharing_is_declined(one, wanted, why):
    found = pool_effects.share(facts(FREE, wanted=wanted), [one])

    assert found.outcome == ("declined" if why else "now")
    if why:
        assert found.sentence == DECLINED.format(wanted, why)


def test_few_of_many_impossible_cards_are_listed():
    cards = [card(index, known_profiles=True) for index in range(7)]

    found = pool_effects.share(facts(FREE, wanted=SMALL), cards)

    assert "card card-4 does not support" in found.sentence
    assert "card-5" not in found.sentence
    assert " and 2 more; the pool would stay as it is" in found.sentence


CONFIRM = {
    "after drift": (
        ("AwaitingConfirmation", ""),
        ("now", "is used again; it waited for this confirmation: why"),
    ),
    "during a repair": (("Drifted", ""), ("later", "is used again once its cards are repaired: why")),
    "another cause": (
        ("CardContested", "RolledBack"),
        ("later", "is confirmed, but stays misconfigured until the cause is gone: why"),
    ),
    "after a rollback": (
        ("", "RolledBack"),
        ("now", "tries the change again that was rolled back: why"),
    ),
    "nothing wrong": (
        ("", "Configured"),
        ("unchanged", "is not misconfigured: there is nothing to confirm"),
    ),
}


@pytest.mark.parametrize(("reasons", "found"), CONFIRM.values(), ids=CONFIRM)
def test_confirm(reasons, found):
    misconfigured, configured = reasons

    assert pool_effects.confirm(misconfigured, configured, "why") == found


CAPACITY = {
    "whole cards": (WHOLE, 2),
    "percent": (SHARED, 200),
    "time slices": (SLICED, 8),
    "as many MIG devices as fit": (SMALL, 14),
    "a MIG layout": (LARGE, 4),
}


@pytest.mark.parametrize(("sharing", "total"), CAPACITY.values(), ids=CAPACITY)
@pytest.mark.parametrize("partitions", [None, ()], ids=["partitions unknown", "not partitioned"])
def test_the_capacity_of_a_new_sharing_counts_no_holders(sharing, total, partitions):
    cards = [card(index, pool="a", fits=FITS, cut=partitions) for index in range(2)]
    here = world(*cards, card(2, fits=FITS), held=worlds.held_by_job()).nodes[NODE]

    found = pool_effects.shared_capacity("a", here.cards, here.ledger.cards, sharing)

    assert found == Capacity(total)


NOT_COUNTED = {
    "a drained card": card(pool="a", fits=FITS, drain="fan"),
    "a faulted card": card(pool="a", fits=FITS, defect="it is faulted"),
    "a card that leaves": card(pool="a", fits=FITS, assigned=""),
    "a card of no pool": card(fits=FITS),
    "a card on which the layout does not fit": card(pool="a", fits={"2g.20gb": 3}, cut=()),
}


@pytest.mark.parametrize("one", NOT_COUNTED.values(), ids=NOT_COUNTED)
def test_the_capacity_of_a_new_sharing_without(one):
    here = world(one).nodes[NODE]

    assert pool_effects.shared_capacity("a", here.cards, here.ledger.cards, SMALL) == Capacity()


def test_the_capacity_of_a_new_sharing_counts_cards_of_a_closed_pool():
    here = world(card(pool="a"), pools=[pool(withheld="its pool is in Maintenance")]).nodes[NODE]

    assert pool_effects.shared_capacity("a", here.cards, here.ledger.cards, SHARED) == Capacity(100)


MEMBERS = st.lists(
    st.builds(
        lambda number, occupancy, holders: member(
            f"card-{number}", occupancy=occupancy, holdings=tuple(f"{holder} holds it" for holder in holders)
        ),
        st.integers(0, 9),
        st.sampled_from(["Withdrawn", "InUse"]),
        st.lists(st.sampled_from(["team/a", "hidden/_1", "hidden/_2"]), max_size=2),
    ),
    max_size=4,
).map(tuple)


@given(MEMBERS, st.booleans(), st.sampled_from([WHOLE, SMALL, SHARED]))
@settings(max_examples=100)
def test_a_change_waits_exactly_for_holders_and_never_names_hidden_ones(members, per_card, wanted):
    seen = facts(*members, wanted=wanted, per_card=per_card)
    idle = tuple(replace(one, occupancy="Withdrawn") for one in members)

    found = pool_effects.share(seen, ())

    decision = maintenance.decide(replace(seen, members=idle, per_card=False, closed=True))
    assert (found.outcome == "unchanged") == (wanted == WHOLE)
    assert (found.outcome == "later") == (decision.maintenance.reason == "Draining")
    assert "hidden" not in f"{found.sentence}{found.notes}"
