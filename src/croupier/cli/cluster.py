"""Options that select the cluster, and the connection to it; shared by all verbs."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.kube.client.api_client import Client

T = TypeVar("T")

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig", metavar="FILE", help="Kubeconfig file; default $KUBECONFIG, then ~/.kube/config."
    ),
]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Kubeconfig context to use.")]
Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", metavar="NS", help="Namespace; default that of the context."),
]
FOUND = "found in the cluster"
InstallationNamespace = Annotated[
    str | None,
    typer.Option(
        "--namespace", "-n", metavar="NS", show_default=FOUND, help="Namespace of the installation."
    ),
]


@dataclass(frozen=True, slots=True)
class ClusterTarget:
    kubeconfig: Path | None = None
    context: str | None = None


def run(target: ClusterTarget, question: "Callable[[Client], Awaitable[T]]") -> T:
    """Connect to the cluster, run `question` with the client, and disconnect."""
    import asyncio

    from croupier.kube.client import api_client, config

    async def connected() -> T:
        chosen = config.load(target.kubeconfig, target.context)
        async with api_client.connect(chosen, field_manager="croupier-cli") as api:
            return await question(api)

    return asyncio.run(connected())


def server_name(target: ClusterTarget) -> str:
    """The cluster for a person: `context production (https://10.0.0.1:6443)`."""
    from croupier.kube.client import config

    chosen = config.load(target.kubeconfig, target.context)
    return f"context {chosen.context} ({chosen.server})" if chosen.context else chosen.server


def now() -> "datetime":
    from croupier.kube.client.clock import SystemClock

    return SystemClock().now()
