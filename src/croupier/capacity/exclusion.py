"""Keeps processes with different capacity managers apart: the two kinds never serve at the same time.

The in-memory manager holds the Lease `croupier-book`. All processes with the CRD manager renew one Lease,
`croupier-shared-ledger`. Each kind writes its own Lease before it reads the other one, so that of two
processes that start at the same time at least one sees the other. A process that finds the other kind active
refuses to start; it never takes over from processes that still run. Clocks of two machines are not compared:
a Lease with a holder is observed for its duration, and it is active if it is renewed during that time.
"""

from dataclasses import dataclass, field
from typing import Final

from croupier.capacity.manager import CapacityManagerKind
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import Conflict, KubeError, NotFound
from croupier.kube.client.resource import Raw
from croupier.kube.controller import leader_election, lease
from croupier.kube.controller.lease import LEASES, Acquire, LeaseRecord, LeaseTimings, ObservedLease

LEASE_OF: Final[dict[CapacityManagerKind, str]] = {
    "InMemory": "croupier-book",
    "CRD": "croupier-shared-ledger",
}
RENEW_INTERVAL: Final = 3.0
"""Seconds between renewals of the Lease of the CRD managers; at most two pass between two writes."""
RETRIES: Final = 20
"""How often the Lease may change while a process renews it."""


class OtherManagerActive(KubeError):
    """Another process runs the other capacity manager; the message says which, and what to do."""


async def ensure_inactive(
    api: Client,
    namespace: str,
    other: CapacityManagerKind,
    *,
    terms: LeaseTimings | None = None,
    clock: Clock | None = None,
) -> LeaseRecord:
    """Return the expired or empty record when no process runs `other`; raise if one does."""
    terms, clock = terms or LeaseTimings(), clock or api.clock
    first: ObservedLease | None = None
    while True:
        try:
            current = await api.get(LEASES, LEASE_OF[other], namespace=namespace)
        except NotFound:
            return LeaseRecord()
        seen = lease.observe(first, current, clock.monotonic())
        decision = lease.decide(seen, "", now=clock.monotonic(), terms=terms)
        if isinstance(decision, Acquire):
            return seen.record
        if first is not None and seen is not first:
            raise _active(other, seen.record, namespace)
        first = seen
        await clock.sleep(terms.every / 2)


async def exclude_crd_managers(api: Client, namespace: str, expired: LeaseRecord) -> None:
    """Mark the Lease of the CRD managers as released, under the Lease of the in-memory manager.

    `expired` is the record that was observed before. A record that differs from it belongs to a process that
    has started since.
    """
    try:
        current = await api.get(LEASES, LEASE_OF["CRD"], namespace=namespace)
    except NotFound:
        return
    record = lease.read(current)
    if not record.holder:
        return
    if record != expired:
        raise _active("CRD", record, namespace)
    try:
        await api.update(LEASES, lease.released(current, now=api.clock.now()))
    except Conflict:
        raise _active("CRD", record, namespace) from None


def _active(kind: CapacityManagerKind, record: LeaseRecord, namespace: str) -> OtherManagerActive:
    path = f"{namespace}/{LEASE_OF[kind]}"
    if kind == "InMemory":
        return OtherManagerActive(
            f"{record.holder} runs the in-memory capacity manager (it renews the Lease {path}); "
            "stop that extender, or set its capacityManager to CRD, then start this process again"
        )
    return OtherManagerActive(
        f"{record.holder} runs the CRD capacity manager (it renews the Lease {path}); "
        "stop all extenders and managers whose capacityManager is CRD, or set the capacityManager of this "
        "process to CRD, then start this process again"
    )


@dataclass(slots=True)
class SharedLease:
    """The Lease of the CRD managers, as one of their processes renews it."""

    api: Client
    namespace: str
    identity: str = field(default_factory=leader_election.unique_name)
    clock: Clock = field(default_factory=SystemClock)
    terms: LeaseTimings = field(default_factory=LeaseTimings)
    _observed: LeaseRecord | None = field(init=False, default=None)

    async def renew(self) -> None:
        """Renew the Lease, unless another process has renewed it since the last call.

        The first call always writes.
        """
        for _ in range(RETRIES):
            current = await self._read()
            record = lease.read(current)
            if self._observed is not None and record.holder and record != self._observed:
                self._observed = record
                return
            body = lease.acquired(current, self.identity, now=self.clock.now(), terms=self.terms)
            write = self.api.update if "resourceVersion" in current["metadata"] else self.api.create
            try:
                self._observed = lease.read(await write(LEASES, body))
            except Conflict:
                continue
            return
        raise Conflict(
            409,
            "Conflict",
            f"the Lease {self.namespace}/{LEASE_OF['CRD']} keeps changing; it was not renewed",
        )

    async def _read(self) -> Raw:
        name = LEASE_OF["CRD"]
        try:
            return await self.api.get(LEASES, name, namespace=self.namespace)
        except NotFound:
            return lease.new(name, self.namespace)
