"""Lists of names in sentences."""

from collections.abc import Iterable
from typing import Final

_MAX_NAMED: Final = 8


def named(cards: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    names = sorted(cards)
    more = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
