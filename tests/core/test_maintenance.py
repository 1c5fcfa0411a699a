"""A pool changes how it is shared without taking anything from anybody, and comes back whatever happens."""

from dataclasses import replace
from typing import Any

import pytest

from croupier.core.pools import maintenance, sharing
from croupier.core.pools.change import Change, Facts, Member, Step
from croupier.core.pools.sharing import Cut, Sharing

WHOLE = Sharing("Exclusive")
SMALL = Sharing("MIG", profile="1g.10gb")
MEDIUM = Sharing("MIG", layout=(("2g.20gb", 2), ("3g.30gb", 1)))
FITS = {"1g.10gb": 7, "2g.20gb": 3, "3g.30gb": 2}


def cut(layout: Sharing = WHOLE, state: str = "Applied", target: str = "", message: str = "") -> Cut:
    profiles = {"1g.10gb": 7} if layout == SMALL else dict(layout.layout)
    return Cut(state, profiles, target or sharing.spelled(profiles) or "whole", message)


def card(name: str = "card-0", **fields: Any) -> Member:
    plain: dict[str, Any] = {"follows": WHOLE, "occupancy": "Withdrawn", "cut": cut(), "fits": FITS}
    return Member(name, **{**plain, **fields})


def pool(*members: Member, **fields: Any) -> Facts:
    plain: dict[str, Any] = {"wanted": WHOLE, "carried": WHOLE}
    return Facts(members=members, **{**plain, **fields})


def test_a_new_pool_carries_out_what_it_asks_for_at_once() -> None:
    found = maintenance.decide(pool(wanted=SMALL, carried=None))

    assert (found.sharing, found.maintenance.holds, found.configured.holds) == (SMALL, False, True)


def test_a_changed_pool_closes_and_says_who_is_waited_for() -> None:
    busy = card(occupancy="InUse", holdings=("ml/trainer holds card card-0",))

    found = maintenance.decide(pool(busy, wanted=SMALL))

    assert (found.sharing, found.maintenance.holds, found.maintenance.reason) == (WHOLE, True, "Draining")
    assert found.maintenance.sentence == (
        "the pool changes from Exclusive to MIG 1g.10gb once nobody holds its cards: "
        "ml/trainer holds card card-0"
    )


NOT_YET = {
    "somebody holds a card": (card(occupancy="InUse"), True),
    "a card is free, and may be given still": (card(occupancy="Free"), True),
    "nobody says who holds it": (card(occupancy=""), True),
    "the ledger counts a holder": (card(holdings=("ml/x holds card card-0",)), True),
    "the ledger has not heard that the pool is closed": (card(), False),
}


@pytest.mark.parametrize(("one", "closed"), NOT_YET.values(), ids=NOT_YET)
def test_nothing_is_rebuilt_while(one: Member, closed: bool) -> None:
    found = maintenance.decide(pool(one, card("card-1"), wanted=SMALL, closed=closed))

    assert (found.sharing, found.change, found.maintenance.reason) == (WHOLE, None, "Draining")


def test_once_every_card_is_withdrawn_the_cards_are_rebuilt() -> None:
    found = maintenance.decide(pool(card(), wanted=SMALL, closed=True))

    assert (found.sharing, found.change) == (SMALL, Change(WHOLE, SMALL))
    assert (found.maintenance.holds, found.maintenance.reason) == (True, "Rebuilding")


def test_the_pool_opens_when_the_last_card_is_as_it_shall_be() -> None:
    done, other = card(follows=SMALL, cut=cut(SMALL)), card("card-1", follows=SMALL)
    rebuilding = pool(done, other, wanted=SMALL, carried=SMALL, change=Change(WHOLE, SMALL), closed=True)

    still = maintenance.decide(rebuilding)
    opened = maintenance.decide(replace(rebuilding, members=(done,)))

    assert still.maintenance.sentence.endswith("1 card to go: card-1 (Applied)")
    assert (opened.maintenance.holds, opened.change, opened.configured.holds) == (False, None, True)


def test_cards_of_which_nothing_can_be_expected_do_not_keep_a_pool_closed() -> None:
    lost = card("card-1", follows=SMALL, out=True)
    rebuilt = card(follows=SMALL, cut=cut(SMALL))

    found = maintenance.decide(
        pool(rebuilt, lost, wanted=SMALL, carried=SMALL, change=Change(WHOLE, SMALL), closed=True)
    )

    assert not found.maintenance.holds


def test_modes_without_a_cut_need_no_rebuilding() -> None:
    slices = Sharing("TimeSlice", slices=4)

    found = maintenance.decide(pool(card(cut=None), wanted=slices, closed=True))

    assert (found.sharing, found.maintenance.holds) == (slices, False)


def test_past_the_deadline_it_says_so_and_ends_nobody() -> None:
    busy = card(occupancy="InUse", holdings=("ml/trainer holds card card-0",))

    found = maintenance.decide(pool(busy, wanted=SMALL, overdue=True))

    assert found.maintenance.reason == "GPUModeChangeStuck"
    assert "ml/trainer holds card card-0" in found.maintenance.sentence


