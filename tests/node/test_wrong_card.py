"""A pod whose devices are not those of its allocation: what is done about it, and what is not."""

import json
import secrets
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.core.nodes import devices
from croupier.core.nodes.devices import NodeCard
from croupier.core.nodes.handed import Holding
from croupier.kube.clock import SystemClock
from croupier.lab import borrowed
from croupier.lab.cluster import Cluster
from croupier.node.agent.metrics import AgentMetrics
from croupier.node.agent.picture import Picture, Wants
from croupier.node.cards.cards import Sighting
from croupier.node.kubelet.wrong_card import CLASH_AFTER, SURE_AFTER, WrongCards
from tests.kube.waiting import until
from tests.node.agent_house import House, house


class Watch(SystemClock):
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_at = 0.0

    def monotonic(self) -> float:
        return self.now_at


@pytest.fixture(scope="module")
def ours(cluster: Cluster, crds: Any) -> Iterator[str]:
    name = borrowed.create_namespace(cluster, "wrong-cards")
    yield name
    borrowed.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def hall(cluster: Cluster, ours: str, tmp_path: Path) -> AsyncIterator[House]:
    name = f"gpu-{secrets.token_hex(3)}"
    async with house(cluster.kubeconfig, name, ours, tmp_path) as made:
        await made.api.create(kinds.NODES, {"metadata": {"name": name}})
        try:
            yield made
        finally:
            await made.leaves()


async def bound(hall: House, name: str, *promised: int, percent: int = 100) -> None:
    main = {"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    entries = [{"card": hall.card(one), "index": one, "percent": percent} for one in promised]
    meta: dict[str, Any] = {"name": name}
    if entries:
        meta["annotations"] = {"gpu.mps.io/allocation": json.dumps(entries)}
    spec = {"nodeName": hall.node, "containers": [main]}
    await hall.api.create(kinds.PODS, {"metadata": meta, "spec": spec}, namespace=hall.namespace)
    await until(lambda: hall.pods.named(name, hall.namespace), "the pod to be seen")


def has(hall: House, name: str, card: int) -> Holding:
    return Holding(f"{hall.namespace}/{name}", "main", "nvidia.com/gpu", (hall.card(card),))


def promise(hall: House, name: str) -> list[str]:
    """The cards that its allocation names; nothing if the pod is gone or going."""
    found = hall.pods.named(name, hall.namespace)
    if found is None or found.metadata.deletion_timestamp is not None:
        return []
    return [one["card"] for one in json.loads(found.metadata.annotations["gpu.mps.io/allocation"])]


class Look:
    """The check, at the times that matter."""

    def __init__(self, hall: House, *, alone: bool = False) -> None:
        self.clock = Watch()
        self._alone = alone
        self.figures = CollectorRegistry()
        self._check = WrongCards(
            hall.window(), hall.api, hall.recorder, clock=self.clock, gauge=AgentMetrics(self.figures)
        )
        self._offer = devices.offer([NodeCard(hall.card(index), index) for index in range(3)])

    def counted(self, *whats: str) -> list[float | None]:
        name = "gpu_node_wrong_cards_total"
        return [self.figures.get_sample_value(name, {"what": what}) for what in whats]

    async def after(self, seconds: float, given: Sequence[Holding] | None) -> float | None:
        """In how many seconds it wants to look again."""
        self.clock.now_at += seconds
        picture = Picture(Sighting(), {}, Wants(), {}, (), given, self._alone)
        return await self._check.look(picture, self._offer)


def told(hall: House) -> list[str]:
    return [entry.what.note for entry in hall.recorder.journal.unwritten()]


async def test_an_allocation_follows_the_card_a_pod_has_if_nobody_else_has_it(hall):
    await bound(hall, "user", 0)
    look, given = Look(hall), [has(hall, "user", 1)]

    assert await look.after(0, given) == SURE_AFTER, "not at first sight, and no later than needs be"
    assert told(hall) == []
    await look.after(SURE_AFTER, given)

    await until(lambda: promise(hall, "user") == [hall.card(1)], "the allocation to follow")
    (note,) = told(hall)
    assert f"was promised 100 of card {hall.card(0)} and has 100 of card {hall.card(1)}" in note
    assert await look.after(SURE_AFTER, given) is None
    assert len(told(hall)) == 1, "it is right now"
    assert look.counted("noticed", "followed", "removed") == [1, 1, 0]


async def test_two_that_have_each_others_cards_are_both_put_right(hall):
    await bound(hall, "a", 0)
    await bound(hall, "b", 1)
    look, given = Look(hall), [has(hall, "a", 1), has(hall, "b", 0)]

    await look.after(0, given)
    await look.after(SURE_AFTER, given)

    await until(lambda: promise(hall, "a") == [hall.card(1)], "the allocation to follow")
    await until(lambda: promise(hall, "b") == [hall.card(0)], "the allocation to follow")


async def test_of_two_on_one_card_the_one_that_was_not_promised_it_goes_but_not_at_once(hall):
    await bound(hall, "right", 0)
    await bound(hall, "wrong", 1)
    look, given = Look(hall), [has(hall, "right", 0), has(hall, "wrong", 0)]

    await look.after(0, given)
    assert await look.after(CLASH_AFTER - 1, given) == 1
    assert promise(hall, "wrong") == [hall.card(1)], "perhaps the other is only served late"
    await look.after(1, given)

    await until(lambda: not promise(hall, "wrong"), "the pod to go")
    assert promise(hall, "right") == [hall.card(0)]
    (note,) = told(hall)
    assert "it is deleted" in note
    assert look.counted("noticed", "followed", "removed") == [1, 0, 1]


async def test_a_pod_that_nobody_promised_anything_is_noted_only_where_there_is_a_ledger(hall):
    await bound(hall, "stranger")
    given = [has(hall, "stranger", 2)]
    for alone in (True, False):
        look = Look(hall, alone=alone)
        await look.after(0, given)
        await look.after(SURE_AFTER, given)
        assert len(told(hall)) == (0 if alone else 1)

    await until(lambda: _noted(hall), "an allocation")
    assert promise(hall, "stranger") == [hall.card(2)]


def _noted(hall: House) -> bool:
    found = hall.pods.named("stranger", hall.namespace)
    return found is not None and "gpu.mps.io/allocation" in found.metadata.annotations


async def test_nothing_is_done_while_the_kubelet_does_not_tell(hall):
    await bound(hall, "user", 0)
    look = Look(hall)

    await look.after(0, None)
    await look.after(CLASH_AFTER, None)

    assert told(hall) == []
    assert promise(hall, "user") == [hall.card(0)]
