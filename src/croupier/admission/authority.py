"""When a certificate is renewed, and in which order, so that no request ever meets one it cannot trust. Pure.

The API server may look at a webhook configuration that is a little old, and a replica may serve a
certificate that is a little old. So a new authority first *joins* the bundle and signs nothing; only when
the configurations have carried it for a while is a certificate *issued* by it; and only when that has
been served for a while does the old authority *leave*. At every moment each certificate that may be
served is signed by an authority in each bundle that may be in use.

How long something has been so is read off the certificates themselves: nothing else is remembered, and
any replica can take the next step at any time.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True)
class Rules:
    authority_lifetime: timedelta = timedelta(days=730)
    serving_lifetime: timedelta = timedelta(days=180)
    overlap: timedelta = timedelta(hours=1)
    """How old a bundle or a certificate that is still in use may be."""

    def is_old(self, span: "Span", now: datetime) -> bool:
        """A third of its life is left: time enough for those who must act on an alert."""
        return now >= span.end - (span.end - span.start) / 3


RULES: Final = Rules()


@dataclass(frozen=True, slots=True)
class Span:
    """The life of one certificate. `key` tells authorities apart."""

    key: str
    start: datetime
    end: datetime

    def covers(self, now: datetime) -> bool:
        return now < self.end


@dataclass(frozen=True, slots=True)
class Serving:
    span: Span
    signed_by: str
    """The key of its authority."""
    hosts: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Ring:
    """What there is: the authorities in the bundle, the oldest first; only the youngest can sign."""

    authorities: tuple[Span, ...]
    serving: Serving
    can_sign: bool = True
    """The key of the youngest is there."""

    @property
    def youngest(self) -> Span:
        return self.authorities[-1]


class Step(Enum):
    BEGIN = "begin"
    """Make an authority and a certificate: what there is, if anything, serves nobody."""
    JOIN = "join"
    """Add a young authority to the bundle, and go on serving by the old one."""
    ISSUE = "issue"
    """Serve a certificate of the youngest authority."""
    LEAVE = "leave"
    """Drop the authorities that sign nothing any more."""
    NOTHING = "nothing"


def decide(ring: Ring | None, now: datetime, *, published: bool, hosts: Iterable[str], rules: Rules) -> Step:
    """The next step. `published`: every configuration carries the bundle as it is now."""
    if ring is None or _serves_nobody(ring, now):
        return Step.BEGIN
    youngest = ring.youngest
    if not ring.can_sign or rules.is_old(youngest, now):
        return Step.JOIN
    if ring.serving.signed_by != youngest.key:
        ripe = published and now >= youngest.start + rules.overlap
        return Step.ISSUE if ripe else Step.NOTHING
    if rules.is_old(ring.serving.span, now) or not ring.serving.hosts.issuperset(hosts):
        return Step.ISSUE
    if len(ring.authorities) > 1 and now >= ring.serving.span.start + rules.overlap:
        return Step.LEAVE
    return Step.NOTHING


def _serves_nobody(ring: Ring, now: datetime) -> bool:
    signer = next((one for one in ring.authorities if one.key == ring.serving.signed_by), None)
    return signer is None or not (signer.covers(now) and ring.serving.span.covers(now))