BROKEN = cut(WHOLE, "Failed", target="1g.10gb:7", message="the driver refused")
FAILED = "the change to MIG 1g.10gb failed (card card-0: the driver refused)"


def test_a_rebuild_that_fails_goes_back() -> None:
    broken = card(follows=SMALL, cut=BROKEN)
    rebuilt = card("card-1", follows=SMALL, cut=cut(SMALL))

    found = maintenance.decide(
        pool(broken, rebuilt, wanted=SMALL, carried=SMALL, change=Change(WHOLE, SMALL), closed=True)
    )

    assert (found.sharing, found.change) == (WHOLE, Change(WHOLE, SMALL, FAILED))
    assert (found.maintenance.holds, found.maintenance.reason) == (True, "RollingBack")


def test_it_opens_again_with_what_was_before_and_does_not_try_again() -> None:
    back = pool(card(), wanted=SMALL, change=Change(WHOLE, SMALL, FAILED), closed=True)

    found = maintenance.decide(back)
    later = maintenance.decide(replace(back, change=found.change, closed=False))

    assert (found.sharing, found.maintenance.holds, found.configured.reason) == (WHOLE, False, "RolledBack")
    assert FAILED in found.configured.sentence
    assert later == found


TRIES_AGAIN = {
    "a person confirms": {"confirmed": True},
    "the wish changes": {"wanted": MEDIUM},
}


@pytest.mark.parametrize("fields", TRIES_AGAIN.values(), ids=TRIES_AGAIN)
def test_it_tries_again_when(fields: dict[str, Any]) -> None:
    refused = pool(card(), wanted=SMALL, change=Change(WHOLE, SMALL, FAILED, over=True))

    found = maintenance.decide(replace(refused, **fields))

    assert (found.maintenance.holds, found.maintenance.reason, found.change) == (True, "Draining", None)


def test_an_older_failure_says_nothing_of_the_new_wish() -> None:
    stale = card(follows=SMALL, cut=cut(WHOLE, "Failed", target="3g.30gb:2"))

    found = maintenance.decide(
        pool(stale, wanted=SMALL, carried=SMALL, change=Change(WHOLE, SMALL), closed=True)
    )

    assert found.maintenance.reason == "Rebuilding"


def test_a_card_that_cannot_go_back_either_does_not_keep_the_pool_closed() -> None:
    broken = card(cut=cut(MEDIUM, "Failed", target="whole"))

    found = maintenance.decide(pool(broken, wanted=SMALL, change=Change(WHOLE, SMALL, FAILED), closed=True))

    assert (found.maintenance.holds, found.configured.reason) == (False, "RolledBack")


CUT_OFF = {
    "before the status was written": (
        pool(card(), wanted=SMALL, change=Change(WHOLE, SMALL), closed=True),
        SMALL,
    ),
    "before the status went back": (
        pool(card(cut=BROKEN), wanted=SMALL, carried=SMALL, change=Change(WHOLE, SMALL, FAILED), closed=True),
        WHOLE,
    ),
}


@pytest.mark.parametrize(("left", "sharing_"), CUT_OFF.values(), ids=CUT_OFF)
def test_who_takes_over_goes_on_where_the_other_was_cut_off(left: Facts, sharing_: Sharing) -> None:
    assert maintenance.decide(left).sharing == sharing_


def test_drift_closes_the_pool_until_a_person_confirms_the_repair() -> None:
    drifted = pool(
        card(follows=SMALL, cut=cut(MEDIUM, "Drifted"), occupancy="InUse"), wanted=SMALL, carried=SMALL
    )
    mended = replace(
        drifted, members=(card(follows=SMALL, cut=cut(SMALL)),), misconfigured="Drifted", closed=True
    )
    half = replace(mended, members=(card(follows=SMALL, cut=cut(MEDIUM, "Waiting")),))

    found, repairing, waiting, over = (
        maintenance.decide(one)
        for one in (
            drifted,
            half,
            mended,
            replace(mended, misconfigured="AwaitingConfirmation", confirmed=True),
        )
    )

    assert (found.maintenance.holds, found.misconfigured.reason) == (True, "Drifted")
    assert (repairing.maintenance.holds, repairing.misconfigured.reason) == (True, "Drifted")
    assert (waiting.maintenance.holds, waiting.misconfigured.reason) == (True, "AwaitingConfirmation")
    assert (over.maintenance.holds, over.misconfigured.holds) == (False, False)


def test_a_confirmation_before_the_repair_is_none() -> None:
    half = pool(
        card(follows=SMALL, cut=cut(MEDIUM, "Waiting")),
        wanted=SMALL,
        carried=SMALL,
        misconfigured="Drifted",
        confirmed=True,
    )

    assert maintenance.decide(half).misconfigured.reason == "Drifted"


