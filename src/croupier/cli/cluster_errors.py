"""What a command says about a cluster that it cannot use: no answer, or kinds that are not installed.

The same sentence for every verb. Other errors, such as a refused right, have their own message.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from croupier.kube.client.config import Config
    from croupier.kube.client.errors import KubeError

OTHER_CLUSTER = "choose another cluster with --kubeconfig or --context"


def place(config: "Config") -> str:
    """The cluster for a person: `context production (https://10.0.0.1:6443)`."""
    return f"context {config.context} ({config.server})" if config.context else config.server


def kinds_missing(groups: "Iterable[str]", where: str) -> str:
    return (
        f"the kinds of Croupier ({', '.join(sorted(groups))}) are not installed in {where}: install Croupier "
        f"there (`croupier doctor` prints the command), or {OTHER_CLUSTER}."
    )


def not_kubernetes(where: str) -> str:
    return f"{where} does not answer as an API server of Kubernetes does: {OTHER_CLUSTER}."


def sentence(error: "KubeError", config: "Config") -> str | None:
    """The message for an error with which no command can go on; None for every other error."""
    from croupier.kube.client import errors

    if isinstance(error, errors.Unreachable):
        context = f" (context {config.context})" if config.context else ""
        return f"{error}{context}; check that the API server runs and can be reached, or {OTHER_CLUSTER}."
    if isinstance(error, errors.NotFound) and (group := _missing_group(error)):
        return kinds_missing([group], place(config))
    return None


def _missing_group(error: "KubeError") -> str:
    """The API group of a request for a kind that is not served; a missing object has a name."""
    from croupier.kube.client.errors import ApiError

    if not isinstance(error, ApiError) or error.details.get("name"):
        return ""
    _, apis, path = error.request.partition("/apis/")
    return path.partition("/")[0] if apis else ""
