"""How a fallback policy is written on the command line."""

from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.core.fallbacks.policy import Policy

MinMemory = Annotated[
    str, typer.Option(metavar="QUANTITY", help="The least memory of what takes its place, such as 10Gi.")
]
PreferAvailable = Annotated[bool, typer.Option(help="Rather take what one node has enough of free now.")]
Quantities = Annotated[
    str, typer.Option(metavar="keep|scale", help="As many as asked for, or as much memory.")
]
WhenNothingFits = Annotated[
    str, typer.Option(metavar="Admit|Deny", help="What becomes of a pod nothing can be found for.")
]


def policy(
    direction: str, floor: str, *, prefer: bool, quantities: str, nothing: str, option: str = "--direction"
) -> "Policy":
    """What was typed, or exit code 2; `option` is how the direction was given."""
    from typing import Any, cast

    from croupier.core.fallbacks import policy as fallback_policy
    from croupier.core.fallbacks.policy import DIRECTIONS, Policy

    for named, word, words in (
        (option, direction, DIRECTIONS),
        ("--quantities", quantities, ("keep", "scale")),
        ("--when-nothing-fits", nothing, ("Admit", "Deny")),
    ):
        if word not in words:
            terminal.refuse(f"{named} {word}: it is {', '.join(words[:-1])} or {words[-1]}.")
    memory = fallback_policy.memory(floor) if floor else None
    if floor and memory is None:
        terminal.refuse(f"--min-memory {floor}: it is an amount of memory, such as 10Gi.")
    return Policy(cast("Any", direction), memory, prefer, cast("Any", quantities), cast("Any", nothing))
