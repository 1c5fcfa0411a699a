"""Pods whose devices differ from their allocation: what is repaired, and what is not."""

import json
from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.core.model.gpu_card import GpuCard
from croupier.core.nodes import plugin_devices
from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from croupier.core.nodes.plugin_devices import NodeCard
from croupier.kube.client.clock import SystemClock
from croupier.node.kubelet.allocation_mismatch import (
    DELETION_DELAY,
    REPAIR_DELAY,
    MismatchMetrics,
    MismatchRepair,
)
from tests.node.agent_env import AgentEnv
from tests.polling import until


class StoppedClock(SystemClock):
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now_at = 0.0

    def monotonic(self) -> float:
        return self.now_at


async def bound(env: AgentEnv, name: str, *promised: int, percent: int = 100) -> None:
    main = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    entries = [{"card": env.card(index), "index": index, "percent": percent} for index in promised]
    meta: dict[str, Any] = {"name": name}
    if entries:
        meta["annotations"] = {"gpu.mps.io/allocation": json.dumps(entries)}
    spec = {"nodeName": env.node, "containers": [main]}
    await env.api.create(kinds.PODS, {"metadata": meta, "spec": spec}, namespace=env.namespace)
    await until(lambda: env.pods.named(name, env.namespace), "the pod to be seen")


def has(env: AgentEnv, name: str, card: int) -> KubeletAssignment:
    return KubeletAssignment(f"{env.namespace}/{name}", "main", "nvidia.com/gpu", (env.card(card),))


def promise(env: AgentEnv, name: str) -> list[str]:
    """The cards of the pod's allocation. Empty if the pod is deleted or being deleted."""
    pod = env.pods.named(name, env.namespace)
    if pod is None or pod.metadata.deletion_timestamp is not None:
        return []
    return [entry["card"] for entry in json.loads(pod.metadata.annotations["gpu.mps.io/allocation"])]


class MismatchCheck:
    """Runs the check with a controlled clock."""

    def __init__(self, env: AgentEnv, *, without_ledger: bool = False) -> None:
        self.clock = StoppedClock()
        self._alone = without_ledger
        self.figures = CollectorRegistry()
        self._check = MismatchRepair(
            env.informers(),
            env.api,
            env.recorder,
            clock=self.clock,
            metrics=MismatchMetrics(self.figures),
        )
        self._offer = plugin_devices.served_resources(
            [NodeCard(env.card(index), GpuCard(index)) for index in range(3)]
        )

    def counted(self, *actions: str) -> list[float | None]:
        name = "croupier_node_allocation_mismatches_total"
        return [self.figures.get_sample_value(name, {"action": action}) for action in actions]

    async def after(self, seconds: float, given: Sequence[KubeletAssignment] | None) -> float | None:
        """Returns the seconds until the next check is due."""
        self.clock.now_at += seconds
        return await self._check.inspect(given, self._offer, without_ledger=self._alone)


def event_notes(env: AgentEnv) -> list[str]:
    return [entry.what.note for entry in env.recorder.journal.unwritten()]


async def test_the_allocation_is_changed_to_the_pods_card_if_no_other_pod_has_it(env):
    await bound(env, "user", 0)
    check, given = MismatchCheck(env), [has(env, "user", 1)]

    assert await check.after(0, given) == REPAIR_DELAY, "it is not repaired before the delay"
    assert event_notes(env) == []
    await check.after(REPAIR_DELAY, given)

    await until(lambda: promise(env, "user") == [env.card(1)], "the allocation to follow")
    (note,) = event_notes(env)
    assert f"was granted 100 of card {env.card(0)} but has 100 of card {env.card(1)}" in note
    assert await check.after(REPAIR_DELAY, given) is None
    assert len(event_notes(env)) == 1, "it has been repaired"
    assert check.counted("noticed", "followed", "removed") == [1, 1, 0]


async def test_swapped_cards_of_two_pods_are_both_repaired(env):
    await bound(env, "a", 0)
    await bound(env, "b", 1)
    check, given = MismatchCheck(env), [has(env, "a", 1), has(env, "b", 0)]

    await check.after(0, given)
    await check.after(REPAIR_DELAY, given)

    await until(lambda: promise(env, "a") == [env.card(1)], "the allocation to follow")
    await until(lambda: promise(env, "b") == [env.card(0)], "the allocation to follow")


async def test_of_two_pods_on_one_card_the_one_without_the_grant_is_deleted_after_a_delay(env):
    await bound(env, "right", 0)
    await bound(env, "wrong", 1)
    check, given = MismatchCheck(env), [has(env, "right", 0), has(env, "wrong", 0)]

    await check.after(0, given)
    assert await check.after(DELETION_DELAY - 1, given) == 1
    assert promise(env, "wrong") == [env.card(1)], "the other pod may get its devices late"
    await check.after(1, given)

    await until(lambda: not promise(env, "wrong"), "the deletion of the pod")
    assert promise(env, "right") == [env.card(0)]
    (note,) = event_notes(env)
    assert "the pod is deleted" in note
    assert check.counted("noticed", "followed", "removed") == [1, 0, 1]


async def test_a_pod_without_a_grant_gets_an_allocation_only_if_there_is_a_ledger(env):
    await bound(env, "stranger")
    given = [has(env, "stranger", 2)]
    for alone in (True, False):
        check = MismatchCheck(env, without_ledger=alone)
        await check.after(0, given)
        await check.after(REPAIR_DELAY, given)
        assert len(event_notes(env)) == (0 if alone else 1)

    await until(lambda: _noted(env), "an allocation")
    assert promise(env, "stranger") == [env.card(2)]


def _noted(env: AgentEnv) -> bool:
    pod = env.pods.named("stranger", env.namespace)
    return pod is not None and "gpu.mps.io/allocation" in pod.metadata.annotations


async def test_nothing_is_repaired_while_device_assignments_are_unknown(env):
    await bound(env, "user", 0)
    check = MismatchCheck(env)

    await check.after(0, None)
    await check.after(DELETION_DELAY, None)

    assert event_notes(env) == []
    assert promise(env, "user") == [env.card(0)]
