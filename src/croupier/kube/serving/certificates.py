"""Builds X.509 certificates: CAs, and the certificates that they sign. No I/O.

Keys are P-256: an RSA handshake costs the server ten times as much.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED: Final = timedelta(hours=1)
"""Certificates are valid from this long before their creation, because clocks differ."""


@dataclass(frozen=True, slots=True)
class SignedCertificate:
    """A certificate and its private key; that of a CA can sign others."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def new_authority(name: str, *, now: datetime, end: datetime, numbered: bool = False) -> SignedCertificate:
    """A CA. `numbered` appends a part of its key, so that two CAs of one name have different subjects."""
    key = new_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    subject = common_name(f"{name}-{identifier.digest.hex()[:8]}" if numbered else name)
    builder = (
        _builder(subject, subject, key, now=now, end=end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    return SignedCertificate(builder.sign(key, hashes.SHA256()), key)


def issue(
    subject: x509.Name,
    signer: SignedCertificate,
    *,
    now: datetime,
    end: datetime,
    hosts: Iterable[str] = (),
    client: bool = False,
) -> SignedCertificate:
    """A serving certificate for `hosts`, a client certificate, or both; valid no longer than its CA."""
    key = new_key()
    alternatives = [_alternative(host) for host in hosts]
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH] if client else []
    if alternatives:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
    end = min(end, signer.certificate.not_valid_after_utc)
    # Strict verifiers such as Python 3.13 require the AuthorityKeyIdentifier.
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key())
    builder = (
        _builder(subject, signer.certificate.subject, key, now=now, end=end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(authority, critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return SignedCertificate(builder.sign(signer.key, hashes.SHA256()), key)


def common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def key_id(authority: x509.Certificate) -> str:
    return authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest.hex()


def read_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def expiry(certificate: bytes) -> datetime:
    """When the first certificate of this PEM expires. ValueError if there is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def last_expiry(bundle: bytes) -> datetime:
    """When the last CA of this bundle expires. ValueError if there is none."""
    return max(authority.not_valid_after_utc for authority in x509.load_pem_x509_certificates(bundle))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
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


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
