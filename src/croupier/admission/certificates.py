"""Creates and reads the webhook's own CA and serving certificate, as they are stored in a Secret. No I/O.

All replicas serve the same certificate. The Secret holds `ca.crt`, the trusted CAs, the oldest first;
`ca.key`, the key of the newest CA; `tls.crt` and `tls.key`, the serving certificate. Keys are P-256: an RSA
handshake costs the server ten times as much.
"""

import binascii
import ipaddress
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
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

from croupier.admission.certificate_rotation import (
    CertificateValidity,
    RotationRules,
    RotationState,
    RotationStep,
    ServingCertificate,
)

BUNDLE: Final = "ca.crt"
BUNDLE_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
FIELDS: Final = (BUNDLE, BUNDLE_KEY, CERTIFICATE, KEY)

BACKDATED: Final = timedelta(hours=1)
"""Certificates are valid from this long before their creation, because clocks differ."""


@dataclass(frozen=True, slots=True)
class Keyring:
    """All fields are PEM."""

    bundle: bytes
    bundle_key: bytes
    certificate: bytes
    key: bytes
    ring: RotationState

    def data(self) -> dict[str, str]:
        """The `data` of the Secret."""
        contents = (self.bundle, self.bundle_key, self.certificate, self.key)
        return {name: b64encode(content).decode() for name, content in zip(FIELDS, contents, strict=True)}


@dataclass(frozen=True, slots=True)
class _Signer:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def read(data: Mapping[str, str]) -> Keyring | None:
    """None if the Secret is incomplete or inconsistent."""
    try:
        bundle, bundle_key, certificate, key = (
            b64decode(data.get(name, ""), validate=True) for name in FIELDS
        )
        authorities = x509.load_pem_x509_certificates(bundle)
        leaf = x509.load_pem_x509_certificate(certificate)
        if _private(key).public_key() != leaf.public_key():
            return None
        ring = RotationState(
            tuple(_validity(certificate) for certificate in authorities),
            _serving(leaf),
            can_sign=_fits(bundle_key, authorities[-1]),
        )
    except (ValueError, TypeError, binascii.Error, x509.ExtensionNotFound):
        return None
    return Keyring(bundle, bundle_key, certificate, key, ring)


def after_step(
    step: RotationStep, ring: Keyring | None, now: datetime, *, hosts: Iterable[str], rules: RotationRules
) -> Keyring:
    """The keyring after that step."""
    if ring is None or step is RotationStep.BEGIN:
        return _issued((), _authority(now, rules), now, hosts=hosts, rules=rules)
    authorities = x509.load_pem_x509_certificates(ring.bundle)
    if step is RotationStep.JOIN:
        return _with_new_ca(ring, authorities, _authority(now, rules))
    if step is RotationStep.ISSUE:
        signer = _Signer(authorities[-1], _private(ring.bundle_key))
        names = ring.ring.serving.hosts.union(hosts)  # replicas with different names get all of them
        return _issued(authorities[:-1], signer, now, hosts=names, rules=rules)
    if step is RotationStep.LEAVE:
        kept = authorities[-1:]
        return replace(ring, bundle=_pem(*kept), ring=replace(ring.ring, authorities=(_validity(kept[0]),)))
    return ring


def expiry(certificate: bytes) -> datetime:
    """When the first certificate of this PEM expires. ValueError if there is none."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _with_new_ca(ring: Keyring, authorities: list[x509.Certificate], young: _Signer) -> Keyring:
    """Of the old CAs only the signer of the serving certificate stays."""
    signing = [
        certificate for certificate in authorities if _key_id(certificate) == ring.ring.serving.signed_by
    ]
    bundle = _pem(*signing, young.certificate)
    spans = tuple(_validity(certificate) for certificate in (*signing, young.certificate))
    grown = replace(ring.ring, authorities=spans, can_sign=True)
    return replace(ring, bundle=bundle, bundle_key=_secret(young.key), ring=grown)


def _issued(
    older: Iterable[x509.Certificate],
    signer: _Signer,
    now: datetime,
    *,
    hosts: Iterable[str],
    rules: RotationRules,
) -> Keyring:
    key = ec.generate_private_key(ec.SECP256R1())
    names = sorted(set(hosts))
    end = min(now + rules.serving_lifetime, signer.certificate.not_valid_after_utc)
    leaf = (
        _builder("croupier-webhook", signer.certificate.subject, key, now=now, end=end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.key.public_key()), critical=False
        )
        .sign(signer.key, hashes.SHA256())
    )
    authorities = (*older, signer.certificate)
    ring = RotationState(tuple(_validity(certificate) for certificate in authorities), _serving(leaf))
    return Keyring(_pem(*authorities), _secret(signer.key), _pem(leaf), _secret(key), ring)


def _authority(now: datetime, rules: RotationRules) -> _Signer:
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    name = f"croupier-webhook-ca-{identifier.digest.hex()[:8]}"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(name, subject, key, now=now, end=now + rules.authority_lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return _Signer(certificate, key)


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(end)
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


def _validity(certificate: x509.Certificate) -> CertificateValidity:
    made = certificate.not_valid_before_utc + BACKDATED
    return CertificateValidity(_key_id(certificate), made, certificate.not_valid_after_utc)


def _serving(leaf: x509.Certificate) -> ServingCertificate:
    extensions = leaf.extensions
    issuer = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier or b""
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    made = leaf.not_valid_before_utc + BACKDATED
    return ServingCertificate(
        CertificateValidity(str(leaf.serial_number), made, leaf.not_valid_after_utc),
        signed_by=issuer.hex(),
        hosts=frozenset(str(name.value) for name in names),
    )


def _key_id(authority: x509.Certificate) -> str:
    return authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest.hex()


def _fits(key: bytes, authority: x509.Certificate) -> bool:
    try:
        return _private(key).public_key() == authority.public_key()
    except (ValueError, TypeError):
        return False


def _private(pem: bytes) -> ec.EllipticCurvePrivateKey:
    key = load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def _secret(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
