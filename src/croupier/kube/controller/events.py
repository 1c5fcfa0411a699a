"""Records Kubernetes Events, as shown by `kubectl describe`.

`record` never blocks and never fails: Events are best effort, and no decision may
depend on them. Dropped Events are counted. `event_series` decides which Events are
written; this module sends them one after the other and flushes them on stop.
"""

import asyncio
import contextlib
import hashlib
import random
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from croupier.kube.client import identity
from croupier.kube.client.api_client import Client
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import (
    AlreadyExists,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.controller import event_series
from croupier.kube.controller.event_series import (
    EventAggregator,
    EventContent,
    EventReference,
    EventType,
    PendingEvent,
)
from croupier.kube.controller.leader_election import unique_name
from croupier.kube.controller.lease import micro_time
from croupier.kube.controller.metrics import EventMetrics

EVENTS: Resource[Raw] = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True, type=dict)
WRITE_BACKOFF = Backoff(first=0.5, most=10.0)
MAX_ATTEMPTS = 8

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class EventRecorder:
    """`controller` is the reporting controller (`gpupool-controller`), `instance` its replica."""

    api: Client
    controller: str
    instance: str = field(default_factory=lambda: unique_name()[:128])
    metrics: EventMetrics = field(default_factory=lambda: EventMetrics(CollectorRegistry()))
    clock: Clock = field(default_factory=SystemClock)
    journal: EventAggregator = field(default_factory=EventAggregator)
    chance: Callable[[], float] = random.random
    naming: Callable[[EventContent], str] = lambda what: name(what, secrets.token_hex(8))
    """Names an Event. A name made only from its content lets several replicas write it once."""
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _closed: bool = field(init=False, default=False)

    def record(
        self,
        regarding: EventReference,
        reason: str,
        note: str,
        *,
        action: str,
        type: EventType = "Normal",
        related: EventReference | None = None,
    ) -> None:
        """Record an Event about `regarding`. Returns immediately and never fails."""
        what = EventContent(regarding, reason[:128], event_series.truncate(note), action[:128], type, related)
        waiting = self.journal.waiting
        refused: str | None = "closed"
        if not self._closed:
            refused = self.journal.note(what, self.clock.monotonic(), self.clock.now())
        if refused is not None:
            self.metrics.dropped(refused)
        if self.journal.waiting > waiting:
            self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Write due Events until `stop`, then all remaining ones."""
        stopped = asyncio.ensure_future(stop.wait())
        stopped.add_done_callback(lambda _: self._wake.set())
        try:
            while not stop.is_set():
                await self._wait_for_work()
                for entry in self.journal.due(self.clock.monotonic()):
                    await self._write(entry)
            await self._flush()
        finally:
            stopped.cancel()

    async def _wait_for_work(self) -> None:
        """Wait until an Event is due, a new one is recorded, or `stop` is set."""
        due = self.journal.next_due()
        left = None if due is None else max(0.0, due - self.clock.monotonic())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._wake.wait()
        self._wake.clear()

    async def _flush(self) -> None:
        self._closed = True
        for entry in self.journal.unwritten():
            await self._write(replace(entry, attempts=MAX_ATTEMPTS))  # the last attempt
        for entry in self.journal.unwritten():
            self._drop(entry, "stopped")

    async def _write(self, entry: PendingEvent) -> None:
        named = entry if entry.name else replace(entry, name=self.naming(entry.what))
        try:
            await self._send(named)
        except (Unreachable, ServerError, TooManyRequests) as error:
            self._postpone(named, error)
        except KubeError as error:
            if isinstance(error, NotFound) and entry.written_count:
                self.journal.vanished(named)  # Events expire after an hour; the series continues in a new one
                return
            log.warning(
                f"the API server refused Event {entry.what.reason}",
                reason=entry.what.reason,
                error=str(error),
            )
            self._drop(named, "refused")
        else:
            self.journal.written(named, self.clock.monotonic())
            self.metrics.recorded(entry.what.type)

    async def _send(self, entry: PendingEvent) -> None:
        namespace = entry.what.regarding.namespace or "default"
        if entry.written_count:
            await self.api.patch(EVENTS, entry.name, {"series": _series(entry)}, namespace=namespace)
            return
        with contextlib.suppress(AlreadyExists):  # already written, but the response was lost
            await self.api.create(EVENTS, self._body(entry, namespace))

    def _postpone(self, entry: PendingEvent, error: KubeError) -> None:
        if entry.attempts >= MAX_ATTEMPTS:
            log.warning(
                f"Event {entry.what.reason} cannot be written and is dropped",
                reason=entry.what.reason,
                error=str(error),
            )
            self._drop(entry, "unreachable")
            return
        delay = WRITE_BACKOFF.delay(entry.attempts + 1, self.chance())
        self.journal.failed(entry, self.clock.monotonic() + delay)

    def _drop(self, entry: PendingEvent, why: str) -> None:
        self.journal.dropped(entry)
        self.metrics.dropped(why)

    def _body(self, entry: PendingEvent, namespace: str) -> Raw:
        what = entry.what
        body: Raw = {
            "metadata": {"name": entry.name, "namespace": namespace},
            "eventTime": micro_time(entry.first),
            "reportingController": self.controller,
            "reportingInstance": self.instance,
            "action": what.action,
            "reason": what.reason,
            "note": what.note,
            "type": what.type,
            "regarding": _wire(what.regarding),
        }
        if what.related is not None:
            body["related"] = _wire(what.related)
        if entry.count > 1:
            body["series"] = _series(entry)
        return body


def reference_to(resource: Resource[Any], found: Any) -> EventReference:
    """The reference to an object that was read or written."""
    object_id = identity.reader(type(found))(found)
    key = object_id.key
    return EventReference(resource.api_version, resource.kind, key.namespace, key.name, object_id.uid)


def _series(entry: PendingEvent) -> Raw:
    return {"count": entry.count, "lastObservedTime": micro_time(entry.last)}


def _wire(reference: EventReference) -> Raw:
    fields = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    return {name: value for name, value in fields.items() if value}


def stable_name(what: EventContent) -> str:
    """A name made only from the content: the Event is written once by all replicas, and after a restart."""
    content = f"{what.regarding.uid} {what.reason} {what.note}"
    return name(what, hashlib.sha256(content.encode()).hexdigest()[:16])


def name(what: EventContent, distinction: str) -> str:
    """A name that is recognisable in `kubectl get events` and as unique as `distinction`."""
    readable = re.sub(r"[^a-z0-9.-]", "-", what.regarding.name.lower())[:230].strip(".-") or "object"
    return f"{readable}.{distinction}"
