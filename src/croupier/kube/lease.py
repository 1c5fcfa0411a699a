"""Who leads: the rules of a coordination.k8s.io Lease, without I/O.

Clocks of two machines are never compared. A candidate watches the record with
its own monotonic clock and takes over when it has not changed for as long as
its holder said it would be valid. The holder counts from the moment *before* it
sent its last renewal, which is earlier than anyone can have seen it, and stops
at the renew deadline, which is shorter than the lease: so it has stopped before
another may start.

That holds for a process that runs. One that was frozen wakes up believing it
leads; it must look at its deadline before it acts (`Leadership.held`), and what
it had in flight only the API server's compare-and-swap can refuse.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from croupier.kube.resource import Raw, Resource

LEASES: Resource[Raw] = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True, type=dict)


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: a lease is valid for `duration`, given up after `renew_deadline` without renewal."""

    duration: int = 15
    renew_deadline: float = 10.0
    every: float = 2.0
    """How often the holder renews and the others look."""
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if not 0 < self.every < self.renew_deadline < self.duration:
            raise ValueError(
                f"a lease needs 0 < every < renew_deadline < duration, not "
                f"{self.every:g} < {self.renew_deadline:g} < {self.duration}"
            )

    def pause(self, chance: float) -> float:
        """Until the next look, spread so that candidates do not come all at once."""
        return self.every * (1 - self.jitter / 2 + self.jitter * chance)


@dataclass(frozen=True, slots=True)
class Record:
    """What a Lease says. `stamp` changes whenever the holder renews; it is compared, never read as a time."""

    holder: str = ""
    seconds: float | None = None
    transitions: int = 0
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A record, and when by our own clock we first saw it like this."""

    record: Record
    at: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """The lease is free: take it."""


@dataclass(frozen=True, slots=True)
class Renew:
    """The lease names us: keep it."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another holds it, until `until` unless it renews."""

    until: float
    holder: str


@dataclass(frozen=True, slots=True)
class Lost:
    """We led and may not any more; `reason` is the sentence for the log."""

    reason: str


Decision = Acquire | Renew | Wait | Lost


def decide(
    seen: Sighting | None, me: str, *, now: float, terms: Terms, leads_until: float | None = None
) -> Decision:
    """`seen` is None when there is no Lease; `leads_until` is our own deadline while we lead."""
    if leads_until is not None:
        if now >= leads_until:
            return Lost(f"the lease was not renewed within {terms.renew_deadline:g} s")
        if seen is not None and seen.record.holder != me:
            return Lost(f"the lease is held by {seen.record.holder or 'nobody'} now")
    if seen is None or not seen.record.holder:
        return Acquire()
    if seen.record.holder == me:
        return Renew()
    until = seen.at + (seen.record.seconds or terms.duration)
    return Acquire() if now >= until else Wait(until, seen.record.holder)


def sight(before: Sighting | None, lease: Raw, now: float) -> Sighting:
    """Time starts again whenever the record changes, and only then."""
    record = read(lease)
    return before if before is not None and before.record == record else Sighting(record, now)


def read(lease: Raw) -> Record:
    spec = lease.get("spec") or {}
    return Record(
        holder=spec.get("holderIdentity") or "",
        seconds=spec.get("leaseDurationSeconds"),
        transitions=spec.get("leaseTransitions") or 0,
        stamp=f"{spec.get('acquireTime')} {spec.get('renewTime')}",
    )


def new(name: str, namespace: str) -> Raw:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {}}


def claimed(lease: Raw, me: str, *, now: datetime, terms: Terms) -> Raw:
    """The Lease as it is after we took it, or renewed it if it was ours; all else in it stays."""
    before = read(lease)
    spec = {**(lease.get("spec") or {})}
    if before.holder != me:
        spec["acquireTime"] = micro(now)
        spec["leaseTransitions"] = before.transitions + (1 if "leaseTransitions" in spec else 0)
    spec |= {"holderIdentity": me, "leaseDurationSeconds": terms.duration, "renewTime": micro(now)}
    return {**lease, "spec": spec}


def released(lease: Raw, *, now: datetime) -> Raw:
    """The Lease handed back: the next candidate that looks may take it at once."""
    spec = {**(lease.get("spec") or {}), "holderIdentity": "", "leaseDurationSeconds": 1}
    return {**lease, "spec": {**spec, "renewTime": micro(now)}}


def micro(moment: datetime) -> str:
    """A MicroTime as Kubernetes writes it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
