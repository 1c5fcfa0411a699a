"""What is left of cards, measured by what a mixed future demand could still get of it.

Two cards with 20 % left are worth less than one with 40 %: nobody who wants 30 % can use them.
So a rest is worth the sum, over the sizes people ask for, of how much of it each size could fill; and
a placement costs what the rest loses by it. Choosing the smallest loss is descending along the
fragmentation gradient (Weng et al., "Beware of Fragmentation", USENIX ATC 2023), with a mix
that is fixed, so that equal nodes are judged equally by every scheduler.
"""

from typing import Final

_SHARES: Final = (10, 20, 25, 30, 40, 50, 75)
_CARDS: Final = (1, 2, 4, 8)
_CARD: Final = 200
"""Worth of a whole card to one who wants it: as much as two sizes of share, for they are wanted most."""
_SLICES: Final = (1, 2, 4, 8, 16, 32, 64)
_SPANS: Final = (1, 2, 4, 8)
"""Memory slices a MIG device can have; it starts at a multiple of its size."""


def _filled(rest: int, sizes: tuple[int, ...]) -> int:
    return sum(rest - rest % size for size in sizes)


def _placeable(free: int) -> int:
    """`free` is a set of memory slices, one bit each."""
    worth = 0
    for span in _SPANS:
        for start in range(0, 8, span):
            window = ((1 << span) - 1) << start
            worth += span if free & window == window else 0
    return worth


SHARE: Final = tuple(_filled(rest, _SHARES) for rest in range(101))
"""Worth of a card's rest, by percent."""
CARDS: Final = tuple(_CARD * _filled(count, _CARDS) for count in range(257))
"""Worth of a node's untouched cards, by their number."""
SLICES: Final = tuple(100 * _filled(rest, _SLICES) for rest in range(101))
"""Worth of a card's rest, by time slices."""
SPANS: Final = tuple(25 * _placeable(free) for free in range(256))
"""Worth of a card's memory slices that no MIG device in use covers, by the set of them."""
