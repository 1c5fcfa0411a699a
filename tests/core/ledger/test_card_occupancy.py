"""The published occupancy of a card; Withdrawn must be true and stay true."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.ledger import card_occupancy, ledger, reported_cards, sync_cards
from croupier.core.ledger.card_occupancy import OccupancyInputs
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, LedgerCard, MigSlot
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import Withheld
from tests.core import node_records
from tests.core.node_records import NODE, NOON, pci

CARD = pci(0)
ILL = LedgerCard(CARD, 0, healthy=False)
WELL = LedgerCard(CARD, 0)


def scene(held: LedgerCard | None, reported: LedgerCard | None, **known) -> OccupancyInputs:
    cards = {} if reported is None else {reported.id: reported}
    return OccupancyInputs(Ledger(NODE, (held,)) if held else Ledger(NODE), cards, **known)


def given_to(card: LedgerCard, *, bound: bool) -> Ledger:
    part = CardGrant(CARD, slots=("1g.10gb-0",)) if card.slots else CardGrant(CARD, 50)
    terms = HoldTerms(bound=bound, until=None if bound else NOON + timedelta(seconds=60))
    held = ledger.give(Ledger(NODE, (card,)), "ns/a/1", (part,), terms)
    assert isinstance(held, Ledger)
    return held


def test_free_withdrawn_and_unknown():
    assert card_occupancy.decide(CARD, scene(WELL, WELL)) == "Free"
    assert card_occupancy.decide(CARD, scene(ILL, ILL)) == "Withdrawn"
    assert card_occupancy.decide(CARD, scene(ILL, None)) == "Withdrawn"
    assert card_occupancy.decide(CARD, scene(WELL, ILL)) == "Free", "the ledger still allocates it"
    assert card_occupancy.decide(CARD, scene(ILL, WELL)) is None, "the ledger is about to allocate it again"
    assert card_occupancy.decide(CARD, scene(None, WELL)) is None, "the ledger is about to add it"


def test_a_card_that_is_neither_in_the_ledger_nor_reported_is_withdrawn():
    assert card_occupancy.decide(CARD, scene(None, None)) == "Withdrawn"
    assert card_occupancy.decide(CARD, OccupancyInputs()) == "Withdrawn"
    assert card_occupancy.decide(CARD, OccupancyInputs(named={CARD})) is None, (
        "a pod has it in its allocation"
    )


FAN, WORN = Withheld("Drained", "swap the fan"), Withheld("Retired", "worn out")
FREE_AND_CLOSED = LedgerCard(CARD, 0, healthy=False)


def held_by(*pods: str) -> LedgerCard:
    return LedgerCard(CARD, 0, healthy=False, holders={f"{pod}/u": 10 for pod in pods})


WITHDRAWALS = {
    "nothing was done": (None, held_by("a/b"), "InUse", None),
    "a fault": (Withheld("Unhealthy", "it is faulted"), held_by("a/b"), "InUse", None),
    "a change of the pool": (Withheld("Changing", "pool a changes"), FREE_AND_CLOSED, "Withdrawn", None),
    "drained and held by one pod": (
        FAN,
        held_by("team-a/train-0"),
        "InUse",
        DesiredCondition("Drained", "False", "WaitingForPods", "swap the fan; waits for pod team-a/train-0"),
    ),
    "retired and held by many": (
        WORN,
        held_by(*(f"a/{number}" for number in range(7))),
        "InUse",
        DesiredCondition(
            "Retired",
            "False",
            "WaitingForPods",
            "worn out; waits for pods a/0, a/1, a/2, a/3, a/4 and 2 more",
        ),
    ),
    "drained, and the ledger does not know yet": (
        FAN,
        WELL,
        "Free",
        DesiredCondition("Drained", "False", "Withdrawing", "swap the fan; waits for the ledger"),
    ),
    "drained": (
        FAN,
        FREE_AND_CLOSED,
        "Withdrawn",
        DesiredCondition("Drained", "True", "NoPods", "swap the fan; no pod holds the card"),
    ),
    "retired without a reason, and not in the ledger": (
        Withheld("Retired"),
        None,
        "Withdrawn",
        DesiredCondition("Retired", "True", "NoPods", "no pod holds the card"),
    ),
}


@pytest.mark.parametrize(("why", "held", "now", "condition"), WITHDRAWALS.values(), ids=WITHDRAWALS)
def test_the_condition_of_a_card_that_a_person_took_away(why, held, now, condition):
    assert card_occupancy.withdrawal(why, held, now) == condition


def test_the_pods_of_mig_devices_are_waited_for():
    slots = (MigSlot("1g.10gb-0", "1g.10gb", 0, 1, "b/y/u"), MigSlot("1g.10gb-1", "1g.10gb", 1, 1, "a/x/u"))

    assert card_occupancy.waits_for(LedgerCard(CARD, 0, "MIG", slots=slots)) == "waits for pods a/x, b/y"
    assert card_occupancy.waits_for(WELL) == card_occupancy.waits_for(None) == ""


def test_reserved_until_one_of_its_holders_is_bound():
    cut = LedgerCard(CARD, 0, "MIG", slots=(MigSlot("1g.10gb-0", "1g.10gb", 0, 1),))
    for card in (WELL, cut):
        assert (
            card_occupancy.decide(CARD, OccupancyInputs(given_to(card, bound=False), {CARD: card}))
            == "Reserved"
        )
        assert (
            card_occupancy.decide(CARD, OccupancyInputs(given_to(card, bound=True), {CARD: card})) == "InUse"
        )


@given(node_records.reports(), node_records.reports(), st.data())
def test_a_withdrawn_card_has_no_holder_and_gets_none(first, second, data):
    """Also after the ledger is synchronized with the report."""
    held = node_records.rebuilt(*data.draw(node_records.placed_pods(first)), report=first)
    if data.draw(st.booleans()):
        held = sync_cards.sync(held, second)
    cards = {card.id: card for card in reported_cards.from_report(second, sync_cards.in_use(held)).cards}
    for name in {*cards, *(card.id for card in held.cards)}:
        if card_occupancy.decide(name, OccupancyInputs(held, cards)) != "Withdrawn":
            continue
        for book in (held, sync_cards.sync(held, second)):
            assert all(part.card != name for part in sync_cards.in_use(book))
            asked = ledger.give(book, "ns/new/9", (CardGrant(name, 1),), HoldTerms(bound=True))
            assert isinstance(asked, Refusal)
