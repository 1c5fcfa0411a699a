"""Counts the bookings of each pool, and reports expired bookings.

Only Events are written. The number is computed from the waiting pods, so it survives a restart. The name of
an expiry Event is derived from the pod and the note, so a new leader does not write it again.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from croupier.api import pod_requests
from croupier.api.core_v1 import Pod
from croupier.api.gpu import GPUPool
from croupier.api.kinds import GPU_POOLS, PODS
from croupier.capacity.subscribers import Subscribers
from croupier.core.pods.request_parser import POOL
from croupier.core.pools import booking
from croupier.core.pools.booking import TTL, Booking
from croupier.core.pools.hints import POD_LABEL
from croupier.core.quantity import ZERO
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Selection
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.event_series import EventReference
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "bookings"
REPORTER: Final = "gpu-admission-webhook"
EXPIRED: Final = "GPUReservationExpired"
WAITING_PODS: Final = Selection(labels=POD_LABEL, fields="spec.nodeName=")
"""The pods to watch: admitted to a pool, and without a node."""
MARGIN: Final = 0.1

log = structlog.get_logger(__name__)


class BookingMetrics:
    """`croupier_bookings_expired_total{pool}` for every pool, starting at 0 so that increases are visible."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._expired = Counter(
            "croupier_bookings_expired",
            "Bookings that expired before the pod got a node",
            ["pool"],
            registry=registry,
        )
        self._known: set[str] = set()

    def expired(self, pool: str, pods: int) -> None:
        self._known.add(pool)
        self._expired.labels(pool).inc(pods)

    def forget(self, pool: str) -> None:
        if pool in self._known:
            self._known.discard(pool)
            self._expired.remove(pool)


@dataclass(frozen=True, slots=True)
class BookingOptions:
    ttl: timedelta = TTL
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=1))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    expiry_metrics: BookingMetrics = field(default_factory=lambda: BookingMetrics(CollectorRegistry()))


class Bookings:
    """One key is one pool. `pods` are those of `WAITING_PODS`; `recorder` names Events by `stable_name`."""

    def __init__(
        self,
        pods: Informer[Pod],
        pools: Informer[GPUPool],
        recorder: EventRecorder,
        settings: BookingOptions | None = None,
    ) -> None:
        self._bookings: dict[str, dict[str, Booking]] = {}
        """By pool and pod UID; cached, because one pool can have thousands of waiting pods."""
        self._pools = pools.store
        self._recorder = recorder
        self._settings = settings or BookingOptions()
        self._listeners = Subscribers()
        self._reported: dict[str, set[str]] = {}
        """By pool: the UIDs of waiting pods whose expiry was reported."""
        self._answered: dict[str, int] = {}
        """By pool: the last result of `booked`, if it was not 0."""
        options, metrics = self._settings.options, self._settings.metrics
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, options, metrics=metrics, group=self._exists
        )
        self._pods = pods.store
        self._ending: Callable[[], None] | None = None
        self._follow()
        self.controller.watch(pods.store, pods.cache, _pools_of)
        self.controller.watch(pools.store, pools.cache, lambda pool: [pool.metadata.name])

    def booked(self, pool: str) -> int:
        """The booked units of the pool now; needs no API request."""
        number = booking.booked(self._of(pool), self._settings.clock.now(), self._settings.ttl)
        self._answered.pop(pool, None)
        if number:
            self._answered[pool] = number
        return number

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Call `changed(pool)` when the number differs from the last result; the result unsubscribes."""
        return self._listeners.add(changed)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        self._follow()
        try:
            await self.controller.run(stop, leader_check)
        finally:
            self._unfollow()

    async def reconcile(self, pool: str) -> Result:
        bookings = self._of(pool)
        summary = booking.summarize(bookings, self._settings.clock.now(), self._settings.ttl)
        reported = self._reported[pool] = self._reported.get(pool, set()) & {entry.uid for entry in bookings}
        expired = [entry for entry in summary.expired if entry.uid not in reported]
        for entry in expired:
            reported.add(entry.uid)
            self._record_event(entry)
        self._measure(pool, len(expired))
        if summary.booked != self._answered.get(pool, 0):
            self._listeners.notify(pool)
        if not bookings:
            del self._reported[pool]
        return DONE if summary.again is None else Result(requeue_after=summary.again.total_seconds() + MARGIN)

    def _exists(self, pool: str) -> bool:
        """A pod may request any name: pools that do not exist do not delay the others."""
        return self._pools.named(pool) is not None

    def _follow(self) -> None:
        """Follow pods already before `run`: other controllers call `booked` before."""
        if self._ending is None:
            self._bookings.clear()
            for pod in self._pods:
                self._keep(pod)
            self._ending = self._pods.subscribe(self._changed)

    def _unfollow(self) -> None:
        if self._ending is not None:
            self._ending()
            self._ending = None

    def _of(self, pool: str) -> Collection[Booking]:
        return self._bookings.get(pool, {}).values()

    def _changed(self, change: ObjectChange[Pod]) -> None:
        if change.old is not None:
            self._drop(change.old)
        if change.new is not None:
            self._keep(change.new)

    def _drop(self, pod: Pod) -> None:
        for pool in _pools_of(pod):
            kept = self._bookings.get(pool, {})
            kept.pop(pod.metadata.uid, None)
            if not kept:
                self._bookings.pop(pool, None)

    def _keep(self, pod: Pod) -> None:
        for pool in _pools_of(pod):
            if (entry := _booking(pod, pool)) is not None:
                self._bookings.setdefault(pool, {})[entry.uid] = entry

    def _record_event(self, entry: Booking) -> None:
        sentence = booking.expiry_message(entry, self._settings.ttl)
        log.warning(sentence, pod=entry.pod, pool=entry.pool, units=entry.units, reason=EXPIRED)
        namespace, _, name = entry.pod.partition("/")
        about = [EventReference(PODS.api_version, PODS.kind, namespace, name, entry.uid)]
        if (pool := self._pools.named(entry.pool)) is not None:
            about.append(events.reference_to(GPU_POOLS, pool))
        for regarding in about:
            self._recorder.record(regarding, EXPIRED, sentence, action="Expire", type="Warning")

    def _measure(self, pool: str, expired: int) -> None:
        if self._pools.named(pool) is None:
            self._settings.expiry_metrics.forget(pool)
        else:
            self._settings.expiry_metrics.expired(pool, expired)


def _pools_of(pod: Pod) -> Iterable[str]:
    """The pools that the pod requests; the label alone books nothing."""
    return {
        name.removeprefix(POOL)
        for container in (*pod.spec.containers, *pod.spec.init_containers)
        for name in container.resources.requests
        if name.startswith(POOL)
    }


def _booking(pod: Pod, pool: str) -> Booking | None:
    meta = pod.metadata
    if pod.spec.node_name or pod.is_finished or meta.deletion_timestamp or not meta.creation_timestamp:
        return None
    units = pod_requests.requests(pod).get(POOL + pool, ZERO).whole
    return Booking(meta.key, meta.uid, pool, units, meta.creation_timestamp) if units > 0 else None
