"""Pods that filter has assumed on a node and bind has not claimed yet.

The scheduler binds one pod in the background while it filters the next. Until the claim of the first pod is
in the ledger, the pod is assumed on its node; otherwise the next pod would be sent to the same card. The
scheduler does not report that it gives a pod up, so an assumption expires after `ASSUME_TTL`.
"""

from collections.abc import Collection
from dataclasses import dataclass

from croupier.core.placement.placement import Strategy
from croupier.extender.pod_request import PodRequest

ASSUME_TTL = 10.0
"""Seconds until an assumed pod expires."""


@dataclass(frozen=True, slots=True)
class AssumedPod:
    request: PodRequest
    node: str
    strategy: Strategy
    until: float
    """Expiry by the monotonic clock."""


class AssumedPods:
    """At most one entry per pod. Methods that remove entries return the affected nodes."""

    def __init__(self, assume_ttl: float = ASSUME_TTL) -> None:
        self._lasting = assume_ttl
        self._by_pod: dict[str, AssumedPod] = {}  # in order of expiry
        self._by_node: dict[str, dict[str, AssumedPod]] = {}

    def __len__(self) -> int:
        return len(self._by_pod)

    def of(self, uid: str) -> AssumedPod | None:
        return self._by_pod.get(uid)

    def on(self, node: str) -> Collection[AssumedPod]:
        return self._by_node.get(node, {}).values()

    def assume(self, request: PodRequest, node: str, strategy: Strategy, *, now: float) -> AssumedPod:
        """Assume the pod on the node; an earlier entry of the pod must be dropped first."""
        assumed = AssumedPod(request, node, strategy, now + self._lasting)
        self._by_pod[request.uid] = assumed
        self._by_node.setdefault(node, {})[request.uid] = assumed
        return assumed

    def drop(self, uid: str) -> str | None:
        """Remove the pod and return its node."""
        assumed = self._by_pod.pop(uid, None)
        if assumed is None:
            return None
        on_node = self._by_node[assumed.node]
        del on_node[uid]
        if not on_node:
            del self._by_node[assumed.node]
        return assumed.node

    def expire(self, now: float) -> set[str]:
        """Remove expired entries and return their nodes."""
        expired = []
        for uid, assumed in self._by_pod.items():
            if assumed.until > now:
                break
            expired.append(uid)
        return {node for uid in expired if (node := self.drop(uid)) is not None}
