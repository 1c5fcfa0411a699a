"""The PodAllocations that count: the oldest of each pod and of each namespace.

Every other one costs one write of its status, however many a tenant creates.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from croupier.api.mbcas import PodAllocation
from croupier.core.resizing.creation_order import CreationOrder
from croupier.core.resizing.model import AllocationLimit
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client.identity import Key

MAX_PER_POD: Final = 16
"""One PodAllocation per pod is useful; each reconcile compares all that count."""


class AllocationOrder:
    def __init__(self, max_per_namespace: int) -> None:
        self._of_namespace: CreationOrder[str, Key] = CreationOrder(max_per_namespace)
        self._of_pod: CreationOrder[Key, Key] = CreationOrder(MAX_PER_POD)

    @contextmanager
    def following(self, store: Store[PodAllocation], changed: Callable[[Key], None]) -> Iterator[None]:
        """Keep the order while the block runs; `changed` gets the keys that may count now or no longer do."""

        def reorder(change: ObjectChange[PodAllocation]) -> None:
            self._update(change.old, change.new)
            if change.old is None or change.new is None:
                for key in self._of_namespace.around_limit(change.key.namespace):
                    changed(key)

        for allocation in store:
            self._update(None, allocation)
        unsubscribe = store.subscribe(reorder)
        try:
            yield
        finally:
            unsubscribe()
            self._of_namespace.clear()
            self._of_pod.clear()

    def exceeded(self, allocation: PodAllocation) -> AllocationLimit | None:
        """The limit that the PodAllocation exceeds, if any."""
        key, pod, created = key_of(allocation), pod_of(allocation), _created(allocation)
        if not self._of_namespace.counts(key.namespace, created, key):
            remedy = ", or have the setting podAllocations.maxPerNamespace raised"
            return AllocationLimit(f"namespace {key.namespace}", self._of_namespace.limit, remedy)
        if not self._of_pod.counts(pod, created, key):
            return AllocationLimit(f"pod {pod.name}", MAX_PER_POD)
        return None

    def of_pod(self, pod: Key) -> Iterable[Key]:
        """The PodAllocations of the pod that count, oldest first."""
        return self._of_pod.first(pod)

    def affected(self, allocation: PodAllocation) -> Iterable[Key]:
        """The PodAllocations to reconcile after a change of this one: another may take precedence now."""
        key, pod = key_of(allocation), pod_of(allocation)
        if not self._of_pod.counts(pod, _created(allocation), key):
            return (key,)
        return {key, *self._of_pod.first(pod), *self._of_pod.around_limit(pod)}

    def _update(self, old: PodAllocation | None, new: PodAllocation | None) -> None:
        if old is not None and new is not None and pod_of(old) == pod_of(new):
            return
        if old is not None:
            created, key = _created(old), key_of(old)
            self._of_pod.remove(pod_of(old), created, key)
            self._of_namespace.remove(key.namespace, created, key)
        if new is not None:
            created, key = _created(new), key_of(new)
            self._of_pod.add(pod_of(new), created, key)
            self._of_namespace.add(key.namespace, created, key)


def key_of(allocation: PodAllocation) -> Key:
    return Key(allocation.metadata.namespace, allocation.metadata.name)


def pod_of(allocation: PodAllocation) -> Key:
    return Key(allocation.metadata.namespace, allocation.spec.pod_name)


def _created(allocation: PodAllocation) -> datetime:
    """Always set in an object of the API server."""
    return allocation.metadata.creation_timestamp or datetime.max.replace(tzinfo=UTC)
