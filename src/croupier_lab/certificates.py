"""Certificates of a lab: two CAs, and a certificate for every component.

Every component has its own client certificate, so that RBAC applies as in a real cluster. etcd has its own
CA: the certificate of a node must not give access to etcd.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from croupier.kube.serving import certificates
from croupier.kube.serving.certificates import SignedCertificate

CLUSTER = "ca"
ETCD = "etcd-ca"
SERVICE_ACCOUNT = "service-account"
SERVICE_ADDRESS = "10.0.0.1"

LIFETIME = timedelta(days=365)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """Subject of a certificate. With `hosts` it is also a serving certificate for them."""

    name: str
    user: str
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


LOOPBACK = ("127.0.0.1", "localhost")

CLUSTER_IDENTITIES = (
    CertificateSubject(
        "kube-apiserver",
        "kube-apiserver",
        hosts=(
            *LOOPBACK,
            SERVICE_ADDRESS,
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ),
    ),
    CertificateSubject("admin", "croupier-lab-admin", groups=("system:masters",)),
    CertificateSubject("kube-controller-manager", "system:kube-controller-manager", hosts=LOOPBACK),
    CertificateSubject("kube-scheduler", "system:kube-scheduler", hosts=LOOPBACK),
    CertificateSubject("kwok", "system:kwok"),
    CertificateSubject("kubelet-client", "croupier-lab-kubelet-client"),
)

ETCD_IDENTITIES = (
    CertificateSubject("etcd", "etcd", hosts=LOOPBACK),
    CertificateSubject("etcd-client", "kube-apiserver"),
)


def create(folder: Path, *, now: datetime) -> None:
    """Create both CAs, the service-account key and the certificate of every component."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for authority in (CLUSTER, ETCD):
        made = certificates.new_authority(f"croupier-lab-{authority}", now=now, end=now + LIFETIME)
        _write(pair(folder, authority), made)
    key = certificates.new_key()
    _write_key(folder / f"{SERVICE_ACCOUNT}.key", key)
    (folder / f"{SERVICE_ACCOUNT}.pub").write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for identity in CLUSTER_IDENTITIES:
        issue(folder, identity, now=now)
    for identity in ETCD_IDENTITIES:
        issue(folder, identity, now=now, authority=ETCD)


def node(name: str, hosts: tuple[str, ...] = ()) -> CertificateSubject:
    """The kubelet of `name`, as the Node authorizer and NodeRestriction expect it."""
    return CertificateSubject(f"kubelet-{name}", f"system:node:{name}", groups=("system:nodes",), hosts=hosts)


def pair(folder: Path, name: str) -> KeyPair:
    return KeyPair(folder / f"{name}.crt", folder / f"{name}.key")


def issue(folder: Path, identity: CertificateSubject, *, now: datetime, authority: str = CLUSTER) -> KeyPair:
    """Write `<name>.crt` and `<name>.key`, signed by the CA `authority` of the folder."""
    files = pair(folder, authority)
    signer = SignedCertificate(
        x509.load_pem_x509_certificate(files.certificate.read_bytes()),
        certificates.read_key(files.key.read_bytes()),
    )
    issued = certificates.issue(
        _subject(identity), signer, now=now, end=now + LIFETIME, hosts=identity.hosts, client=True
    )
    return _write(pair(folder, identity.name), issued)


def _subject(identity: CertificateSubject) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.user)])


def _write(files: KeyPair, written: SignedCertificate) -> KeyPair:
    _write_key(files.key, written.key)
    files.certificate.write_bytes(certificates.pem(written.certificate))
    return files


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(certificates.key_pem(key))
