"""What the API server shows of one node, as the market's tick takes it in.

Which limit a pod came with is never remembered here alone: it stands in the status of its PodAllocation,
written before the first change. Until it stands there the pod's own spec says it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from croupier.api import market_pod, occupancy
from croupier.api.core_v1 import Node, Pod
from croupier.api.mbcas import PodAllocation
from croupier.core import quantity
from croupier.core.market import books, seen, terms, units
from croupier.core.market.sensing import Sample
from croupier.core.quantity import InvalidQuantityError, Quantity
from croupier.core.resizing.seen import DUPLICATE
from croupier.kube.client import Selection
from croupier.kube.store import Index, Store
from croupier.node.market import cgroup_paths
from croupier.node.market.cgroup_paths import Place

BY_HAND: Final = "a PodAllocation made by hand says what its limit is"
BY_PEOPLE: Final = Selection(fields="spec.nodeName=")
"""PodAllocations that no agent wrote."""

Readings = Mapping[str, Mapping[str, Sample | None]]
"""By pod UID, then by container."""


def written_for(node: str) -> Selection:
    """PodAllocations that the agent of this node wrote: no agent follows those of all the others."""
    return Selection(fields=f"spec.nodeName={node}")


@dataclass(frozen=True, slots=True)
class Sources:
    """Of this node alone, but for what people wrote."""

    nodes: Store[Node]
    pods: Store[Pod]
    allocations: Store[PodAllocation]
    by_people: Store[PodAllocation]


class Sight:
    def __init__(self, node: str, sources: Sources) -> None:
        self._node = node
        self._sources = sources
        self._ours = sources.allocations.index(_pod_named)
        self._by_people = sources.by_people.index(_pod_named)
        self._written: dict[str, PodAllocation] = {}
        """By UID of the pod: what the API server answered to our last write, until the watch shows it."""
        self._came_with: dict[str, int] = {}
        """By UID: spec limits seen before there was a record, for when the record is seen late."""

    @property
    def indexes(self) -> tuple[Index[Any, Any], ...]:
        """For whoever says how long they are kept."""
        return (self._ours, self._by_people)

    def managed(self) -> list[Pod]:
        """Those that run and ask to take part."""
        return [pod for pod in self._here() if _runs(pod) and _asks(pod)]

    def left(self) -> list[Pod]:
        """Those that took part and no longer ask to."""
        return [pod for pod in self._here() if _runs(pod) and not _asks(pod) and self.ours(pod) is not None]

    def ours(self, pod: Pod) -> PodAllocation | None:
        """The one an agent wrote for this very pod, as we last wrote it if the watch is behind."""
        shown = next(iter(_about(pod, self._ours)), None)
        written = self._written.get(pod.metadata.uid)
        if written is None or _is_as_new(shown, written):
            self._written.pop(pod.metadata.uid, None)
            return shown
        return written

    def by_hand(self, pod: Pod) -> PodAllocation | None:
        """One that a person wrote, unless ours is older and decides: the controller tells."""
        found = _about(pod, self._by_people)
        return next((one for one in found if one.status.reason.partition(":")[0] != DUPLICATE), None)

    def wrote(self, pod: Pod, written: PodAllocation) -> None:
        self._written[pod.metadata.uid] = written

    def lost(self, pod: Pod) -> None:
        """The one we wrote is not there any more."""
        self._written.pop(pod.metadata.uid, None)

    def original(self, pod: Pod) -> int:
        """The limit it came with."""
        written = self.ours(pod) or self.by_hand(pod)
        if written is None:
            self._came_with[pod.metadata.uid] = market_pod.limit(pod)
            return market_pod.limit(pod)
        status = written.status
        if status.original_cpu_limit is not None and status.pod_uid in ("", pod.metadata.uid):
            return units.at_least(quantity.parse(status.original_cpu_limit))
        return self._came_with.get(pod.metadata.uid, market_pod.limit(pod))

    def observe(
        self, readings: Readings, *, outside: int, pretended: Mapping[str, int]
    ) -> seen.Observation | None:
        """None as long as the node is not known. `pretended`: limits by UID that were not really written."""
        node = self._capacity()
        if node is None:
            return None
        managed = self.managed()
        taking_part = {pod.metadata.uid for pod in managed}
        self._came_with = {uid: limit for uid, limit in self._came_with.items() if uid in taking_part}
        here = {pod.metadata.uid: pod for pod in self._here() if _exists(pod)}
        self._written = {uid: one for uid, one in self._written.items() if uid in here}
        asked = sum(_claimed(pod) for uid, pod in here.items() if uid not in taking_part)
        node = replace(node, other_requests=node.other_requests + asked, other_usage=outside)
        pods = [self._pod(pod, readings.get(pod.metadata.uid, {})) for pod in managed]
        return seen.Observation(node, tuple(_as_if(pod, pretended.get(pod.uid)) for pod in pods))

    def places(self) -> dict[tuple[str, str], Place]:
        """Where to read, by pod UID and container."""
        found = {}
        for pod in self.managed():
            for name, status in market_pod.statuses(pod).items():
                container = cgroup_paths.container_id(status.container_id)
                where = Place(pod.metadata.uid, pod.status.qos_class, container)
                found[pod.metadata.uid, name] = where
        return found

    def _here(self) -> Iterable[Pod]:
        return [pod for pod in self._sources.pods if pod.spec.node_name == self._node]

    def _pod(self, pod: Pod, readings: Mapping[str, Sample | None]) -> seen.Pod:
        shape = market_pod.shape(pod, self.original(pod))
        written = self.by_hand(pod)
        if written is not None:  # whoever wrote it decides; the pod takes part as one that is paused
            shape = replace(shape, annotations={**shape.annotations, terms.PAUSED: "true"})
        written = written or self.ours(pod)
        return seen.Pod(
            key=pod.metadata.key,
            uid=pod.metadata.uid,
            shape=shape,
            limit=market_pod.limit(pod),
            readings={one.name: readings.get(one.name) for one in market_pod.bearing(pod)},
            desired=None if written is None else desired(written),
            applied=market_pod.applied(pod),
        )

    def _capacity(self) -> books.Node | None:
        """What the system keeps for itself counts as asked for by others."""
        node = self._sources.nodes.named(self._node)
        if node is None:
            return None
        whole = units.at_most(_parsed(node.status.capacity.get("cpu", "0")))
        for_pods = units.at_most(_parsed(node.status.allocatable.get("cpu", "0")))
        return books.Node(whole, other_requests=max(0, whole - for_pods)) if whole else None


def desired(allocation: PodAllocation) -> int:
    return units.at_least(_parsed(allocation.spec.desired_cpu_limit))


def _pod_named(one: PodAllocation) -> list[tuple[str, str]]:
    return [(one.metadata.namespace, one.spec.pod_name)]


def _about(pod: Pod, index: Index[PodAllocation, tuple[str, str]]) -> list[PodAllocation]:
    """What is owned by a namesake that is gone, the garbage collector is about to remove."""
    found = index.get((pod.metadata.namespace, pod.metadata.name))
    return [one for one in found if _owner(one) in ("", pod.metadata.uid)]


def _is_as_new(shown: PodAllocation | None, written: PodAllocation) -> bool:
    if shown is None:
        return False
    return shown.metadata.uid != written.metadata.uid or (
        shown.metadata.generation >= written.metadata.generation
    )


def _as_if(pod: seen.Pod, limit: int | None) -> seen.Pod:
    return pod if limit is None else replace(pod, limit=limit, desired=limit, applied=limit)


def _asks(pod: Pod) -> bool:
    return pod.metadata.labels.get(terms.MANAGED) == "true"


def _runs(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None


def _exists(pod: Pod) -> bool:
    return not pod.is_finished


def _owner(allocation: PodAllocation) -> str:
    owners = allocation.metadata.owner_references
    return next((one.uid for one in owners if one.kind == "Pod"), "")


def _claimed(pod: Pod) -> int:
    """What one that takes no part asks for; one that did and is being deleted still has its limit."""
    asked = units.at_least(occupancy.requests(pod).get("cpu", quantity.ZERO))
    if not _asks(pod) or pod.status.phase != "Running":
        return asked
    return max(asked, market_pod.limit(pod), market_pod.applied(pod) or 0)


def _parsed(written: str) -> Quantity:
    try:
        return quantity.parse(written)
    except InvalidQuantityError:
        return quantity.ZERO
