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
        _echo_table(listing, () if output == "wide" else listing.wide)
    else:
        typer.echo(listing.empty)


def echo_data(output: str, data: Any) -> None:
    typer.echo(rendering.json(data) if output == "json" else rendering.yaml(data), nl=output == "json")


def _echo_table(listing: Listing, hidden: Collection[str]) -> None:
    shown = [index for index, header in enumerate(listing.headers) if header not in hidden]
    rows = ([row[index] for index in shown] for row in listing.rows)
    tables.echo([listing.headers[index] for index in shown], rows)
