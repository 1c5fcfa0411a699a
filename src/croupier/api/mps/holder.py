"""The key of a holder in the ledger, and the decoded view of a holder.

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


def key(pod_key: str, pod_uid: str = "") -> str:
    """The key of a pod in the ledger. It includes the UID if it is known."""
    return f"{pod_key}/{pod_uid}" if pod_uid else pod_key


def split(key: str) -> tuple[str, str]:
    """The `namespace/name` of the pod and its UID. The UID is empty before the pod exists."""
    namespace, name, *uid = key.split("/")
    return f"{namespace}/{name}", uid[0] if uid else ""
