"""Builds the observation of one node for the market's tick from the caches of the API server.

The original limit of a pod is recorded in the status of its PodAllocation before the first change. Until then
the pod's spec has it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from croupier.api import market_pod, pod_requests
from croupier.api.core_v1 import Node, Pod
from croupier.api.mbcas import PodAllocation
from croupier.core import quantity
from croupier.core.market import cpu_supply, model, terms, units
from croupier.core.market.estimation import CPUSample
from croupier.core.model import reason
from croupier.core.quantity import InvalidQuantityError, Quantity
from croupier.core.resizing.model import DUPLICATE
from croupier.kube.cache.store import Store, StoreIndex
from croupier.kube.client.api_client import Selection
from croupier.node.market import cgroup_paths
from croupier.node.market.cgroup_paths import ContainerCgroup

BY_HAND: Final = "its limit is set by a PodAllocation that was created by hand"
WRITTEN_BY_HAND: Final = Selection(fields="spec.nodeName=")
"""PodAllocations that were not written by an agent."""

ContainerReadings = Mapping[str, Mapping[str, CPUSample | None]]
"""By pod UID, then by container."""


def written_for(node: str) -> Selection:
    """PodAllocations that the agent of this node wrote; an agent does not watch those of other nodes."""
    return Selection(fields=f"spec.nodeName={node}")


@dataclass(frozen=True, slots=True)
class MarketStores:
    """Objects of this node only, except for `by_people`."""

    nodes: Store[Node]
    pods: Store[Pod]
    allocations: Store[PodAllocation]
    by_people: Store[PodAllocation]


class MarketNodeView:
    def __init__(self, node: str, sources: MarketStores) -> None:
        self._node = node
        self._sources = sources
        self._ours = sources.allocations.index(_pod_named)
        self._by_people = sources.by_people.index(_pod_named)
        self._written: dict[str, PodAllocation] = {}
        """By pod UID: the result of our last write, until the watch delivers it."""
        self._came_with: dict[str, int] = {}
        """By pod UID: limits in the spec before there was a PodAllocation, used until its status arrives."""

    @property
    def indexes(self) -> tuple[StoreIndex[Any, Any], ...]:
        """The indexes whose lifetime the caller manages."""
        return (self._ours, self._by_people)

    def managed(self) -> list[Pod]:
        """Running pods that ask to take part."""
        return [pod for pod in self._here() if _is_running(pod) and _is_managed(pod)]

    def left(self) -> list[Pod]:
        """Running pods that took part and no longer ask to."""
        return [
            pod
            for pod in self._here()
            if _is_running(pod) and not _is_managed(pod) and self.ours(pod) is not None
        ]

    def ours(self, pod: Pod) -> PodAllocation | None:
        """The agent's PodAllocation of this pod, as last written if the watch is behind."""
        shown = next(iter(_allocations_of(pod, self._ours)), None)
        written = self._written.get(pod.metadata.uid)
        if written is None or _is_as_new(shown, written):
            self._written.pop(pod.metadata.uid, None)
            return shown
        return written

    def by_hand(self, pod: Pod) -> PodAllocation | None:
        """A PodAllocation written by hand, unless the controller reports that ours takes precedence."""
        allocations = _allocations_of(pod, self._by_people)
        return next(
            (
                allocation
                for allocation in allocations
                if reason.parse(allocation.status.reason).code != DUPLICATE
            ),
            None,
        )

    def wrote(self, pod: Pod, written: PodAllocation) -> None:
        self._written[pod.metadata.uid] = written

    def lost(self, pod: Pod) -> None:
        """The PodAllocation that we wrote was deleted."""
        self._written.pop(pod.metadata.uid, None)

    def original(self, pod: Pod) -> int:
        """The original limit."""
        written = self.ours(pod) or self.by_hand(pod)
        if written is None:
            self._came_with[pod.metadata.uid] = market_pod.limit(pod)
            return market_pod.limit(pod)
        status = written.status
        if status.original_cpu_limit is not None and status.pod_uid in ("", pod.metadata.uid):
            return units.at_least(quantity.parse(status.original_cpu_limit))
        return self._came_with.get(pod.metadata.uid, market_pod.limit(pod))

    def observe(
        self, readings: ContainerReadings, *, outside: int, pretended: Mapping[str, int]
    ) -> model.NodeObservation | None:
        """None until the node is known. `pretended`: limits of a dry run, by pod UID."""
        node = self._capacity()
        if node is None:
            return None
        managed = self.managed()
        taking_part = {pod.metadata.uid for pod in managed}
        self._came_with = {uid: limit for uid, limit in self._came_with.items() if uid in taking_part}
        here = {pod.metadata.uid: pod for pod in self._here() if _exists(pod)}
        self._written = {uid: written for uid, written in self._written.items() if uid in here}
        asked = sum(_requested_cpu(pod) for uid, pod in here.items() if uid not in taking_part)
        node = replace(node, other_requests=node.other_requests + asked, other_usage=outside)
        pods = [self._pod(pod, readings.get(pod.metadata.uid, {})) for pod in managed]
        return model.NodeObservation(
            node, tuple(_with_pretended_limit(pod, pretended.get(pod.uid)) for pod in pods)
        )

    def places(self) -> dict[tuple[str, str], ContainerCgroup]:
        """The cgroups to read, by pod UID and container."""
        cgroups = {}
        for pod in self.managed():
            for name, status in market_pod.container_statuses(pod).items():
                container = cgroup_paths.container_id(status.container_id)
                cgroups[pod.metadata.uid, name] = ContainerCgroup(
                    pod.metadata.uid, pod.status.qos_class, container
                )
        return cgroups

    def _here(self) -> Iterable[Pod]:
        return [pod for pod in self._sources.pods if pod.spec.node_name == self._node]

    def _pod(self, pod: Pod, readings: Mapping[str, CPUSample | None]) -> model.MarketPod:
        shape = market_pod.shape(pod, self.original(pod))
        written = self.by_hand(pod)
        if written is not None:  # a PodAllocation by hand takes precedence; the pod counts as paused
            shape = replace(shape, annotations={**shape.annotations, terms.PAUSED: "true"})
        written = written or self.ours(pod)
        return model.MarketPod(
            key=pod.metadata.key,
            uid=pod.metadata.uid,
            shape=shape,
            limit=market_pod.limit(pod),
            readings={
                container.name: readings.get(container.name)
                for container in market_pod.limited_containers(pod)
            },
            desired=None if written is None else desired(written),
            applied=market_pod.applied(pod),
        )

    def _capacity(self) -> cpu_supply.NodeCPU | None:
        """CPU reserved for the system counts as requested by other pods."""
        node = self._sources.nodes.named(self._node)
        if node is None:
            return None
        whole = units.at_most(_parsed(node.status.capacity.get("cpu", "0")))
        for_pods = units.at_most(_parsed(node.status.allocatable.get("cpu", "0")))
        return cpu_supply.NodeCPU(whole, other_requests=max(0, whole - for_pods)) if whole else None


