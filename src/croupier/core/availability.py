"""What every node has of everything, and what is left of it, kept so that asking costs nothing.

Allocatable stands on the Node. Allocated stands nowhere: it is what the pods bound to the node ask for, and
counting it takes every pod of the cluster. So it is kept instead: a pod or a node that changes moves a few
sums. They are whole numbers of nanos, so that any number of changes later they are still the sums a recount
would find.

What was answered is never edited, only replaced: an answer stays what it was, and a picture of all nodes is
one copy of a dict.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple, Self, TypeAlias

from croupier.core.pods.effective import Amounts
from croupier.core.quantity import NANO, ZERO, Quantity, Style

POD_SLOTS: Final = "pods"
"""The resource of which every pod takes one: how many pods the kubelet accepts."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod that is bound to a node and has not finished, with what it asks for in the end."""

    key: str
    """`namespace/name`."""
    uid: str
    node: str
    requests: Amounts


class Three(NamedTuple):
    """The numbers of one resource, on a node or in all."""

    capacity: Quantity
    allocatable: Quantity
    allocated: Quantity
    available: Quantity
    """Below zero where more is asked for than there is: a node that shrank, a pod no scheduler placed."""

    @classmethod
    def of(cls, capacity: Quantity, allocatable: Quantity, allocated: Quantity) -> Self:
        return cls(capacity, allocatable, allocated, allocatable - allocated)

    @property
    def reserved(self) -> Quantity:
        """What the node keeps for itself."""
        return self.capacity - self.allocatable


NOTHING: Final = Three.of(ZERO, ZERO, ZERO)

Account: TypeAlias = Mapping[str, Three]
"""Every resource that a node reports, or that a pod there asks for."""

_NO_ACCOUNT: Final[Account] = MappingProxyType({})
_SPARE: Final = 64


@dataclass(slots=True)
class _Node:
    capacity: Amounts | None = None
    """None until the node is seen: pods may be bound to one that is not there, or not there any more."""
    allocatable: Amounts = field(default_factory=dict)
    allocated: dict[str, int] = field(default_factory=dict)
    """In nanos; what comes to nothing is left out."""
    pods: int = 0
    cordoned: bool = False

    def knows(self, resource: str) -> bool:
        reported = resource in self.allocatable or (self.capacity is not None and resource in self.capacity)
        return reported or resource in self.allocated

    def three(self, resource: str) -> Three:
        capacity = (self.capacity or {}).get(resource, ZERO)
        allocatable = self.allocatable.get(resource, ZERO)
        style = allocatable.style if allocatable.nanos else capacity.style
        return Three.of(capacity, allocatable, Quantity(self.allocated.get(resource, 0), style))


@dataclass(slots=True)
class _Total:
    """In nanos, over all nodes that are there."""

    style: Style
    nodes: int = 0
    offering: int = 0
    """Nodes that can give at least one."""
    capacity: int = 0
    allocatable: int = 0
    allocated: int = 0


