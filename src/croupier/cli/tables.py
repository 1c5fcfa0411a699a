"""Tables: drawn with rich on a terminal, plain aligned text otherwise."""

import sys
from collections.abc import Container, Iterable, Sequence
from datetime import timedelta

import typer

GAP = "   "
BLOCKS = 20


def echo(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print to stdout without the columns that are empty in every row."""
    headers, shown = trimmed(headers, list(rows))
    if sys.stdout.isatty():
        _draw(headers, shown)
    else:
        for line in lines(headers, shown):
            typer.echo(line)


def trimmed(
    headers: Sequence[str], rows: Sequence[Sequence[str]]
) -> tuple[Sequence[str], list[Sequence[str]]]:
    used = [index for index in range(len(headers)) if any(row[index] not in ("", "-") for row in rows)]
    return [headers[index] for index in used], [[row[index] for index in used] for row in rows]


def lines(
    headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Container[int] = ()
) -> list[str]:
    """Plain text in the style of kubectl: upper-case headers, aligned columns; `numbers` to the right."""
    return aligned([[header.upper() for header in headers], *rows], numbers)


def aligned(table: Sequence[Sequence[str]], numbers: Container[int] = ()) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    sides = (">" if index in numbers else "<" for index in range(len(widths)))
    layout = GAP.join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [layout.format(*row).rstrip() for row in table]


def _draw(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in headers:
        table.add_column(header.upper(), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


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