def desired(allocation: PodAllocation) -> int:
    return units.at_least(_parsed(allocation.spec.desired_cpu_limit))


def _pod_named(allocation: PodAllocation) -> list[tuple[str, str]]:
    return [(allocation.metadata.namespace, allocation.spec.pod_name)]


def _allocations_of(pod: Pod, index: StoreIndex[PodAllocation, tuple[str, str]]) -> list[PodAllocation]:
    """The PodAllocations of this pod. Those of an earlier pod of the same name will be garbage-collected."""
    allocations = index.get((pod.metadata.namespace, pod.metadata.name))
    return [allocation for allocation in allocations if _owner(allocation) in ("", pod.metadata.uid)]


def _is_as_new(shown: PodAllocation | None, written: PodAllocation) -> bool:
    if shown is None:
        return False
    return shown.metadata.uid != written.metadata.uid or (
        shown.metadata.generation >= written.metadata.generation
    )


def _with_pretended_limit(pod: model.MarketPod, limit: int | None) -> model.MarketPod:
    return pod if limit is None else replace(pod, limit=limit, desired=limit, applied=limit)


def _is_managed(pod: Pod) -> bool:
    return pod.metadata.labels.get(terms.MANAGED) == "true"


def _is_running(pod: Pod) -> bool:
    return pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None


def _exists(pod: Pod) -> bool:
    return not pod.is_finished


def _owner(allocation: PodAllocation) -> str:
    owners = allocation.metadata.owner_references
    return next((owner.uid for owner in owners if owner.kind == "Pod"), "")


def _requested_cpu(pod: Pod) -> int:
    """The CPU request of a pod outside the market; a terminating pod that took part still has its limit."""
    asked = units.at_least(pod_requests.requests(pod).get("cpu", quantity.ZERO))
    if not _is_managed(pod) or pod.status.phase != "Running":
        return asked
    return max(asked, market_pod.limit(pod), market_pod.applied(pod) or 0)


def _parsed(written: str) -> Quantity:
    try:
        return quantity.parse(written)
    except InvalidQuantityError:
        return quantity.ZERO
