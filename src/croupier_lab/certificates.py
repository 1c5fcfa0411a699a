"""Certificates of a lab: two CAs, and a certificate for every component.

Every component has its own client certificate, so that RBAC applies as in a real cluster. etcd has its own
CA: the certificate of a node must not give access to etcd.
"""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLUSTER = "ca"
ETCD = "etcd-ca"
SERVICE_ACCOUNT = "service-account"
SERVICE_ADDRESS = "10.0.0.1"

LIFETIME = timedelta(days=365)
CLOCK_SKEW = timedelta(hours=1)


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
        _create_authority(folder, authority, now)
    key = ec.generate_private_key(ec.SECP256R1())
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
    signer = pair(folder, authority)
    issuer = x509.load_pem_x509_certificate(signer.certificate.read_bytes())
    signing_key = load_pem_private_key(signer.key.read_bytes(), password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{signer.key} holds no elliptic-curve key")

    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_subject(identity), issuer.subject, key, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_purposes(identity)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_signed_by(signing_key), critical=False)
    )
    if identity.hosts:
        alternatives = x509.SubjectAlternativeName([_alternative(host) for host in identity.hosts])
        certificate = certificate.add_extension(alternatives, critical=False)

    written = pair(folder, identity.name)
    _write_key(written.key, key)
    written.certificate.write_bytes(certificate.sign(signing_key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return written


def _create_authority(folder: Path, name: str, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"croupier-lab-{name}")])
    certificate = (
        _builder(subject, subject, key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = pair(folder, name)
    _write_key(files.key, key)
    files.certificate.write_bytes(certificate.public_bytes(Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _signed_by(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    """Required by strict verifiers such as Python 3.13."""
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _subject(identity: CertificateSubject) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.user)])


def _purposes(identity: CertificateSubject) -> list[x509.ObjectIdentifier]:
    serves = [ExtendedKeyUsageOID.SERVER_AUTH] if identity.hosts else []
    return [ExtendedKeyUsageOID.CLIENT_AUTH, *serves]


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
