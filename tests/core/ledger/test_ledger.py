"""Changes of the holders and cards of a ledger, in named cases."""

from dataclasses import replace
from datetime import timedelta

import pytest

from croupier.core.ledger import change_layout, reported_cards
from croupier.core.ledger import ledger as book
from croupier.core.ledger.ledger import MAX_HELD, HoldTerms, Ledger
from croupier.core.model import card_name as naming
from croupier.core.model.card import MAX_CARDS, CardGrant, LedgerCard, MigSlot
from croupier.core.model.refusal import Refusal
from tests.core.ledger_builders import (
    BOUND,
    NODE,
    NOON,
    card_id,
    exclusive,
    mig,
    node,
    shared,
    time_sliced,
    with_holder,
)

ME = "ns/pod/uid"
HELD = HoldTerms(until=NOON)

NOT_GIVEN = {
    "nothing": (shared(0), (), "a grant must name at least one card, and each card only once"),
    "a card twice": (
        shared(0),
        (CardGrant(card_id(0), 10), CardGrant(card_id(0), 10)),
        "a grant must name at least one card, and each card only once",
    ),
    "a card that is gone": (shared(0), (CardGrant("gone", 10),), "a card does not exist any more: gone"),
    "an unhealthy card": (
        shared(0, healthy=False),
        (CardGrant(card_id(0), 10),),
        "a card is not healthy: card 0",
    ),
    "more than is free": (
        shared(0, 60),
        (CardGrant(card_id(0), 50),),
        "a card has too little capacity left: card 0 is short by 10 %",
    ),
    "more slices than are free": (
        time_sliced(0, 3),
        (CardGrant(card_id(0), 2),),
        "a card has too little capacity left: card 0 is short by 1 slice",
    ),
    "part of an exclusive card": (
        exclusive(0),
        (CardGrant(card_id(0), 50),),
        "an exclusive card can only be allocated whole: card 0",
    ),
    "a slot of a card that is not partitioned": (
        shared(0),
        (CardGrant(card_id(0), slots=("1g.10gb-0",)),),
        "a card in mode Percent is allocated by share, not by slot: card 0",
    ),
    "a share of a partitioned card": (
        mig(0),
        (CardGrant(card_id(0), 10),),
        "a card in mode MIG is allocated by slot, not by share: card 0",
    ),
    "slots and a share of a partitioned card": (
        mig(0),
        (CardGrant(card_id(0), 10, ("1g.10gb-0",)),),
        "a card in mode MIG is allocated by slot, not by share: card 0",
    ),
    "nothing of a partitioned card": (
        mig(0),
        (CardGrant(card_id(0)),),
        "a card in mode MIG is allocated by slot, not by share: card 0",
    ),
    "a slot that is held": (
        mig(0, taken=(0,)),
        (CardGrant(card_id(0), slots=("1g.10gb-0", "1g.10gb-1")),),
        "a MIG slot is not free: card 0: 1g.10gb-0",
    ),
}


@pytest.mark.parametrize(("card", "grant", "why"), NOT_GIVEN.values(), ids=NOT_GIVEN)
def test_invalid_grants_are_refused(card, grant, why):
    refused = book.give(node(card), ME, grant, BOUND)

    assert isinstance(refused, Refusal)
    assert str(refused) == why


def test_all_cards_of_a_grant_or_none():
    ledger = node(shared(0), shared(1, 100))

    assert isinstance(
        book.give(ledger, ME, (CardGrant(card_id(0), 50), CardGrant(card_id(1), 50)), BOUND), Refusal
    )


def test_a_holder_keeps_its_grant():
    ledger = with_holder(node(shared(0)), ME, (CardGrant(card_id(0), 50),))

    assert book.give(ledger, ME, (CardGrant(card_id(0), 20),), HELD) is ledger


@pytest.mark.parametrize("terms", [HELD, HoldTerms(bound=True, reservation="mine")], ids=["held", "reserved"])
def test_the_number_of_held_holders_is_limited(terms):
    full = {f"ns/pod-{n}/uid": None for n in range(MAX_HELD)}
    ledger = Ledger(NODE, (shared(0),), held=full, reservations=dict.fromkeys(full, "mine"))

    refused = book.give(ledger, ME, (CardGrant(card_id(0), 1),), terms)

    assert isinstance(refused, Refusal)
    assert refused.reason.startswith("the node already has 512 ")


