"""Repairs pods whose devices differ from their allocation, and reports them.

The kubelet chooses devices; the plugin only states a preference. If a pod got other devices that no other pod
has or was granted, its allocation annotation is changed to them, and the ledger follows. If two pods would
use the same devices, the pod that has devices granted to the other one is deleted; its controller recreates
it.

Both happen only after a delay: if the kubelet swaps the cards of two pods, one of them is allocated first,
and until the other one follows it looks like a conflict.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

import structlog

from croupier.api.core_v1 import Pod
from croupier.api.kinds import PODS
from croupier.api.mps import allocation
from croupier.core.nodes import aftercheck
from croupier.core.nodes.aftercheck import Mismatch
from croupier.core.nodes.devices import Offer
from croupier.kube import events
from croupier.kube.client import Client, Deletion
from croupier.kube.clock import Clock
from croupier.kube.errors import Conflict, NotFound
from croupier.kube.events import Recorder
from croupier.node.agent.picture import Picture
from croupier.node.agent.publishing import REPORTER
from croupier.node.agent.sight import Window
from croupier.node.kubelet import plugin_pods

REASON: Final = "GPUWrongCard"
SURE_AFTER: Final = 2.0
"""Seconds that a mismatch must last before the allocation annotation is changed."""
CLASH_AFTER: Final = 10.0
"""Seconds that a conflict must last before a pod is deleted."""

log = structlog.get_logger(__name__)


class Gauge(Protocol):
    """Counts mismatches: noticed, then followed (the annotation changed) or removed (the pod was deleted)."""

    def wrong(self, what: str) -> None: ...


class WrongCards:
    def __init__(
        self, window: Window, api: Client, recorder: Recorder, *, clock: Clock, gauge: Gauge | None = None
    ) -> None:
        self._clock = clock
        self._gauge = gauge
        self._window = window
        self._api = api.acting_as(REPORTER)
        self._recorder = recorder
        self._told: set[str] = set()
        self._since: dict[str, float] = {}

    async def look(self, picture: Picture, offer: Offer) -> float | None:
        """Repair mismatches that have lasted long enough. Returns the seconds until the next one is due."""
        if picture.given is None:
            return None
        pods = {pod.metadata.key: pod for pod in self._window.pods()}
        bound = [view for pod in pods.values() if (view := plugin_pods.bound(pod)) is not None]
        mismatches = [
            mismatch
            for mismatch in aftercheck.compare(bound, picture.given, offer.cards)
            # Without a ledger there are no grants to compare with.
            if mismatch.pod.grant or not picture.alone
        ]
        now = self._clock.monotonic()
        self._since = {str(mismatch): self._since.get(str(mismatch), now) for mismatch in mismatches}
        self._told &= self._since.keys()
        delays = [
            (mismatch, self._since[str(mismatch)] + _patience(mismatch) - now) for mismatch in mismatches
        ]
        await self._deal([mismatch for mismatch, seconds in delays if seconds <= 0], pods, offer)
        return min((seconds for _, seconds in delays if seconds > 0), default=None)

    async def _deal(self, due: Sequence[Mismatch], pods: Mapping[str, Pod], offer: Offer) -> None:
        for mismatch in (mismatch for mismatch in due if mismatch.can_move):
            pod = pods[mismatch.pod.key]
            self._tell(mismatch, pod, "its allocation annotation is changed to these devices")
            await self._follow(mismatch, pod, offer)
        conflicts = [mismatch for mismatch in due if not mismatch.can_move]
        for mismatch in conflicts[:1]:  # the deletion may resolve the others
            pod = pods[mismatch.pod.key]
            self._tell(mismatch, pod, "the pod is deleted because two pods cannot use the same device")
            await self._remove(pod)

    def _tell(self, mismatch: Mismatch, pod: Pod, action: str) -> None:
        if str(mismatch) in self._told:
            return
        self._told.add(str(mismatch))
        self._count("noticed")
        log.warning(
            "a pod has other devices than its allocation",
            pod=mismatch.pod.key,
            found=str(mismatch),
            done=action,
        )
        self._recorder.record(
            events.about(PODS, pod), REASON, f"{mismatch}; {action}", action="Check", type="Warning"
        )

    async def _follow(self, mismatch: Mismatch, pod: Pod, offer: Offer) -> None:
        meta = pod.metadata
        text = plugin_pods.annotation(mismatch.actual, offer.cards)
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": {**guard, "annotations": {allocation.ALLOCATION: text}}}
        try:
            await self._api.patch(PODS, meta.name, patch, namespace=meta.namespace)
        except (Conflict, NotFound):
            log.info("the pod has changed; it will be checked again", pod=meta.key)
        else:
            self._count("followed")

    async def _remove(self, pod: Pod) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp is not None:
            return
        try:
            await self._api.delete(PODS, meta.name, namespace=meta.namespace, how=Deletion(uid=meta.uid))
        except (Conflict, NotFound):
            log.info("the pod has already been deleted", pod=meta.key)
        else:
            self._count("removed")

    def _count(self, what: str) -> None:
        if self._gauge is not None:
            self._gauge.wrong(what)


def _patience(mismatch: Mismatch) -> float:
    return SURE_AFTER if mismatch.can_move else CLASH_AFTER
