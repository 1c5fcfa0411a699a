"""Bind never happens without a hold or twice, and a failed bind leaves nothing behind."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from croupier.api import convert_pod, kinds
from croupier.api.core_v1 import Pod
from croupier.api.mps.allocation import HOLD_EXPIRED
from croupier.core.claims.claim import CardClaim
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card_request import CardShares
from croupier.extender import pod_request as asking
from croupier.extender.binder import Binder
from croupier.extender.node_ranking import NodeRanking
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube.client import api_client
from croupier.kube.client.api_client import Client, DeleteOptions, Selection
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import Unreachable
from croupier.kube.client.retry import RetryOptions
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from tests.extender.builders import ledger
from tests.extender.conftest import crd_manager
from tests.extender.env import ExtenderEnv

NODE = "node-1"
HALF = {"cards": "1", "ratio": "50", "scheduler": "unused"}


class Clerk:
    """A ranking and a binder of one environment."""

    def __init__(self, table: ExtenderEnv, *, api: Client | None = None, book: Any = None) -> None:
        manager, clock = book or table.manager, SystemClock()
        self.index = NodeRanking(manager, clock, strategy=lambda _wants: "BinPack")
        self.recorder = EventRecorder(table.api, "croupier-ledger", naming=events.stable_name)
        self.binder = Binder(
            api or table.api,
            manager,
            self.index,
            clock,
            ttl=timedelta(seconds=120),
            record=self.recorder.record,
        )

    def filter(self, pod: Pod) -> None:
        self.index.choose(asking.read(pod), [NODE])

    async def bind(self, pod: Pod, node: str = NODE) -> str:
        return await self.binder.bind(
            ExtenderBindingArgs(pod.metadata.name, pod.metadata.namespace, pod.metadata.uid, node)
        )


async def opened(table: ExtenderEnv, node: str = NODE, cards: int = 2) -> None:
    await table.manager.open(node, ledger(node, cards))


def book(table: ExtenderEnv, node: str = NODE) -> Ledger:
    ledger = table.manager.ledger(node)
    assert ledger is not None
    return ledger


async def bound_as_held(table: ExtenderEnv, pod: Pod) -> None:
    """The pod is bound to the node with exactly its grant in the ledger."""
    now = convert_pod.view(await table.api.get(kinds.PODS, pod.metadata.name, namespace=table.namespace))
    assert now.node == NODE
    assert now.grant == book(table).grant(now.holder) != ()


def nothing_left(table: ExtenderEnv) -> None:
    assert book(table).holders() == set()
    assert book(table).held == {}


async def test_a_bound_pod_has_one_event_that_names_its_cards(bare: ExtenderEnv):
    """Also if the process restarts after the Binding, and the bind is repeated."""
    await opened(bare)
    pod = await bare.pod("named", **HALF)
    ended = asyncio.Event()
    ended.set()
    for _ in ("before a restart", "after it"):
        clerk = Clerk(bare)
        assert await clerk.bind(pod) == ""
        await clerk.recorder.run(ended)

    listed = await bare.api.list(kinds.EVENTS, Selection(namespace=bare.namespace))
    found = [event for event in listed.items if event.regarding.uid == pod.metadata.uid]
    assert [(event.reason, event.note) for event in found] == [
        ("GPUAllocated", "the pod is bound to node-1 and holds 50 % of card 0")
    ]


@pytest.mark.parametrize("filtered", [True, False], ids=["after filter", "without filter"])
async def test_a_bound_pod_has_its_grant_as_allocation(bare: ExtenderEnv, filtered: bool):
    await opened(bare)
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)
    if filtered:
        clerk.filter(pod)

    assert await clerk.bind(pod) == ""

    await bound_as_held(bare, pod)
    await clerk.binder.drain()
    assert book(bare).held == {}


async def test_concurrent_binds_of_one_pod_are_one_bind(bare: ExtenderEnv):
    await opened(bare)
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)

    at_once = await asyncio.gather(*(clerk.bind(pod) for _ in range(5)))
    later = await clerk.bind(pod)

    assert [*at_once, later] == [""] * 6
    await bound_as_held(bare, pod)
    assert book(bare).cards[0].used + book(bare).cards[1].used == 50


async def test_concurrent_binds_to_two_nodes_end_on_one_node(bare: ExtenderEnv):
    await opened(bare)
    await opened(bare, "node-2")
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)

    first, second = await asyncio.gather(clerk.bind(pod), clerk.bind(pod, "node-2"))

    assert first == ""
    assert second == f"pod {bare.namespace}/p is already bound to node-1"
    await bound_as_held(bare, pod)
    assert book(bare, "node-2").holders() == set()


async def test_a_pod_deleted_between_filter_and_bind_leaves_nothing(bare: ExtenderEnv):
    await opened(bare)
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)
    clerk.filter(pod)
    await bare.api.delete(kinds.PODS, "p", namespace=bare.namespace, how=DeleteOptions(grace_seconds=0))

    assert await clerk.bind(pod) == f"pod {bare.namespace}/p is gone"

    nothing_left(bare)


@pytest.mark.parametrize("filtered", [True, False], ids=["after filter", "without filter"])
async def test_a_new_pod_of_the_same_name_is_not_bound(bare: ExtenderEnv, filtered: bool):
    await opened(bare)
    clerk, old = Clerk(bare), await bare.pod("p", **HALF)
    if filtered:
        clerk.filter(old)
    await bare.api.delete(kinds.PODS, "p", namespace=bare.namespace, how=DeleteOptions(grace_seconds=0))
    new = await bare.pod("p", **HALF)

    assert "was replaced by a pod with UID" in await clerk.bind(old)

    assert (await bare.api.get(kinds.PODS, "p", namespace=bare.namespace)).spec.node_name == ""
    nothing_left(bare)
    assert await clerk.bind(new) == ""


@pytest.mark.parametrize(
    ("target", "said"),
    [("elsewhere", "is already bound to elsewhere"), (NODE, "was bound to node-1 by another scheduler")],
    ids=["elsewhere", "here"],
)
async def test_the_binding_of_another_scheduler_wins_and_our_hold_is_released(
    bare: ExtenderEnv, target: str, said: str
):
    await opened(bare)
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)
    clerk.filter(pod)
    foreign = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": target},
    }
    await bare.api.create(kinds.PODS, foreign, namespace=bare.namespace, name="p", subresource="binding")

    assert said in await clerk.bind(pod)

    nothing_left(bare)


async def test_a_pod_that_changed_after_filter_is_bound_in_the_second_attempt(bare: ExtenderEnv):
    await opened(bare)
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)
    clerk.filter(pod)
    patch = {"metadata": {"labels": {"touched": "yes"}}}
    await bare.api.patch(kinds.PODS, "p", patch, namespace=bare.namespace)

    assert await clerk.bind(pod) == ""

    await bound_as_held(bare, pod)


async def test_a_binding_for_a_hold_that_was_fenced_claims_again(bare: ExtenderEnv):
    """The bind is frozen between hold and Binding while its hold expires and is claimed by another pod."""
    await opened(bare, cards=1)
    clerk, pod = Clerk(bare), await bare.pod("p", cards="1", ratio="100", scheduler="unused")
    clerk.filter(pod)
    sleeper = clerk.binder.assumed_request(ExtenderBindingArgs("p", bare.namespace, pod.metadata.uid, NODE))
    assert sleeper is not None
    await clerk.binder.hold(sleeper, NODE, 0)
    fence = {"metadata": {"annotations": {HOLD_EXPIRED: "now"}}}
    await bare.api.patch(kinds.PODS, "p", fence, namespace=bare.namespace)
    await bare.manager.release(sleeper.holder, NODE)
    await bare.manager.claim(NODE, CardClaim("team/other/uid", (CardShares(1),), HoldTerms(bound=True)))

    assert await clerk.bind(pod) == "needs 1 free card but has 0: card 0 is short by 100 %"

    assert (await bare.api.get(kinds.PODS, "p", namespace=bare.namespace)).spec.node_name == ""
    assert book(bare).holders() == {"team/other/uid"}


async def test_full_and_unknown_nodes_are_refused(bare: ExtenderEnv):
    await opened(bare, cards=1)
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)
    await bare.manager.claim(NODE, CardClaim("team/other/uid", (CardShares(1),), HoldTerms(bound=True)))

    assert (await clerk.bind(pod)).startswith("needs 1 card with 50 % free but has 0")
    assert await clerk.bind(pod, "node-9") == "the ledger has no node node-9"
    assert book(bare).holders() == {"team/other/uid"}


async def test_a_reservation_is_taken_over_and_gets_its_hold_back_when_the_pod_is_gone(bare: ExtenderEnv):
    await opened(bare)
    waiting = f"{bare.namespace}/p"
    await bare.manager.claim(NODE, CardClaim(waiting, (CardShares(1, 50),), HoldTerms(reservation="by-hand")))
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)
    clerk.filter(pod)
    await bare.api.delete(kinds.PODS, "p", namespace=bare.namespace, how=DeleteOptions(grace_seconds=0))

    assert "is gone" in await clerk.bind(pod)

    assert book(bare).holders() == {waiting}
    assert await clerk.bind(await bare.pod("p", **HALF)) == ""
    assert waiting not in book(bare).holders()


class Loss:
    """Loses answers of the API server although the request was executed."""

    def __init__(self, lost: Callable[[str, str], bool], times: int) -> None:
        self._lost = lost
        self._times = times
        self.seen = 0

    def __call__(self, verb: str, resource: str, code: int, seconds: float) -> None:
        if self._lost(verb, resource) and self.seen < self._times:
            self.seen += 1
            raise Unreachable("the answer was lost")


def of_binding(verb: str, resource: str) -> bool:
    return (verb, resource) == ("create", "pods")


@pytest.mark.parametrize("times", [1, 3])
async def test_a_lost_answer_to_an_executed_binding_is_success(bare: ExtenderEnv, times: int):
    await opened(bare)
    pod = await bare.pod("p", **HALF)
    async with api_client.connect(bare.api.config, observe=Loss(of_binding, times)) as deaf:
        clerk = Clerk(bare, api=deaf)

        assert await clerk.bind(pod) == ""

        await bound_as_held(bare, pod)
        await clerk.binder.drain()
    assert book(bare).held == {}


async def test_if_the_outcome_is_unknown_the_hold_stays(bare: ExtenderEnv):
    """The TTL and the holder controller resolve it later."""
    await opened(bare)
    pod = await bare.pod("p", **HALF)
    always = Loss(lambda _verb, resource: resource == "pods", times=10_000)
    patience = RetryOptions(tries=1)
    async with api_client.connect(bare.api.config, observe=always, retry=patience) as deaf:
        clerk = Clerk(bare, api=deaf)
        clerk.filter(pod)

        assert "may or may not be bound" in await clerk.bind(pod)

    await bound_as_held(bare, pod)
    assert set(book(bare).held) == {f"{bare.namespace}/p/{pod.metadata.uid}"}


class Refusal:
    """Refuses Bindings before they reach the API server."""

    def __init__(self, times: int) -> None:
        self._times = times

    def __call__(self) -> None:
        self._times -= 1
        if self._times >= 0:
            raise Unreachable("cut off on the way")


async def test_bindings_that_never_arrive_are_rolled_back_and_fenced(bare: ExtenderEnv):
    await opened(bare)
    pod = await bare.pod("p", **HALF)
    clerk = Clerk(bare, api=bare.api.fenced(Refusal(times=3)))

    said = await clerk.bind(pod)

    assert said == f"pod {bare.namespace}/p could not be bound to node-1: cut off on the way"
    nothing_left(bare)
    now = await bare.api.get(kinds.PODS, "p", namespace=bare.namespace)
    assert HOLD_EXPIRED in now.metadata.annotations  # a late Binding with the old version would be refused
    assert await clerk.bind(pod) == ""


async def test_a_rollback_does_not_release_a_hold_that_was_claimed_again(bare: ExtenderEnv):
    """Another extender is binding the same pod and owns the hold."""
    await opened(bare)
    clerk, pod = Clerk(bare), await bare.pod("p", **HALF)
    asked = asking.read(pod)
    await clerk.binder.hold(asked, NODE, 0)
    ours = clerk.binder.held(asked.holder, NODE)
    assert ours is not None
    await clerk.binder.hold(asked, NODE, 1)

    await clerk.binder.release_hold(ours, NODE)

    assert book(bare).holders() == {asked.holder}


async def test_two_extenders_never_allocate_the_same_capacity(api: Client, floor: str):
    async with crd_manager(api) as one, crd_manager(api) as two:
        table = ExtenderEnv(api, one, floor)
        await opened(table, cards=2)
        clerks = [Clerk(table, book=manager) for manager in (one, two)]
        made = [await table.pod(f"p{n}", cards="1", ratio="40", scheduler="unused") for n in range(8)]

        said = await asyncio.gather(*(clerk.bind(pod) for pod in made for clerk in clerks))

        bound = [n for n in range(8) if said[2 * n] == said[2 * n + 1] == ""]
        assert len(bound) == 4, said  # two shares of 40 on each of two cards
        assert [card.used for card in book(table).cards] == [80, 80]
        for n in bound:
            await bound_as_held(table, made[n])
        for clerk in clerks:
            await clerk.binder.drain()
        await table.clear()
