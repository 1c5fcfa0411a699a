"""The kube-scheduler configuration for the extender, as data.

The scheduler calls the extender for pods that request certain resources. The two resources that only the
extender counts are ignored by the scheduler's own accounting. Resources of real devices (`nvidia.com/gpu`,
MIG, pools) are counted by the scheduler as well, and are listed so that no pod can bypass the ledger by
omitting `gpu.mps.io/ledger`. Other pods do not depend on the extender, so `ignorable` can stay false; if it
were true, the scheduler would bind pods without a hold whenever the extender does not answer.
"""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from croupier.api import kinds
from croupier.core.pods import request_parser
from croupier.core.pods.ledger_resource import DEFAULT_SCHEDULER
from croupier.core.pods.request_parser import EXTENDER_RESOURCES, GPU
from croupier.extender.protocol import BIND, FILTER
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import NotFound
from croupier.kube.serving import http_server

DEFAULT_URL: Final = "http://127.0.0.1:9440"


class InvalidSchedulerOptions(ValueError):
    """The options are invalid; the message says why."""


@dataclass(frozen=True, slots=True)
class SchedulerTLSFiles:
    """Paths as the scheduler sees them: the CA of the extender, and the client certificate and key."""

    authority: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class SchedulerConfigOptions:
    url: str = DEFAULT_URL
    kubeconfig: str = ""
    """Path of the scheduler's kubeconfig; empty if it is configured in another way."""
    files: SchedulerTLSFiles | None = None
    scheduler_name: str = DEFAULT_SCHEDULER
    leader_elect: bool = True
    lease_namespace: str = "kube-system"
    """The namespace of the Lease of a scheduler other than the default one."""
    qps: int = 500
    timeout: int = 5
    """HTTP timeout in seconds. A hanging filter call delays all other pods for this time."""
    resources: tuple[str, ...] = (GPU,)


def configuration(options: SchedulerConfigOptions) -> dict[str, Any]:
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


def extender(options: SchedulerConfigOptions) -> dict[str, Any]:
    tls = {} if options.files is None else {"enableHTTPS": True, "tlsConfig": _tls(options.files)}
    others = sorted(set(options.resources) - set(EXTENDER_RESOURCES))
    return {
        "urlPrefix": options.url.rstrip("/"),
        "filterVerb": FILTER,
        "bindVerb": BIND,
        "nodeCacheCapable": True,
        "ignorable": False,
        "httpTimeout": f"{options.timeout}s",
        **tls,
        "managedResources": [
            *({"name": name, "ignoredByScheduler": True} for name in EXTENDER_RESOURCES),
            *({"name": name} for name in others),
        ],
    }


async def card_resources(api: Client) -> set[str]:
    """Resources of nodes and pools of the cluster that request cards and that the scheduler counts, too."""
    names = {name for node in (await api.list(kinds.NODES)).items for name in node.status.allocatable}
    with suppress(NotFound):  # the kind is not installed
        for pool in (await api.list(kinds.GPU_POOLS)).items:
            names.add(pool.spec.resource.name or f"gpu.deckhouse.io/{pool.metadata.name}")
    return {name for name in names if request_parser.is_card_resource(name)} - set(EXTENDER_RESOURCES)


def _tls(files: SchedulerTLSFiles) -> dict[str, str]:
    return {"caFile": files.authority, "certFile": files.certificate, "keyFile": files.key}


def _check(options: SchedulerConfigOptions) -> None:
    url = urlsplit(options.url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidSchedulerOptions(
            f"{options.url} is not the URL of an extender: use one such as {DEFAULT_URL}"
        )
    if url.scheme == "https" and options.files is None:
        # Without a CA kube-scheduler would trust any server.
        raise InvalidSchedulerOptions(
            f"{options.url} needs --ca, --cert and --key, with the paths as the scheduler sees them"
        )
    if url.scheme == "http" and options.files is not None:
        raise InvalidSchedulerOptions(
            f"{options.url} does not use TLS: use https, or omit --ca, --cert and --key"
        )
    if url.scheme == "http" and not http_server.is_loopback(url.hostname):
        raise InvalidSchedulerOptions(
            f"{options.url} would be reached without TLS over the network, which the extender refuses: "
            "use https with --ca, --cert and --key"
        )
