"""Pods whose devices are not those of their allocation: put right where that is safe, and always told.

The kubelet hands out devices, we only prefer. Where it did otherwise and nobody else has or was promised
what the pod got, the allocation follows the devices, and the ledger follows the allocation. Where two would
use the same, the pod that has what was promised to another is removed: whoever made it makes it anew.

Neither is done at the first sight. Of two pods that were handed each other's cards one is served first, and
for a moment it looks as if it had taken the other's.
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
"""Seconds that a difference lasts before an allocation follows it,"""
CLASH_AFTER: Final = 10.0
"""and before a pod is removed for it."""

log = structlog.get_logger(__name__)


class Gauge(Protocol):
    """Hears noticed, and then followed (by the allocation) or removed (the pod)."""

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
        """In how many seconds a difference is sure: until then the ledger believes otherwise."""
        if picture.given is None:
            return None
        pods = {pod.metadata.key: pod for pod in self._window.pods()}
        bound = [one for pod in pods.values() if (one := plugin_pods.bound(pod)) is not None]
        found = [
            one
            for one in aftercheck.compare(bound, picture.given, offer.cards)
            # Where nobody keeps a ledger nobody promised anything either.
            if one.pod.grant or not picture.alone
        ]
        now = self._clock.monotonic()
        self._since = {str(one): self._since.get(str(one), now) for one in found}
        self._told &= self._since.keys()
        left = [(one, self._since[str(one)] + _patience(one) - now) for one in found]
        await self._deal([one for one, seconds in left if seconds <= 0], pods, offer)
        return min((seconds for _, seconds in left if seconds > 0), default=None)

    async def _deal(self, found: Sequence[Mismatch], pods: Mapping[str, Pod], offer: Offer) -> None:
        for one in (one for one in found if one.can_move):
            self._tell(one, pods[one.pod.key], "its allocation is changed to that")
            await self._follow(one, pods[one.pod.key], offer)
        clashing = [one for one in found if not one.can_move]
        for one in clashing[:1]:  # when it is gone, the others may be right
            self._tell(one, pods[one.pod.key], "it is deleted, since two cannot use the same")
            await self._remove(pods[one.pod.key])

    def _tell(self, one: Mismatch, pod: Pod, what: str) -> None:
        if str(one) in self._told:
            return
        self._told.add(str(one))
        self._count("noticed")
        log.warning("a pod has other cards than it was promised", pod=one.pod.key, found=str(one), done=what)
        self._recorder.record(
            events.about(PODS, pod), REASON, f"{one}; {what}", action="Check", type="Warning"
        )

    async def _follow(self, one: Mismatch, pod: Pod, offer: Offer) -> None:
        meta = pod.metadata
        text = plugin_pods.annotation(one.actual, offer.cards)
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": {**guard, "annotations": {allocation.ALLOCATION: text}}}
        try:
            await self._api.patch(PODS, meta.name, patch, namespace=meta.namespace)
        except (Conflict, NotFound):
            log.info("the pod changed meanwhile and is looked at again", pod=meta.key)
        else:
            self._count("followed")

    async def _remove(self, pod: Pod) -> None:
        meta = pod.metadata
        if meta.deletion_timestamp is not None:
            return
        try:
            await self._api.delete(PODS, meta.name, namespace=meta.namespace, how=Deletion(uid=meta.uid))
        except (Conflict, NotFound):
            log.info("the pod is gone already", pod=meta.key)
        else:
            self._count("removed")

    def _count(self, what: str) -> None:
        if self._gauge is not None:
            self._gauge.wrong(what)


def _patience(one: Mismatch) -> float:
    return SURE_AFTER if one.can_move else CLASH_AFTER
