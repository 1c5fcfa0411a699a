"""Bodies of write requests."""

from typing import Any

import msgspec

from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool
from croupier.kube.client.resource import Raw, Resource


def apply_body(found: GPUDevice | GPUNodeInventory | GPUPool, status: msgspec.Struct) -> Raw:
    """The body of a server-side apply, bound to the UID of the object."""
    fields: dict[str, Any] = msgspec.to_builtins(status)
    return {"metadata": {"name": found.metadata.name, "uid": found.metadata.uid}, "status": fields}


def owner_reference(kind: Resource[Any], found: GPUNodeInventory | GPUPool) -> Raw:
    meta = found.metadata
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": meta.name, "uid": meta.uid}
