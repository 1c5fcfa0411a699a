"""Why each pending pod waits, computed in the background within a budget.

A sentence depends on the whole cluster, so each change makes all of them stale. Pods with the same request
and the same constraints share one computation. Until it is done, a pod has the scheduler's own message.
"""

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from croupier.api import convert_affinity, convert_pod
from croupier.api.core_v1 import Pod
from croupier.capacity import pod_explanation
from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.explanation import explain
from croupier.core.model.pod_view import PodView
from croupier.core.pods.scheduler_filters import NodeConstraints
from croupier.kube.cache.store import ObjectChange
from croupier.ui import rows
from croupier.ui.tables import Tables

BUDGET: Final = 0.05
"""The part of one CPU that explanations may use."""
PAUSE: Final = 0.02
"""The least pause in seconds between two explanations."""
RECHECK: Final = 0.5
"""Seconds between checks whether the cluster has changed since all pods were explained."""


class ExplainableWorld(Protocol):
    """What explanations need of the cluster."""

    version: int
    changed: asyncio.Event

    def snapshot(self) -> ClusterSnapshot: ...


@dataclass(slots=True)
class _PendingPod:
    pod: Pod
    view: PodView
    group: Hashable


@dataclass(slots=True)
class _RequestGroup:
    """Pods that get the same answer."""

    view: PodView
    needs: NodeConstraints
    pods: set[str] = field(default_factory=set)
    answer: tuple[str, str] | None = None
    """State and sentence; None until they are computed."""


class WaitingPods:
    def __init__(self, world: ExplainableWorld, tables: Tables, reserved: Callable[[str], bool]) -> None:
        self._world = world
        self._tables = tables
        self._reserved = reserved
        self._pods: dict[str, _PendingPod] = {}
        self._groups: dict[Hashable, _RequestGroup] = {}
        self._marked: set[str] = set()
        self._new: dict[Hashable, None] = {}
        self._stale: dict[Hashable, None] = {}
        self._explained = -1

    @property
    def changed(self) -> bool:
        return bool(self._marked)

    @property
    def unexplained(self) -> int:
        """Pods that have no sentence yet."""
        return sum(len(group.pods) for group in self._groups.values() if group.answer is None)

    def pods(self) -> Iterable[Pod]:
        return [entry.pod for entry in self._pods.values()]

    def mark(self, change: ObjectChange[Pod]) -> bool:
        """Whether the pod asks for cards, or did."""
        pod = change.new
        key = f"{change.key.namespace}/{change.key.name}"
        view = convert_pod.view(pod) if pod is not None and not pod.is_finished else None
        self._leave(key)
        if pod is not None and view is not None and (view.wants or view.marked or view.trouble):
            self._join(key, pod, view)
        elif self._tables.latest("waiting", key) is None and key not in self._marked:
            return False
        self._marked.add(key)
        return True

    def update(self) -> None:
        """Put the rows of the pods that changed."""
        marked, self._marked = self._marked, set()
        for key in marked:
            entry = self._pods.get(key)
            if entry is None:
                self._tables.put("waiting", key, None)
                continue
            row = rows.waiting(entry.pod, entry.view)
            answer = self._groups[entry.group].answer
            if answer is not None:
                row["state"], row["sentence"] = answer
            self._tables.put("waiting", key, row)

    async def run(self) -> None:
        """Explain stale pods until cancelled."""
        while True:
            key = self._next()
            if key is None:
                await asyncio.sleep(RECHECK)
                continue
            began = time.thread_time()
            spent = await self._explain(self._groups[key])
            spent += time.thread_time() - began
            await asyncio.sleep(max(PAUSE, spent * (1 / BUDGET - 1)))

    def _next(self) -> Hashable | None:
        if not self._new and not self._stale and self._explained != self._world.version:
            self._explained = self._world.version
            self._stale = dict.fromkeys(self._groups)
        for queue in (self._new, self._stale):
            while queue:
                key = next(iter(queue))
                del queue[key]
                if key in self._groups:
                    return key
        return None

    async def _explain(self, group: _RequestGroup) -> float:
        """Explain one group in a thread, so that streams continue; the CPU seconds that it took."""
        seen = self._world.snapshot()
        answer, spent = await asyncio.to_thread(_answer, group.view, group.needs, seen)
        if answer != group.answer:
            group.answer = answer
            self._marked |= group.pods
            self._world.changed.set()
        return spent

    def _join(self, key: str, pod: Pod, view: PodView) -> None:
        needs = convert_affinity.pod_needs(pod)
        own = key if self._reserved(key) else ""
        constraints = (tuple(sorted(needs.selector.items())), needs.terms, needs.tolerations)
        group: Hashable = (view.wants, view.marked, view.trouble, constraints, own)
        if group not in self._groups:
            asked = view if own else replace(view, key="/", uid="")  # the name of no holder
            self._groups[group] = _RequestGroup(asked, needs)
            self._new[group] = None
        self._groups[group].pods.add(key)
        self._pods[key] = _PendingPod(pod, view, group)

    def _leave(self, key: str) -> None:
        entry = self._pods.pop(key, None)
        if entry is None:
            return
        members = self._groups[entry.group].pods
        members.discard(key)
        if not members:
            del self._groups[entry.group]


def _answer(view: PodView, needs: NodeConstraints, seen: ClusterSnapshot) -> tuple[tuple[str, str], float]:
    began = time.thread_time()
    world = pod_explanation.scheduling_inputs(seen, pod_explanation.pool_strategy(seen, view.wants))
    found = explain.explain(view, needs, world)
    return (found.state, found.sentence), time.thread_time() - began
