"""The wire form of a holder in the ledger, and its decoded view (its name: core/ledger/holder).

On the wire a holder is a key with a number, because every field of the object makes writes more expensive.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.api.meta import DNS_LABEL, DNS_NAME

NEVER: Final = "never"
"""The expiry of a hold that does not expire."""

HOLDER_PATTERN: Final = f"^{DNS_LABEL}/{DNS_NAME}(/[-a-z0-9]+)?$"
HOLDER_MESSAGE: Final = "a holder is named namespace/pod/uid, or namespace/pod before the pod exists"

HolderState: TypeAlias = Literal["Held", "Bound"]


@dataclass(frozen=True, slots=True)
class Holder:
    """One holder of one card, decoded from the compact wire form."""

    pod_key: str
    pod_uid: str
    reservation: str
    percent: int | None
    slices: int | None
    slots: tuple[str, ...]
    state: HolderState
    expires_at: datetime | None
