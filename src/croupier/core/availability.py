"""Capacity, allocatable, allocated and available amounts of every resource on every node.

Allocatable is in the Node object. Allocated is recorded nowhere: it is the sum of the requests of all pods
bound to the node. The index maintains these sums incrementally: a change of a pod or node updates a few of
them. They are whole numbers of nanos, so they always equal the sums of a full recount.

Returned values are replaced, never modified, so a snapshot of all nodes is one copy of a dict.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple, Self, TypeAlias

from croupier.core.pods.effective_requests import Amounts
from croupier.core.quantity import NANO, ZERO, Quantity, Style

POD_SLOTS: Final = "pods"
"""The resource that counts how many pods the kubelet accepts; every pod takes one."""


@dataclass(frozen=True, slots=True)
class AccountedPod:
    """A pod that is bound to a node and has not finished, with its effective requests."""

    key: str
    """`namespace/name`."""
    uid: str
    node: str
    requests: Amounts


class ResourceAmounts(NamedTuple):
    """The amounts of one resource, on one node or in total."""

    capacity: Quantity
    allocatable: Quantity
    allocated: Quantity
    available: Quantity
    """Negative if pods request more than allocatable: the node shrank, or a pod bypassed the scheduler."""

    @classmethod
    def of(cls, capacity: Quantity, allocatable: Quantity, allocated: Quantity) -> Self:
        return cls(capacity, allocatable, allocated, allocatable - allocated)

    @property
    def reserved(self) -> Quantity:
        """The amount that the node reserves for the system."""
        return self.capacity - self.allocatable


NOTHING: Final = ResourceAmounts.of(ZERO, ZERO, ZERO)

NodeAmounts: TypeAlias = Mapping[str, ResourceAmounts]
"""All resources that the node reports or a pod on it requests."""

_NO_AMOUNTS: Final[NodeAmounts] = MappingProxyType({})
_HEAP_SLACK: Final = 64


@dataclass(slots=True)
class _Node:
    capacity: Amounts | None = None
    """None if the node does not exist: pods may be bound to a node that is not known yet, or was deleted."""
    allocatable: Amounts = field(default_factory=dict)
    allocated: dict[str, int] = field(default_factory=dict)
    """In nanos; zero amounts are left out."""
    pods: int = 0
    cordoned: bool = False

    def knows(self, resource: str) -> bool:
        reported = resource in self.allocatable or (self.capacity is not None and resource in self.capacity)
        return reported or resource in self.allocated

    def three(self, resource: str) -> ResourceAmounts:
        capacity = (self.capacity or {}).get(resource, ZERO)
        allocatable = self.allocatable.get(resource, ZERO)
        style = allocatable.style if allocatable.nanos else capacity.style
        return ResourceAmounts.of(capacity, allocatable, Quantity(self.allocated.get(resource, 0), style))


@dataclass(slots=True)
class _Total:
    """In nanos, over all existing nodes."""

    style: Style
    nodes: int = 0
    offering: int = 0
    """Nodes with at least one allocatable unit."""
    capacity: int = 0
    allocatable: int = 0
    allocated: int = 0


class Availability:
    """Must be informed of every change of nodes and pods, in any order."""

    def __init__(self) -> None:
        self.version = 0
        """Increased by every visible change."""
        self._pods: dict[str, AccountedPod] = {}
        self._uids: dict[str, str] = {}
        self._nodes: dict[str, _Node] = {}
        self._accounts: dict[str, NodeAmounts] = {}
        self._totals: dict[str, _Total] = {}
        self._heaps: dict[str, list[tuple[int, str]]] = {}

    def nodes(self) -> Collection[str]:
        """A live view: copy it before awaiting anything."""
        return self._accounts.keys()

    def resources(self) -> Collection[str]:
        """Resources that a node reports or a pod on a node requests. A live view."""
        return self._totals.keys()

    def three(self, node: str, resource: str) -> ResourceAmounts:
        return self.node(node).get(resource, NOTHING)

    def node(self, name: str) -> NodeAmounts:
        """Empty for an unknown node."""
        return self._accounts.get(name, _NO_AMOUNTS)

    def snapshot(self) -> Mapping[str, NodeAmounts]:
        """A snapshot of all nodes."""
        return self._accounts.copy()

    def total(self, resource: str) -> ResourceAmounts:
        total = self._totals.get(resource)
        if total is None:
            return NOTHING
        sums = (total.capacity, total.allocatable, total.allocated)
        return ResourceAmounts.of(*(Quantity(nanos, total.style) for nanos in sums))

    def exists(self, resource: str) -> bool:
        """Whether any node has at least one allocatable unit, allocated or not."""
        total = self._totals.get(resource)
        return total is not None and total.offering > 0

    def cordoned(self, node: str) -> bool:
        known = self._nodes.get(node)
        return known is not None and known.cordoned

    def max_free(self, resource: str) -> Quantity:
        """The largest available amount on one node that is not cordoned; zero for an unknown resource."""
        if resource not in self._totals:
            return ZERO  # and store nothing: users may request arbitrary names
        heap = self._heaps.get(resource)
        if heap is None:
            heap = self._heaps[resource] = self._heap(resource)
        while heap:
            free, name = heap[0]
            now = self.node(name).get(resource)
            if now is not None and now.available.nanos == -free and not self.cordoned(name):
                return now.available
            heappop(heap)
        return ZERO

    def set_node(
        self, name: str, allocatable: Amounts, capacity: Amounts | None = None, *, cordoned: bool = False
    ) -> None:
        """Add or update a node; `capacity` defaults to `allocatable`."""
        capacity = allocatable if capacity is None else capacity
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node()
        elif (node.capacity, node.allocatable, node.cordoned) == (capacity, allocatable, cordoned):
            return
        node.capacity, node.allocatable, node.cordoned = dict(capacity), dict(allocatable), cordoned
        names = {**node.capacity, **node.allocatable, **node.allocated}
        self._replace(name, {resource: node.three(resource) for resource in names})

    def drop_node(self, name: str) -> None:
        """Remove a node; pods bound to it count again if the node returns."""
        node = self._nodes.get(name)
        if node is None or node.capacity is None:
            return
        self._replace(name, None)
        node.capacity, node.allocatable, node.cordoned = None, {}, False
        self._forget_if_empty(name, node)

    def set_pod(self, pod: AccountedPod) -> None:
        """Add or update a bound pod; it replaces another pod with the same name."""
        known = self._uids.get(pod.key)
        if known is not None and known != pod.uid:
            self.drop_pod(known)
        old = self._pods.get(pod.uid)
        if old == pod:
            return
        if old is not None and (old.node, old.key) != (pod.node, pod.key):
            self.drop_pod(old.uid)
            old = None
        self._pods[pod.uid], self._uids[pod.key] = pod, pod.uid
        self._move(pod.node, old.requests if old is not None else {}, pod.requests, pods=int(old is None))

    def drop_pod(self, uid: str) -> None:
        """Remove a pod that was deleted or has finished."""
        old = self._pods.pop(uid, None)
        if old is None:
            return
        del self._uids[old.key]
        self._move(old.node, old.requests, {}, pods=-1)

    def _move(self, name: str, before: Amounts, after: Amounts, *, pods: int) -> None:
        """Change the requests of one pod of the node from `before` to `after`."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node()
        node.pods += pods
        steps = _differences(before, after)
        for resource, step in steps.items():
            node.allocated[resource] = now = node.allocated.get(resource, 0) + step
            if not now:
                del node.allocated[resource]
        if node.capacity is None:
            self._forget_if_empty(name, node)
        elif steps:
            self._allocate(name, node, steps)

    def _allocate(self, name: str, node: _Node, steps: Mapping[str, int]) -> None:
        """Apply differences of allocated amounts to an existing node."""
        old = self._accounts[name]
        account = dict(old)
        for resource, step in steps.items():
            was = old.get(resource)
            if was is None or not node.knows(resource):
                now = node.three(resource) if node.knows(resource) else None
                self._count(resource, was, now)
            else:
                now = _with_more_allocated(was, step)
                self._totals[resource].allocated += step
            if now is None:
                del account[resource]
            else:
                account[resource] = now
                self._offer(name, resource, now)
        self._accounts[name] = account
        self.version += 1

    def _forget_if_empty(self, name: str, node: _Node) -> None:
        if node.capacity is None and not node.pods:
            del self._nodes[name]

    def _replace(self, name: str, account: NodeAmounts | None) -> None:
        """Set the amounts of a node; None removes it."""
        old, new = self._accounts.get(name, _NO_AMOUNTS), account or _NO_AMOUNTS
        for resource in old.keys() | new.keys():
            self._count(resource, old.get(resource), new.get(resource))
        if account is None:
            del self._accounts[name]
        else:
            self._accounts[name] = account
            for resource, three in account.items():
                self._offer(name, resource, three)
        self.version += 1

    def _count(self, resource: str, old: ResourceAmounts | None, new: ResourceAmounts | None) -> None:
        total = self._totals.get(resource)
        if total is None:
            if new is None:
                return
            total = self._totals[resource] = _Total(new.allocatable.style)
        for three, sign in ((old, -1), (new, 1)):
            if three is not None:
                total.nodes += sign
                total.offering += sign if three.allocatable.nanos >= NANO else 0
                total.capacity += sign * three.capacity.nanos
                total.allocatable += sign * three.allocatable.nanos
                total.allocated += sign * three.allocated.nanos
        if not total.nodes:
            del self._totals[resource]
            self._heaps.pop(resource, None)

    def _heap(self, resource: str) -> list[tuple[int, str]]:
        heap = [
            (-account[resource].available.nanos, name)
            for name, account in self._accounts.items()
            if resource in account and not self.cordoned(name)
        ]
        heapify(heap)
        return heap

    def _offer(self, name: str, resource: str, three: ResourceAmounts) -> None:
        """Outdated entries stay in the heap until the next query; too many of them discard the heap."""
        heap = self._heaps.get(resource)
        if heap is None:
            return
        if len(heap) > 2 * len(self._accounts) + _HEAP_SLACK:
            del self._heaps[resource]
        else:
            heappush(heap, (-three.available.nanos, name))


