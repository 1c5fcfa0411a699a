"""Options and usage errors that the verbs share."""

from typing import Annotated, NoReturn

import typer

BAD_USAGE = 2

Output = Annotated[str, typer.Option("--output", "-o", metavar="text|json", help="Output format.")]


def check_output(output: str) -> None:
    if output not in ("text", "json"):
        usage_error(f"--output {output}: must be text or json.")


def usage_error(sentence: str) -> NoReturn:
    """Print a usage error and exit with code 2."""
    typer.echo(f"croupier: {sentence}", err=True)
    raise typer.Exit(BAD_USAGE)
