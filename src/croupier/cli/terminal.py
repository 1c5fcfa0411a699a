"""How verbs speak to the person at the terminal."""

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from croupier.lab.progress import Progress

BAD_USAGE = 2

Output = Annotated[str, typer.Option("--output", "-o", metavar="text|json", help="How to print it.")]


def check_output(output: str) -> None:
    if output not in ("text", "json"):
        refuse(f"--output {output}: it is text or json.")


def refuse(sentence: str) -> NoReturn:
    """What was typed cannot be meant: say so and end."""
    typer.echo(f"croupier: {sentence}", err=True)
    raise typer.Exit(BAD_USAGE)


def progress() -> "Progress":
    """Bars where someone watches, plain lines in a log; on stderr, so that stdout stays for results."""
    from rich.console import Console

    from croupier.lab.progress import Fancy, Plain

    if sys.stderr.isatty():
        return Fancy(Console(stderr=True))
    return Plain(lambda text: typer.echo(text, err=True))
