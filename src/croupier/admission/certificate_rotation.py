"""Decides when and in which order certificates are rotated, so that every request meets a trusted one. Pure.

The API server may use a slightly old webhook configuration, and a replica may serve a slightly old
certificate. So a new CA first *joins* the bundle and signs nothing; only after the configurations have had it
for a while does it *issue* a certificate; and only after that certificate has been served for a while does
the old CA *leave*. At any time every certificate that may be served is signed by a CA in every bundle that
may be in use.

All times are read from the certificates: there is no other state, and any replica can take the next step at
any time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True)
class RotationRules:
    authority_lifetime: timedelta = timedelta(days=730)
    serving_lifetime: timedelta = timedelta(days=180)
    overlap: timedelta = timedelta(hours=1)
    """Maximum age of an outdated bundle or certificate that is still in use."""

    def is_old(self, span: "CertificateValidity", now: datetime) -> bool:
        """Less than a third of its lifetime is left, which leaves enough time to act on an alert."""
        return now >= span.end - (span.end - span.start) / 3


ROTATION_RULES: Final = RotationRules()


@dataclass(frozen=True, slots=True)
class CertificateValidity:
    """The validity of one certificate. `key` identifies a CA."""

    key: str
    start: datetime
    end: datetime

    def covers(self, now: datetime) -> bool:
        return now < self.end


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    span: CertificateValidity
    signed_by: str
    """The key of its CA."""
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RotationState:
    """The current certificates: the CAs in the bundle, the oldest first; only the newest can sign."""

    authorities: tuple[CertificateValidity, ...]
    serving: ServingCertificate
    can_sign: bool = True
    """The private key of the newest CA is available."""

    @property
    def youngest(self) -> CertificateValidity:
        return self.authorities[-1]


class RotationStep(Enum):
    BEGIN = "begin"
    """Create a CA and a certificate: there is none, or the existing ones cannot be used."""
    JOIN = "join"
    """Add a new CA to the bundle, and keep the serving certificate of the old one."""
    ISSUE = "issue"
    """Serve a certificate of the newest CA."""
    LEAVE = "leave"
    """Remove the CAs that signed no current certificate."""
    NOTHING = "nothing"


def decide(
    ring: RotationState | None, now: datetime, *, published: bool, hosts: Iterable[str], rules: RotationRules
) -> RotationStep:
    """The next step. `published`: every configuration has the current bundle."""
    if ring is None or _unusable(ring, now):
        return RotationStep.BEGIN
    youngest = ring.youngest
    if not ring.can_sign or rules.is_old(youngest, now):
        return RotationStep.JOIN
    if ring.serving.signed_by != youngest.key:
        ripe = published and now >= youngest.start + rules.overlap
        return RotationStep.ISSUE if ripe else RotationStep.NOTHING
    if rules.is_old(ring.serving.span, now) or not ring.serving.hosts.issuperset(hosts):
        return RotationStep.ISSUE
    if len(ring.authorities) > 1 and now >= ring.serving.span.start + rules.overlap:
        return RotationStep.LEAVE
    return RotationStep.NOTHING


def _unusable(ring: RotationState, now: datetime) -> bool:
    signer = next((span for span in ring.authorities if span.key == ring.serving.signed_by), None)
    return signer is None or not (signer.covers(now) and ring.serving.span.covers(now))
