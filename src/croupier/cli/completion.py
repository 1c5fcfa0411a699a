"""Completion of names at the shell: nodes, pools, cards, pods, namespaces and strategies.

A person waits for the answer while typing. So there is one short request for one page of names, and every
error means that nothing is suggested.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from croupier.cli import cluster
from croupier.cli.terminal import STRATEGIES

if TYPE_CHECKING:
    from croupier.kube.client.api_client import Client
    from croupier.kube.client.resource import Resource

TIMEOUT = 2.0
"""Seconds for the whole request."""


def nodes(typed: typer.Context, incomplete: str) -> list[str]:
    from croupier.api import kinds

    return _starting(incomplete, _names(typed, kinds.NODES))


def pools(typed: typer.Context, incomplete: str) -> list[str]:
    from croupier.api import kinds

    return _starting(incomplete, _names(typed, kinds.GPU_POOLS))


def cards(typed: typer.Context, incomplete: str) -> list[str]:
    from croupier.api import kinds

    return _starting(incomplete, _names(typed, kinds.GPU_DEVICES))


def namespaces(typed: typer.Context, incomplete: str) -> list[str]:
    from croupier.api import kinds

    return _starting(incomplete, _names(typed, kinds.NAMESPACES))


def pods(typed: typer.Context, incomplete: str) -> list[str]:
    """Pods of the namespace in `NS/NAME`, or of --namespace, or of the context."""
    from croupier.api.pod_identity import POD_IDENTITIES

    namespace, slash, _ = incomplete.rpartition("/")
    chosen = namespace or _typed_value(typed, "namespace")
    return _starting(
        incomplete, (f"{namespace}{slash}{name}" for name in _names(typed, POD_IDENTITIES, chosen))
    )


def strategies(incomplete: str) -> list[str]:
    return _starting(incomplete, STRATEGIES)


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted(name for name in names if name.startswith(incomplete))


def _names(typed: typer.Context, resource: "Resource[Any]", namespace: str | None = None) -> list[str]:
    """The names of the first page of objects; none if the cluster does not answer in time."""
    import asyncio

    from croupier.kube.client.errors import KubeError

    async def first_page(api: "Client") -> list[str]:
        from croupier.kube.client.api_client import Selection

        chosen = Selection(namespace=(namespace or api.config.namespace) if resource.namespaced else None)
        async with asyncio.timeout(TIMEOUT):
            async for page in api.pages(resource, chosen):
                return [item.metadata.name for item in page.items]
        return []

    target = cluster.ClusterTarget(_typed_value(typed, "kubeconfig"), _typed_value(typed, "context"))
    try:
        return cluster.run(target, first_page)
    except (KubeError, OSError):  # TimeoutError is an OSError
        return []


def _typed_value(typed: typer.Context, option: str) -> Any:
    """The value of an option after the verb, or before it."""
    context: Any = typed
    while context is not None:
        if (value := context.params.get(option)) is not None:
            return value
        context = context.parent
    return None
