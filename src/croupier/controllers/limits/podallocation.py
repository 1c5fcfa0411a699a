"""The PodAllocation controller: resizes the pod through `pods/resize` and reports the outcome in the status.

Keys are PodAllocations. Decisions are made in core/resizing/resize from the state in the API server; this
module gathers the inputs and carries the decisions out: first the owner reference, then the record of the
original limits, then the change, then the kubelet's report. Unchanged objects are not written, and an object
that waits is reconciled only when it, its pod or a rival changes, or when its retry is due.
"""

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

import structlog
from prometheus_client import CollectorRegistry

from croupier.api import convert_podallocation as wire
from croupier.api import market_pod
from croupier.api.core_v1 import Pod
from croupier.api.kinds import POD_ALLOCATIONS, PODS
from croupier.api.mbcas import PodAllocation
from croupier.controllers.limits import allocation_order
from croupier.controllers.limits.allocation_order import AllocationOrder
from croupier.controllers.limits.metrics import PodAllocationMetrics
from croupier.core.resizing import messages as resize_messages
from croupier.core.resizing import model as resize_model
from croupier.core.resizing import resize
from croupier.core.resizing.model import DesiredLimit, ResizeInputs, ResizeVerdict
from croupier.core.resizing.resize import LimitChange, ResizeDecision
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client, PatchType
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import ApiError, NotFound, Unreachable
from croupier.kube.client.identity import Key
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    LeaderCheck,
)
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "podallocation"
FIELD_MANAGER: Final = "croupier-podallocation"
RETRIES: Final = Backoff(first=5.0, most=300.0, jitter=0.2)
BACKOFF_RESET: Final = 600.0
"""Seconds without a failure after which the backoff starts from the beginning."""
MAX_PER_NAMESPACE: Final = 3000
"""As many as the pods for which Kubernetes is tested in one namespace; the setting's default."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PodAllocationInformers:
    allocations: Informer[PodAllocation]
    pods: Informer[Pod]


@dataclass(frozen=True, slots=True)
class PodAllocationOptions:
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=8))
    max_per_namespace: int = MAX_PER_NAMESPACE
    retries: Backoff = RETRIES
    clock: Clock = field(default_factory=SystemClock)
    chance: Callable[[], float] = random.random
    resize_metrics: PodAllocationMetrics | None = None
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


@dataclass(frozen=True, slots=True)
class _Failure:
    """`count` consecutive failures, the last one `at` this time; retry when `due`."""

    generation: int
    count: int
    at: float
    due: float


class PodAllocationController:
    """The caller fences `api` if there is a leader election."""

    def __init__(
        self,
        sources: PodAllocationInformers,
        api: Client,
        *,
        recorder: EventRecorder,
        settings: PodAllocationOptions | None = None,
    ) -> None:
        self._sources = sources
        self._api = api.with_field_manager(FIELD_MANAGER)
        self._recorder = recorder
        self._settings = settings or PodAllocationOptions()
        self._metrics = self._settings.resize_metrics or PodAllocationMetrics(
            CollectorRegistry(), sources.allocations.store
        )
        self._failures: dict[Key, _Failure] = {}
        self._asked: dict[Key, float] = {}
        """When a change was made that the kubelet has not reported yet."""
        self._order = AllocationOrder(self._settings.max_per_namespace)
        self.controller: Controller[Key] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        self.controller.watch(sources.allocations.store, sources.allocations.cache, self._order.affected)
        self.controller.watch(sources.pods.store, sources.pods.cache, self._allocations_of)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        with self._order.following(self._sources.allocations.store, self.controller.add):
            await self.controller.run(stop, leader_check)

    async def reconcile(self, key: Key) -> Result:
        allocation = self._sources.allocations.store.get(key)
        if allocation is None or allocation.metadata.deletion_timestamp is not None:
            self._failures.pop(key, None)
            self._asked.pop(key, None)
            return DONE
        exceeded = self._order.exceeded(allocation)
        pod = await self._pod(allocation) if exceeded is None else None
        try:
            if pod is not None:
                allocation = await self._owned(key, allocation, pod)
            return await self._move(key, allocation, None if pod is None else market_pod.resize_pod(pod))
        except NotFound:
            return DONE  # the PodAllocation was deleted

    async def _pod(self, allocation: PodAllocation) -> Pod | None:
        """From the cache; a pod that is not in the cache may be too new."""
        meta, spec = allocation.metadata, allocation.spec
        if spec.namespace != meta.namespace:
            return None
        if (known := self._sources.pods.store.named(spec.pod_name, meta.namespace)) is not None:
            return known
        try:
            return await self._api.get(PODS, spec.pod_name, namespace=meta.namespace)
        except NotFound:
            return None

    async def _owned(self, key: Key, allocation: PodAllocation, pod: Pod) -> PodAllocation:
        """Set the owner reference, so that it is deleted with its pod, unless it belongs to another pod."""
        wanted = wire.owner_patch(allocation, pod)
        if wanted is None or not wire.desired_limit(allocation, self._now()).is_of(pod.metadata.uid):
            return allocation
        return await self._patch(key, wanted)

    async def _move(self, key: Key, allocation: PodAllocation, pod: resize_model.ResizePod | None) -> Result:
        scene = self._scene(key, allocation, pod)
        decision = resize.decide(scene)
        if pod is not None and decision.change is not None:
            refusal = await self._resize(key, scene.desired_limit, pod, decision.change)
            decision = decision if refusal is None else resize.after_refusal(decision, refusal)
        decision = await self._named(allocation, scene, decision)
        before = scene.desired_limit.last_status.verdict
        self._count(key, allocation, before, decision)
        await self._tell(key, allocation, before, decision)
        return Result(self._again(key, decision))

    def _scene(self, key: Key, allocation: PodAllocation, pod: resize_model.ResizePod | None) -> ResizeInputs:
        now, failure = self._now(), self._failures.get(key)
        exceeded = self._order.exceeded(allocation)
        others = map(
            self._sources.allocations.store.get, self._order.of_pod(allocation_order.pod_of(allocation))
        )
        rivals = tuple(
            wire.desired_limit(other, now)
            for other in others
            if other is not None
            and other.metadata.uid != allocation.metadata.uid
            and other.metadata.deletion_timestamp is None
        )
        due = (
            failure is None
            or failure.generation != allocation.metadata.generation
            or failure.due <= self._settings.clock.monotonic()
        )
        return ResizeInputs(wire.desired_limit(allocation, now), pod, now, rivals, due=due, exceeded=exceeded)

    async def _resize(
        self, key: Key, desired_limit: DesiredLimit, pod: resize_model.ResizePod, change: LimitChange
    ) -> ResizeVerdict | None:
        """The refusal of the API server; None if the change was made."""
        patch = wire.resize_patch(pod, change)
        try:
            written = await self._api.patch(
                PODS,
                desired_limit.pod,
                patch,
                namespace=desired_limit.namespace,
                patch_type=PatchType.STRATEGIC,
                subresource="resize",
            )
        except (ApiError, Unreachable) as error:
            return _refusal(error)
        self.controller.wrote(key, PODS, written)
        self._metrics.resized(_direction(pod, change))
        if not change.back:
            self._asked[key] = self._settings.clock.monotonic()
        name = f"{desired_limit.namespace}/{desired_limit.pod}"
        log.info(f"pod {name} got the CPU limit {change.sum}", pod=name, limit=str(change.sum))
        return None

    async def _named(
        self, allocation: PodAllocation, scene: ResizeInputs, decision: ResizeDecision
    ) -> ResizeDecision:
        """Name the other writer, if the pod's managed fields have it."""
        news = decision.verdict.code != scene.desired_limit.last_status.verdict.code
        if scene.pod is None or decision.verdict.code != "ForeignWriter" or not news:
            return decision
        try:
            raw = await self._api.get(
                PODS.raw, allocation.spec.pod_name, namespace=allocation.metadata.namespace
            )
        except (ApiError, Unreachable):
            return decision
        by = _last_writer(raw)
        return replace(decision, verdict=resize_messages.foreign(scene.desired_limit, scene.pod, by))

    def _count(
        self, key: Key, allocation: PodAllocation, before: ResizeVerdict, decision: ResizeDecision
    ) -> None:
        """Record metrics, and count consecutive failures for the backoff."""
        now, verdict = self._settings.clock.monotonic(), decision.verdict
        news = (verdict.phase, verdict.code) != (before.phase, before.code)
        if verdict.phase == "Failed" and news:
            self._metrics.failed(verdict.code)
        if verdict.phase == "Applied" and key in self._asked:
            self._metrics.applied(now - self._asked.pop(key))
        if verdict.retried and (news or decision.attempted):
            generation, old = allocation.metadata.generation, self._failures.get(key)
            again = old is not None and old.generation == generation and now - old.at < BACKOFF_RESET
            count = old.count + 1 if again and old is not None else 1
            due = now + self._settings.retries.delay(count, self._settings.chance())
            self._failures[key] = _Failure(generation, count, now, due)

    def _again(self, key: Key, decision: ResizeDecision) -> float | None:
        failure = self._failures.get(key)
        if decision.verdict.retried and failure is not None:
            return max(0.0, failure.due - self._settings.clock.monotonic())
        # Failed is evaluated again, and written only if the result differs. One beyond the limit waits for a
        # deletion: thousands of them cost nothing.
        excess = decision.verdict.code == resize_model.TOO_MANY
        if decision.verdict.phase == "Failed" and decision.again is None and not excess:
            return self._settings.retries.most
        return decision.again

    async def _tell(
        self, key: Key, allocation: PodAllocation, before: ResizeVerdict, decision: ResizeDecision
    ) -> None:
        status = wire.new_status(allocation, decision, self._now())
        if status == allocation.status:
            return
        await self._patch(key, wire.status_patch(allocation, status), subresource="status")
        self._metrics.wrote()
        verdict = decision.verdict
        moved = status.applied_cpu_limit != allocation.status.applied_cpu_limit and verdict.phase == "Applied"
        news = (before.phase, before.code) != (verdict.phase, verdict.code) or moved
        if news and verdict.code != resize_model.TOO_MANY:  # no thousands of Events about one cause
            self._record(allocation, verdict)

    def _record(self, allocation: PodAllocation, verdict: ResizeVerdict) -> None:
        about = events.reference_to(POD_ALLOCATIONS, allocation)
        note = verdict.reason.message
        if verdict.phase == "Applied":
            self._recorder.record(about, "Resized", note, action="Resize")
        elif verdict.phase == "Failed":
            self._recorder.record(about, verdict.code, note, action="Resize", type="Warning")

    async def _patch(self, key: Key, patch: dict[str, Any], subresource: str | None = None) -> PodAllocation:
        written = await self._api.patch(
            POD_ALLOCATIONS, key.name, patch, namespace=key.namespace, subresource=subresource
        )
        self.controller.wrote(key, POD_ALLOCATIONS, written)
        return written

    def _now(self) -> datetime:
        return self._settings.clock.now()

    def _allocations_of(self, pod: Pod) -> Iterable[Key]:
        return self._order.of_pod(Key(pod.metadata.namespace, pod.metadata.name))


def _refusal(error: ApiError | Unreachable) -> ResizeVerdict:
    if isinstance(error, ApiError):
        return resize_messages.refused(error.status, error.message or error.reason, error.causes)
    return resize_messages.refused(0, str(error))


def _direction(pod: resize_model.ResizePod, change: LimitChange) -> str:
    if change.back:
        return "back"
    before = sum(container.limit.nanos for container in pod.containers)
    return "up" if change.sum.nanos >= before else "down"


def _last_writer(raw: dict[str, Any]) -> str:
    """The last field manager other than ours that wrote through `pods/resize`."""
    entries = [
        (str(entry.get("time", "")), str(entry.get("manager", "")))
        for entry in raw.get("metadata", {}).get("managedFields", [])
        if entry.get("subresource") == "resize" and entry.get("manager") != FIELD_MANAGER
    ]
    return max(entries, default=("", ""))[1]
