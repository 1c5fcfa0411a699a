"""Arguments shared by the verbs of `croupier lab`."""

from typing import TYPE_CHECKING

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.lab.lab import Lab


def existing(name: str, advice: str) -> "Lab":
    """The recorded lab with this name; `advice` completes the error if there is none."""
    from croupier.lab import places, record
    from croupier.lab.errors import LabError
    from croupier.lab.lab import Lab

    stored = record.load(places.labs() / name)
    if stored is None:
        raise LabError(f"There is no lab {name}: {advice}.")
    return Lab(stored)


def check_cards(asked: str) -> None:
    """Exit with code 2 if --cards is invalid."""
    from croupier.lab import nodes as simulated

    try:
        simulated.parse_cards(asked, "--cards")
    except simulated.BadWishError as bad:
        terminal.refuse(str(bad))
