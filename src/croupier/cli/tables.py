"""Tables as plain aligned text, in the style of kubectl.

A value is never folded. On a narrow terminal a table leaves out optional columns and shortens the free text
at its end; if that is not enough, the lines run on. A column is shown even if it is empty, so that scripts
and eyes find it at the same place.
"""

from collections.abc import Container, Iterable, Sequence
from datetime import timedelta
from typing import TypeAlias

import typer

GAP = "   "
BLOCKS = 20
EMPTY = "-"
"""The text of an empty cell."""
LEAST_TEXT = 20
"""The characters of a free text that are worth a column."""

Table: TypeAlias = Sequence[Sequence[str]]
"""Rows of cells. The first row has the headers."""


def echo(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print to stdout."""
    for line in lines(headers, rows):
        typer.echo(line)


def lines(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Container[int] = ()
) -> list[str]:
    """Upper-case headers and aligned columns; `numbers` to the right."""
    filled = ([cell or EMPTY for cell in row] for row in rows)
    return aligned([[header.upper() for header in headers], *filled], numbers)


def fit(table: Table, width: int, *, optional: Iterable[str] = (), text: str = "") -> Table:
    """The table without optional columns, in this order, that do not fit; `text` at its end is shortened."""
    for header in optional:
        if _needed(table, text) <= width:
            break
        left_out = table[0].index(header)
        table = [[*row[:left_out], *row[left_out + 1 :]] for row in table]
    if table[0][-1] != text:
        return table
    room = max(LEAST_TEXT, width - sum(widths(table)[:-1]) - len(GAP) * (len(table[0]) - 1))
    return [[*row[:-1], shortened(row[-1], room)] for row in table]


def _needed(table: Table, text: str) -> int:
    """The width of the table, if the free text is as short as it may be."""
    *others, last = widths(table)
    return sum(others) + len(GAP) * len(others) + (min(last, LEAST_TEXT) if table[0][-1] == text else last)


def widths(table: Table) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def aligned(table: Table, numbers: Container[int] = ()) -> list[str]:
    sides = (">" if index in numbers else "<" for index in range(len(table[0])))
    layout = GAP.join(f"{{:{side}{width}}}" for side, width in zip(sides, widths(table), strict=True))
    return [layout.format(*row).rstrip() for row in table]


def bar(used: int, total: int, width: int = BLOCKS) -> str:
    """`██████░░░░`: a usage bar; any usage above zero shows at least one block."""
    if total <= 0:
        return "░" * width
    filled = min(width, -(-used * width // total))
    return "█" * filled + "░" * (width - filled)


def age(span: timedelta) -> str:
    """`45s`, `12m`, `5h`, `3d`, in the style of kubectl."""
    seconds = max(0, int(span.total_seconds()))
    for unit, size, most in (("s", 1, 120), ("m", 60, 120), ("h", 3600, 48)):
        if seconds < most * size:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"
