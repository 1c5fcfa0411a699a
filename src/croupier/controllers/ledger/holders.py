"""Life cycle of holders: promoted when the pod is bound, freed when it ends, expired if it is never bound.

The key is the node. What the caches show is done immediately; the absence of a pod is first verified with
the API server. An expiry fences its pod: before the hold is released, the pod gets a new resourceVersion,
so that a Binding for the old hold is refused (docs/decisions/0007-an-expiry-fences-its-pod.md).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog

from croupier.api.core_v1 import Pod
from croupier.api.kinds import PODS
from croupier.api.mps import allocation
from croupier.capacity import cluster_view, index_keys
from croupier.capacity.cluster_view import ClusterView
from croupier.capacity.manager import CapacityManager, UnknownNode
from croupier.core.claims import holder_lifecycle
from croupier.core.claims.holder_lifecycle import ExpireHolder, FreeHolder, HolderStep, PromoteHolder
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.held_nodes import HeldNodes
from croupier.core.ledger.ledger import Ledger
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import Conflict, NotFound
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    LeaderCheck,
)
from croupier.kube.controller.event_series import EventReference
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "holders"
FENCE_ATTEMPTS: Final = 5
"""Attempts to fence a pod that other clients keep changing, before it is retried later."""
RESYNC: Final = 60.0
"""Seconds between reconciles of every node, changed or not."""
MAX_DELETED_PODS: Final = 20_000
"""Maximum number of deleted pods that are remembered."""
DEBOUNCE: Final = 1.0
"""Seconds to collect changes of a ledger. Most changes are binds, and several pods are bound to a node at the
same time; urgent changes come from the pods."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HolderOptions:
    """Many workers, because a promotion waits for others to share its write, and the node's key waits too."""

    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=64))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    patience: timedelta = timedelta(seconds=60)
    """Holds of bound pods that expire sooner are promoted here; before that the extender promotes them."""
    unseen: float = 10.0
    """Seconds that a pod may be missing in the cache before the API server is asked."""


