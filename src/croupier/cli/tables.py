"""Tables as plain aligned text, in the style of kubectl.

A value is never folded: on a narrow terminal a line runs on. A column is shown even if it is empty, so that
scripts and eyes find it at the same place.
"""

from collections.abc import Container, Iterable, Sequence
from datetime import timedelta

import typer

GAP = "   "
BLOCKS = 20
EMPTY = "-"
"""The text of an empty cell."""


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


def aligned(table: Sequence[Sequence[str]], numbers: Container[int] = ()) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = (">" if index in numbers else "<" for index in range(len(widths)))
    layout = GAP.join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
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
