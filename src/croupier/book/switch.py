"""From one book to the other with live reservations, and never both at once.

A book in memory is kept by the one process that holds the Lease `croupier-book`. Whoever wants to
keep the book in the API server first makes sure that nobody does (`guard`). The way back reads every
NodeReservation into memory before it removes the first one, each guarded by the state that was read:
a crash in between loses nothing, and what a late writer still changed is read again.
"""

from collections.abc import Callable
from typing import Final

from croupier.api import kinds
from croupier.api.mps import NodeReservation, translate
from croupier.core.ledgers.ledger import Ledger
from croupier.kube import lease, together
from croupier.kube.client import Client, Deletion
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import Conflict, KubeError, NotFound
from croupier.kube.lease import LEASES, Acquire, Sighting, Terms

LEASE: Final = "croupier-book"
TRIES: Final = 20
"""How often an object may change while it is carried over."""


class BookKept(KubeError):
    """Another process keeps the book in its memory; the sentence says which and what to do."""


class NotCarried(KubeError):
    """A ledger could not be taken over; the sentence says which and what to do."""


async def guard(
    api: Client, namespace: str, *, terms: Terms | None = None, clock: Clock | None = None
) -> None:
    """Returns once it is certain that no process keeps the book in memory; BookKept if one does.

    Clocks of two machines are not compared: a Lease that names a holder is watched for as long as it
    is valid, and one that is renewed meanwhile has somebody who keeps it.
    """
    terms, clock = terms or Terms(), clock or SystemClock()
    first: Sighting | None = None
    while True:
        try:
            found = await api.get(LEASES, LEASE, namespace=namespace)
        except NotFound:
            return
        seen = lease.sight(first, found, clock.monotonic())
        decision = lease.decide(seen, "", now=clock.monotonic(), terms=terms)
        if isinstance(decision, Acquire):
            return
        if first is not None and seen is not first:
            raise BookKept(_kept(seen.record.holder, namespace))
        first = seen
        await clock.sleep(terms.every / 2)


def _kept(holder: str, namespace: str) -> str:
    return (
        f"{holder} keeps the book in memory (it renews the Lease {namespace}/{LEASE}); stop that extender, "
        "or set its capacityManager to CRD, then start this process again"
    )


async def carry_over(api: Client, place: Callable[[Ledger], None]) -> tuple[str, ...]:
    """Give every ledger of the API server to `place`, then remove it there; the nodes carried over."""
    found = await _all(api)
    for one in found:
        place(_ledger(one))
    await together.all_of(_remove(api, one, place) for one in found)
    return tuple(one.metadata.name for one in found)


async def _all(api: Client) -> list[NodeReservation]:
    try:
        listing = await api.list(kinds.NODE_RESERVATIONS)
    except NotFound:  # the kind is not installed: nothing was ever written
        return []
    if listing.skipped:
        raise NotCarried(
            f"{len(listing.skipped)} NodeReservations cannot be read and so not be carried into memory: "
            f"{'; '.join(listing.skipped[:3])}; correct or delete them first"
        )
    return list(listing.items)


async def _remove(api: Client, one: NodeReservation, place: Callable[[Ledger], None]) -> None:
    name = one.metadata.name
    for _ in range(TRIES):
        how = Deletion(uid=one.metadata.uid, resource_version=one.metadata.resource_version)
        try:
            await api.delete(kinds.NODE_RESERVATIONS, name, how=how)
            return
        except NotFound:
            return
        except Conflict:
            pass
        try:
            one = await api.get(kinds.NODE_RESERVATIONS, name)
        except NotFound:
            return
        place(_ledger(one))
    raise NotCarried(
        f"the NodeReservation {name} changes all the time: another process still keeps the book in the API "
        "server; stop the extenders and managers whose capacityManager is CRD first"
    )


def _ledger(found: NodeReservation) -> Ledger:
    return translate.read(found.metadata.name, found.spec)
