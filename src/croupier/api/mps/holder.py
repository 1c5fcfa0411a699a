"""How the ledger names a holder, and the readable view of one.

On the wire a holder is a key with a number, because every field of the object costs;
here it is again what a person would call a holder.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.api.meta import DNS_LABEL, DNS_NAME

NEVER: Final = "never"
"""The expiry of a hold that stays until it is released."""

HOLDER_PATTERN: Final = f"^{DNS_LABEL}/{DNS_NAME}(/[-a-z0-9]+)?$"
HOLDER_MESSAGE: Final = "a holder is named namespace/pod/uid, or namespace/pod before the pod exists"

HolderState: TypeAlias = Literal["Held", "Bound"]


@dataclass(frozen=True, slots=True)
class Holder:
    """One holder of one card, read from the compact form on the wire."""

    pod_key: str
    pod_uid: str
    reservation: str
    percent: int | None
    slices: int | None
    slots: tuple[str, ...]
    state: HolderState
    expires_at: datetime | None


def key(pod_key: str, pod_uid: str = "") -> str:
    """How the ledger names a pod, by UID as soon as there is one."""
    return f"{pod_key}/{pod_uid}" if pod_uid else pod_key


def split(key: str) -> tuple[str, str]:
    """The pod's `namespace/name` and its UID, empty before the pod exists."""
    namespace, name, *uid = key.split("/")
    return f"{namespace}/{name}", uid[0] if uid else ""