def test_only_held_holders_expire():
    ledger = with_holder(node(shared(0)), ME, (CardGrant(card_id(0), 50),), HELD)

    assert book.expired(ledger, NOON - timedelta(seconds=1)) == ()
    assert book.expired(ledger, NOON) == (ME,)
    assert book.expired(book.bind(ledger, ME), NOON + timedelta(days=9)) == ()
    assert book.expired(book.extend(ledger, ME, None), NOON + timedelta(days=9)) == ()


def test_rename_leaves_the_other_holders_of_the_card():
    ledger = with_holder(node(shared(0)), "ns/pod", (CardGrant(card_id(0), 50),), HELD)
    ledger = with_holder(
        ledger, "ns/other", (CardGrant(card_id(0), 20),), HoldTerms(until=NOON, reservation="r")
    )

    renamed = book.rename(ledger, "ns/pod", ME)

    assert renamed.holders() == {ME, "ns/other"}
    assert renamed.grant("ns/other") == ledger.grant("ns/other")
    assert renamed.held == {ME: NOON, "ns/other": NOON}
    assert renamed.reservations == {"ns/other": "r"}


def test_rename_moves_the_grant_the_expiry_and_the_reservation():
    ledger = with_holder(
        node(shared(0), mig(1)),
        "ns/pod",
        (CardGrant(card_id(0), 50), CardGrant(card_id(1), slots=("1g.10gb-0",))),
        HoldTerms(until=NOON, reservation="mine"),
    )

    renamed = book.rename(ledger, "ns/pod", ME)

    assert renamed.grant(ME) == ledger.grant("ns/pod")
    assert renamed.held == {ME: NOON}
    assert renamed.reservations == {ME: "mine"}
    assert renamed.holders() == {ME}
    assert book.rename(with_holder(ledger, ME, (CardGrant(card_id(0), 1),)), "ns/pod", ME).grant("ns/pod")


FAULTS = {
    "overcommitted": (node(shared(0, 60, 60)), "is overcommitted: 120 of 100"),
    "exclusive with two": (
        node(replace(exclusive(0), holders={"a/b": 50, "c/d": 50})),
        "but has 2 holders of 100 %",
    ),
    "a holder with an empty share": (node(shared(0, 0)), "has holders with an empty share"),
    "too many holders": (node(shared(0, *([1] * 65))), "has 65 holders, more than 64"),
    "MIG with shares": (
        node(replace(mig(0), holders={"a/b": 1})),
        "is in mode MIG but has holders of shares",
    ),
    "slots without MIG": (node(replace(mig(0), mode="Percent")), "is not in mode MIG but has slots"),
    "slots overlap": (
        node(LedgerCard("c", 0, "MIG", slots=(MigSlot("a", "2g.20gb", 0, 2), MigSlot("b", "1g.10gb", 1, 1)))),
        "has overlapping slots",
    ),
    "slots with the same name": (
        node(LedgerCard("c", 0, "MIG", slots=(MigSlot("a", "1g.10gb", 0, 1), MigSlot("a", "1g.10gb", 1, 1)))),
        "two slots with the same name",
    ),
    "one card twice": (node(shared(0), shared(0)), "2 cards have the name"),
    "held, with nothing": (replace(node(shared(0)), held={ME: None}), f"{ME} is Held but holds no card"),
    "reserved, with nothing": (
        replace(node(shared(0)), reservations={ME: "x"}),
        f"{ME} comes from a Reservation but",
    ),
}


@pytest.mark.parametrize(("ledger", "fault"), FAULTS.values(), ids=FAULTS)
def test_invariant_violations(ledger, fault):
    assert any(fault in said for said in book.invariant_violations(ledger))


