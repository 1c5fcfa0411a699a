"""The options that every long-running process has, and how it starts."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.api.settings import Configuration
    from croupier.wiring.surface import Settings

STRATEGIES = ("Spread", "BinPack", "LeastFragmentation")
BOOKS = ("InMemory", "CRD")

Book = Annotated[
    str,
    typer.Option(
        "--capacity-manager",
        metavar="|".join(BOOKS),
        help="Where the ledger is: in the memory of the one extender, or in NodeReservations for several.",
    ),
]
StrategyName = Annotated[
    str, typer.Option("--strategy", metavar="|".join(STRATEGIES), help="How cards are chosen by default.")
]
Ttl = Annotated[
    int,
    typer.Option(
        "--reservation-ttl", min=1, max=86400, metavar="SECONDS", help="How long a hold waits for its pod."
    ),
]
LeaseNamespace = Annotated[
    str, typer.Option("--lease-namespace", metavar="NS", help="Where the Leases of an election are.")
]
HealthAddress = Annotated[
    str, typer.Option("--health", metavar="HOST:PORT", help="Where /livez, /readyz and /metrics are served.")
]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        metavar="FILE",
        help="Settings of the installation; `croupier settings show` lists them.",
    ),
]
LogLevel = Annotated[
    str, typer.Option("--log-level", metavar="debug|info|warning|error", help="What to log.")
]


def settings(
    *,
    book: str,
    strategy: str,
    ttl: int,
    namespace: str,
    health: str,
    cluster: tuple[Path | None, str | None],
    file: Path | None = None,
) -> "Settings":
    from datetime import timedelta
    from typing import cast

    from croupier.kube import serving
    from croupier.wiring.surface import Settings

    if book not in BOOKS:
        terminal.refuse(f"--capacity-manager {book}: it is {' or '.join(BOOKS)}.")
    if strategy not in STRATEGIES:
        terminal.refuse(f"--strategy {strategy}: it is {', '.join(STRATEGIES[:-1])} or {STRATEGIES[-1]}.")
    try:
        address = serving.parse(health)
    except ValueError as bad:
        terminal.refuse(f"--health: {bad}.")
    kubeconfig, context = cluster
    return Settings(
        book=cast("Any", book),
        strategy=cast("Any", strategy),
        ttl=timedelta(seconds=ttl),
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=context,
        health=address,
        configuration=configuration(file),
    )


def configuration(file: Path | None) -> "Configuration":
    """Checked, or exit code 2 with every error."""
    from croupier.api import settings, settings_check
    from croupier.cli.settings import read

    if file is None:
        return settings.Configuration()
    data = read(file)
    if found := settings_check.problems(data):
        terminal.refuse(f"--settings {file} cannot be used:\n" + "\n".join(f"  {one}" for one in found))
    return settings.read(data)


def start(run: Callable[[], Coroutine[Any, Any, int]], log_level: str) -> None:
    """Run it to its end; its exit code is ours."""
    from croupier.kube import logs
    from croupier.kube import run as process

    try:
        logs.setup(level=log_level)
    except ValueError as bad:
        terminal.refuse(f"--log-level: {bad}.")
    raise typer.Exit(process.main(run))
