"""PodAllocation: the pod's limits moved through `pods/resize`, and the truth about it told.

One key is one PodAllocation. Everything is decided in core/resizing/resize from what the API server holds;
here it is gathered and carried out: the owner first (so that nothing outlives its pod), then the limits the
pod came with, then the change, then what the kubelet makes of it. Nothing is written that says what is
there already.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, Protocol

import structlog

from croupier.api.core_v1 import Pod
from croupier.api.kinds import POD_ALLOCATIONS, PODS
from croupier.api.mbcas import PodAllocation
from croupier.controllers.limits import status as wire
from croupier.controllers.watched import Watched
from croupier.core.resizing import resize
from croupier.core.resizing import seen as resize_seen
from croupier.core.resizing import words as resize_words
from croupier.core.resizing.resize import Change, Decision
from croupier.core.resizing.seen import Scene, Wish
from croupier.core.resizing.words import Verdict
from croupier.kube import events, store
from croupier.kube.backoff import Backoff
from croupier.kube.client import Client, PatchType
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.controller import Controller, Options
from croupier.kube.errors import ApiError, NotFound, Unreachable
from croupier.kube.events import Recorder
from croupier.kube.identity import Key
from croupier.kube.reconcile import DONE, Result
from croupier.kube.shift import ANYONE, Authority, Gauge, Unmeasured

NAME: Final = "podallocation"
FIELD_MANAGER: Final = "croupier-podallocation"
RETRIES: Final = Backoff(first=5.0, most=300.0, jitter=0.2)
CALM: Final = 600.0
"""Seconds without a failure after which the next is a first one."""

log = structlog.get_logger(__name__)


class Counts(Protocol):
    """Whom we tell what happened to limits."""

    def resized(self, direction: str) -> None: ...
    def failed(self, reason: str) -> None: ...
    def applied(self, seconds: float) -> None: ...
    def wrote(self) -> None: ...


class Uncounted:
    def resized(self, direction: str) -> None: ...
    def failed(self, reason: str) -> None: ...
    def applied(self, seconds: float) -> None: ...
    def wrote(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Sources:
    allocations: Watched[PodAllocation]
    pods: Watched[Pod]


@dataclass(frozen=True, slots=True)
class Settings:
    options: Options = field(default_factory=lambda: Options(workers=8, resync=300.0))
    retries: Backoff = RETRIES
    clock: Clock = field(default_factory=SystemClock)
    chance: Callable[[], float] = random.random
    counts: Counts = field(default_factory=Uncounted)
    gauge: Gauge = field(default_factory=Unmeasured)


@dataclass(frozen=True, slots=True)
class _Failure:
    """How often in a row, when last, and when to try again."""

    generation: int
    count: int
    at: float
    due: float


class PodAllocationController:
    """`api` is fenced by the caller, where there is an election."""

    def __init__(
        self, sources: Sources, api: Client, *, recorder: Recorder, settings: Settings | None = None
    ) -> None:
        self._sources = sources
        self._api = api.acting_as(FIELD_MANAGER)
        self._recorder = recorder
        self._settings = settings or Settings()
        self._failures: dict[Key, _Failure] = {}
        self._asked: dict[Key, float] = {}
        """When a change was made that is not reported yet."""
        self._of_pod = sources.allocations.store.index(lambda found: (_pod_of(found),))
        self.controller: Controller[Key] = Controller(
            NAME, self.reconcile, self._settings.options, gauge=self._settings.gauge
        )
        self.controller.watch(sources.allocations.store, sources.allocations.cache, self._rivals)
        self.controller.watch(sources.pods.store, sources.pods.cache, self._allocations_of)

    async def run(self, stop: asyncio.Event, authority: Authority = ANYONE) -> None:
        with store.kept(self._of_pod):
            await self.controller.run(stop, authority)

    async def reconcile(self, key: Key) -> Result:
        found = self._sources.allocations.store.get(key)
        if found is None or found.metadata.deletion_timestamp is not None:
            self._failures.pop(key, None)
            self._asked.pop(key, None)
            return DONE
        pod = await self._pod(found)
        try:
            if pod is not None:
                found = await self._owned(key, found, pod)
            return await self._move(key, found, None if pod is None else wire.seen(pod))
        except NotFound:
            return DONE  # the PodAllocation went meanwhile

    async def _pod(self, found: PodAllocation) -> Pod | None:
        """From the cache; what is not there may be too young for it."""
        meta, spec = found.metadata, found.spec
        if spec.namespace != meta.namespace:
            return None
        if (known := self._sources.pods.store.named(spec.pod_name, meta.namespace)) is not None:
            return known
        try:
            return await self._api.get(PODS, spec.pod_name, namespace=meta.namespace)
        except NotFound:
            return None

    async def _owned(self, key: Key, found: PodAllocation, pod: Pod) -> PodAllocation:
        """It goes when its pod goes; one that is of another pod keeps its owner and goes, too."""
        wanted = wire.owned(found, pod)
        if wanted is None or not wire.wish(found, self._now()).is_of(pod.metadata.uid):
            return found
        return await self._patch(key, wanted)

    async def _move(self, key: Key, found: PodAllocation, pod: resize_seen.Pod | None) -> Result:
        scene = self._scene(key, found, pod)
        decision = resize.decide(scene)
        if pod is not None and decision.change is not None:
            refusal = await self._resize(key, scene.wish, pod, decision.change)
            decision = decision if refusal is None else resize.refused(decision, refusal)
        decision = await self._named(found, scene, decision)
        self._count(key, found, decision)
        await self._tell(key, found, decision)
        return Result(self._again(key, decision))

    def _scene(self, key: Key, found: PodAllocation, pod: resize_seen.Pod | None) -> Scene:
        now, failure = self._now(), self._failures.get(key)
        others = (self._sources.allocations.store.get(one) for one in self._of_pod.keys(_pod_of(found)))
        rivals = tuple(
            wire.wish(one, now)
            for one in others
            if one is not None
            and one.metadata.uid != found.metadata.uid
            and one.metadata.deletion_timestamp is None
        )
        due = (
            failure is None
            or failure.generation != found.metadata.generation
            or failure.due <= self._settings.clock.monotonic()
        )
        return Scene(wire.wish(found, now), pod, now, rivals, due=due)

    async def _resize(self, key: Key, wish: Wish, pod: resize_seen.Pod, change: Change) -> Verdict | None:
        """What the API server has against it; None if it was done."""
        patch = wire.resize(pod, change)
        try:
            written = await self._api.patch(
                PODS,
                wish.pod,
                patch,
                namespace=wish.namespace,
                patch_type=PatchType.STRATEGIC,
                subresource="resize",
            )
        except (ApiError, Unreachable) as error:
            return _refusal(error)
        self.controller.wrote(key, PODS, written)
        self._settings.counts.resized(_direction(pod, change))
        if not change.back:
            self._asked[key] = self._settings.clock.monotonic()
        log.info("moved a CPU limit", pod=wish.pod, namespace=wish.namespace, to=str(change.sum))
        return None

    async def _named(self, found: PodAllocation, scene: Scene, decision: Decision) -> Decision:
        """Say who the other writer is, if the pod's managed fields tell."""
        news = decision.verdict.word != scene.wish.told.word
        if scene.pod is None or decision.verdict.word != "ForeignWriter" or not news:
            return decision
        try:
            raw = await self._api.get(PODS.raw, found.spec.pod_name, namespace=found.metadata.namespace)
        except (ApiError, Unreachable):
            return decision
        by = _last_writer(raw)
        return replace(decision, verdict=resize_words.foreign(scene.wish, scene.pod, by))

    def _count(self, key: Key, found: PodAllocation, decision: Decision) -> None:
        """Failures in a row, for the next delay, and what the figures show."""
        now, verdict = self._settings.clock.monotonic(), decision.verdict
        word = found.status.reason.partition(":")[0]
        news = (verdict.phase, verdict.word) != (found.status.phase, word)
        if verdict.phase == "Failed" and news:
            self._settings.counts.failed(verdict.word)
        if verdict.phase == "Applied" and key in self._asked:
            self._settings.counts.applied(now - self._asked.pop(key))
        if verdict.retried and (news or decision.attempted):
            generation, old = found.metadata.generation, self._failures.get(key)
            again = old is not None and old.generation == generation and now - old.at < CALM
            count = old.count + 1 if again and old is not None else 1
            due = now + self._settings.retries.delay(count, self._settings.chance())
            self._failures[key] = _Failure(generation, count, now, due)

    def _again(self, key: Key, decision: Decision) -> float | None:
        failure = self._failures.get(key)
        if decision.verdict.retried and failure is not None:
            return max(0.0, failure.due - self._settings.clock.monotonic())
        return decision.again

    async def _tell(self, key: Key, found: PodAllocation, decision: Decision) -> None:
        status = wire.written(found, decision, self._now())
        if status == found.status:
            return
        await self._patch(key, wire.patch(found, status), subresource="status")
        self._settings.counts.wrote()
        before = (found.status.phase, found.status.reason.partition(":")[0])
        verdict = decision.verdict
        moved = status.applied_cpu_limit != found.status.applied_cpu_limit and verdict.phase == "Applied"
        if before != (verdict.phase, verdict.word) or moved:
            self._record(found, verdict)

    def _record(self, found: PodAllocation, verdict: Verdict) -> None:
        about = events.about(POD_ALLOCATIONS, found)
        note = verdict.reason.partition(": ")[2]
        if verdict.phase == "Applied":
            self._recorder.record(about, "Resized", note, action="Resize")
        elif verdict.phase == "Failed":
            self._recorder.record(about, verdict.word, note, action="Resize", type="Warning")

    async def _patch(self, key: Key, patch: dict[str, Any], subresource: str | None = None) -> PodAllocation:
        written = await self._api.patch(
            POD_ALLOCATIONS, key.name, patch, namespace=key.namespace, subresource=subresource
        )
        self.controller.wrote(key, POD_ALLOCATIONS, written)
        return written

    def _now(self) -> datetime:
        return self._settings.clock.now()

    def _rivals(self, found: PodAllocation) -> set[Key]:
        """When one comes or goes, another may decide for the pod."""
        meta = found.metadata
        return {Key(meta.namespace, meta.name), *self._of_pod.keys(_pod_of(found))}

    def _allocations_of(self, pod: Pod) -> tuple[Key, ...]:
        return tuple(self._of_pod.keys(Key(pod.metadata.namespace, pod.metadata.name)))


def _pod_of(found: PodAllocation) -> Key:
    return Key(found.metadata.namespace, found.spec.pod_name)


def _refusal(error: ApiError | Unreachable) -> Verdict:
    if isinstance(error, ApiError):
        return resize_words.refused(error.status, error.message or error.reason, error.causes)
    return resize_words.refused(0, str(error))


def _direction(pod: resize_seen.Pod, change: Change) -> str:
    if change.back:
        return "back"
    before = sum(one.limit.nanos for one in pod.containers)
    return "up" if change.sum.nanos >= before else "down"


def _last_writer(raw: dict[str, Any]) -> str:
    """Who last wrote through `pods/resize`, if it was not us."""
    entries = [
        (str(one.get("time", "")), str(one.get("manager", "")))
        for one in raw.get("metadata", {}).get("managedFields", [])
        if one.get("subresource") == "resize" and one.get("manager") != FIELD_MANAGER
    ]
    return max(entries, default=("", ""))[1]
