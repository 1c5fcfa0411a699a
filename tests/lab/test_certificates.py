"""Every component has its own certificate, signed by the right CA."""

import ssl
import stat
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from croupier_lab import certificates

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    certificates.create(folder, now=NOW)
    return folder


def read(pki, name) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificates.pair(pki, name).certificate.read_bytes())


WHO = {
    "admin": ("croupier-lab-admin", ["system:masters"]),
    "kube-controller-manager": ("system:kube-controller-manager", []),
    "kube-scheduler": ("system:kube-scheduler", []),
    "kwok": ("system:kwok", []),
}


@pytest.mark.parametrize(("name", "who"), WHO.items(), ids=WHO)
def test_components_have_their_own_names(pki, name, who):
    subject = read(pki, name).subject

    user = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    groups = [group.value for group in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert (user, groups) == who


def test_a_kubelet_gets_the_name_the_node_authorizer_goes_by(pki):
    pair = certificates.issue(pki, certificates.node("worker", hosts=("10.1.2.3",)), now=NOW)

    subject = x509.load_pem_x509_certificate(pair.certificate.read_bytes()).subject.rfc4514_string()
    assert subject == "CN=system:node:worker,O=system:nodes"


def test_each_ca_signs_only_its_own_certificates(pki):
    cluster, etcd = read(pki, certificates.CLUSTER), read(pki, certificates.ETCD)

    read(pki, "kube-scheduler").verify_directly_issued_by(cluster)
    read(pki, "etcd-client").verify_directly_issued_by(etcd)
    with pytest.raises(ValueError, match="ssuer"):
        read(pki, "admin").verify_directly_issued_by(etcd)


SERVERS = {"kube-apiserver": certificates.CLUSTER, "etcd": certificates.ETCD}


@pytest.mark.parametrize(("server", "authority"), SERVERS.items(), ids=SERVERS)
def test_a_strict_client_accepts_every_server(tmp_path, server, authority):
    """Strict verification, the default since Python 3.13, requires the authority key identifier."""
    certificates.create(tmp_path, now=datetime.now(UTC))
    issued = certificates.pair(tmp_path, server)
    here, there = ssl.MemoryBIO(), ssl.MemoryBIO()
    strict = ssl.create_default_context(cafile=str(certificates.pair(tmp_path, authority).certificate))
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(issued.certificate, issued.key)
    ends = [
        strict.wrap_bio(here, there, server_hostname="127.0.0.1"),
        serving.wrap_bio(there, here, server_side=True),
    ]

    for _ in range(3):  # flights of a TLS handshake
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()

    assert ends[0].version() == "TLSv1.3"


def test_only_servers_have_serving_certificates(pki):
    def purposes(name: str) -> set[x509.ObjectIdentifier]:
        return set(read(pki, name).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)

    assert ExtendedKeyUsageOID.SERVER_AUTH in purposes("kube-apiserver")
    assert purposes("admin") == {ExtendedKeyUsageOID.CLIENT_AUTH}


def test_the_clock_may_be_an_hour_slow(pki):
    certificate = read(pki, "admin")

    assert certificate.not_valid_before_utc < NOW < certificate.not_valid_after_utc


def test_keys_are_readable_by_their_owner_only_and_fit_their_certificates(pki):
    assert {stat.S_IMODE(key.stat().st_mode) for key in pki.glob("*.key")} == {0o600}
    pair = certificates.pair(pki, "kube-apiserver")
    ssl.create_default_context().load_cert_chain(pair.certificate, pair.key)
