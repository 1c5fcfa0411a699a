"""Command-line options of a fallback policy."""

from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.core.fallbacks.policy import FallbackPolicy

MinMemory = Annotated[
    str, typer.Option(metavar="QUANTITY", help="Minimum memory of a replacement, such as 10Gi.")
]
PreferAvailable = Annotated[bool, typer.Option(help="Prefer profiles of which one node has enough free now.")]
Quantities = Annotated[
    str,
    typer.Option(
        metavar="keep|scale", help="Keep the number of devices, or scale it to keep the total memory."
    ),
]
WhenNothingFits = Annotated[
    str, typer.Option(metavar="Admit|Deny", help="What to do with a pod for which no profile fits.")
]


def policy(
    direction: str, floor: str, *, prefer: bool, quantities: str, nothing: str, option: str = "--direction"
) -> "FallbackPolicy":
    """The policy, or exit code 2 if invalid; `option` is the name of the direction option."""
    from typing import Any, cast

    from croupier.core.fallbacks import policy as fallback_policy
    from croupier.core.fallbacks.policy import DIRECTIONS, FallbackPolicy

    for name, value, allowed in (
        (option, direction, DIRECTIONS),
        ("--quantities", quantities, ("keep", "scale")),
        ("--when-nothing-fits", nothing, ("Admit", "Deny")),
    ):
        terminal.check_choice(name, value, allowed)
    memory = fallback_policy.memory(floor) if floor else None
    if floor and memory is None:
        terminal.usage_error(f"--min-memory {floor}: must be an amount of memory, such as 10Gi.")
    return FallbackPolicy(
        cast("Any", direction), memory, prefer, cast("Any", quantities), cast("Any", nothing)
    )
