"""The parts of a control plane: how each is started and how it says that it is ready.

Pure: a `Site` (where things are) goes in, command lines and addresses come out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from croupier.lab import certificates
from croupier.lab.certificates import Pair
from croupier.lab.probe import Endpoint
from croupier.lab.process import Program

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"

PARTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""All of them, in the order they start; they stop the other way round."""
FOUNDATION = (ETCD, API_SERVER)
"""What is needed for an API to talk to."""

PORTS = (*PARTS, "etcd-peer")
SERVICE_RANGE = "10.0.0.0/24"
ISSUER = "https://kubernetes.default.svc.cluster.local"

# The stock limits (20 and 50 requests a second) would be what every measurement measures.
QPS = 2000
BURST = 4000


@dataclass(frozen=True, slots=True)
class Site:
    """Where the parts of one lab live."""

    folder: Path
    ports: Mapping[str, int]
    binaries: Mapping[str, str]
    stages: tuple[str, ...] = ()
    durable: bool = False
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.ports[API_SERVER]}"

    @property
    def etcd(self) -> str:
        return f"https://127.0.0.1:{self.ports[ETCD]}"

    @property
    def authority(self) -> Path:
        return self.pki / f"{certificates.CLUSTER}.crt"

    def pair(self, name: str) -> Pair:
        return certificates.pair(self.pki, name)

    def kubeconfig(self, part: str) -> Path:
        """The kubeconfig a part speaks with; the person's own is `admin`."""
        return self.folder / ("kubeconfig" if part == "admin" else f"{part}.kubeconfig")


def program(part: str, site: Site) -> Program:
    arguments = _ARGUMENTS[part](site)
    return Program(part, (site.binaries[part], *arguments, *site.extra.get(part, ())))


def endpoint(part: str, site: Site) -> Endpoint:
    """Where the part says that it is ready."""
    port = site.ports[part]
    if part == ETCD:
        return etcd_endpoint(site, "/health")
    if part == KWOK:
        return Endpoint(f"http://127.0.0.1:{port}/healthz")
    path = "/healthz" if part == CONTROLLER_MANAGER else "/readyz"
    return Endpoint(f"https://127.0.0.1:{port}{path}", site.authority, site.pair("admin"))


def etcd_endpoint(site: Site, path: str) -> Endpoint:
    return Endpoint(f"{site.etcd}{path}", site.pki / f"{certificates.ETCD}.crt", site.pair("etcd-client"))


def scheduler_configuration(site: Site, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What is `wanted`, with what only the lab can know put in its place."""
    return {
        **(wanted or {}),
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(site.kubeconfig(SCHEDULER)),
            "qps": QPS,
            "burst": BURST,
        },
    }


def rights() -> list[dict[str, Any]]:
    """What the API server's own bootstrap does not grant: KWOK, and the API server as a kubelet's client."""
    kwok = certificates.Identity("kwok", "system:kwok")
    return [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": kwok.user},
            "rules": [
                _rule("", ["nodes"], ["get", "list", "watch", "patch", "update"]),
                _rule("", ["nodes/status", "pods/status"], ["patch", "update"]),
                _rule("", ["pods"], ["get", "list", "watch", "patch", "update", "delete"]),
                _rule("", ["events"], ["create", "patch", "update"]),
                _rule(
                    "coordination.k8s.io",
                    ["leases"],
                    ["get", "list", "watch", "create", "patch", "update", "delete"],
                ),
            ],
        },
        _grant(kwok.user, role=kwok.user),
        _grant("croupier-lab-kubelet-client", role="system:kubelet-api-admin"),
    ]


def _etcd(site: Site) -> tuple[str, ...]:
    peer = f"https://127.0.0.1:{site.ports['etcd-peer']}"
    pair, authority = site.pair("etcd"), site.pki / f"{certificates.ETCD}.crt"
    # Tests create thousands of objects and the data is thrown away: waiting for the disk buys nothing,
    # except where a test kills etcd itself.
    disk = () if site.durable else ("--unsafe-no-fsync",)
    return (
        f"--data-dir={site.folder / 'etcd'}",
        f"--listen-client-urls={site.etcd}",
        f"--advertise-client-urls={site.etcd}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        f"--cert-file={pair.certificate}",
        f"--key-file={pair.key}",
        f"--trusted-ca-file={authority}",
        "--client-cert-auth",
        f"--peer-cert-file={pair.certificate}",
        f"--peer-key-file={pair.key}",
        f"--peer-trusted-ca-file={authority}",
        "--peer-client-cert-auth",
        "--quota-backend-bytes=4294967296",
        *disk,
    )


def _api_server(site: Site) -> tuple[str, ...]:
    serving, etcd, kubelet = site.pair(API_SERVER), site.pair("etcd-client"), site.pair("kubelet-client")
    accounts = site.pki / certificates.SERVICE_ACCOUNT
    return (
        f"--etcd-servers={site.etcd}",
        f"--etcd-cafile={site.pki / certificates.ETCD}.crt",
        f"--etcd-certfile={etcd.certificate}",
        f"--etcd-keyfile={etcd.key}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",  # loopback may not be an endpoint of the `kubernetes` Service
        f"--secure-port={site.ports[API_SERVER]}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={site.authority}",
        f"--service-account-key-file={accounts}.pub",
        f"--service-account-signing-key-file={accounts}.key",
        f"--service-account-issuer={ISSUER}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--kubelet-certificate-authority={site.authority}",
        f"--kubelet-client-certificate={kubelet.certificate}",
        f"--kubelet-client-key={kubelet.key}",
        "--kubelet-preferred-address-types=InternalIP",  # a node's name is in no DNS here
        "--enable-aggregator-routing=true",  # webhooks of pods by the pod's address: there is no kube-proxy
    )


def _controller_manager(site: Site) -> tuple[str, ...]:
    serving, authority = site.pair(CONTROLLER_MANAGER), site.pair(certificates.CLUSTER)
    return (
        *_served(site, CONTROLLER_MANAGER),
        f"--kubeconfig={site.kubeconfig(CONTROLLER_MANAGER)}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={site.pki / certificates.SERVICE_ACCOUNT}.key",
        f"--root-ca-file={authority.certificate}",
        f"--cluster-signing-cert-file={authority.certificate}",
        f"--cluster-signing-key-file={authority.key}",
        f"--kube-api-qps={QPS}",
        f"--kube-api-burst={BURST}",
    )


def _scheduler(site: Site) -> tuple[str, ...]:
    serving = site.pair(SCHEDULER)
    return (
        *_served(site, SCHEDULER),
        f"--config={site.folder / 'kube-scheduler.yaml'}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
    )


def _served(site: Site, part: str) -> tuple[str, ...]:
    kubeconfig = site.kubeconfig(part)
    return (
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports[part]}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--client-ca-file={site.authority}",
    )


def _kwok(site: Site) -> tuple[str, ...]:
    return (
        f"--kubeconfig={site.kubeconfig(KWOK)}",
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        "--node-lease-duration-seconds=40",
        f"--server-address=127.0.0.1:{site.ports[KWOK]}",
        *(f"--config={stage}" for stage in site.stages),
    )


def _rule(group: str, resources: list[str], verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _grant(user: str, *, role: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }


_ARGUMENTS: Mapping[str, Callable[[Site], tuple[str, ...]]] = {
    ETCD: _etcd,
    API_SERVER: _api_server,
    CONTROLLER_MANAGER: _controller_manager,
    SCHEDULER: _scheduler,
    KWOK: _kwok,
}
