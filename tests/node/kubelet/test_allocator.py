"""The allocator waits for unknown pods, remembers its allocations, and lists assignments at a safe time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from croupier.core.nodes import plugin_devices
from croupier.core.nodes.device_allocation import PreferenceRequest
from croupier.core.nodes.kubelet_assignments import BoundPod, ContainerRequest, KubeletAssignment
from croupier.core.nodes.plugin_devices import DeviceUnit
from croupier.node.cards.card_driver import CardError, ContainerEdits
from croupier.node.kubelet.allocator import Allocator, AllocatorInputs
from croupier.node.kubelet.grpc_calls import AllocationRefused, KubeletError
from tests.core.kubelet_env import GPU, PERCENT, name, pod, share, whole
from tests.polling import until


@dataclass
class FakeAssignments:
    """The kubelet's device assignments. `asked` counts the calls."""

    has: tuple[KubeletAssignment, ...] = ()
    asked: int = 0
    silent: bool = False

    async def holdings(self) -> tuple[KubeletAssignment, ...]:
        self.asked += 1
        if self.silent:
            raise KubeletError("no answer")
        return self.has


@dataclass
class AllocatorEnv:
    pods: list[BoundPod] = field(default_factory=list)
    assignments: FakeAssignments = field(default_factory=FakeAssignments)
    pod_timeout: float = 30.0
    broken: bool = False
    cards: int = 3

    def edits(self, units: Sequence[DeviceUnit]) -> ContainerEdits:
        if self.broken:
            raise CardError("card 0 does not answer")
        return ContainerEdits(env={"SEEN": units[0].card})

    def allocator(self) -> Allocator:
        allocator = Allocator(
            self.assignments, AllocatorInputs(lambda: self.pods, self.edits, self.pod_timeout)
        )
        allocator.show(plugin_devices.served_resources([whole(n) for n in range(self.cards)]))
        return allocator


def asked(size: int = 1, resource: str = GPU, *, required: tuple[str, ...] = ()) -> PreferenceRequest:
    listed = plugin_devices.served_resources([whole(n) for n in range(3)]).resources[resource]
    return PreferenceRequest(resource, size, tuple(device.id for device in listed), required)


async def test_a_pod_that_the_watch_delivers_late_is_waited_for():
    env = AllocatorEnv()
    allocator = env.allocator()
    answering = asyncio.ensure_future(allocator.prefer(asked()))
    await until(lambda: env.assignments.asked, "the call to the kubelet")
    assert not answering.done()

    env.pods.append(pod("late", {GPU: 1}, share(2)))

    assert await answering == (name(2),)


async def test_devices_are_chosen_for_a_pod_that_stays_unknown():
    assert await AllocatorEnv(pod_timeout=0.0).allocator().prefer(asked()) == (name(0),)


async def test_two_equal_pods_get_their_devices_one_after_the_other():
    """The allocator must remember its allocations, because the kubelet lists them late."""
    env = AllocatorEnv(pods=[pod("a", {GPU: 1}, share(1)), pod("b", {GPU: 1}, share(2))])
    allocator = env.allocator()

    for expected in (name(1), name(2)):
        ids = await allocator.prefer(asked())
        assert ids == (expected,)
        result = await allocator.allocate(GPU, ids)
        assert result.edits.env == {"SEEN": expected}


async def test_the_pod_that_was_bound_first_is_preferred():
    early, late = (datetime(2030, 1, 31, 12, 0, second, tzinfo=UTC) for second in (1, 2))
    env = AllocatorEnv(
        pods=[pod("a", {GPU: 1}, share(1), bound_at=late), pod("b", {GPU: 1}, share(2), bound_at=early)]
    )

    assert await env.allocator().prefer(asked()) == (name(2),)


async def test_allocations_of_deleted_pods_are_forgotten():
    env = AllocatorEnv(pods=[pod("a", {GPU: 1}, share(1))])
    allocator = env.allocator()
    await allocator.allocate(GPU, await allocator.prefer(asked()))

    env.pods[:] = [replace(pod("a", {GPU: 1}, share(1)), uid="uid-again")]

    ids = await allocator.prefer(asked())
    assert ids == (name(1),)
    assert (await allocator.allocate(GPU, ids)).edits.env == {"SEEN": name(1)}


async def test_the_kubelet_is_not_asked_while_it_allocates():
    """Pitfall: a List call during an allocation can make the kubelet forget the allocated devices."""
    env = AllocatorEnv(pods=[pod("a", {GPU: 1}, share(1))])
    allocator = env.allocator()
    ids = await allocator.prefer(asked())
    checking = asyncio.ensure_future(allocator.holdings())
    await _everybody_else()
    assert env.assignments.asked == 1

    await allocator.allocate(GPU, ids)

    await _everybody_else()
    assert env.assignments.asked == 1
    await checking
    assert env.assignments.asked == 2


async def _everybody_else() -> None:
    """All that can run without time passing has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_devices_of_an_init_container_are_reused_without_a_call_to_the_kubelet():
    containers = tuple(ContainerRequest(called, {PERCENT: 10}) for called in ("init", "main", "side"))
    env = AllocatorEnv(pods=[pod("a", {PERCENT: 20}, share(1, 20), containers=containers)])
    allocator = env.allocator()
    ids = await allocator.prefer(asked(10, PERCENT))
    await allocator.allocate(PERCENT, ids)

    again = await allocator.allocate(PERCENT, ids)

    assert again.answer.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "10"
    assert env.assignments.asked == 1
    left = tuple(device for device in asked(10, PERCENT).available if device not in ids)
    others = await allocator.prefer(replace(asked(10, PERCENT), available=left))
    assert {device.split("::")[0] for device in others} == {name(1)}, "these are for the third container"


REFUSALS = {
    "the kubelet does not answer": (
        AllocatorEnv(assignments=FakeAssignments(silent=True)),
        "cannot read device assignments from the kubelet: no answer",
    ),
    "the card does not answer": (
        AllocatorEnv(broken=True, pod_timeout=0.0),
        f"cannot allocate {GPU}: card 0 does not answer",
    ),
    "the card is gone": (
        AllocatorEnv(cards=0, pod_timeout=0.0),
        f"cannot allocate {GPU}: the card is gone: {name(0)}",
    ),
}


@pytest.mark.parametrize(("env", "sentence"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_has_a_readable_message(env, sentence):
    allocator = env.allocator()

    with pytest.raises(AllocationRefused) as refused:
        await allocator.allocate(GPU, await allocator.prefer(asked()) or (name(0),))

    assert str(refused.value) == sentence
