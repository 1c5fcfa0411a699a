"""What every node has of everything, and what is left of it, kept so that asking costs nothing.

Allocatable stands on the Node. Allocated stands nowhere: it is what the pods bound to the node ask for, and
counting it takes every pod of the cluster. So it is kept instead: a pod or a node that changes moves a few
sums. They are whole numbers of nanos, so that any number of changes later they are still the sums a recount
would find.

What was answered is never edited, only replaced: an answer stays what it was, and a picture of all nodes is
one copy of a dict.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from croupier.core.effective import Amounts
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

    @property
    def available(self) -> Quantity:
        """Below zero where more is asked for than there is: a node that shrank, a pod no scheduler placed."""
        return self.allocatable - self.allocated

    @property
    def reserved(self) -> Quantity:
        """What the node keeps for itself."""
        return self.capacity - self.allocatable


NOTHING: Final = Three(ZERO, ZERO, ZERO)

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
        """Raised by every change that changed a number."""
        self._pods: dict[str, Occupant] = {}
        self._uids: dict[str, str] = {}
        self._nodes: dict[str, _Node] = {}
        self._accounts: dict[str, Account] = {}
        self._totals: dict[str, _Total] = {}
        self._heaps: dict[str, list[tuple[int, str]]] = {}
        self._picture: tuple[int, Mapping[str, Account]] = (0, MappingProxyType({}))

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
        if self._picture[0] != self.version:
            self._picture = (self.version, MappingProxyType(self._accounts.copy()))
        return self._picture[1]

    def total(self, resource: str) -> Three:
        found = self._totals.get(resource)
        if found is None:
            return NOTHING
        sums = (found.capacity, found.allocatable, found.allocated)
        return Three(*(Quantity(nanos, found.style) for nanos in sums))

    def exists(self, resource: str) -> bool:
        """Whether some node can give at least one, taken or not."""
        found = self._totals.get(resource)
        return found is not None and found.offering > 0

    def most_free(self, resource: str) -> Quantity:
        """The most that is available on one node; nothing if no node knows the resource."""
        if resource not in self._totals:
            return ZERO  # and keep nothing for a name anybody may invent
        heap = self._heaps.get(resource)
        if heap is None:
            heap = self._heaps[resource] = self._heap(resource)
        while heap:
            free, name = heap[0]
            now = self.node(name).get(resource)
            if now is not None and now.available.nanos == -free:
                return now.available
            heappop(heap)
        return ZERO

    def set_node(self, name: str, allocatable: Amounts, capacity: Amounts | None = None) -> None:
        """The node is there and reports this; without `capacity`, all of it is allocatable."""
        capacity = allocatable if capacity is None else capacity
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node()
        elif node.capacity == capacity and node.allocatable == allocatable:
            return
        node.capacity, node.allocatable = dict(capacity), dict(allocatable)
        old = self._accounts.get(name, _NO_ACCOUNT)
        names = {*node.capacity, *node.allocatable, *node.allocated}
        self._replace(name, {resource: _three(node, resource) for resource in names}, {*old, *names})

    def drop_node(self, name: str) -> None:
        """The node is gone; what is bound to it counts again when it is back."""
        node = self._nodes.get(name)
        if node is None or node.capacity is None:
            return
        self._replace(name, None, self._accounts[name])
        node.capacity, node.allocatable = None, {}
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
        changed = _shift(node.allocated, before, after)
        if node.capacity is None:
            self._forget_if_empty(name, node)
        elif changed:
            account = dict(self._accounts[name])
            for resource in changed:
                if resource in node.allocated or resource in node.allocatable or resource in node.capacity:
                    account[resource] = _three(node, resource)
                else:
                    del account[resource]
            self._replace(name, account, changed)

    def _forget_if_empty(self, name: str, node: _Node) -> None:
        if node.capacity is None and not node.pods:
            del self._nodes[name]

    def _replace(self, name: str, account: Account | None, changed: Iterable[str]) -> None:
        """The account of a node is this from now on; it differs in `changed` at most."""
        old, new = self._accounts.get(name, _NO_ACCOUNT), account or _NO_ACCOUNT
        for resource in tuple(changed):
            self._count(resource, old.get(resource), new.get(resource))
            if resource in self._heaps and resource in new:
                self._push(name, resource, new[resource])
        if account is None:
            del self._accounts[name]
        else:
            self._accounts[name] = account
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
            if resource in account
        ]
        heapify(heap)
        return heap

    def _push(self, name: str, resource: str, three: Three) -> None:
        """What was true before stays in the heap until somebody asks; when that is too much, start over."""
        heap = self._heaps[resource]
        if len(heap) > 2 * len(self._accounts) + _SPARE:
            del self._heaps[resource]
        else:
            heappush(heap, (-three.available.nanos, name))


def _three(node: _Node, resource: str) -> Three:
    capacity = (node.capacity or {}).get(resource, ZERO)
    allocatable = node.allocatable.get(resource, ZERO)
    style = allocatable.style if allocatable.nanos else capacity.style
    return Three(capacity, allocatable, Quantity(node.allocated.get(resource, 0), style))


def _shift(allocated: dict[str, int], before: Amounts, after: Amounts) -> list[str]:
    """Take `before` away and lay `after` on; the result names the resources that moved."""
    moved = []
    for resource in before.keys() | after.keys():
        step = after.get(resource, ZERO).nanos - before.get(resource, ZERO).nanos
        if step:
            now = allocated.get(resource, 0) + step
            if now:
                allocated[resource] = now
            else:
                del allocated[resource]
            moved.append(resource)
    return moved
