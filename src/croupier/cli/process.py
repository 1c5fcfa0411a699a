"""Options and start-up shared by all long-running processes."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.wiring.settings import Origin
    from croupier.wiring.surface import Settings

STRATEGIES = ("Spread", "BinPack", "LeastFragmentation")
BOOKS = ("InMemory", "CRD")

Book = Annotated[
    str | None,
    typer.Option(
        "--capacity-manager",
        metavar="|".join(BOOKS),
        show_default="InMemory, or as --settings say",
        help="Where the ledger is stored: in the memory of a single extender, or in NodeReservations.",
    ),
]
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="|".join(STRATEGIES),
        show_default="Spread, or as --settings say",
        help="Default strategy of card selection.",
    ),
]
Ttl = Annotated[
    int | None,
    typer.Option(
        "--reservation-ttl",
        min=1,
        max=86400,
        metavar="SECONDS",
        show_default="120, or as --settings say",
        help="How long a hold is kept for a pod that is not bound.",
    ),
]
LeaseNamespace = Annotated[
    str, typer.Option("--lease-namespace", metavar="NS", help="Namespace of the Leases for leader election.")
]
HealthAddress = Annotated[
    str, typer.Option("--health", metavar="HOST:PORT", help="Address for /livez, /readyz and /metrics.")
]
SettingsFrom = Annotated[
    str | None,
    typer.Option(
        "--settings",
        metavar="FILE|configmap|module",
        help="Source of the settings, watched while running; `croupier settings show` lists them.",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        metavar="debug|info|warning|error",
        show_default="info, or as --settings say",
        help="Log level.",
    ),
]


def settings(
    *,
    namespace: str,
    health: str,
    cluster: tuple[Path | None, str | None],
    origin: str | None,
    book: str | None = None,
    strategy: str | None = None,
    ttl: int | None = None,
    log_level: str | None = None,
) -> "Settings":
    """Process options from the command line; omitted ones come from the settings. Exits with 2 if invalid."""
    from datetime import timedelta

    from croupier.kube import serving
    from croupier.wiring.surface import Settings

    if book not in (None, *BOOKS):
        terminal.refuse(f"--capacity-manager {book}: must be {' or '.join(BOOKS)}.")
    if strategy not in (None, *STRATEGIES):
        terminal.refuse(f"--strategy {strategy}: must be {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}.")
    try:
        address = serving.parse(health)
    except ValueError as bad:
        terminal.refuse(f"--health: {bad}.")
    kubeconfig, context = cluster
    typed = {
        "book": book,
        "strategy": strategy,
        "ttl": timedelta(seconds=ttl) if ttl is not None else None,
        "log_level": log_level,
    }
    by_hand: dict[str, Any] = {name: value for name, value in typed.items() if value is not None}
    return Settings(
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=context,
        health=address,
        origin=followed(origin),
        by_hand=frozenset(by_hand),
        **{name: value for name, value in by_hand.items() if name != "log_level"},
    )


def followed(origin: str | None) -> "Origin | None":
    """Validate the settings source; an invalid file exits with code 2 and lists every error."""
    from croupier.api import settings_order
    from croupier.wiring import settings as following

    match origin:
        case None | "configmap" | "module":
            return origin
        case "-":
            terminal.refuse(
                "--settings -: the source is watched while running, so stdin is not supported; use a file."
            )
    path = Path(origin)
    try:
        parsed = settings_order.read(following.of_file(path))
    except following.BadSettings as bad:
        terminal.refuse(f"--settings: {bad}.")
    if isinstance(parsed, settings_order.Refused):
        errors = "\n".join(f"  {problem}" for problem in parsed.problems)
        terminal.refuse(f"--settings {origin} is invalid:\n{errors}")
    return path


def start(run: Callable[[], Coroutine[Any, Any, int]], log_level: str | None) -> None:
    """Run the process and exit with its exit code."""
    from croupier.kube import logs
    from croupier.kube import run as process

    try:
        logs.setup(level=log_level or "info")
    except ValueError as bad:
        terminal.refuse(f"--log-level: {bad}.")
    raise typer.Exit(process.main(run))
