"""Names and quoted input in sentences."""

from collections.abc import Iterable
from typing import Final

_MAX_NAMED: Final = 8
_MAX_QUOTED: Final = 40


def named(names: Iterable[str], most: int = _MAX_NAMED) -> str:
    """The first few names, and how many more there are."""
    listed = sorted(names)
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")


def quoted(written: str) -> str:
    """Quoted, escaped and shortened to one line."""
    short = written if len(written) <= _MAX_QUOTED else f"{written[:_MAX_QUOTED]}…"
    return f'"{repr(short)[1:-1]}"'