class HolderController:
    """The caller fences `api` if there is leader election."""

    def __init__(
        self,
        view: ClusterView,
        api: Client,
        *,
        manager: CapacityManager,
        recorder: EventRecorder,
        settings: HolderOptions | None = None,
    ) -> None:
        self._view = view
        self._api = api
        self._manager = manager
        self._recorder = recorder
        self._settings = settings or HolderOptions()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._unseen: dict[str, dict[str, float]] = {}
        """By node: holders without a cached pod, and since when."""
        self._waiting = HeldNodes()
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        pods = view.sources.pods
        self.controller.watch(pods.store, pods.cache, self._nodes_of)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        endings = (
            self._manager.subscribe(self._ledger_changed),
            self._view.sources.pods.store.subscribe(self._pod_changed),
        )
        waking = asyncio.create_task(self._enqueue_all())
        try:
            await self.controller.run(stop, leader_check)
        finally:
            waking.cancel()
            for end in endings:
                end()

    async def _enqueue_all(self) -> None:
        """Enqueue every ledger periodically, including those of nodes without pods."""
        while True:
            for node in tuple(self._manager.nodes()):
                self._ledger_changed(node)
            await asyncio.sleep(RESYNC)

    async def reconcile(self, node: str) -> Result:
        held = self._manager.ledger(node)
        if held is None:
            return DONE
        now = self._settings.clock.now()
        settlement = holder_lifecycle.plan(
            held, self._view.pods_named(held), now, patience=self._settings.patience
        )
        steps = [step for step in settlement.steps if step.verify == "none"]
        unsure, later = self._due_checks(node, [step for step in settlement.steps if step.verify != "none"])
        verified = [await self._verify(step, node) for step in unsure]
        steps += [step for step in verified if step is not None]
        await self._apply_steps(node, steps)
        if settlement.again is not None:
            later.append(max(0.0, (settlement.again - now).total_seconds()) + 0.1)
        return Result(requeue_after=min(later)) if later else DONE

    def _due_checks(self, node: str, unsure: Sequence[HolderStep]) -> tuple[list[HolderStep], list[float]]:
        """The steps to verify now, and the seconds until the others.

        Every pod is missing in the cache between its claim and the watch event of its binding; asking the
        API server for each would cost two more requests per placement.
        """
        now, before = self._settings.clock.monotonic(), self._unseen.pop(node, {})
        since = {step.holder: before.get(step.holder, now) for step in unsure if isinstance(step, FreeHolder)}
        if since:
            self._unseen[node] = since
        left = {holder: moment + self._settings.unseen - now for holder, moment in since.items()}
        ripe = [step for step in unsure if left.get(step.holder, 0) <= 0 or self._is_gone(step.holder)]
        return ripe, [seconds for seconds in left.values() if seconds > 0]

    def _is_gone(self, holder: str) -> bool:
        """Whether the pod was deleted from the cache."""
        return holder_names.uid(holder) in self._gone

    async def _apply_steps(self, node: str, steps: Sequence[HolderStep]) -> None:
        """Write releases immediately; promotions alone wait to share a write."""
        promotions = [holder_lifecycle.as_change(step) for step in steps if isinstance(step, PromoteHolder)]
        endings = [step for step in steps if not isinstance(step, PromoteHolder)]
        try:
            if endings:
                changes = [holder_lifecycle.as_change(step) for step in endings] + promotions
                before = self._manager.ledger(node)
                after = await self._manager.amend(
                    node, lambda newest: holder_lifecycle.apply_all(newest, changes)
                )
                self._report(endings, before, after)
            elif promotions:
                await self._manager.amend(
                    node, lambda newest: holder_lifecycle.apply_all(newest, promotions), lazy=True
                )
        except UnknownNode:
            return  # the ledger was just closed, so it had no holders

    async def _verify(self, step: HolderStep, node: str) -> HolderStep | None:
        """The step after verification with the API server; None if there is nothing to do."""
        key, uid = holder_names.pod_key(step.holder), holder_names.uid(step.holder)
        if uid in self._gone:
            return FreeHolder(step.holder, f"pod {key} is gone")
        for _ in range(FENCE_ATTEMPTS):
            pod = await self._read(key, uid)
            sure = _verified(step, pod, node)
            if not isinstance(sure, ExpireHolder) or pod is None or pod.spec.node_name:
                return sure
            try:
                await self._fence(pod)
            except (Conflict, NotFound):
                continue
            return sure
        raise Conflict(409, "Conflict", f"pod {key} keeps changing; its hold will expire later")

    async def _read(self, key: str, uid: str) -> Pod | None:
        namespace, _, name = key.partition("/")
        try:
            pod = await self._api.get(PODS, name, namespace=namespace)
        except NotFound:
            return None
        return pod if uid in ("", pod.metadata.uid) else None

    async def _fence(self, pod: Pod) -> None:
        """Change the pod, so that a Binding for the old hold is refused."""
        meta = pod.metadata
        patch = allocation.fence_patch(meta, self._settings.clock.now())
        await self._api.patch(PODS, meta.name, patch, namespace=meta.namespace)

    def _report(self, endings: Iterable[HolderStep], before: Ledger | None, after: Ledger) -> None:
        for step in endings:
            grant = before.grant(step.holder) if before is not None else ()
            if after.grant(step.holder) or not grant:
                continue
            if isinstance(step, FreeHolder):
                log.info(
                    f"the hold of {step.holder} on node {after.node} was released",
                    holder=step.holder,
                    node=after.node,
                    reason=step.why,
                )
                continue
            cards = ", ".join(part.card for part in grant)
            note = f"the hold on {cards} of node {after.node} expired before the pod was bound"
            log.warning(note, holder=step.holder, node=after.node)
            about = _pod_named(step.holder)
            self._recorder.record(about, "GPUReservationExpired", note, action="Expire", type="Warning")

    def _nodes_of(self, pod: Pod) -> Iterable[str]:
        """The node of the pod, and the nodes with a hold for it."""
        return {*index_keys.node_of_pod(pod), *self._waiting.of(pod.metadata.key)}

    def _pod_changed(self, change: ObjectChange[Pod]) -> None:
        """Remember deleted pods; they cannot return, because lists and watches never go back."""
        if change.new is None and change.old is not None:
            self._gone[change.old.metadata.uid] = None
            if len(self._gone) > MAX_DELETED_PODS:
                self._gone.popitem(last=False)

    def _ledger_changed(self, node: str) -> None:
        ledger = self._manager.ledger(node)
        self._waiting.set(node, map(holder_names.pod_key, ledger.held) if ledger is not None else ())
        self.controller.add(node, within=DEBOUNCE)


def _verified(step: HolderStep, pod: Pod | None, node: str) -> HolderStep | None:
    """The step that is right for the pod as read from the API server."""
    if pod is not None and pod.spec.node_name == node and not pod.is_finished:
        return PromoteHolder(step.holder, cluster_view.brief_view(pod).holder)
    if not holder_names.uid(step.holder):
        return step  # held for a pod name: the next pod of that name may use it
    if pod is None:
        return FreeHolder(step.holder, "its pod is gone")
    view = cluster_view.brief_view(pod)
    if view.finished:
        return FreeHolder(step.holder, f"pod {view.key} has ended")
    if view.node:
        return FreeHolder(step.holder, f"pod {view.key} is bound to node {view.node}")
    return step if isinstance(step, ExpireHolder) else None


def _pod_named(holder: str) -> EventReference:
    """The pod of a holder for an Event, without a cache lookup: pending pods are not cached."""
    namespace, _, name = holder_names.pod_key(holder).partition("/")
    return EventReference(PODS.api_version, PODS.kind, namespace, name, holder_names.uid(holder))
