"""The worth of free capacity, measured by what a mix of future requests could still use of it.

Two cards with 20 % free are worth less than one card with 40 % free: a request for 30 % fits on neither.
The worth of free capacity is the sum, over typical request sizes, of the part that each size could use.
A placement costs the worth that it destroys. Choosing the smallest loss follows the fragmentation
gradient (Weng et al., "Beware of Fragmentation", USENIX ATC 2023). The mix of sizes is fixed, so that every
scheduler ranks equal nodes equally.
"""

from typing import Final

_SHARES: Final = (10, 20, 25, 30, 40, 50, 75)
_CARDS: Final = (1, 2, 4, 8)
_WHOLE_CARD: Final = 200
"""Worth of a whole card: as much as two sizes of share, because whole cards are requested most."""
_SLICES: Final = (1, 2, 4, 8, 16, 32, 64)
_SPANS: Final = (1, 2, 4, 8)
"""Possible sizes of a MIG device in memory slices; a device starts at a multiple of its size."""


def _filled(rest: int, sizes: tuple[int, ...]) -> int:
    return sum(rest - rest % size for size in sizes)


def _placeable(free: int) -> int:
    """`free` is a bit set of memory slices."""
    worth = 0
    for span in _SPANS:
        for start in range(0, 8, span):
            window = ((1 << span) - 1) << start
            worth += span if free & window == window else 0
    return worth


SHARE_WORTH: Final = tuple(_filled(rest, _SHARES) for rest in range(101))
"""Worth of a card by its free percent."""
CARDS_WORTH: Final = tuple(_WHOLE_CARD * _filled(count, _CARDS) for count in range(257))
"""Worth of a node by its number of unused cards."""
SLICES_WORTH: Final = tuple(100 * _filled(rest, _SLICES) for rest in range(101))
"""Worth of a card by its free time slices."""
MEMORY_WORTH: Final = tuple(25 * _placeable(free) for free in range(256))
"""Worth of a card by the bit set of memory slices that no used MIG device covers."""
