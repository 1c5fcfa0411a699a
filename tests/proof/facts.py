"""The facts of a recorded history, which can be ordered and checked.

All objects of an API server share one revision counter of etcd, so facts about ledgers and pods
have a common order.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

ALLOCATION = "gpu.mps.io/allocation"

Grant: TypeAlias = frozenset[tuple[str, int, str]]
"""Card, share and slot of each part of a holder's grant."""


@dataclass(frozen=True)
class CardsChanged:
    """The new capacities of the cards of a node; 0 for MIG cards."""

    version: int
    node: str
    capacities: Mapping[str, int]


@dataclass(frozen=True)
class HolderAdded:
    version: int
    node: str
    holder: str
    grant: Grant
    bound: bool


@dataclass(frozen=True)
class HolderBound:
    version: int
    node: str
    holder: str


@dataclass(frozen=True)
class HolderRemoved:
    """A holder was removed (or renamed to `heir`), or a pod has ended."""

    version: int
    node: str
    holder: str
    heir: str = ""
    pod: bool = False


@dataclass(frozen=True)
class PodBound:
    """A pod was bound to a node with an allocation."""

    version: int
    node: str
    holder: str
    grant: Grant
    told: bool = True
    """Whether the pod has an allocation."""

    @staticmethod
    def of(version: int, pod: dict[str, Any]) -> "PodBound":
        meta = pod["metadata"]
        written = meta.get("annotations", {}).get(ALLOCATION)
        holder = f"{meta['namespace']}/{meta['name']}/{meta['uid']}"
        return PodBound(
            version, pod["spec"]["nodeName"], holder, granted(written or "[]"), told=written is not None
        )


def granted(allocation: str) -> Grant:
    """The grant of an allocation annotation."""
    parts: set[tuple[str, int, str]] = set()
    for entry in json.loads(allocation):
        if "slots" in entry:
            parts |= {(entry["card"], 0, slot) for slot in entry["slots"]}
        else:
            parts.add((entry["card"], entry.get("percent") or entry.get("slices"), ""))
    return frozenset(parts)


Fact: TypeAlias = CardsChanged | HolderAdded | HolderBound | HolderRemoved | PodBound


@dataclass
class ReplayState:
    """The state of ledgers and pods during the replay of facts."""

    capacities: dict[str, Mapping[str, int]] = field(default_factory=dict)
    holders: dict[tuple[str, str], Grant] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    """The node of each holder that is Bound in a ledger."""
    pods: dict[str, PodBound] = field(default_factory=dict)
    placed: set[tuple[str, str]] = field(default_factory=set)
    """Node and holder of every pod that was ever bound."""

    def tell(self, fact: Fact) -> Iterator[str]:
        match fact:
            case CardsChanged():
                self.capacities[fact.node] = fact.capacities
            case HolderAdded():
                self.holders[fact.node, fact.holder] = fact.grant
                if fact.bound:
                    yield from self._bind(fact.node, fact.holder)
            case HolderBound():
                yield from self._bind(fact.node, fact.holder)
            case HolderRemoved(pod=True):
                self.pods.pop(fact.holder, None)
            case HolderRemoved():
                yield from self._leave(fact)
            case PodBound():
                yield from self._place(fact)

    def _bind(self, node: str, holder: str) -> Iterator[str]:
        elsewhere = self.bound.setdefault(holder, node)
        if elsewhere != node:
            yield f"{holder} is bound on {node} and on {elsewhere}"
        if (node, holder) not in self.placed:  # the pod may have ended: promotion is delayed
            yield f"{holder} is Bound on {node}, but no such pod was bound there"

    def _leave(self, fact: HolderRemoved) -> Iterator[str]:
        self.holders.pop((fact.node, fact.holder), None)
        if self.bound.get(fact.holder) == fact.node:
            del self.bound[fact.holder]
        pod = self.pods.get(fact.holder)
        if pod is not None and pod.node == fact.node:
            yield f"{fact.holder} lost what it holds of {fact.node} while its pod is bound there"

    def _place(self, fact: PodBound) -> Iterator[str]:
        self.pods[fact.holder] = fact
        self.placed.add((fact.node, fact.holder))
        if not fact.told:
            yield f"{fact.holder} was bound to {fact.node} without an allocation"
        kept = self.holders.get((fact.node, fact.holder))
        if kept is None:
            yield f"{fact.holder} was bound to {fact.node} without a reservation"
        elif kept != fact.grant:
            yield f"{fact.holder} was bound with an allocation that differs from the ledger"
        yield from self._crowded(fact.node)

    def _crowded(self, node: str) -> Iterator[str]:
        """Overcommitted cards by the sum of the bound pods, as the hardware would see it."""
        here = [pod for pod in self.pods.values() if pod.node == node]
        yield from overcommitted(here, self.capacities.get(node, {}))


def overcommitted(pods: Sequence[PodBound], capacities: Mapping[str, int]) -> Iterator[str]:
    """Cards and slots that these pods of one node overcommit."""
    shares: dict[str, int] = {}
    slots: dict[tuple[str, str], str] = {}
    for pod in pods:
        for card, share, slot in pod.grant:
            shares[card] = shares.get(card, 0) + share
            if slot and slots.setdefault((card, slot), pod.holder) != pod.holder:
                yield f"slot {slot} of {card} has two pods"
    for card, share in sorted(shares.items()):
        if share > capacities.get(card, 0):
            yield f"pods have {share} of card {card}, which has {capacities.get(card, 0)}"


def faults(facts: Sequence[Fact]) -> list[str]:
    """Violated invariants between ledgers and pods, at any time (I1, I2, I4, I7)."""
    world, violations = ReplayState(), list[str]()
    for fact in sorted(facts, key=lambda fact: fact.version):
        violations += [f"at {fact.version}: {fault}" for fault in world.tell(fact)]
    return violations
