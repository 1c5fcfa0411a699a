"""A pool changes its sharing without disturbing pods, and always returns to service."""

from dataclasses import replace
from typing import Any

import pytest

from croupier.core.model import mig
from croupier.core.model.sharing import ReportedLayout, Sharing
from croupier.core.pools import maintenance, sharing_change
from croupier.core.pools.sharing_change import (
    MemberStep,
    PoolDecision,
    PoolFacts,
    PoolMember,
    SharingChange,
)

WHOLE = Sharing("Exclusive")
SMALL = Sharing("MIG", profile="1g.10gb")
MEDIUM = Sharing("MIG", layout=(("2g.20gb", 2), ("3g.30gb", 1)))
FITS = {"1g.10gb": 7, "2g.20gb": 3, "3g.30gb": 2}


def cut(
    layout: Sharing = WHOLE, state: str = "Applied", target: str = "", message: str = ""
) -> ReportedLayout:
    profiles = {"1g.10gb": 7} if layout == SMALL else dict(layout.layout)
    return ReportedLayout(
        state, profiles, target or mig.layout_text(mig.canonical(profiles.items())), message
    )


def card(name: str = "card-0", **fields: Any) -> PoolMember:
    plain = PoolMember(name, desired_sharing=WHOLE, occupancy="Withdrawn", cut=cut(), fits=FITS)
    return replace(plain, **fields)


def pool(*members: PoolMember, **fields: Any) -> PoolFacts:
    plain = PoolFacts(wanted=WHOLE, applied=WHOLE, members=members)
    return replace(plain, **fields)


def decide(facts: PoolFacts) -> PoolDecision:
    """The decision. Whatever it is, it has all three conditions of a pool."""
    decision = maintenance.decide(facts)
    conditions = (decision.maintenance, decision.configured, decision.misconfigured)
    assert [condition.type for condition in conditions] == ["Maintenance", "Configured", "Misconfigured"]
    assert {condition.status for condition in conditions} <= {"True", "False"}
    return decision


def test_a_new_pool_applies_its_allocation_at_once() -> None:
    found = decide(pool(wanted=SMALL, applied=None))

    assert (found.sharing, found.maintenance.holds, found.configured.holds) == (SMALL, False, True)


def test_a_changed_pool_closes_and_names_the_holders() -> None:
    busy = card(occupancy="InUse", holdings=("ml/trainer holds card card-0",))

    found = decide(pool(busy, wanted=SMALL))

    assert (found.sharing, found.maintenance.holds, found.maintenance.reason) == (WHOLE, True, "Draining")
    assert found.maintenance.message == (
        "the pool changes from Exclusive to MIG 1g.10gb once no pod holds its cards: "
        "ml/trainer holds card card-0"
    )


UNENFORCED = {
    Sharing("MPS", enforcement="None"): "the pool has enforcement None, so nothing enforces its shares",
    Sharing("TimeSlice", slices=4): "time slices limit neither the memory nor the compute of a container",
    Sharing("MPS", enforcement="MPS"): "",
    Sharing("MPS", enforcement="HAMiCore"): "",
    WHOLE: "",
    SMALL: "",
}


@pytest.mark.parametrize(("applied", "why"), UNENFORCED.items(), ids=str)
def test_a_pool_says_that_nothing_enforces_its_shares(applied: Sharing, why: str) -> None:
    assert sharing_change.unenforced(applied) == why


NOT_YET = {
    "a pod holds a card": (card(occupancy="InUse"), True),
    "a card is free and can still be allocated": (card(occupancy="Free"), True),
    "the occupancy is unknown": (card(occupancy=""), True),
    "the ledger counts a holder": (card(holdings=("ml/x holds card card-0",)), True),
    "the ledger does not know that the pool is closed": (card(), False),
}


@pytest.mark.parametrize(("one", "closed"), NOT_YET.values(), ids=NOT_YET)
def test_no_card_is_changed_while(one: PoolMember, closed: bool) -> None:
    found = decide(pool(one, card("card-1"), wanted=SMALL, closed=closed))

    assert (found.sharing, found.change, found.maintenance.reason) == (WHOLE, None, "Draining")


