"""How the Lease of a node's agent is named, and whose it is."""

import hashlib
from typing import Final

from croupier.api.core_v1 import Lease

_LONGEST_NAME: Final = 253

MOST_BYTES: Final = 200_000
"""Of a report in an annotation; all annotations of an object together may have 256 KiB."""


def name(prefix: str, node: str) -> str:
    """Shortened where it would be too long for the name of an object."""
    full = f"{prefix}{node}"
    if len(full) <= _LONGEST_NAME:
        return full
    return f"{full[: _LONGEST_NAME - 17]}-{hashlib.sha256(node.encode()).hexdigest()[:16]}"


def node_of(lease: Lease, annotation: str, prefix: str) -> str:
    """As the annotation says it: the name may be shortened."""
    return lease.metadata.annotations.get(annotation, lease.metadata.name.removeprefix(prefix))
