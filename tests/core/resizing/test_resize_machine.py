"""A state machine of a PodAllocation: new limits, a slow kubelet, crashes, other writers, restarts.

In the end the applied limit is the desired one, the original limit is still recorded, and nothing more is
written.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from croupier.core import quantity
from croupier.core.market import units
from croupier.core.market.terms import PodShape
from croupier.core.quantity import Quantity
from croupier.core.resizing import resize
from croupier.core.resizing.model import (
    DesiredLimit,
    LastStatus,
    ResizeCondition,
    ResizeContainer,
    ResizeInputs,
    ResizePod,
)
from croupier.core.resizing.resize import LimitChange, ResizeDecision

START = datetime(2030, 1, 31, 12, tzinfo=UTC)
MOST = quantity.millis(4000)
"""The kubelet reports Infeasible for more."""


class PodAllocationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        sizes = {"app": 400, "log": 100}
        self.came_with = {name: quantity.millis(size) for name, size in sizes.items()}
        held = tuple(
            ResizeContainer(name, limit, quantity.millis(50), limit) for name, limit in self.came_with.items()
        )
        self.pod = ResizePod("uid", held, PodShape("default", request=10, original=50), node="node-1")
        self.desired_limit = DesiredLimit(
            "default", "web", "web", quantity.millis(500), START, pod_namespace="default"
        )
        self.now = START
        self.changes = 0

    @rule(millis=st.integers(10, 600).map(lambda steps: steps * 10))
    def somebody_wishes(self, millis: int) -> None:
        desired = quantity.millis(millis)
        self.desired_limit = replace(
            self.desired_limit, desired=desired, generation=self.desired_limit.generation + 1
        )

    @rule(millis=st.integers(1, 40).map(lambda steps: steps * 50), name=st.sampled_from(["app", "log"]))
    def a_stranger_writes(self, millis: int, name: str) -> None:
        self._write({name: quantity.millis(millis)})

    @rule(name=st.sampled_from(["app", "log"]))
    def a_container_restarts(self, name: str) -> None:
        self._each(lambda one: replace(one, restarts=one.restarts + (one.name == name)))

    @rule(due=st.booleans(), crash=st.sampled_from(["", "", "", "before the change", "before the status"]))
    def we_look(self, due: bool, crash: str) -> None:
        decision = resize.decide(ResizeInputs(self.desired_limit, self.pod, self.now, due=due))
        if crash == "before the change":
            return
        if decision.change is not None:
            self._changed(decision.change)
        if crash == "before the status":
            return
        if decision.verdict.phase == "Applied":
            assert self.pod.reported == self.desired_limit.desired
        self.desired_limit = replace(self.desired_limit, last_status=self._told(decision))

    @rule()
    def the_kubelet_looks(self) -> None:
        asked = sum((container.limit for container in self.pod.containers), Quantity(0))
        generation = self.pod.generation
        if asked > MOST:
            no = ResizeCondition("Infeasible", "too much", generation)
            self.pod = replace(self.pod, observed=generation, pending=no)
            return
        self.pod = replace(self.pod, observed=generation, pending=None)
        self._each(lambda one: replace(one, reported=one.limit))

    @rule(seconds=st.integers(1, 100))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @invariant()
    def what_it_came_with_is_not_forgotten(self) -> None:
        """After our first change; another writer may have come before it."""
        if self.changes:
            originals = self.desired_limit.last_status.originals
            assert originals
            assert self.first in (None, originals)
            self.first = originals

    first: object = None

    def teardown(self) -> None:
        """With a working kubelet and without new events it converges."""
        for _ in range(12):
            self.we_look(due=True, crash="")
            self.the_kubelet_looks()
        self.we_look(due=False, crash="")
        told, changes = self.desired_limit.last_status, self.changes
        assert self.pod.reported is not None
        if self.desired_limit.desired > MOST:
            assert told.verdict.code == "Infeasible"
            assert self.pod.reported <= MOST
            return
        assert told.verdict.phase == "Applied", told
        assert self.pod.reported == self.desired_limit.desired
        self.we_look(due=True, crash="")
        assert (self.desired_limit.last_status, self.changes) == (told, changes), "nothing more changes"

    def _changed(self, change: LimitChange) -> None:
        assert self.desired_limit.last_status.originals
        self.changes += 1
        assert change.back or all(units.at_least(limit) >= 5 for limit in change.limits.values())
        self._write(dict(change.limits))

    def _write(self, limits: dict[str, Quantity]) -> None:
        before = self.pod.containers
        self._each(lambda one: replace(one, limit=limits.get(one.name, one.limit)))
        if self.pod.containers != before:
            self.pod = replace(self.pod, generation=self.pod.generation + 1)

    def _each(self, change: Callable[[ResizeContainer], ResizeContainer]) -> None:
        self.pod = replace(self.pod, containers=tuple(change(container) for container in self.pod.containers))

    def _told(self, decision: ResizeDecision) -> LastStatus:
        before, verdict = self.desired_limit.last_status, decision.verdict
        return LastStatus(
            verdict,
            decision.uid,
            self.desired_limit.desired,
            self.desired_limit.generation,
            before.originals or decision.originals,
            restarts=decision.restarts,
            attempted=self.now if decision.attempted else before.attempted,
        )


TestLife = PodAllocationMachine.TestCase
TestLife.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