def test_the_cards_are_changed_once_all_are_withdrawn() -> None:
    found = decide(pool(card(), wanted=SMALL, closed=True))

    assert (found.sharing, found.change) == (SMALL, SharingChange(WHOLE, SMALL))
    assert (found.maintenance.holds, found.maintenance.reason) == (True, "Rebuilding")


def test_the_pool_opens_when_the_last_card_has_its_layout() -> None:
    done, other = card(desired_sharing=SMALL, cut=cut(SMALL)), card("card-1", desired_sharing=SMALL)
    rebuilding = pool(
        done, other, wanted=SMALL, applied=SMALL, change=SharingChange(WHOLE, SMALL), closed=True
    )

    still = decide(rebuilding)
    opened = decide(replace(rebuilding, members=(done,)))

    assert still.maintenance.message.endswith("1 card to go: card-1 (Applied)")
    assert (opened.maintenance.holds, opened.change, opened.configured.holds) == (False, None, True)


def test_unavailable_cards_do_not_keep_a_pool_closed() -> None:
    lost = card("card-1", desired_sharing=SMALL, unavailable=True)
    rebuilt = card(desired_sharing=SMALL, cut=cut(SMALL))

    found = decide(
        pool(rebuilt, lost, wanted=SMALL, applied=SMALL, change=SharingChange(WHOLE, SMALL), closed=True)
    )

    assert not found.maintenance.holds


def test_modes_without_mig_need_no_change_of_cards() -> None:
    slices = Sharing("TimeSlice", slices=4)

    found = decide(pool(card(cut=None), wanted=slices, closed=True))

    assert (found.sharing, found.maintenance.holds) == (slices, False)
    assert found.steps == (), "no card is drained for a change that is finished"


STATES = {
    "its state": ({"cut": cut(state="Waiting")}, "Waiting"),
    "its state and the message": ({"cut": cut(state="Waiting", message="a pod")}, "Waiting: a pod"),
}


@pytest.mark.parametrize(("fields", "state"), STATES.values(), ids=STATES)
def test_a_card_without_the_layout_of_its_pool_is_named_with(fields: dict[str, Any], state: str) -> None:
    found = decide(pool(card(desired_sharing=SMALL, **fields), wanted=SMALL, applied=SMALL))

    assert (found.configured.status, found.configured.reason) == ("False", "CardsNotCut")
    assert found.configured.message.endswith(f"1 card to go: card-0 ({state})")


def test_a_card_whose_layout_is_unknown_is_not_behind() -> None:
    found = decide(pool(card(desired_sharing=SMALL, cut=None), wanted=SMALL, applied=SMALL))

    assert found.configured.holds


REASONS = {
    "that of a pool": ("pool team-a changes how it is shared", True),
    "a text of a user": ("swap the fan", False),
    "with another start": ("my pool a changes how it is shared", False),
    "with another end": ("pool a changes how it is shared soon", False),
    "without a pool": ("pool  changes how it is shared", False),
}


@pytest.mark.parametrize(("reason", "own"), REASONS.values(), ids=REASONS)
def test_the_drain_of_a_pool_is_known_by_its_reason(reason: str, own: bool) -> None:
    assert sharing_change.is_drain_reason(reason) is own


def test_the_reason_of_a_drain_names_the_pool() -> None:
    assert sharing_change.drain_reason("team-a") == "pool team-a changes how it is shared"


@pytest.mark.parametrize("rollout", [False, True], ids=["WholePool", "PerCard"])
def test_a_finished_change_leaves_cards_alone_until_the_status_has_it(rollout: bool) -> None:
    """A card that were drained now would be withdrawn again right after the pool opened."""
    slices = Sharing("TimeSlice", slices=4)
    ahead = card(cut=None, desired_sharing=slices, has_own_sharing=True)
    facts = pool(card("card-1", cut=None), ahead, wanted=slices, closed=True)
    written = replace(facts, applied=slices, closed=False, per_card=rollout)

    assert decide(facts).steps == ()
    later = decide(replace(written, members=(card("card-1", desired_sharing=slices), ahead)))
    assert later.steps == (MemberStep("card-0", None, drained=False),)


