"""State machine test: whatever the kubelet allocates, no unit of a card is ever assigned to two pods.

The ledger grants from its own state. The kubelet admits pods in any order and picks any devices. The check
changes grants to the actual devices, or removes a pod with a conflict; the ledger follows later, so until
then it can grant devices that another pod has. Agents restart without memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.model.card import CardGrant, Grant
from croupier.core.nodes import allocation_check, device_allocation, kubelet_assignments
from croupier.core.nodes.device_allocation import (
    AllocationInputs,
    ContainerAllocation,
    PastAllocation,
    PreferenceRequest,
)
from croupier.core.nodes.kubelet_assignments import (
    BoundPod,
    CheckpointEntry,
    ContainerRequest,
    KubeletAssignment,
)
from croupier.core.nodes.plugin_devices import NodeCard
from tests.core.kubelet_env import GPU, PERCENT, POOL, KubeletEnv, kubelet_env, partitioned, pooled, whole

KINDS: dict[str, Callable[[int], NodeCard]] = {
    "whole": whole,
    "cut": partitioned,
    "slices": lambda n: pooled(n, "TimeSlice", "red"),
    "shared": lambda n: pooled(n, "MPS", "green"),
    "exclusive": lambda n: pooled(n, "Exclusive", "gold"),
}
SLOT = "nvidia.com/mig-1g.10gb"
SHAPES = (("main",), ("main",), ("init", "main"), ("init",))


@dataclass
class Node:
    kubelet: KubeletEnv
    book: dict[str, Grant] = field(default_factory=dict)
    """What the ledger believes."""
    served: set[str] = field(default_factory=set)
    made: int = 0

    @property
    def pods(self) -> list[BoundPod]:
        return self.kubelet.pods

    @property
    def cards(self) -> dict[str, NodeCard]:
        return dict(self.kubelet.offer.cards)

    def place(self, which: int, size: int, how: int) -> None:
        """On the next card with free units by the ledger, if there is one."""
        cards = list(self.cards.values())
        for number in range(len(cards)):
            card = cards[(which + number) % len(cards)]
            asks, part = wish(card, 1 + size % card.capacity, whole=bool(how % 2))
            if part.slots:
                taken = {slot for grant in self.book.values() for one in grant for slot in one.slots}
                part = replace(part, slots=tuple(slot for slot in part.slots if slot not in taken)[:1])
            if (part.share or part.slots) and not any(
                kubelet_assignments.conflicts((part,), self.book, self.cards)
            ):
                break
        else:
            return
        self.made += 1
        containers = tuple(ContainerRequest(name, asks) for name in SHAPES[how // 2 % len(SHAPES)])
        made = BoundPod(f"team/{self.made}", f"uid-{self.made}", containers, asks, (part,))
        self.pods.append(made)
        self.book[made.key] = made.grant

    def admit(self, which: int, stray: int, how: int) -> None:
        """Admit like the kubelet, which follows the preference if `stray` is 0."""
        waiting = [pod for pod in self.pods if pod.key not in self.served]
        if not waiting:
            self.place(which, stray, how)
            return
        pod = waiting[which % len(waiting)]
        for container in pod.containers:
            for resource, size in container.counts.items():
                if not self._hands_out(pod, container.name, (resource, size), stray):
                    self.gone(pod)
                    return
        self.served.add(pod.key)
        self.pods[self.pods.index(pod)] = replace(pod, admitted=bool(how % 2))

    def _hands_out(self, pod: BoundPod, container: str, wants: tuple[str, int], stray: int) -> bool:
        resource, size = wants
        node, begun = self.kubelet, None
        ids = node.has.get((pod.key, "init", resource), ())[:size]
        if not ids:
            available = node.available(resource)
            if len(available) < size:
                return False
            begun = device_allocation.preferred(PreferenceRequest(resource, size, available), self.scene())
            ids = (*begun.ids, *(device for device in available if device not in begun.ids))[:size]
            if stray:
                ids = (*available[stray % len(available) :], *available)[:size]
        scene = self.scene()
        meant = device_allocation.infer_owner(resource, ids, scene, begun)
        if not isinstance(device_allocation.allocate(resource, ids, scene, meant), ContainerAllocation):
            return False
        node.has[pod.key, container, resource] = ids
        if meant is not None and meant.pod is not None:
            one = PastAllocation(meant.pod.key, meant.pod.uid, meant.container, resource, ids)
            node.given = (*node.given, one)
        return True

    def scene(self) -> AllocationInputs:
        return replace(self.kubelet.scene(), holdings=self.holdings())

    def holdings(self) -> tuple[KubeletAssignment, ...]:
        notes = (
            CheckpointEntry(f"uid-{key[5:]}", name, of, ids)
            for (key, name, of), ids in self.kubelet.has.items()
        )
        return kubelet_assignments.with_checkpoint(self.kubelet.holdings(), notes, self.pods)

    def check(self) -> None:
        found = allocation_check.compare(self.pods, self.holdings(), self.cards)
        moved = {one.pod.key: one.actual for one in found if one.can_move}
        self.pods[:] = [replace(pod, grant=moved.get(pod.key, pod.grant)) for pod in self.pods]
        for one in [one for one in found if not one.can_move][:1]:
            self.gone(one.pod)

    def gone(self, pod: BoundPod) -> None:
        node = self.kubelet
        node.pods = [one for one in node.pods if one.uid != pod.uid]
        node.has = {where: ids for where, ids in node.has.items() if where[0] != pod.key}
        node.given = tuple(one for one in node.given if one.uid != pod.uid)
        self.book.pop(pod.key, None)

    def happens(self, what: str, which: int, size: int, how: int) -> None:
        match what:
            case "place":
                self.place(which, size, how)
            case "admit":
                self.admit(which, size, how)
            case "check":
                self.check()
            case "follow":
                self.book = {pod.key: pod.grant for pod in self.pods}
            case "end" if self.pods:
                self.gone(self.pods[which % len(self.pods)])
            case "restart":
                self.kubelet.given = ()

    def with_two(self) -> list[str]:
        has: dict[str, set[str]] = {}
        for (key, _, _), ids in self.kubelet.has.items():
            has.setdefault(key, set()).update(ids)
        grants = {key: kubelet_assignments.parts(ids) for key, ids in has.items()}
        return [
            f"{key} and {other}"
            for key, grant in grants.items()
            for other in kubelet_assignments.conflicts(
                grant, {k: g for k, g in grants.items() if k != key}, self.cards
            )
        ]


def wish(card: NodeCard, size: int, *, whole: bool) -> tuple[dict[str, int], CardGrant]:
    """The request and grant of a pod: a share of a card, or all of it."""
    if card.gpu.slots:
        return {SLOT: 1}, CardGrant(card.id, slots=tuple(slot.id for slot in card.gpu.slots))
    if card.pool is None:
        return ({GPU: 1}, CardGrant(card.id, 100)) if whole else ({PERCENT: size}, CardGrant(card.id, size))
    if card.pool.sharing.mode == "Exclusive":
        return {f"{POOL}{card.pool.name}": 1}, CardGrant(card.id, 100)
    return {f"{POOL}{card.pool.name}": size}, CardGrant(card.id, size)


STORIES = st.lists(
    st.tuples(
        st.sampled_from(["place", "place", "admit", "admit", "check", "follow", "end", "restart"]),
        st.integers(0, 3),
        st.sampled_from([0, 0, 1, 24, 49, 50, 99, 100, 150]),
        st.integers(0, 7),
    ),
    min_size=12,
    max_size=40,
)


FOUND = {
    "other devices of an init container, and a restarted agent": [
        ("place", 0, 0, 7),
        ("admit", 0, 1, 1),
        ("restart", 0, 0, 0),
        ("place", 1, 49, 0),
        ("admit", 0, 0, 0),
    ],
    "devices attributed to a wrong pod that ended": [
        ("place", 0, 0, 7),
        ("place", 0, 0, 7),
        ("admit", 1, 0, 0),
        ("end", 0, 0, 0),
        ("place", 0, 0, 0),
        ("admit", 0, 0, 0),
    ],
}


@pytest.mark.parametrize("story", FOUND.values(), ids=FOUND)
def test_no_other_pod_gets(story):
    """Whole cards that only init containers request, and then a share of one."""
    node = Node(kubelet_env([whole(0), whole(1)]))

    for step in story:
        node.happens(*step)

        assert node.with_two() == []


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["whole", "whole", *KINDS]), min_size=1, max_size=3), STORIES)
def test_no_unit_of_a_card_is_assigned_twice(kinds, story):
    node = Node(kubelet_env([KINDS[kind](n) for n, kind in enumerate(kinds)]))

    for step in story:
        node.happens(*step)

        assert node.with_two() == []
