"""The control plane components: command lines and readiness endpoints.

Pure functions of a `LabLayout` (folders, ports, binaries).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from croupier_lab import certificates
from croupier_lab.certificates import KeyPair
from croupier_lab.probe import Endpoint
from croupier_lab.process import Program

ETCD = "etcd"
API_SERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"

COMPONENTS = (ETCD, API_SERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)
"""All components in start order; they stop in reverse order."""
API_COMPONENTS = (ETCD, API_SERVER)
"""The components of the API."""

PORTS = (*COMPONENTS, "etcd-peer")
SERVICE_RANGE = "10.0.0.0/24"
ISSUER = "https://kubernetes.default.svc.cluster.local"

# The default client limits (20 and 50 requests per second) would dominate every benchmark.
QPS = 2000
BURST = 4000


@dataclass(frozen=True, slots=True)
class LabLayout:
    """Folders, ports and binaries of one lab."""

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

    def pair(self, name: str) -> KeyPair:
        return certificates.pair(self.pki, name)

    def kubeconfig(self, part: str) -> Path:
        """The kubeconfig of a component; `admin` is that of the user."""
        return self.folder / ("kubeconfig" if part == "admin" else f"{part}.kubeconfig")


def program(part: str, site: LabLayout) -> Program:
    arguments = _ARGUMENTS[part](site)
    return Program(part, (site.binaries[part], *arguments, *site.extra.get(part, ())))


def endpoint(part: str, site: LabLayout) -> Endpoint:
    """Readiness endpoint of the component."""
    port = site.ports[part]
    if part == ETCD:
        return etcd_endpoint(site, "/health")
    if part == KWOK:
        return Endpoint(f"http://127.0.0.1:{port}/healthz")
    path = "/healthz" if part == CONTROLLER_MANAGER else "/readyz"
    return Endpoint(f"https://127.0.0.1:{port}{path}", site.authority, site.pair("admin"))


def etcd_endpoint(site: LabLayout, path: str) -> Endpoint:
    return Endpoint(f"{site.etcd}{path}", site.pki / f"{certificates.ETCD}.crt", site.pair("etcd-client"))


def scheduler_configuration(site: LabLayout, wanted: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`wanted` with the kubeconfig and client limits of the lab."""
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


def rbac() -> list[dict[str, Any]]:
    """RBAC that the API server does not create itself: for KWOK, and for its kubelet client."""
    kwok = certificates.CertificateSubject("kwok", "system:kwok")
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


def _etcd(site: LabLayout) -> tuple[str, ...]:
    peer = f"https://127.0.0.1:{site.ports['etcd-peer']}"
    pair, authority = site.pair("etcd"), site.pki / f"{certificates.ETCD}.crt"
    # The data is temporary, so fsync is only needed where a test kills etcd.
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


def _api_server(site: LabLayout) -> tuple[str, ...]:
    serving, etcd, kubelet = site.pair(API_SERVER), site.pair("etcd-client"), site.pair("kubelet-client")
    accounts = site.pki / certificates.SERVICE_ACCOUNT
    return (
        f"--etcd-servers={site.etcd}",
        f"--etcd-cafile={site.pki / certificates.ETCD}.crt",
        f"--etcd-certfile={etcd.certificate}",
        f"--etcd-keyfile={etcd.key}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",  # the `kubernetes` Service must not have a loopback endpoint
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
        "--kubelet-preferred-address-types=InternalIP",  # node names are not in DNS
        "--enable-aggregator-routing=true",  # reach webhooks by pod address, because there is no kube-proxy
    )


def _controller_manager(site: LabLayout) -> tuple[str, ...]:
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


def _scheduler(site: LabLayout) -> tuple[str, ...]:
    serving = site.pair(SCHEDULER)
    return (
        *_served(site, SCHEDULER),
        f"--config={site.folder / 'kube-scheduler.yaml'}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
    )


def _served(site: LabLayout, part: str) -> tuple[str, ...]:
    kubeconfig = site.kubeconfig(part)
    return (
        "--bind-address=127.0.0.1",
        f"--secure-port={site.ports[part]}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--client-ca-file={site.authority}",
    )


def _kwok(site: LabLayout) -> tuple[str, ...]:
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


_ARGUMENTS: Mapping[str, Callable[[LabLayout], tuple[str, ...]]] = {
    ETCD: _etcd,
    API_SERVER: _api_server,
    CONTROLLER_MANAGER: _controller_manager,
    SCHEDULER: _scheduler,
    KWOK: _kwok,
}