def test_after_the_deadline_the_change_is_stuck_and_no_pod_is_deleted() -> None:
    busy = card(occupancy="InUse", holdings=("ml/trainer holds card card-0",))

    found = decide(pool(busy, wanted=SMALL, overdue=True))

    assert found.maintenance.reason == "GPUModeChangeStuck"
    assert "ml/trainer holds card card-0" in found.maintenance.message


BROKEN = cut(WHOLE, "Failed", target="1g.10gb:7", message="the driver refused")
FAILED = "the change to MIG 1g.10gb failed (card card-0: the driver refused)"


def test_a_failed_change_is_rolled_back() -> None:
    broken = card(desired_sharing=SMALL, cut=BROKEN)
    rebuilt = card("card-1", desired_sharing=SMALL, cut=cut(SMALL))

    found = decide(
        pool(broken, rebuilt, wanted=SMALL, applied=SMALL, change=SharingChange(WHOLE, SMALL), closed=True)
    )

    assert (found.sharing, found.change) == (WHOLE, SharingChange(WHOLE, SMALL, FAILED))
    assert (found.maintenance.holds, found.maintenance.reason) == (True, "RollingBack")


def test_the_pool_opens_with_the_old_allocation_and_does_not_retry() -> None:
    back = pool(card(), wanted=SMALL, change=SharingChange(WHOLE, SMALL, FAILED), closed=True)

    found = decide(back)
    later = decide(replace(back, change=found.change, closed=False))

    assert (found.sharing, found.maintenance.holds, found.configured.reason) == (WHOLE, False, "RolledBack")
    assert FAILED in found.configured.message
    assert later == found


TRIES_AGAIN = {
    "the change is confirmed": {"confirmed": True},
    "the allocation changes": {"wanted": MEDIUM},
}


@pytest.mark.parametrize("fields", TRIES_AGAIN.values(), ids=TRIES_AGAIN)
def test_the_change_is_retried_when(fields: dict[str, Any]) -> None:
    refused = pool(card(), wanted=SMALL, change=SharingChange(WHOLE, SMALL, FAILED, over=True))

    found = decide(replace(refused, **fields))

    assert (found.maintenance.holds, found.maintenance.reason, found.change) == (True, "Draining", None)


def test_a_failure_of_another_target_does_not_count() -> None:
    stale = card(desired_sharing=SMALL, cut=cut(WHOLE, "Failed", target="3g.30gb:2"))

    found = decide(pool(stale, wanted=SMALL, applied=SMALL, change=SharingChange(WHOLE, SMALL), closed=True))

    assert found.maintenance.reason == "Rebuilding"


def test_a_card_that_fails_the_rollback_does_not_keep_the_pool_closed() -> None:
    broken = card(cut=cut(MEDIUM, "Failed", target="whole"))

    found = decide(pool(broken, wanted=SMALL, change=SharingChange(WHOLE, SMALL, FAILED), closed=True))

    assert (found.maintenance.holds, found.configured.reason) == (False, "RolledBack")


CUT_OFF = {
    "before the status was written": (
        pool(card(), wanted=SMALL, change=SharingChange(WHOLE, SMALL), closed=True),
        SMALL,
    ),
    "before the status was rolled back": (
        pool(
            card(desired_sharing=SMALL, cut=BROKEN),
            wanted=SMALL,
            applied=SMALL,
            change=SharingChange(WHOLE, SMALL, FAILED),
            closed=True,
        ),
        WHOLE,
    ),
}


@pytest.mark.parametrize(("left", "sharing_"), CUT_OFF.values(), ids=CUT_OFF)
def test_a_new_leader_continues_an_interrupted_reconcile(left: PoolFacts, sharing_: Sharing) -> None:
    found = decide(left)

    assert (found.sharing, found.maintenance.holds, found.steps) == (sharing_, True, ())


