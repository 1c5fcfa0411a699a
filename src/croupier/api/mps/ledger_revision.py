"""A revision of a NodeReservation with the time of its write.

The API server records in `metadata.managedFields` when each client last changed the fields that it manages.
Every change of holders changes `spec.cards`, which is managed as a whole, so the latest of these times is
the time of the write: by the clock of the API server, in whole seconds.
"""

from datetime import datetime

from msgspec import field

from croupier.api.meta import ObjectMeta
from croupier.api.mps.ledger import NodeReservationSpec
from croupier.api.wire import Wire


class ManagedFields(Wire, frozen=True, kw_only=True):
    time: datetime | None = None
    subresource: str = ""


class RevisionMeta(ObjectMeta, frozen=True, kw_only=True):
    managed_fields: tuple[ManagedFields, ...] = ()


class LedgerRevision(Wire, frozen=True, kw_only=True):
    spec: NodeReservationSpec
    metadata: RevisionMeta = field(default_factory=RevisionMeta)

    @property
    def written_at(self) -> datetime | None:
        """When the spec was last written. None if the API server does not say it."""
        managed = self.metadata.managed_fields
        times = (entry.time for entry in managed if entry.time is not None and not entry.subresource)
        return max(times, default=self.metadata.creation_timestamp)
