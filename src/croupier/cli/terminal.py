"""Terminal output shared by the verbs: usage errors and progress."""

import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from croupier.lab.progress import Progress

BAD_USAGE = 2

Output = Annotated[str, typer.Option("--output", "-o", metavar="text|json", help="Output format.")]


def check_output(output: str) -> None:
    if output not in ("text", "json"):
        refuse(f"--output {output}: must be text or json.")


def refuse(sentence: str) -> NoReturn:
    """Print a usage error and exit with code 2."""
    typer.echo(f"croupier: {sentence}", err=True)
    raise typer.Exit(BAD_USAGE)


def progress() -> "Progress":
    """Progress bars on a terminal, plain lines otherwise; on stderr, because stdout is for results."""
    from rich.console import Console

    from croupier.lab.progress import Fancy, Plain

    if sys.stderr.isatty():
        return Fancy(Console(stderr=True))
    return Plain(lambda text: typer.echo(text, err=True))