def test_drift_closes_the_pool_until_the_repair_is_confirmed() -> None:
    drifted = pool(
        card(desired_sharing=SMALL, cut=cut(MEDIUM, "Drifted"), occupancy="InUse"),
        wanted=SMALL,
        applied=SMALL,
    )
    mended = replace(
        drifted, members=(card(desired_sharing=SMALL, cut=cut(SMALL)),), misconfigured="Drifted", closed=True
    )
    half = replace(mended, members=(card(desired_sharing=SMALL, cut=cut(MEDIUM, "Waiting")),))

    found, repairing, waiting, over = (
        decide(one)
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


def test_a_confirmation_before_the_repair_does_not_count() -> None:
    half = pool(
        card(desired_sharing=SMALL, cut=cut(MEDIUM, "Waiting")),
        wanted=SMALL,
        applied=SMALL,
        misconfigured="Drifted",
        confirmed=True,
    )

    assert decide(half).misconfigured.reason == "Drifted"


def test_an_unrepairable_card_does_not_block_the_confirmation() -> None:
    broken = card(
        desired_sharing=SMALL, cut=cut(MEDIUM, "Failed", target="1g.10gb:7", message="the driver refused")
    )
    mended = card("card-1", desired_sharing=SMALL, cut=cut(SMALL))
    facts = pool(broken, mended, wanted=SMALL, applied=SMALL, misconfigured="Drifted", closed=True)

    found = decide(facts)

    assert found.misconfigured.reason == "AwaitingConfirmation"
    assert "card-0 (Failed: the driver refused)" in found.misconfigured.message
    assert not decide(replace(facts, confirmed=True)).misconfigured.holds


CONFLICTS = {
    "a card that two pools claim": ({"conflicts": ("pools a and b ...",)}, "CardContested"),
    "an older pool with the same resource": ({"older_duplicate": "team-a"}, "ResourceTaken"),
}


@pytest.mark.parametrize(("fields", "reason"), CONFLICTS.values(), ids=CONFLICTS)
def test_conflicts_with_other_pools_need_no_confirmation(fields: dict[str, Any], reason: str) -> None:
    found = decide(pool(card(), **fields))

    assert (found.misconfigured.holds, found.misconfigured.reason) == (True, reason)
    assert not found.maintenance.holds
    assert not decide(pool(card(), misconfigured=reason)).misconfigured.holds


NO_CARD = "none of the 2 cards that the pool selects can have its allocation: T4 does not"


@pytest.mark.parametrize("per_card", [False, True], ids=["WholePool", "PerCard"])
def test_an_impossible_change_is_not_started(per_card: bool) -> None:
    serving = pool(card(occupancy="InUse"), wanted=SMALL, impossible=NO_CARD, per_card=per_card)

    found = decide(serving)

    assert (found.sharing, found.change, found.steps) == (WHOLE, None, ())
    assert (found.maintenance.holds, found.misconfigured.holds) == (False, False)
    assert (found.configured.status, found.configured.reason) == ("False", "ChangeImpossible")
    assert found.configured.message == f"{NO_CARD}; until then the pool stays at Exclusive"
    started = decide(replace(serving, impossible=""))
    assert (started.maintenance.reason, started.configured.reason) != ("Serving", "ChangeImpossible")


IMPOSSIBLE = {
    "a new pool": pool(wanted=SMALL, applied=None),
    "a pool with cards that it got before their profiles were known": pool(
        card(desired_sharing=SMALL), wanted=SMALL, applied=SMALL
    ),
    "a pool without cards whose allocation is changed": pool(wanted=SMALL),
    "an impossible pool that becomes impossible in another way": pool(
        card(desired_sharing=MEDIUM), wanted=SMALL, applied=MEDIUM, misconfigured="LayoutImpossible"
    ),
}


@pytest.mark.parametrize("facts", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_a_pool_that_no_card_can_serve_is_misconfigured(facts: PoolFacts) -> None:
    found = decide(replace(facts, impossible=NO_CARD))

    assert (found.misconfigured.reason, found.misconfigured.message) == ("LayoutImpossible", NO_CARD)
    assert not decide(replace(facts, misconfigured="LayoutImpossible")).misconfigured.holds


def test_the_deletion_of_a_pool_waits_for_its_holders() -> None:
    busy = pool(card(occupancy="InUse", holdings=("ml/x holds card card-0",)), deleting=True, closed=True)

    waits = decide(busy)
    goes = decide(replace(busy, members=(card(),)))

    assert (waits.maintenance.reason, waits.release) == ("Deleting", False)
    assert goes.release


def rolling(*members: PoolMember, **fields: Any) -> PoolFacts:
    return pool(*members, wanted=SMALL, per_card=True, **fields)


def test_a_rollout_keeps_the_pool_open_and_changes_free_cards_first() -> None:
    busy, free = card("card-0", occupancy="InUse"), card("card-1", occupancy="Free")

    found = decide(rolling(busy, free))

    assert (found.sharing, found.maintenance.holds, found.maintenance.reason) == (WHOLE, False, "PerCard")
    assert found.steps == (MemberStep("card-1", SMALL, drained=True),)
    assert found.configured.message == "0 of 2 cards are changed from Exclusive to MIG 1g.10gb"


def test_a_card_serves_again_once_it_has_its_layout() -> None:
    changing = card(desired_sharing=SMALL, has_own_sharing=True, drained=True)
    done = replace(changing, cut=cut(SMALL))

    assert decide(rolling(changing, card("card-1", occupancy="InUse"))).steps == ()
    found = decide(rolling(done, card("card-1", occupancy="InUse")))
    assert found.steps == (MemberStep("card-0", SMALL, drained=False),)

    serving = replace(done, drained=False)
    later = decide(rolling(serving, card("card-1", occupancy="InUse")))
    assert later.configured.message == "1 of 2 cards is changed from Exclusive to MIG 1g.10gb"


@pytest.mark.parametrize("occupancy", ["Free", "InUse", ""])
def test_a_card_stays_drained_until_the_ledger_has_withdrawn_it(occupancy: str) -> None:
    changing = card(
        desired_sharing=SMALL, has_own_sharing=True, drained=True, cut=cut(SMALL), occupancy=occupancy
    )

    assert decide(rolling(changing)).steps == ()


def test_when_all_cards_have_changed_the_pool_adopts_their_sharing() -> None:
    done = card(desired_sharing=SMALL, has_own_sharing=True, cut=cut(SMALL), occupancy="Free")

    found = decide(rolling(done))
    later = decide(rolling(done, applied=SMALL))

    assert (found.sharing, found.steps, found.configured.holds) == (SMALL, (), True)
    assert later.steps == (MemberStep("card-0", None, drained=False),)


def test_a_failed_card_rolls_back_all_changed_cards() -> None:
    broken = card(desired_sharing=SMALL, has_own_sharing=True, drained=True, cut=BROKEN)
    changed = card("card-1", desired_sharing=SMALL, has_own_sharing=True, cut=cut(SMALL), occupancy="Free")

    found = decide(rolling(broken, changed))

    assert (found.sharing, found.change) == (WHOLE, SharingChange(WHOLE, SMALL, FAILED))
    assert found.steps == (MemberStep("card-0", None, drained=True),)

    mended = replace(
        broken, desired_sharing=WHOLE, has_own_sharing=False, drained=False, cut=cut(), occupancy="Free"
    )
    again = decide(rolling(mended, changed, change=found.change))
    assert again.steps == (MemberStep("card-1", None, drained=True),)

    back = replace(mended, id="card-1", drained=True, occupancy="Withdrawn")
    last = decide(rolling(mended, back, change=found.change))
    assert last.steps == (MemberStep("card-1", None, drained=False),)
    over = decide(rolling(mended, replace(back, drained=False), change=found.change))
    assert (over.steps, over.configured.reason) == ((), "RolledBack")
    assert over.change == SharingChange(WHOLE, SMALL, FAILED, over=True)
