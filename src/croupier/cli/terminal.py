"""How verbs speak to the person at the terminal."""

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from croupier.lab.progress import Progress


def progress() -> "Progress":
    """Bars where someone watches, plain lines in a log; on stderr, so that stdout stays for results."""
    from rich.console import Console

    from croupier.lab.progress import Fancy, Plain

    if sys.stderr.isatty():
        return Fancy(Console(stderr=True))
    return Plain(lambda text: typer.echo(text, err=True))
