"""Options, questions and usage errors that the verbs share."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, NoReturn

import typer

BAD_USAGE = 2
MAX_SECONDS = 3600.0
STRATEGIES = ("Spread", "BinPack", "LeastFragmentation")
CAPACITY_MANAGERS = ("InMemory", "CRD")
DEFAULT_NAMESPACE = "d8-gpu-operator"

Output = Annotated[str, typer.Option("--output", "-o", metavar="text|json", help="Output format.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def width() -> int | None:
    """The columns of the terminal on stdout; None if it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def forbids_styles() -> bool:
    """Whether the output must have no escape sequences (https://no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def check_output(output: str, allowed: Sequence[str] = ("text", "json")) -> None:
    check_choice("--output", output, allowed)


def check_choice(option: str, value: str | None, allowed: Sequence[str]) -> None:
    """Exit with code 2 if the value is not allowed; None means that the option was not used."""
    if value is not None and value not in allowed:
        usage_error(f"{option} {value}: must be {any_of(allowed)}.")


def check_seconds(options: Mapping[str, float]) -> None:
    for option, seconds in options.items():
        if not 0 < seconds <= MAX_SECONDS:
            usage_error(f"--{option} {seconds:g}: must be above 0 and at most {MAX_SECONDS:g} seconds.")


def any_of(names: Sequence[str]) -> str:
    """`a, b or c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def plural(count: int, noun: str) -> str:
    """`1 node`, `1,000 nodes`."""
    from croupier.core.model import name_list

    return name_list.counted(count, noun)


def require_terminal(effect: str, alternative: str = "") -> None:
    """Exit with code 2 if there is no terminal at which to ask whether `effect` is wanted."""
    if not sys.stdin.isatty():
        usage_error(f"{effect}, and there is no terminal to ask at: pass --yes to do it{alternative}.")


def usage_error(sentence: str) -> NoReturn:
    """Print a usage error and exit with code 2."""
    typer.echo(f"croupier: {sentence}", err=True)
    raise typer.Exit(BAD_USAGE)


def fail(sentence: str) -> NoReturn:
    """Print an error and exit with code 1."""
    typer.echo(f"croupier: {sentence}", err=True)
    raise typer.Exit(1)