class Availability:
    """Fed with every change of nodes and pods, in any order; each question costs its answer."""

    def __init__(self) -> None:
        self.version = 0
        """Raised by every change that shows."""
        self._pods: dict[str, Occupant] = {}
        self._uids: dict[str, str] = {}
        self._nodes: dict[str, _Node] = {}
        self._accounts: dict[str, Account] = {}
        self._totals: dict[str, _Total] = {}
        self._heaps: dict[str, list[tuple[int, str]]] = {}

    def nodes(self) -> Collection[str]:
        """A live view: copy it before awaiting anything."""
        return self._accounts.keys()

    def resources(self) -> Collection[str]:
        """Those some node reports, or some pod on a node asks for. A live view."""
        return self._totals.keys()

    def three(self, node: str, resource: str) -> Three:
        return self.node(node).get(resource, NOTHING)

    def node(self, name: str) -> Account:
        """Empty for a node that is not there."""
        return self._accounts.get(name, _NO_ACCOUNT)

    def every(self) -> Mapping[str, Account]:
        """All nodes as they are at this moment; later changes do not show in it."""
        return self._accounts.copy()

    def total(self, resource: str) -> Three:
        found = self._totals.get(resource)
        if found is None:
            return NOTHING
        sums = (found.capacity, found.allocatable, found.allocated)
        return Three.of(*(Quantity(nanos, found.style) for nanos in sums))

    def exists(self, resource: str) -> bool:
        """Whether some node can give at least one, taken or not."""
        found = self._totals.get(resource)
        return found is not None and found.offering > 0

    def cordoned(self, node: str) -> bool:
        """Whether nothing is placed there for now."""
        found = self._nodes.get(node)
        return found is not None and found.cordoned

    def most_free(self, resource: str) -> Quantity:
        """The most that is available on one node that is not cordoned; nothing if none knows the resource."""
        if resource not in self._totals:
            return ZERO  # and keep nothing for a name anybody may invent
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
        """The node is there and reports this; without `capacity`, all of it is allocatable."""
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
        """The node is gone; what is bound to it counts again when it is back."""
        node = self._nodes.get(name)
        if node is None or node.capacity is None:
            return
        self._replace(name, None)
        node.capacity, node.allocatable, node.cordoned = None, {}, False
        self._forget_if_empty(name, node)

    def set_pod(self, pod: Occupant) -> None:
        """The pod is bound, or asks for something else than before; another of its name is gone."""
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
        """The pod is gone, or has finished."""
        old = self._pods.pop(uid, None)
        if old is None:
            return
        del self._uids[old.key]
        self._move(old.node, old.requests, {}, pods=-1)

    def _move(self, name: str, before: Amounts, after: Amounts, *, pods: int) -> None:
        """One pod of the node asked for `before` and asks for `after`."""
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node()
        node.pods += pods
        steps = _steps(before, after)
        for resource, step in steps.items():
            node.allocated[resource] = now = node.allocated.get(resource, 0) + step
            if not now:
                del node.allocated[resource]
        if node.capacity is None:
            self._forget_if_empty(name, node)
        elif steps:
            self._allocate(name, node, steps)

    def _allocate(self, name: str, node: _Node, steps: Mapping[str, int]) -> None:
        """So much more, or less, is allocated on a node that is there."""
        old = self._accounts[name]
        account = dict(old)
        for resource, step in steps.items():
            was = old.get(resource)
            if was is None or not node.knows(resource):
                now = node.three(resource) if node.knows(resource) else None
                self._count(resource, was, now)
            else:
                now = _more(was, step)
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

    def _replace(self, name: str, account: Account | None) -> None:
        """The node is there with this account from now on, or it is gone."""
        old, new = self._accounts.get(name, _NO_ACCOUNT), account or _NO_ACCOUNT
        for resource in old.keys() | new.keys():
            self._count(resource, old.get(resource), new.get(resource))
        if account is None:
            del self._accounts[name]
        else:
            self._accounts[name] = account
            for resource, three in account.items():
                self._offer(name, resource, three)
        self.version += 1

    def _count(self, resource: str, old: Three | None, new: Three | None) -> None:
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

    def _offer(self, name: str, resource: str, three: Three) -> None:
        """What was true before stays in the heap until somebody asks; when that is too much, start over."""
        heap = self._heaps.get(resource)
        if heap is None:
            return
        if len(heap) > 2 * len(self._accounts) + _SPARE:
            del self._heaps[resource]
        else:
            heappush(heap, (-three.available.nanos, name))


def _more(was: Three, step: int) -> Three:
    """So much more of it is allocated."""
    capacity, allocatable, allocated, available = was
    return Three(
        capacity,
        allocatable,
        Quantity(allocated.nanos + step, allocated.style),
        Quantity(available.nanos - step, available.style),
    )


def _steps(before: Amounts, after: Amounts) -> dict[str, int]:
    """How many nanos more or less of each resource that moves."""
    steps = {resource: amount.nanos for resource, amount in after.items()}
    for resource, amount in before.items():
        steps[resource] = steps.get(resource, 0) - amount.nanos
    return {resource: step for resource, step in steps.items() if step}