RECUT = {
    "a free card takes any layout": (shared(0), mig(0, pool="red"), mig(0, pool="red", epoch=2)),
    "a used card keeps mode and pool": (shared(0, 50), mig(0, pool="red"), shared(0, 50)),
    "a used card stays in its pool": (shared(0, 50, pool="red"), shared(0), shared(0, 50, pool="red")),
    "a used card can grow": (
        time_sliced(0, 3, slices=4),
        time_sliced(0, slices=8),
        time_sliced(0, 3, slices=8, epoch=2),
    ),
    "and shrink to what is held": (
        time_sliced(0, 2, slices=4),
        time_sliced(0, slices=2),
        time_sliced(0, 2, slices=2, epoch=2),
    ),
    "but not shrink below what is held": (
        time_sliced(0, 3, slices=4),
        time_sliced(0, slices=2),
        time_sliced(0, 3, slices=4),
    ),
    "the free part of a MIG card is repartitioned": (
        mig(0, "mixed", taken=(0,)),
        LedgerCard(
            card_id(0),
            0,
            "MIG",
            slots=(MigSlot("3g.40gb-0", "3g.40gb", 0, 4), MigSlot("3g.40gb-4", "3g.40gb", 4, 4)),
        ),
        LedgerCard(
            card_id(0),
            0,
            "MIG",
            2,
            slots=(
                MigSlot("3g.40gb-0", "3g.40gb", 0, 4, "other/pod-0-0/uid-0-0"),
                MigSlot("3g.40gb-4", "3g.40gb", 4, 4),
            ),
        ),
    ),
    "a held slot is never removed": (mig(0, taken=(3,)), mig(0, "large"), mig(0, taken=(3,))),
    "health is always updated": (
        shared(0, 50),
        shared(0, healthy=False),
        shared(0, 50, healthy=False, epoch=2),
    ),
    "the index is always updated": (replace(shared(0, 50), index=3), shared(0), shared(0, 50)),
    "a missing card stays for its holders": (
        shared(0, 50),
        None,
        shared(0, 50, healthy=False, epoch=2),
    ),
    "a missing card without holders is removed": (shared(0), None, None),
    "a report names no holders": (None, mig(0, taken=(1,)), mig(0)),
}


@pytest.mark.parametrize(("old", "new", "expected"), RECUT.values(), ids=RECUT)
def test_a_reported_card_updates_the_ledger(old, new, expected):
    ledger = change_layout.apply_report(node(*([old] if old else [])), [new] if new else [])

    assert ledger.cards == ((expected,) if expected else ())


def indexed(index: int, *taken: int) -> LedgerCard:
    return replace(shared(index, *taken), id=naming.indexed_id(NODE, index))


NAMES = {
    "by address instead of by index": (
        [indexed(0, 50), indexed(1)],
        [shared(0), shared(1)],
        {card_id(0): 50, card_id(1): 0},
    ),
    "by index instead of by address": (
        [shared(0, 50), shared(1)],
        [indexed(0), indexed(1)],
        {f"{NODE}-gpu-0": 50, f"{NODE}-gpu-1": 0},
    ),
    "of two with the same index, the healthy one": (
        [shared(0, 70, healthy=False), replace(shared(1, 30), index=0)],
        [indexed(0)],
        {card_id(0): 70, f"{NODE}-gpu-0": 30},
    ),
    "a holder with a missing index moves to one of the new cards": (
        [indexed(0), indexed(5, 40)],
        [shared(0), shared(1)],
        {card_id(0): 0, card_id(1): 40},
    ),
    "two addresses are two cards": (
        [shared(0, 50)],
        [replace(shared(1), index=0)],
        {card_id(0): 50, card_id(1): 0},
    ),
    "a placeholder is never renamed": (
        [indexed(0, 50)],
        [replace(mig(0), id=reported_cards.placeholder_id(NODE, "1g.10gb", 0))],
        {f"{NODE}-gpu-0": 50, f"{NODE}-mig-1g.10gb-0": 0},
    ),
}


@pytest.mark.parametrize(("old", "new", "expected"), NAMES.values(), ids=NAMES)
def test_a_card_that_changes_its_name_keeps_its_holders(old, new, expected):
    ledger = change_layout.apply_report(node(*old), new)

    assert {card.id: card.used for card in ledger.cards} == expected
    assert change_layout.apply_report(ledger, new) is ledger


def test_a_renamed_card_raises_its_epoch():
    assert [card.epoch for card in change_layout.apply_report(node(indexed(0, 50)), [shared(0)]).cards] == [2]


def test_the_number_of_cards_is_limited():
    held = [replace(shared(n, 50), id=f"old-{n}") for n in range(20)]

    ledger = change_layout.apply_report(node(*held), [shared(n) for n in range(20)])

    assert len(ledger.cards) == MAX_CARDS
    assert sum(card.used for card in ledger.cards) == 20 * 50