def test_a_card_that_cannot_be_repaired_does_not_keep_the_others_from_being_confirmed() -> None:
    broken = card(follows=SMALL, cut=cut(MEDIUM, "Failed", target="1g.10gb:7", message="the driver refused"))
    mended = card("card-1", follows=SMALL, cut=cut(SMALL))
    facts = pool(broken, mended, wanted=SMALL, carried=SMALL, misconfigured="Drifted", closed=True)

    found = maintenance.decide(facts)

    assert found.misconfigured.reason == "AwaitingConfirmation"
    assert "card-0 (Failed: the driver refused)" in found.misconfigured.sentence
    assert not maintenance.decide(replace(facts, confirmed=True)).misconfigured.holds


CONFLICTS = {
    "a card two pools claim": ({"conflicts": ("pools a and b ...",)}, "CardContested"),
    "an older pool with the same resource": ({"elder": "team-a"}, "ResourceTaken"),
}


@pytest.mark.parametrize(("fields", "reason"), CONFLICTS.values(), ids=CONFLICTS)
def test_conflicts_with_other_pools_end_by_themselves(fields: dict[str, Any], reason: str) -> None:
    found = maintenance.decide(pool(card(), **fields))

    assert (found.misconfigured.holds, found.misconfigured.reason) == (True, reason)
    assert not found.maintenance.holds
    assert not maintenance.decide(pool(card(), misconfigured=reason)).misconfigured.holds


def test_a_pool_that_goes_waits_for_its_holders() -> None:
    busy = pool(card(occupancy="InUse", holdings=("ml/x holds card card-0",)), leaving=True, closed=True)

    waits = maintenance.decide(busy)
    goes = maintenance.decide(replace(busy, members=(card(),)))

    assert (waits.maintenance.reason, waits.release) == ("Deleting", False)
    assert goes.release


def rolling(*members: Member, **fields: Any) -> Facts:
    return pool(*members, wanted=SMALL, per_card=True, **fields)


def test_card_by_card_the_pool_stays_open_and_free_cards_change_first() -> None:
    busy, free = card("card-0", occupancy="InUse"), card("card-1", occupancy="Free")

    found = maintenance.decide(rolling(busy, free))

    assert (found.sharing, found.maintenance.holds, found.maintenance.reason) == (WHOLE, False, "PerCard")
    assert found.steps == (Step("card-1", SMALL, drained=True),)
    assert found.configured.sentence == "0 of 2 cards are changed from Exclusive to MIG 1g.10gb"


def test_a_card_serves_again_once_it_is_as_it_shall_be() -> None:
    changing = card(follows=SMALL, ahead=True, drained=True)
    done = replace(changing, cut=cut(SMALL))

    assert maintenance.decide(rolling(changing, card("card-1", occupancy="InUse"))).steps == ()
    found = maintenance.decide(rolling(done, card("card-1", occupancy="InUse")))
    assert found.steps == (Step("card-0", SMALL, drained=False),)


@pytest.mark.parametrize("occupancy", ["Free", "InUse", ""])
def test_a_card_stays_drained_until_the_ledger_has_withdrawn_it(occupancy: str) -> None:
    changing = card(follows=SMALL, ahead=True, drained=True, cut=cut(SMALL), occupancy=occupancy)

    assert maintenance.decide(rolling(changing)).steps == ()


def test_when_all_have_changed_the_pool_takes_their_word_and_then_they_drop_it() -> None:
    done = card(follows=SMALL, ahead=True, cut=cut(SMALL), occupancy="Free")

    found = maintenance.decide(rolling(done))
    later = maintenance.decide(rolling(done, carried=SMALL))

    assert (found.sharing, found.steps, found.configured.holds) == (SMALL, (), True)
    assert later.steps == (Step("card-0", None, drained=False),)


def test_a_card_that_fails_takes_all_back_that_were_changed() -> None:
    broken = card(follows=SMALL, ahead=True, drained=True, cut=BROKEN)
    changed = card("card-1", follows=SMALL, ahead=True, cut=cut(SMALL), occupancy="Free")

    found = maintenance.decide(rolling(broken, changed))

    assert (found.sharing, found.change) == (WHOLE, Change(WHOLE, SMALL, FAILED))
    assert found.steps == (Step("card-0", None, drained=True),)

    mended = replace(broken, follows=WHOLE, ahead=False, drained=False, cut=cut(), occupancy="Free")
    again = maintenance.decide(rolling(mended, changed, change=found.change))
    assert again.steps == (Step("card-1", None, drained=True),)

    back = replace(mended, id="card-1", drained=True, occupancy="Withdrawn")
    last = maintenance.decide(rolling(mended, back, change=found.change))
    assert last.steps == (Step("card-1", None, drained=False),)
    over = maintenance.decide(rolling(mended, replace(back, drained=False), change=found.change))
    assert (over.steps, over.configured.reason) == ((), "RolledBack")
