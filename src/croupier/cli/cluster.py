"""Which cluster a verb talks to, the same way for all of them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.kube.client import Client

T = TypeVar("T")

Kubeconfig = Annotated[
    Path | None,
    typer.Option("--kubeconfig", metavar="FILE", help="The cluster; else $KUBECONFIG, else ~/.kube/config."),
]
Context = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="The context of that file to use.")
]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NS", help="The namespace; else the context's own.")
]


@dataclass(frozen=True, slots=True)
class Target:
    kubeconfig: Path | None = None
    context: str | None = None


def ask(target: Target, question: "Callable[[Client], Awaitable[T]]") -> T:
    """Connect, ask, and be gone."""
    import asyncio

    from croupier.kube import client, config

    async def asking() -> T:
        chosen = config.load(target.kubeconfig, target.context)
        async with client.connect(chosen, field_manager="croupier-cli") as api:
            return await question(api)

    return asyncio.run(asking())


def now() -> "datetime":
    from croupier.kube.clock import SystemClock

    return SystemClock().now()
