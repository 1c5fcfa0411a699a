"""Options that select the cluster, and the connection to it; shared by all verbs."""

import os
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from croupier.cli import cluster_errors, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.kube.client.api_client import Client
    from croupier.kube.client.errors import KubeError

T = TypeVar("T")

CARD_KINDS = ("gpu.deckhouse.io",)
LEDGER_KINDS = ("mps.nvidia.com",)
ANSWER_TIMEOUT = 2.0
"""Seconds that the API server has for its first answer, if the variable does not say otherwise."""
TIMEOUT_VARIABLE = "CROUPIER_TIMEOUT"

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


def run(
    target: ClusterTarget,
    question: "Callable[[Client], Awaitable[T]]",
    *,
    needs: Collection[str] = (),
) -> T:
    """Connect to the cluster, run `question` with the client, and disconnect.

    `needs` are the API groups without which the question has no answer.
    """
    import asyncio

    from croupier.kube.client import api_client, config
    from croupier.kube.client.errors import KubeError, UnusableCluster

    timeout = answer_timeout()

    async def connected() -> T:
        chosen = config.load(target.kubeconfig, target.context)
        async with api_client.connect(chosen, field_manager="croupier-cli") as api:
            try:
                await _check_usable(api, needs, timeout)
                return await question(api)
            except KubeError as error:
                if (explained := cluster_errors.sentence(error, chosen)) is None:
                    raise
                raise UnusableCluster(explained) from error

    return asyncio.run(connected())


async def _check_usable(api: "Client", needs: Collection[str], seconds: float) -> None:
    """One short request before the question, so that a person does not wait for its retries."""
    from croupier.kube.client.errors import ApiError, Undecodable, UnusableCluster

    try:
        served = await api.api_groups(timeout=seconds)
    except ApiError:
        return  # the server answers; whether it refuses the question, too, is seen next
    except Undecodable as error:
        raise UnusableCluster(cluster_errors.not_kubernetes(cluster_errors.place(api.config))) from error
    if lacking := set(needs) - served:
        raise UnusableCluster(cluster_errors.kinds_missing(lacking, cluster_errors.place(api.config)))


def explain(error: "KubeError", target: ClusterTarget) -> str:
    """The message for an error of a process that works with the cluster of `target`."""
    from croupier.kube.client import config
    from croupier.kube.client.errors import ConfigError

    if isinstance(error, ConfigError):
        return str(error)
    return cluster_errors.sentence(error, config.load(target.kubeconfig, target.context)) or str(error)


def answer_timeout() -> float:
    """Seconds that the API server has for its first answer."""
    text = os.environ.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else ANSWER_TIMEOUT
    except ValueError:
        terminal.usage_error(f"{TIMEOUT_VARIABLE}={text}: must be a number of seconds.")
    if not 0 < seconds <= terminal.MAX_SECONDS:
        terminal.usage_error(
            f"{TIMEOUT_VARIABLE}={text}: must be above 0 and at most {terminal.MAX_SECONDS:g}."
        )
    return seconds


def server_name(target: ClusterTarget) -> str:
    """The cluster for a person: `context production (https://10.0.0.1:6443)`."""
    from croupier.kube.client import config

    return cluster_errors.place(config.load(target.kubeconfig, target.context))


def now() -> "datetime":
    from croupier.kube.client.clock import SystemClock

    return SystemClock().now()
