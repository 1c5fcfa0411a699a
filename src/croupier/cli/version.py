"""`croupier version`: which Croupier this is."""

import json
from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


def version(
    output: Annotated[Output, typer.Option("-o", "--output", help="How to print it.")] = Output.TEXT,
) -> None:
    """Print the version.

    Example: croupier version -o json
    """
    from importlib import metadata

    number = metadata.version("croupier")
    typer.echo(json.dumps({"croupier": number}) if output is Output.JSON else f"croupier {number}")
