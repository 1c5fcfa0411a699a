"""Migrates live ledgers between the two capacity managers, which never run at the same time (exclusion.py).

The migration into memory reads all NodeReservations before it deletes the first one, and each deletion has
the version that was read as precondition: a crash loses nothing, and late changes are read again.
"""

from collections.abc import Callable
from typing import Final

from croupier.api import kinds
from croupier.api.mps import NodeReservation, ledger_codec
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import name_list
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.errors import Conflict, KubeError, NotFound

RETRIES: Final = 20
"""How often an object may change while it is moved."""


class MigrationFailed(KubeError):
    """A ledger could not be moved; the message says which, and what to do."""


async def move_to_memory(api: Client, place: Callable[[Ledger], None]) -> tuple[str, ...]:
    """Pass every ledger of the API server to `place`, then delete it there; returns the nodes."""
    records = await _all(api)
    for record in records:
        place(_ledger(record))
    await concurrency.gather_limited(_remove(api, record, place) for record in records)
    return tuple(record.metadata.name for record in records)


async def _all(api: Client) -> list[NodeReservation]:
    try:
        listing = await api.list(kinds.NODE_RESERVATIONS)
    except NotFound:  # the kind is not installed, so there are no objects
        return []
    if listing.skipped:
        raise MigrationFailed(
            f"{name_list.counted(len(listing.skipped), 'NodeReservation')} cannot be read and therefore "
            "not be moved into memory: "
            f"{'; '.join(listing.skipped[:3])}; correct or delete them first"
        )
    return list(listing.items)


async def _remove(api: Client, record: NodeReservation, place: Callable[[Ledger], None]) -> None:
    name = record.metadata.name
    for _ in range(RETRIES):
        how = DeleteOptions(uid=record.metadata.uid, resource_version=record.metadata.resource_version)
        try:
            await api.delete(kinds.NODE_RESERVATIONS, name, how=how)
            return
        except NotFound:
            return
        except Conflict:
            pass
        try:
            record = await api.get(kinds.NODE_RESERVATIONS, name)
        except NotFound:
            return
        place(_ledger(record))
    raise MigrationFailed(
        f"the NodeReservation {name} keeps changing: another process still stores ledgers in the API "
        "server; stop the extenders and managers whose capacityManager is CRD first"
    )


def _ledger(record: NodeReservation) -> Ledger:
    return ledger_codec.decode(record.metadata.name, record.spec)
