"""The rules of leader election with a coordination.k8s.io Lease, without I/O.

Clocks of different machines are never compared. A candidate observes the record
with its own monotonic clock and takes over when the record has not changed for the
lease duration. The holder counts from *before* it sent its last renewal, which is
earlier than any candidate can have observed it, and stops at the renew deadline,
which is shorter than the lease duration. So it has stopped before a candidate may
start.

That holds for a running process. A process that was frozen still believes that it
is the leader, so it must check its deadline before it acts (`Leadership.held`). Its
requests in flight can only be refused by the API server's compare-and-swap.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from croupier.kube.client.resource import Raw, Resource

LEASES: Resource[Raw] = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=dict)


@dataclass(frozen=True, slots=True)
class LeaseTimings:
    """Seconds: a lease is valid for `duration`; the holder stops after `renew_deadline` without renewal."""

    duration: int = 15
    renew_deadline: float = 10.0
    every: float = 2.0
    """Interval at which the holder renews and the candidates read the Lease."""
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.every < self.renew_deadline < self.duration:
            raise ValueError(
                f"a lease needs 0 < every < renew_deadline < duration, not "
                f"{self.every:g} < {self.renew_deadline:g} < {self.duration}"
            )

    @property
    def attempt_timeout(self) -> float:
        """Seconds that one request may take; a second one fits into the deadline, as with client-go."""
        return self.renew_deadline / 2

    def pause(self, chance: float) -> float:
        """Seconds until the next attempt, with jitter against simultaneous candidates."""
        return self.every * (1 - self.jitter / 2 + self.jitter * chance)

    def renewal_pause(self, took: float, chance: float) -> float:
        """Seconds until the next renewal, after one that took `took` seconds.

        The interval counts from the start of a renewal, as the deadline does. A slow API server thus takes
        away from the pause and not from the time that the next renewal has.
        """
        return max(0.0, self.pause(chance) - took)


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The content of a Lease. `stamp` changes with every renewal; it is only compared for equality."""

    holder: str = ""
    seconds: float | None = None
    transitions: int = 0
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A record, and when this process first observed it, by its own clock."""

    record: LeaseRecord
    at: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """The lease is free: acquire it."""


@dataclass(frozen=True, slots=True)
class Renew:
    """This process holds the lease: renew it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another candidate holds the lease until `until`, unless it renews."""

    until: float
    holder: str


@dataclass(frozen=True, slots=True)
class Lost:
    """This process has lost the lease; `reason` is for the log."""

    reason: str


Decision = Acquire | Renew | Wait | Lost


def decide(
    seen: ObservedLease | None, me: str, *, now: float, terms: LeaseTimings, leads_until: float | None = None
) -> Decision:
    """`seen` is None if there is no Lease; `leads_until` is this process's deadline while it leads."""
    if leads_until is not None:
        if now >= leads_until:
            return Lost(f"the lease was not renewed within {terms.renew_deadline:g} s")
        if seen is not None and seen.record.holder != me:
            return Lost(
                f"the lease is now held by {seen.record.holder}"
                if seen.record.holder
                else "the lease was released"
            )
    if seen is None or not seen.record.holder:
        return Acquire()
    if seen.record.holder == me:
        return Renew()
    until = seen.at + (seen.record.seconds or terms.duration)
    return Acquire() if now >= until else Wait(until, seen.record.holder)


def observe(before: ObservedLease | None, lease: Raw, now: float) -> ObservedLease:
    """The new observation; its time starts again only if the record has changed."""
    record = read(lease)
    return before if before is not None and before.record == record else ObservedLease(record, now)


def read(lease: Raw) -> LeaseRecord:
    spec = lease.get("spec") or {}
    return LeaseRecord(
        holder=spec.get("holderIdentity") or "",
        seconds=spec.get("leaseDurationSeconds"),
        transitions=spec.get("leaseTransitions") or 0,
        stamp=f"{spec.get('acquireTime')} {spec.get('renewTime')}",
    )


def new(name: str, namespace: str) -> Raw:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {}}


def acquired(lease: Raw, me: str, *, now: datetime, terms: LeaseTimings) -> Raw:
    """The Lease after `me` acquired or renewed it; all other fields stay."""
    before = read(lease)
    spec = {**(lease.get("spec") or {})}
    if before.holder != me:
        spec["acquireTime"] = micro_time(now)
        spec["leaseTransitions"] = before.transitions + (1 if "leaseTransitions" in spec else 0)
    spec |= {"holderIdentity": me, "leaseDurationSeconds": terms.duration, "renewTime": micro_time(now)}
    return {**lease, "spec": spec}


def released(lease: Raw, *, now: datetime) -> Raw:
    """The released Lease, which the next candidate may acquire immediately."""
    spec = {**(lease.get("spec") or {}), "holderIdentity": "", "leaseDurationSeconds": 1}
    return {**lease, "spec": {**spec, "renewTime": micro_time(now)}}


def micro_time(moment: datetime) -> str:
    """A Kubernetes MicroTime."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
