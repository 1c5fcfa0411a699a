"""A lab by its name, and cards by theirs: what the verbs of `croupier lab` are told."""

from typing import TYPE_CHECKING

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.lab.lab import Lab


def existing(name: str, advice: str) -> "Lab":
    """The lab that is remembered under this name; `advice` is what to do if there is none."""
    from croupier.lab import places, record
    from croupier.lab.errors import LabError
    from croupier.lab.lab import Lab

    remembered = record.load(places.labs() / name)
    if remembered is None:
        raise LabError(f"There is no lab {name}: {advice}.")
    return Lab(remembered)


def check_cards(asked: str) -> None:
    """Refuse what --cards cannot mean."""
    from croupier.lab import nodes as simulated

    try:
        simulated.parse_cards(asked, "--cards")
    except simulated.BadWishError as bad:
        terminal.refuse(str(bad))
