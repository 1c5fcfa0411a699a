"""Creates and reads the webhook's own CA and serving certificate, as they are stored in a Secret. No I/O.

All replicas serve the same certificate. The Secret holds `ca.crt`, the trusted CAs, the oldest first;
`ca.key`, the key of the newest CA; `tls.crt` and `tls.key`, the serving certificate.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from cryptography import x509

from croupier.admission.certificate_rotation import (
    CertificateValidity,
    RotationRules,
    RotationState,
    RotationStep,
    ServingCertificate,
)
from croupier.kube.serving import certificates
from croupier.kube.serving.certificates import BACKDATED, SignedCertificate

BUNDLE: Final = "ca.crt"
BUNDLE_KEY: Final = "ca.key"
CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"
FIELDS: Final = (BUNDLE, BUNDLE_KEY, CERTIFICATE, KEY)


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


def read(data: Mapping[str, str]) -> Keyring | None:
    """None if the Secret is incomplete or inconsistent."""
    try:
        bundle, bundle_key, certificate, key = (
            b64decode(data.get(name, ""), validate=True) for name in FIELDS
        )
        authorities = x509.load_pem_x509_certificates(bundle)
        leaf = x509.load_pem_x509_certificate(certificate)
        if certificates.read_key(key).public_key() != leaf.public_key():
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
        signer = SignedCertificate(authorities[-1], certificates.read_key(ring.bundle_key))
        names = ring.ring.serving.hosts.union(hosts)  # replicas with different names get all of them
        return _issued(authorities[:-1], signer, now, hosts=names, rules=rules)
    if step is RotationStep.LEAVE:
        kept = authorities[-1:]
        return replace(
            ring, bundle=certificates.pem(*kept), ring=replace(ring.ring, authorities=(_validity(kept[0]),))
        )
    return ring


def _with_new_ca(ring: Keyring, authorities: list[x509.Certificate], young: SignedCertificate) -> Keyring:
    """Of the old CAs only the signer of the serving certificate stays."""
    signing = [
        certificate
        for certificate in authorities
        if certificates.key_id(certificate) == ring.ring.serving.signed_by
    ]
    bundle = certificates.pem(*signing, young.certificate)
    spans = tuple(_validity(certificate) for certificate in (*signing, young.certificate))
    grown = replace(ring.ring, authorities=spans, can_sign=True)
    return replace(ring, bundle=bundle, bundle_key=certificates.key_pem(young.key), ring=grown)


def _issued(
    older: Iterable[x509.Certificate],
    signer: SignedCertificate,
    now: datetime,
    *,
    hosts: Iterable[str],
    rules: RotationRules,
) -> Keyring:
    issued = certificates.issue(
        certificates.common_name("croupier-webhook"),
        signer,
        now=now,
        end=now + rules.serving_lifetime,
        hosts=sorted(set(hosts)),
    )
    leaf = issued.certificate
    authorities = (*older, signer.certificate)
    ring = RotationState(tuple(_validity(certificate) for certificate in authorities), _serving(leaf))
    return Keyring(
        certificates.pem(*authorities),
        certificates.key_pem(signer.key),
        certificates.pem(leaf),
        certificates.key_pem(issued.key),
        ring,
    )


def _authority(now: datetime, rules: RotationRules) -> SignedCertificate:
    end = now + rules.authority_lifetime
    return certificates.new_authority("croupier-webhook-ca", now=now, end=end, numbered=True)


def _validity(certificate: x509.Certificate) -> CertificateValidity:
    made = certificate.not_valid_before_utc + BACKDATED
    return CertificateValidity(certificates.key_id(certificate), made, certificate.not_valid_after_utc)


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


def _fits(key: bytes, authority: x509.Certificate) -> bool:
    try:
        return certificates.read_key(key).public_key() == authority.public_key()
    except (ValueError, TypeError):
        return False
