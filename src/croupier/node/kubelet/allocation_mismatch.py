"""Repairs pods whose devices differ from their allocation, and reports them.

The kubelet chooses devices; the plugin only states a preference. If a pod got other devices that no other pod
has or was granted, its allocation annotation is changed to them, and the ledger follows. If two pods would
use the same devices, the pod that has devices granted to the other one is deleted; its controller recreates
it.

Both happen only after a delay: if the kubelet swaps the cards of two pods, one of them is allocated first,
and until the other one follows it looks like a conflict.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import structlog
from prometheus_client import CollectorRegistry, Counter

from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.api.gpu.agent_report import FIELD_MANAGER
from croupier.api.kinds import PODS
from croupier.api.mps import allocation
from croupier.core.nodes import allocation_check
from croupier.core.nodes.allocation_check import AllocationMismatch
from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from croupier.core.nodes.plugin_devices import ServedResources
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.client.clock import Clock
from croupier.kube.client.errors import Conflict, NotFound
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from croupier.node.node_informers import NodeInformers

REASON: Final = "GPUWrongCard"
REPAIR_DELAY: Final = 2.0
"""Seconds that a mismatch must last before the allocation annotation is changed."""
DELETION_DELAY: Final = 10.0
"""Seconds that a conflict must last before a pod is deleted."""

log = structlog.get_logger(__name__)


class MismatchMetrics:
    """Counts mismatches: noticed, then followed (the annotation changed) or removed (the pod was deleted)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._counter = Counter(
            "croupier_node_allocation_mismatches",
            "Pods whose devices differ from their allocation, by action",
            ["action"],
            registry=registry,
        )
        for action in ("noticed", "followed", "removed"):
            self._counter.labels(action)

    def count(self, action: str) -> None:
        self._counter.labels(action).inc()


class MismatchRepair:
    def __init__(
        self,
        informers: NodeInformers,
        api: Client,
        recorder: EventRecorder,
        *,
        clock: Clock,
        metrics: MismatchMetrics | None = None,
    ) -> None:
        self._clock = clock
        self._metrics = metrics or MismatchMetrics(CollectorRegistry())
        self._informers = informers
        self._api = api.with_field_manager(FIELD_MANAGER)
        self._recorder = recorder
        self._reported: set[str] = set()
        self._since: dict[str, float] = {}

    async def inspect(
        self, given: Sequence[KubeletAssignment] | None, offer: ServedResources, *, without_ledger: bool
    ) -> float | None:
        """Repair mismatches that have lasted long enough. Returns the seconds until the next one is due."""
        if given is None:
            return None
        pods = {pod.metadata.key: pod for pod in self._informers.pods()}
        bound = [view for pod in pods.values() if (view := convert_pod.bound(pod)) is not None]
        mismatches = [
            mismatch
            for mismatch in allocation_check.compare(bound, given, offer.cards)
            # Without a ledger there are no grants to compare with.
            if mismatch.pod.grant or not without_ledger
        ]
        now = self._clock.monotonic()
        self._since = {str(mismatch): self._since.get(str(mismatch), now) for mismatch in mismatches}
        self._reported &= self._since.keys()
        delays = [(mismatch, self._since[str(mismatch)] + _delay(mismatch) - now) for mismatch in mismatches]
        await self._resolve([mismatch for mismatch, seconds in delays if seconds <= 0], pods, offer)
        return min((seconds for _, seconds in delays if seconds > 0), default=None)

    async def _resolve(
        self, due: Sequence[AllocationMismatch], pods: Mapping[str, Pod], offer: ServedResources
    ) -> None:
        for mismatch in (mismatch for mismatch in due if mismatch.can_move):
            pod = pods[mismatch.pod.key]
            self._report(mismatch, pod, "its allocation annotation is changed to these devices")
            await self._follow(mismatch, pod, offer)
        conflicts = [mismatch for mismatch in due if not mismatch.can_move]
        for mismatch in conflicts[:1]:  # the deletion may resolve the others
            pod = pods[mismatch.pod.key]
            self._report(mismatch, pod, "the pod is deleted because two pods cannot use the same device")
            await self._remove(pod)

    def _report(self, mismatch: AllocationMismatch, pod: Pod, action: str) -> None:
        if str(mismatch) in self._reported:
            return
        self._reported.add(str(mismatch))
        self._metrics.count("noticed")
        log.warning(
            f"pod {mismatch.pod.key} has other devices than its allocation: {mismatch}; {action}",
            pod=mismatch.pod.key,
            reason=REASON,
        )
        self._recorder.record(
            events.reference_to(PODS, pod), REASON, f"{mismatch}; {action}", action="Check", type="Warning"
        )

    async def _follow(self, mismatch: AllocationMismatch, pod: Pod, offer: ServedResources) -> None:
        meta = pod.metadata
        places = {card.id: (card.gpu.index, card.time_sliced) for card in offer.cards.values()}
        text = allocation.encode_for(mismatch.actual, places)
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": {**guard, "annotations": {allocation.ALLOCATION: text}}}
        try:
            await self._api.patch(PODS, meta.name, patch, namespace=meta.namespace)
        except (Conflict, NotFound):
            log.info(f"pod {meta.key} has changed and is checked again", pod=meta.key)
        else:
            self._metrics.count("followed")

    async def _remove(self, pod: Pod) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp is not None:
            return
        try:
            await self._api.delete(PODS, meta.name, namespace=meta.namespace, how=DeleteOptions(uid=meta.uid))
        except (Conflict, NotFound):
            log.info(f"pod {meta.key} has already been deleted", pod=meta.key)
        else:
            self._metrics.count("removed")


def _delay(mismatch: AllocationMismatch) -> float:
    return REPAIR_DELAY if mismatch.can_move else DELETION_DELAY
