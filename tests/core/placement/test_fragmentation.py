"""The worth of free capacity: what typical requests could still use of it."""

import pytest

from croupier.core.placement.fragmentation import CARDS_WORTH, MEMORY_WORTH, SHARE_WORTH, SLICES_WORTH

WORTH = {
    "nothing of a card": (SHARE_WORTH[0], 0),
    "30 %: three of 10, one of 20, 25 and 30": (SHARE_WORTH[30], 30 + 20 + 25 + 30),
    "three cards: three of one, one of two": (CARDS_WORTH[3], 200 * (3 + 2)),
    "five slices: five of one, two of two, one of four": (SLICES_WORTH[5], 100 * (5 + 4 + 4)),
    "no memory slice": (MEMORY_WORTH[0], 0),
    "a memory slice": (MEMORY_WORTH[0b1], 25),
    "a pair": (MEMORY_WORTH[0b11], 25 * (2 + 2)),
    "two that are no aligned pair": (MEMORY_WORTH[0b110], 25 * 2),
    "the upper half": (MEMORY_WORTH[0b1111_0000], 25 * (4 + 4 + 4)),
    "all eight, in every size": (MEMORY_WORTH[0xFF], 25 * 4 * 8),
}


@pytest.mark.parametrize(("worth", "expected"), WORTH.values(), ids=WORTH)
def test_worth(worth, expected):
    assert worth == expected
