"""Records Kubernetes Events, as shown by `kubectl describe`.

`record` never blocks and never fails: Events are best effort, and no decision may
depend on them. Dropped Events are counted. `event_series` decides which Events are
written; this module sends them one after the other and flushes them on stop.
"""

import asyncio
import contextlib
import random
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import structlog

from croupier.kube import identity, journal
from croupier.kube.backoff import Backoff
from croupier.kube.client import Client
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.elector import unique_name
from croupier.kube.errors import AlreadyExists, KubeError, NotFound, ServerError, TooManyRequests, Unreachable
from croupier.kube.journal import Entry, Happening, Journal, Reference
from croupier.kube.lease import micro
from croupier.kube.resource import Raw, Resource

EVENTS: Resource[Raw] = Resource("events.k8s.io", "v1", "events", "Event", namespaced=True, type=dict)
RETRIES = Backoff(first=0.5, most=10.0)
TRIES = 8

log = structlog.get_logger(__name__)


class Gauge(Protocol):
    def recorded(self, kind: str) -> None: ...
    def dropped(self, why: str) -> None: ...


class _Unmeasured:
    def recorded(self, kind: str) -> None: ...
    def dropped(self, why: str) -> None: ...


@dataclass(slots=True)
class Recorder:
    """`controller` is the reporting controller (`gpupool-controller`), `instance` its replica."""

    api: Client
    controller: str
    instance: str = field(default_factory=lambda: unique_name()[:128])
    gauge: Gauge = field(default_factory=_Unmeasured)
    clock: Clock = field(default_factory=SystemClock)
    journal: Journal = field(default_factory=Journal)
    chance: Callable[[], float] = random.random
    naming: Callable[[Happening], str] = lambda what: name(what, secrets.token_hex(8))
    """Names an Event. A name made only from its content lets several replicas write it once."""
    _wake: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _closed: bool = field(init=False, default=False)

    def record(
        self,
        regarding: Reference,
        reason: str,
        note: str,
        *,
        action: str,
        type: Literal["Normal", "Warning"] = "Normal",
        related: Reference | None = None,
    ) -> None:
        """Record an Event about `regarding`. Returns immediately and never fails."""
        what = Happening(regarding, reason[:128], journal.cut(note), action[:128], type, related)
        waiting = self.journal.waiting
        refused: str | None = "closed"
        if not self._closed:
            refused = self.journal.note(what, self.clock.monotonic(), self.clock.now())
        if refused is not None:
            self.gauge.dropped(refused)
        if self.journal.waiting > waiting:
            self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Write due Events until `stop`, then all remaining ones."""
        stopped = asyncio.ensure_future(stop.wait())
        stopped.add_done_callback(lambda _: self._wake.set())
        try:
            while not stop.is_set():
                await self._rest()
                for entry in self.journal.due(self.clock.monotonic()):
                    await self._write(entry)
            await self._flush()
        finally:
            stopped.cancel()

    async def _rest(self) -> None:
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
            await self._write(replace(entry, attempts=TRIES))  # the last attempt
        for entry in self.journal.unwritten():
            self._drop(entry, "stopped")

    async def _write(self, entry: Entry) -> None:
        named = entry if entry.name else replace(entry, name=self.naming(entry.what))
        try:
            await self._send(named)
        except (Unreachable, ServerError, TooManyRequests) as error:
            self._postpone(named, error)
        except KubeError as error:
            if isinstance(error, NotFound) and entry.told:
                self.journal.vanished(named)  # Events expire after an hour; the series continues in a new one
                return
            log.warning("the API server refused an Event", reason=entry.what.reason, error=str(error))
            self._drop(named, "refused")
        else:
            self.journal.written(named, self.clock.monotonic())
            self.gauge.recorded(entry.what.type)

    async def _send(self, entry: Entry) -> None:
        namespace = entry.what.regarding.namespace or "default"
        if entry.told:
            await self.api.patch(EVENTS, entry.name, {"series": _series(entry)}, namespace=namespace)
            return
        with contextlib.suppress(AlreadyExists):  # already written, but the response was lost
            await self.api.create(EVENTS, self._body(entry, namespace))

    def _postpone(self, entry: Entry, error: KubeError) -> None:
        if entry.attempts >= TRIES:
            log.warning("cannot write an Event", reason=entry.what.reason, error=str(error))
            self._drop(entry, "unreachable")
            return
        delay = RETRIES.delay(entry.attempts + 1, self.chance())
        self.journal.failed(entry, self.clock.monotonic() + delay)

    def _drop(self, entry: Entry, why: str) -> None:
        self.journal.dropped(entry)
        self.gauge.dropped(why)

    def _body(self, entry: Entry, namespace: str) -> Raw:
        what = entry.what
        body: Raw = {
            "metadata": {"name": entry.name, "namespace": namespace},
            "eventTime": micro(entry.first),
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


def about(resource: Resource[Any], found: Any) -> Reference:
    """The reference to an object that was read or written."""
    object_id = identity.reader(type(found))(found)
    key = object_id.key
    return Reference(resource.api_version, resource.kind, key.namespace, key.name, object_id.uid)


def _series(entry: Entry) -> Raw:
    return {"count": entry.count, "lastObservedTime": micro(entry.last)}


def _wire(reference: Reference) -> Raw:
    fields = {
        "apiVersion": reference.api_version,
        "kind": reference.kind,
        "namespace": reference.namespace,
        "name": reference.name,
        "uid": reference.uid,
    }
    return {name: value for name, value in fields.items() if value}


def name(what: Happening, distinction: str) -> str:
    """A name that is recognisable in `kubectl get events` and as unique as `distinction`."""
    readable = re.sub(r"[^a-z0-9.-]", "-", what.regarding.name.lower())[:230].strip(".-") or "object"
    return f"{readable}.{distinction}"
