"""The options that every long-running process has, and how it starts."""

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
        help="Where the ledger is: in the memory of the one extender, or in NodeReservations for several.",
    ),
]
StrategyName = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="|".join(STRATEGIES),
        show_default="Spread, or as --settings say",
        help="How cards are chosen by default.",
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
        help="How long a hold waits for its pod.",
    ),
]
LeaseNamespace = Annotated[
    str, typer.Option("--lease-namespace", metavar="NS", help="Where the Leases of an election are.")
]
HealthAddress = Annotated[
    str, typer.Option("--health", metavar="HOST:PORT", help="Where /livez, /readyz and /metrics are served.")
]
SettingsFrom = Annotated[
    str | None,
    typer.Option(
        "--settings",
        metavar="FILE|configmap|module",
        help="Where the settings are, followed while we run; `croupier settings show` lists them.",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        "--log-level",
        metavar="debug|info|warning|error",
        show_default="info, or as --settings say",
        help="What to log.",
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
    """What was typed, or exit code 2; what was not typed is as the settings of the installation say."""
    from datetime import timedelta

    from croupier.kube import serving
    from croupier.wiring.surface import Settings

    if book not in (None, *BOOKS):
        terminal.refuse(f"--capacity-manager {book}: it is {' or '.join(BOOKS)}.")
    if strategy not in (None, *STRATEGIES):
        terminal.refuse(f"--strategy {strategy}: it is {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}.")
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
    """Where settings are read; a file is checked at once, with every error and exit code 2."""
    from croupier.api import settings_order
    from croupier.wiring import settings as following

    match origin:
        case None | "configmap" | "module":
            return origin
        case "-":
            terminal.refuse("--settings -: they are followed while we run, so name a file.")
    path = Path(origin)
    try:
        found = settings_order.read(following.of_file(path))
    except following.BadSettings as bad:
        terminal.refuse(f"--settings: {bad}.")
    if isinstance(found, settings_order.Refused):
        errors = "\n".join(f"  {one}" for one in found.problems)
        terminal.refuse(f"--settings {origin} cannot be used:\n{errors}")
    return path


def start(run: Callable[[], Coroutine[Any, Any, int]], log_level: str | None) -> None:
    """Run it to its end; its exit code is ours."""
    from croupier.kube import logs
    from croupier.kube import run as process

    try:
        logs.setup(level=log_level or "info")
    except ValueError as bad:
        terminal.refuse(f"--log-level: {bad}.")
    raise typer.Exit(process.main(run))
