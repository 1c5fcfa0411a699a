"""Why a card takes no new pods, in one sentence for one card and for many."""

import pytest

from croupier.core.model import withheld
from croupier.core.model.withheld import Withheld

FAN = Withheld("Drained", "swap the fan")
MEMORY = Withheld("Drained", "memory errors")
WORN = Withheld("Retired", "worn out")
CHANGE = Withheld("Changing", "its pool is in Maintenance")

GROUPS = {
    "none": ([], ""),
    "one": ([FAN], "1 card is drained: swap the fan"),
    "of one reason": ([FAN, FAN], "2 cards are drained: swap the fan"),
    "without a reason": ([Withheld("Retired")], "1 card is retired"),
    "the largest group first": (
        [WORN, FAN, FAN],
        "2 cards are drained: swap the fan; 1 card is retired: worn out",
    ),
    "one reason too many": (
        [FAN, FAN, WORN, WORN, MEMORY, MEMORY, CHANGE],
        "2 cards are drained: swap the fan; 2 cards are retired: worn out; "
        "2 cards are drained: memory errors; 1 more takes no new pods",
    ),
}


@pytest.mark.parametrize(("cards", "sentence"), GROUPS.values(), ids=GROUPS)
def test_the_reasons_of_many_cards(cards, sentence):
    assert withheld.of_cards(cards) == sentence


def test_the_sentence_about_one_card():
    assert FAN.sentence == "it is drained: swap the fan"
    assert CHANGE.sentence == "its pool is in Maintenance"
    assert Withheld("Changing").sentence == "it is being changed"


def test_a_person_writes_one_short_line():
    assert withheld.by_person("Drained", " swap\n the  fan ") == FAN
    assert len(withheld.by_person("Drained", "x" * 5000).reason) == withheld.MAX_REASON
