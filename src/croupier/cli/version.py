"""`croupier version`: print the version."""

import json

import typer

from croupier.cli import terminal


def version(output: terminal.Output = "text") -> None:
    """Print the version.

    Example: croupier version -o json
    """
    from importlib import metadata

    terminal.check_output(output)
    number = metadata.version("croupier")
    typer.echo(json.dumps({"croupier": number}) if output == "json" else f"croupier {number}")
