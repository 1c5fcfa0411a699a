"""What kube-scheduler must be told to work with us: its configuration, as data.

Pods reach us by what they ask for. The two resources that only we count are ignored by the
scheduler's own arithmetic; those that devices really have (`nvidia.com/gpu`, MIG, pools) stay
counted by it as well, and are listed so that nobody gets cards past the ledger by leaving the mark
out. Pods that ask for none of them never depend on us, so `ignorable` can stay false: were it
true, the scheduler would bind without a reservation whenever we do not answer.
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
    """What is wanted cannot work; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Files:
    """As the scheduler will find them: whom to trust, and whom to be."""

    authority: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Wish:
    url: str = DEFAULT_URL
    kubeconfig: str = ""
    """The scheduler's own; empty if it is given to it in another way."""
    files: Files | None = None
    scheduler_name: str = DEFAULT_SCHEDULER
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    """Where a scheduler beside the default one keeps its Lease."""
    qps: int = 500
    timeout: int = 5
    """Seconds. A filter that hangs holds up every other pod for so long."""
    resources: tuple[str, ...] = (GPU,)


def configuration(wish: Wish) -> dict[str, Any]:
    """A KubeSchedulerConfiguration, kubescheduler.config.k8s.io/v1."""
    _check(wish)
    named = wish.scheduler_name != DEFAULT_SCHEDULER
    connection = {"kubeconfig": wish.kubeconfig} if wish.kubeconfig else {}
    election: dict[str, Any] = {"leaderElect": wish.leader_elect}
    if named and wish.leader_elect:  # two schedulers must not wait for one Lease
        election |= {"resourceNamespace": wish.lease_namespace, "resourceName": wish.scheduler_name}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": election,
        "clientConnection": {**connection, "qps": wish.qps, "burst": 2 * wish.qps},
        # With fewer, the scheduler shows us a part of the nodes and gives up when that part is full.
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": wish.scheduler_name}],
        "extenders": [extender(wish)],
    }


def extender(wish: Wish) -> dict[str, Any]:
    tls = {} if wish.files is None else {"enableHTTPS": True, "tlsConfig": _tls(wish.files)}
    others = sorted(set(wish.resources) - set(OURS_ALONE))
    return {
        "urlPrefix": wish.url.rstrip("/"),
        "filterVerb": FILTER,
        "prioritizeVerb": PRIORITIZE,
        "bindVerb": BIND,
        "weight": 1,
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": f"{wish.timeout}s",
        **tls,
        "managedResources": [
            *({"name": name, "ignoredByScheduler": True} for name in OURS_ALONE),
            *({"name": name} for name in others),
        ],
    }


def concerning(resources: Iterable[str]) -> set[str]:
    """Those of a cluster's resources that are cards, and counted by the scheduler too."""
    return {name for name in resources if request.concerns(name)} - set(OURS_ALONE)


def _tls(files: Files) -> dict[str, str]:
    return {"caFile": files.authority, "certFile": files.certificate, "keyFile": files.key}


def _check(wish: Wish) -> None:
    url = urlsplit(wish.url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise BadWish(f"{wish.url} is no address of an extender: write one such as {DEFAULT_URL}")
    if url.scheme == "https" and wish.files is None:
        # Without an authority kube-scheduler would trust whoever answers.
        raise BadWish(f"{wish.url} needs --ca, --cert and --key, as the scheduler will find them")
    if url.scheme == "http" and wish.files is not None:
        raise BadWish(f"{wish.url} speaks no TLS: write https, or leave --ca, --cert and --key out")
    if url.scheme == "http" and not serving.is_loopback(url.hostname):
        raise BadWish(
            f"{wish.url} would be spoken to without TLS over the network, which the extender refuses: "
            "use https with --ca, --cert and --key"
        )
