"""`croupier version`: print the version."""

import json

import typer

from croupier.cli import terminal


def version(output: terminal.Output = "text") -> None:
    """Print the version.

    Example: croupier version -o json
    """
    terminal.check_output(output)
    typer.echo(json.dumps({"croupier": number()}) if output == "json" else text())


def text() -> str:
    return f"croupier {number()}"


def number() -> str:
    from importlib import metadata

    return metadata.version("croupier")
