"""Names, numbers and quoted input in sentences."""

from collections.abc import Iterable, Sequence
from typing import Final

_MAX_NAMED: Final = 8
_MAX_QUOTED: Final = 40


def named(names: Iterable[str], most: int = _MAX_NAMED) -> str:
    """The first few names of the sorted list, and how many more there are."""
    return shortened(sorted(names), most)


def shortened(items: Sequence[str], most: int) -> str:
    """The first few items, and how many more there are."""
    more = len(items) - most
    return ", ".join(items[:most]) + (f" and {more} more" if more > 0 else "")


def introduced(noun: str, names: Sequence[str], most: int) -> str:
    """`pod a/b`, `pods a/b, a/c and 3 more`."""
    return f"{noun if len(names) == 1 else f'{noun}s'} {shortened(names, most)}"


def counted(count: int, noun: str, plural: str = "") -> str:
    """`1 node`, `1,000 nodes`; `plural` is the plural of a noun that does not take an s."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def be(count: int) -> str:
    """`is` for one, `are` for others."""
    return "is" if count == 1 else "are"


def part_of(part: int, count: int, noun: str) -> str:
    """`1 of 8 cards`, `1 of 1 card`."""
    return f"{part:,} of {counted(count, noun)}"


def pods_elsewhere(count: int) -> str:
    """Pods that a viewer may count, but not name."""
    return f"{counted(count, 'pod')} of {'another namespace' if count == 1 else 'other namespaces'}"


def printable(name: str) -> str:
    """The name; quoted and escaped if it has characters that would break the line."""
    return name if name.isprintable() else quoted(name)


def quoted(written: str) -> str:
    """Quoted, escaped and shortened to one line."""
    short = written if len(written) <= _MAX_QUOTED else f"{written[:_MAX_QUOTED]}…"
    return f'"{repr(short)[1:-1]}"'
