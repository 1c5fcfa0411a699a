"""The name of the heartbeat Lease of a node's agent."""

import hashlib
from typing import Final

from croupier.api.core_v1 import Lease

_MAX_NAME_LENGTH: Final = 253

MAX_REPORT_BYTES: Final = 200_000
"""The largest report in an annotation. All annotations of an object together may have 256 KiB."""


def lease_name(prefix: str, node: str) -> str:
    """The name of the Lease, shortened with a hash if it would be too long for an object name."""
    full = f"{prefix}{node}"
    if len(full) <= _MAX_NAME_LENGTH:
        return full
    return f"{full[: _MAX_NAME_LENGTH - 17]}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def node_of(lease: Lease, annotation: str, prefix: str) -> str:
    """The node's name from the annotation, else from the name of the Lease, which may be shortened."""
    return lease.metadata.annotations.get(annotation, lease.metadata.name.removeprefix(prefix))
