"""The published occupancy of a card; Withdrawn must be true and stay true."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from croupier.core.ledgers import capacity, ledger, occupancy, refit
from croupier.core.ledgers.ledger import Card, Ledger, Part, Refused, Slot, Terms
from croupier.core.ledgers.occupancy import Scene
from tests.core import stages
from tests.core.stages import NODE, NOON, pci

CARD = pci(0)
ILL = Card(CARD, 0, healthy=False)
WELL = Card(CARD, 0)


def scene(held: Card | None, reported: Card | None, **known) -> Scene:
    cards = {} if reported is None else {reported.id: reported}
    return Scene(Ledger(NODE, (held,)) if held else Ledger(NODE), cards, **known)


def given_to(card: Card, *, bound: bool) -> Ledger:
    part = Part(CARD, slots=("1g.10gb-0",)) if card.slots else Part(CARD, 50)
    terms = Terms(bound=bound, until=None if bound else NOON + timedelta(seconds=60))
    held = ledger.give(Ledger(NODE, (card,)), "ns/a/1", (part,), terms)
    assert isinstance(held, Ledger)
    return held


def test_free_withdrawn_and_unknown():
    assert occupancy.judge(CARD, scene(WELL, WELL)) == "Free"
    assert occupancy.judge(CARD, scene(ILL, ILL)) == "Withdrawn"
    assert occupancy.judge(CARD, scene(ILL, None)) == "Withdrawn"
    assert occupancy.judge(CARD, scene(WELL, ILL)) == "Free", "the ledger still allocates it"
    assert occupancy.judge(CARD, scene(ILL, WELL)) is None, "the ledger is about to allocate it again"
    assert occupancy.judge(CARD, scene(None, WELL)) is None, "the ledger is about to add it"


def test_a_card_that_is_neither_in_the_ledger_nor_reported_is_withdrawn():
    assert occupancy.judge(CARD, scene(None, None)) == "Withdrawn"
    assert occupancy.judge(CARD, Scene()) == "Withdrawn"
    assert occupancy.judge(CARD, Scene(named={CARD})) is None, "a pod has it in its allocation"


def test_reserved_until_one_of_its_holders_is_bound():
    cut = Card(CARD, 0, "MIG", slots=(Slot("1g.10gb-0", "1g.10gb", 0, 1),))
    for card in (WELL, cut):
        assert occupancy.judge(CARD, Scene(given_to(card, bound=False), {CARD: card})) == "Reserved"
        assert occupancy.judge(CARD, Scene(given_to(card, bound=True), {CARD: card})) == "InUse"


@given(stages.reports(), stages.reports(), st.data())
def test_a_withdrawn_card_has_no_holder_and_gets_none(first, second, data):
    """Also after the ledger is synchronized with the report."""
    held = stages.rebuilt(*data.draw(stages.honest(first)), report=first)
    if data.draw(st.booleans()):
        held = refit.refit(held, second)
    cards = {card.id: card for card in capacity.count(second, refit.in_use(held)).cards}
    for name in {*cards, *(card.id for card in held.cards)}:
        if occupancy.judge(name, Scene(held, cards)) != "Withdrawn":
            continue
        for book in (held, refit.refit(held, second)):
            assert all(part.card != name for part in refit.in_use(book))
            asked = ledger.give(book, "ns/new/9", (Part(name, 1),), Terms(bound=True))
            assert isinstance(asked, Refused)
