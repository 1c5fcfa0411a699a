"""The desk waits for a pod it has not heard of, remembers whom it served, and asks the kubelet in time."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest

from croupier.core.nodes import devices
from croupier.core.nodes.allotment import Asked
from croupier.core.nodes.devices import Unit
from croupier.core.nodes.handed import Asking, BoundPod, Holding
from croupier.node.cards.cards import CardError, Edits
from croupier.node.kubelet.calls import KubeletError, Refusal
from croupier.node.kubelet.plugin_desk import Desk, Equipment
from tests.core.served import GPU, PERCENT, name, pod, share, whole
from tests.kube.waiting import until


@dataclass
class Account:
    """What the kubelet would say of its devices, and how often it was asked."""

    has: tuple[Holding, ...] = ()
    asked: int = 0
    silent: bool = False

    async def holdings(self) -> tuple[Holding, ...]:
        self.asked += 1
        if self.silent:
            raise KubeletError("nobody answers")
        return self.has


@dataclass
class Room:
    pods: list[BoundPod] = field(default_factory=list)
    account: Account = field(default_factory=Account)
    patience: float = 30.0
    broken: bool = False
    cards: int = 3

    def edits(self, units: Sequence[Unit]) -> Edits:
        if self.broken:
            raise CardError("card 0 does not answer")
        return Edits(env={"SEEN": units[0].card})

    def desk(self) -> Desk:
        made = Desk(self.account, Equipment(lambda: self.pods, self.edits, self.patience))
        made.show(devices.offer([whole(n) for n in range(self.cards)]))
        return made


def asked(size: int = 1, resource: str = GPU, *, required: tuple[str, ...] = ()) -> Asked:
    listed = devices.offer([whole(n) for n in range(3)]).resources[resource]
    return Asked(resource, size, tuple(one.id for one in listed), required)


async def test_a_pod_that_the_watch_shows_a_moment_later_is_waited_for():
    room = Room()
    desk = room.desk()
    answering = asyncio.ensure_future(desk.prefer(asked()))
    await until(lambda: room.account.asked, "the question to be asked")
    assert not answering.done()

    room.pods.append(pod("late", {GPU: 1}, share(2)))

    assert await answering == (name(2),)


async def test_for_a_pod_that_never_shows_it_chooses_by_itself():
    assert await Room(patience=0.0).desk().prefer(asked()) == (name(0),)


async def test_two_alike_are_served_one_after_the_other():
    """Nothing but its own memory tells it: the kubelet's account comes late."""
    room = Room(pods=[pod("a", {GPU: 1}, share(1)), pod("b", {GPU: 1}, share(2))])
    desk = room.desk()

    for expected in (name(1), name(2)):
        ids = await desk.prefer(asked())
        assert ids == (expected,)
        dealt = await desk.allocate(GPU, ids)
        assert dealt.edits.env == {"SEEN": expected}


async def test_who_was_bound_first_comes_first_however_they_are_listed():
    early, late = (datetime(2030, 1, 31, 12, 0, second, tzinfo=UTC) for second in (1, 2))
    room = Room(
        pods=[pod("a", {GPU: 1}, share(1), bound_at=late), pod("b", {GPU: 1}, share(2), bound_at=early)]
    )

    assert await room.desk().prefer(asked()) == (name(2),)


async def test_who_is_gone_is_forgotten():
    room = Room(pods=[pod("a", {GPU: 1}, share(1))])
    desk = room.desk()
    await desk.allocate(GPU, await desk.prefer(asked()))

    room.pods[:] = [replace(pod("a", {GPU: 1}, share(1)), uid="uid-again")]

    ids = await desk.prefer(asked())
    assert ids == (name(1),)
    assert (await desk.allocate(GPU, ids)).edits.env == {"SEEN": name(1)}


async def test_the_kubelet_is_not_asked_while_it_allocates():
    """Trap: a listing in between can make it forget what it is just handing out."""
    room = Room(pods=[pod("a", {GPU: 1}, share(1))])
    desk = room.desk()
    ids = await desk.prefer(asked())
    checking = asyncio.ensure_future(desk.holdings())
    await _everybody_else()
    assert room.account.asked == 1

    await desk.allocate(GPU, ids)

    await _everybody_else()
    assert room.account.asked == 1
    await checking
    assert room.account.asked == 2


async def _everybody_else() -> None:
    """All that can run without time passing has run."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_an_init_container_had_is_handed_on_without_asking():
    containers = tuple(Asking(called, {PERCENT: 10}) for called in ("init", "main", "side"))
    room = Room(pods=[pod("a", {PERCENT: 20}, share(1, 20), containers=containers)])
    desk = room.desk()
    ids = await desk.prefer(asked(10, PERCENT))
    await desk.allocate(PERCENT, ids)

    again = await desk.allocate(PERCENT, ids)

    assert again.answer.env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "10"
    assert room.account.asked == 1
    left = tuple(device for device in asked(10, PERCENT).available if device not in ids)
    others = await desk.prefer(replace(asked(10, PERCENT), available=left))
    assert {device.split("::")[0] for device in others} == {name(1)}, "it is the turn of the third container"


REFUSALS = {
    "nobody can say what is free": (
        Room(account=Account(silent=True)),
        "nobody can say what is free: nobody answers",
    ),
    "the card does not answer": (
        Room(broken=True, patience=0.0),
        f"{GPU} cannot be given: card 0 does not answer",
    ),
    "the card is gone": (Room(cards=0, patience=0.0), f"{GPU} cannot be given: the card is gone: {name(0)}"),
}


@pytest.mark.parametrize(("room", "sentence"), REFUSALS.values(), ids=REFUSALS)
async def test_a_refusal_is_a_sentence(room, sentence):
    desk = room.desk()

    with pytest.raises(Refusal) as refused:
        await desk.allocate(GPU, await desk.prefer(asked()) or (name(0),))

    assert str(refused.value) == sentence
