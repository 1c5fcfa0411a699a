"""Options and start-up shared by all long-running processes."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import completion, terminal
from croupier.cli.terminal import CAPACITY_MANAGERS, STRATEGIES

if TYPE_CHECKING:
    from croupier.wiring.live_settings import Origin
    from croupier.wiring.process_context import ProcessOptions

NAMESPACE_VARIABLE = "POD_NAMESPACE"
"""The variable that tells a pod its namespace; the chart sets it in every pod."""
CapacityManagerName = Annotated[
    str | None,
    typer.Option(
        "--capacity-manager",
        metavar="|".join(CAPACITY_MANAGERS),
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
        autocompletion=completion.strategies,
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
    str,
    typer.Option(
        "--lease-namespace", metavar="NS", envvar=NAMESPACE_VARIABLE, help="Namespace of the installation."
    ),
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


def parse(
    *,
    namespace: str,
    health: str,
    cluster: tuple[Path | None, str | None],
    origin: str | None,
    book: str | None = None,
    strategy: str | None = None,
    ttl: int | None = None,
    log_level: str | None = None,
) -> "ProcessOptions":
    """Process options from the command line; omitted ones come from the settings. Exits with 2 if invalid."""
    from datetime import timedelta

    from croupier.kube.serving import http_server
    from croupier.wiring.process_context import ProcessOptions

    terminal.check_choice("--capacity-manager", book, CAPACITY_MANAGERS)
    terminal.check_choice("--strategy", strategy, STRATEGIES)
    try:
        address = http_server.parse(health)
    except ValueError as bad:
        terminal.usage_error(f"--health: {bad}.")
    kubeconfig, context = cluster
    typed = {
        "book": book,
        "strategy": strategy,
        "ttl": timedelta(seconds=ttl) if ttl is not None else None,
        "log_level": log_level,
    }
    by_hand: dict[str, Any] = {name: value for name, value in typed.items() if value is not None}
    return ProcessOptions(
        namespace=namespace,
        kubeconfig=kubeconfig,
        context=context,
        health=address,
        origin=settings_origin(origin),
        overrides=frozenset(by_hand),
        **{name: value for name, value in by_hand.items() if name != "log_level"},
    )


def settings_origin(origin: str | None) -> "Origin | None":
    """Validate the settings source; an invalid file exits with code 2 and lists every error."""
    from croupier.api import settings_state
    from croupier.wiring import live_settings as following

    match origin:
        case None | "configmap" | "module":
            return origin
        case "-":
            terminal.usage_error(
                "--settings -: the source is watched while running, so stdin is not supported; use a file."
            )
    path = Path(origin)
    try:
        parsed = settings_state.read(following.read_file(path))
    except following.InvalidSettings as bad:
        terminal.usage_error(f"--settings: {bad}.")
    if isinstance(parsed, settings_state.RejectedSettings):
        errors = "\n".join(f"  {problem}" for problem in parsed.problems)
        terminal.usage_error(f"--settings {origin} is invalid:\n{errors}")
    return path


def start(run: Callable[[], Coroutine[Any, Any, int]], log_level: str | None) -> None:
    """Run the process and exit with its exit code."""
    from croupier.kube.serving import component_runner as process
    from croupier.kube.serving import logs

    try:
        logs.setup(level=log_level or "info")
    except ValueError as bad:
        terminal.usage_error(f"--log-level: {bad}.")
    raise typer.Exit(process.main(run))
