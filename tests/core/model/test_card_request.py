"""Descriptions of card requests."""

import pytest

from croupier.core.model import card_request
from croupier.core.model.card_request import CardShares, MigDevices, PoolUnits, TimeSlices

WORDS = {
    "1 card": (CardShares(1),),
    "2 cards of pool red": (CardShares(2, 100, "red"),),
    "50 % of 2 cards": (CardShares(2, 50),),
    "1 × MIG 1g.10gb": (MigDevices("1g.10gb", 1),),
    "3 of pool red": (PoolUnits("red", 3),),
    "1 time slice of pool red": (TimeSlices(1, "red"),),
    "2 time slices": (TimeSlices(2),),
    "50 % of 1 card and 2 × MIG 1g.10gb": (CardShares(1, 50), MigDevices("1g.10gb", 2)),
}


@pytest.mark.parametrize(("words", "wants"), WORDS.items(), ids=WORDS)
def test_requests_are_described(words, wants):
    assert card_request.describe(wants) == words
