"""Descriptions of card requests."""

import pytest

from croupier.core.pods import want
from croupier.core.pods.want import Shares, Slices, Slots, Units

WORDS = {
    "1 card": (Shares(1),),
    "2 cards of pool red": (Shares(2, 100, "red"),),
    "50 % of 2 cards": (Shares(2, 50),),
    "1 × MIG 1g.10gb": (Slots("1g.10gb", 1),),
    "3 of pool red": (Units("red", 3),),
    "1 time slice of pool red": (Slices(1, "red"),),
    "2 time slices": (Slices(2),),
    "50 % of 1 card and 2 × MIG 1g.10gb": (Shares(1, 50), Slots("1g.10gb", 2)),
}


@pytest.mark.parametrize(("words", "wants"), WORDS.items(), ids=WORDS)
def test_requests_are_described(words, wants):
    assert want.sentence(wants) == words