def with_ledger(amounts: NodeAmounts, free: Mapping[str, int]) -> NodeAmounts:
    """The amounts of a node whose cards are in the ledger; `free` are its free units by resource.

    Requests do not tell what is free of a card that can be requested in several ways, or that a Reservation
    holds, so available is what the ledger has free. A node that reports the resource has no more than its
    allocatable amount leaves. It is never negative: a card gives nothing that is taken already.
    """
    return {
        **amounts,
        **{name: _limited(amounts.get(name, NOTHING), units * NANO) for name, units in free.items()},
    }


def _limited(was: ResourceAmounts, free: int) -> ResourceAmounts:
    reported = bool(was.allocatable.nanos or was.capacity.nanos)
    nanos = max(0, min(free, was.available.nanos)) if reported else free
    return was._replace(available=Quantity(nanos, was.available.style))


def summed(amounts: Iterable[ResourceAmounts]) -> ResourceAmounts:
    """The total of several nodes; available is the sum of theirs."""
    columns = list(zip(*amounts, strict=True))
    if not columns:
        return NOTHING
    return ResourceAmounts(*(Quantity(sum(q.nanos for q in column), column[0].style) for column in columns))


def _with_more_allocated(was: ResourceAmounts, step: int) -> ResourceAmounts:
    capacity, allocatable, allocated, available = was
    return ResourceAmounts(
        capacity,
        allocatable,
        Quantity(allocated.nanos + step, allocated.style),
        Quantity(available.nanos - step, available.style),
    )


def _differences(before: Amounts, after: Amounts) -> dict[str, int]:
    """The difference in nanos of each resource that changes."""
    steps = {resource: amount.nanos for resource, amount in after.items()}
    for resource, amount in before.items():
        steps[resource] = steps.get(resource, 0) - amount.nanos
    return {resource: step for resource, step in steps.items() if step}
