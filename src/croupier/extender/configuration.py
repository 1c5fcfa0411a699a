"""The kube-scheduler configuration for the extender, as data.

The scheduler calls the extender for pods that request certain resources. The two resources that only the
extender counts are ignored by the scheduler's own accounting. Resources of real devices (`nvidia.com/gpu`,
MIG, pools) are counted by the scheduler as well, and are listed so that no pod can bypass the ledger by
omitting `gpu.mps.io/ledger`. Other pods do not depend on the extender, so `ignorable` can stay false; if it
were true, the scheduler would bind pods without a hold whenever the extender does not answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from croupier.core.pods import request
from croupier.core.pods.request import GPU, MARK, PERCENT
from croupier.kube import serving

FILTER: Final = "filter"
PRIORITIZE: Final = "prioritize"
BIND: Final = "bind"

DEFAULT_URL: Final = "http://127.0.0.1:9440"
DEFAULT_SCHEDULER: Final = "default-scheduler"
OURS_ALONE: Final = (MARK, PERCENT)


class BadWish(ValueError):
    """The options are invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class Files:
    """Paths as the scheduler sees them: the CA of the extender, and the client certificate and key."""

    authority: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Wish:
    url: str = DEFAULT_URL
    kubeconfig: str = ""
    """Path of the scheduler's kubeconfig; empty if it is configured in another way."""
    files: Files | None = None
    scheduler_name: str = DEFAULT_SCHEDULER
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    """The namespace of the Lease of a scheduler other than the default one."""
    qps: int = 500
    timeout: int = 5
    """HTTP timeout in seconds. A hanging filter call delays all other pods for this time."""
    resources: tuple[str, ...] = (GPU,)


def configuration(options: Wish) -> dict[str, Any]:
    """A KubeSchedulerConfiguration, kubescheduler.config.k8s.io/v1."""
    _check(options)
    named = options.scheduler_name != DEFAULT_SCHEDULER
    connection = {"kubeconfig": options.kubeconfig} if options.kubeconfig else {}
    election: dict[str, Any] = {"leaderElect": options.leader_elect}
    if named and options.leader_elect:  # two schedulers must not share one Lease
        election |= {"resourceNamespace": options.lease_namespace, "resourceName": options.scheduler_name}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": election,
        "clientConnection": {**connection, "qps": options.qps, "burst": 2 * options.qps},
        # With a lower value the scheduler sends only some nodes and gives up if these are full.
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": options.scheduler_name}],
        "extenders": [extender(options)],
    }


def extender(options: Wish) -> dict[str, Any]:
    tls = {} if options.files is None else {"enableHTTPS": True, "tlsConfig": _tls(options.files)}
    others = sorted(set(options.resources) - set(OURS_ALONE))
    return {
        "urlPrefix": options.url.rstrip("/"),
        "filterVerb": FILTER,
        "prioritizeVerb": PRIORITIZE,
        "bindVerb": BIND,
        "weight": 1,
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": f"{options.timeout}s",
        **tls,
        "managedResources": [
            *({"name": name, "ignoredByScheduler": True} for name in OURS_ALONE),
            *({"name": name} for name in others),
        ],
    }


def concerning(resources: Iterable[str]) -> set[str]:
    """The resources of a cluster that request cards and that the scheduler counts, too."""
    return {name for name in resources if request.concerns(name)} - set(OURS_ALONE)


def _tls(files: Files) -> dict[str, str]:
    return {"caFile": files.authority, "certFile": files.certificate, "keyFile": files.key}


def _check(options: Wish) -> None:
    url = urlsplit(options.url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadWish(f"{options.url} is not the URL of an extender: use one such as {DEFAULT_URL}")
    if url.scheme == "https" and options.files is None:
        # Without a CA kube-scheduler would trust any server.
        raise BadWish(
            f"{options.url} needs --ca, --cert and --key, with the paths as the scheduler sees them"
        )
    if url.scheme == "http" and options.files is not None:
        raise BadWish(f"{options.url} does not use TLS: use https, or omit --ca, --cert and --key")
    if url.scheme == "http" and not serving.is_loopback(url.hostname):
        raise BadWish(
            f"{options.url} would be reached without TLS over the network, which the extender refuses: "
            "use https with --ca, --cert and --key"
        )
