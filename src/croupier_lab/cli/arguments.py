"""Arguments shared by the verbs of `croupier lab`."""

from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier_lab.lab import Lab


Name = Annotated[
    str,
    typer.Option(
        "--name", envvar="CROUPIER_LAB", help="Name of the lab; several labs can run at the same time."
    ),
]


def find_lab(name: str, advice: str) -> "Lab":
    """The recorded lab with this name; `advice` completes the error if there is none."""
    from croupier_lab import record, user_dirs
    from croupier_lab.errors import LabError
    from croupier_lab.lab import Lab

    stored = record.load(user_dirs.labs() / name)
    if stored is None:
        raise LabError(f"There is no lab {name}: {advice}.")
    return Lab(stored)


def check_cards(asked: str) -> None:
    """Exit with code 2 if --cards is invalid."""
    from croupier_lab import nodes as simulated

    try:
        simulated.parse_cards(asked, "--cards")
    except simulated.InvalidNodeOptionError as bad:
        terminal.usage_error(str(bad))
