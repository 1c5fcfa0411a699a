"""The output formats of the verbs that list objects, named as in kubectl."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from croupier.cli import rendering, tables, terminal

FORMATS: Final = ("table", "wide", "json", "yaml", "name")

Format = Annotated[str, typer.Option("--output", "-o", metavar="|".join(FORMATS), help="Output format.")]


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects as a table, as data and by name."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    names: Sequence[str]
    """`kind.group/name` of each row, as kubectl accepts it."""
    data: Any
    """What json and yaml print."""
    empty: str
    """The sentence of a table without rows."""
    wide: Collection[str] = ()
    """Headers that only `wide` shows."""
    optional: Sequence[str] = ()
    """Headers that a narrow terminal leaves out, the least important first."""
    text: str = ""
    """The header of free text at the end of the table, which a narrow terminal shortens."""


def check(output: str) -> None:
    terminal.check_output(output, FORMATS)


def is_data(output: str) -> bool:
    return output in ("json", "yaml")


def echo(output: str, listing: Listing) -> None:
    if is_data(output):
        echo_data(output, listing.data)
    elif output == "name":
        for name in listing.names:
            typer.echo(name)
    elif listing.rows:
        _echo_table(listing, *(((), None) if output == "wide" else (listing.wide, terminal.width())))
    else:
        typer.echo(listing.empty)


def echo_data(output: str, data: Any) -> None:
    typer.echo(rendering.json(data) if output == "json" else rendering.yaml(data), nl=output == "json")


def _echo_table(listing: Listing, hidden: Collection[str], width: int | None) -> None:
    shown = [index for index, header in enumerate(listing.headers) if header not in hidden]
    table: tables.Table = [[row[index] for index in shown] for row in (listing.headers, *listing.rows)]
    fitting = table
    if width is not None:
        fitting = tables.fit(table, width, optional=listing.optional, text=listing.text)
    tables.echo(fitting[0], fitting[1:])
    if left_out := [header.upper() for header in table[0] if header not in fitting[0]]:
        typer.echo(f"Not shown at {width} columns: {', '.join(left_out)}. Use -o wide.", err=True)
