"""Pools act on idle cards, on a real API server: Events, a drain of their own, and its removal."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.gpu.device import DRAIN, IDLE_MARK
from croupier.controllers.cards.idle import REASON, IdleCardController, IdleCardInformers, IdleCardOptions
from croupier.controllers.cards.metrics import DeviceMetrics
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import DeleteOptions
from croupier.kube.controller.events import EventRecorder
from tests.controllers import card_env
from tests.controllers.card_env import CardEnv
from tests.controllers.ledger_env import FakeWatchClock, running
from tests.polling import until_async

POOL = "idle-team"
SINCE = "2026-01-01T12:00:00Z"
DRAINED = f"idle since {SINCE} (spec.idle of pool {POOL})"


class IdleEnv:
    """A card of a pool that a pod holds, and the running controller."""

    def __init__(self, stage: CardEnv) -> None:
        self.stage = stage
        self.clock = FakeWatchClock()
        self.recorder = EventRecorder(stage.api, "gpupool-controller")
        devices, pools, pods = (stage.followed[kind] for kind in ("devices", "pools", "pods"))
        self.controller = IdleCardController(
            IdleCardInformers(devices, pools, pods, stage.fake_ledgers),
            stage.api,
            recorder=self.recorder,
            options=IdleCardOptions(clock=self.clock),
        )

    async def asks(self, **idle: str) -> None:
        """The pool's idle policy. None without arguments."""
        await self.stage.api.patch(kinds.GPU_POOLS, POOL, {"spec": {"idle": idle or None}})

    async def idle(self, since: str | None) -> None:
        """What the inventory controller writes from the agent's report."""
        stage = self.stage
        known: dict[str, Any] = {"nodeName": stage.node, "inventoryID": stage.card, "managed": True}
        status = known | ({"idleSince": since} if since else {})
        await stage.status(kinds.GPU_DEVICES, stage.card, "gpu-inventory-controller", status)

    async def annotate(self, **annotations: str | None) -> None:
        """A user's change."""
        meta = {"annotations": {f"gpu.deckhouse.io/{key}": value for key, value in annotations.items()}}
        await self.stage.api.patch(kinds.GPU_DEVICES, self.stage.card, {"metadata": meta})

    async def shows(self, drain: str | None, mark: str | None) -> None:
        async def right() -> bool:
            annotations = (await self.stage.device()).metadata.annotations
            return (annotations.get(DRAIN), annotations.get(IDLE_MARK)) == (drain, mark)

        await until_async(right, f"drain {drain!r} and mark {mark!r}")

    async def settled(self) -> set[str]:
        """The annotations after one more decision about the current state."""
        await self.stage.caught_up()
        await self.controller.reconcile(self.stage.card)
        return set((await self.stage.device()).metadata.annotations)

    async def told(self, uid: str) -> list[str]:
        """The notes of the Events about the idle card on this object."""
        events = (await self.stage.api.list(kinds.EVENTS)).items
        return [event.note for event in events if event.regarding.uid == uid and event.reason == REASON]


@pytest_asyncio.fixture
async def env(cluster: Any, crds: Any, shared_namespace: str) -> AsyncIterator[IdleEnv]:
    async with (
        api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api,
        card_env.card_env(api, shared_namespace) as stage,
        holder(stage) as pod,
    ):
        await stage.pools({POOL: {"allocation": {"mode": "Exclusive"}}})
        made = IdleEnv(stage)
        assigned = {"phase": "InUse", "state": "Reserved", "poolRef": {"name": POOL}}
        await stage.status(kinds.GPU_DEVICES, stage.card, "gpupool-controller", assigned)
        card = LedgerCard(stage.card, 0, holders={pod: 100})
        stage.fake_ledgers.put(Ledger(stage.node, (card,)))
        stop = asyncio.Event()
        async with running(made.recorder.run(stop)), running(made.controller.run(stop)):
            yield made


@contextlib.asynccontextmanager
async def holder(stage: CardEnv) -> AsyncIterator[str]:
    """A pod on the node; its name in the ledger."""
    spec = {"nodeName": stage.node, "containers": [{"name": "main", "image": "none"}]}
    pod = await stage.api.create(
        kinds.PODS, {"metadata": {"name": "idler"}, "spec": spec}, namespace=stage.namespace
    )
    yield f"{pod.metadata.key}/{pod.metadata.uid}"
    await stage.api.delete(kinds.PODS, "idler", namespace=stage.namespace, how=DeleteOptions(grace_seconds=0))


async def test_notify_tells_the_pods_and_the_pool_once(env: IdleEnv):
    await env.asks(after="2h", action="Notify")
    await env.idle(SINCE)
    await env.shows(None, f"Notify {SINCE}")

    api, namespace = env.stage.api, env.stage.namespace
    pool, pod = await api.get(kinds.GPU_POOLS, POOL), await api.get(kinds.PODS, "idler", namespace=namespace)
    for uid in (pool.metadata.uid, pod.metadata.uid):
        (note,) = await until_async(partial(env.told, uid), "the Event")
        assert note == f"no process of its holders has used card {env.stage.card} since {SINCE}"
    await env.idle(None)
    await env.shows(None, None)


async def test_drain_keeps_new_pods_off_until_the_card_is_used(env: IdleEnv):
    await env.asks(after="2h", action="Drain")
    await env.idle(SINCE)
    await env.shows(DRAINED, f"Drain {SINCE}")

    await env.idle(None)
    await env.shows(None, None)


async def test_the_drain_ends_with_the_policy(env: IdleEnv):
    await env.asks(after="2h", action="Drain")
    await env.idle(SINCE)
    await env.shows(DRAINED, f"Drain {SINCE}")

    await env.asks()
    await env.shows(None, None)


async def test_a_users_drain_stays(env: IdleEnv):
    await env.annotate(drain="repair")
    await env.asks(after="2h", action="Drain")
    await env.idle(SINCE)
    await env.shows("repair", f"Drain {SINCE}")

    await env.idle(None)
    await env.shows("repair", None)


async def test_a_drain_that_a_user_removed_is_not_set_again(env: IdleEnv):
    await env.asks(after="2h", action="Drain")
    await env.idle(SINCE)
    await env.shows(DRAINED, f"Drain {SINCE}")

    await env.annotate(drain=None)
    assert await env.settled() == {IDLE_MARK}
    await env.idle(None)
    await env.shows(None, None)


async def test_nothing_happens_without_a_policy_or_before_its_time(env: IdleEnv):
    soon = env.clock.now().replace(microsecond=0)
    await env.idle(soon.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert await env.settled() == set()
    await env.asks(after="1h", action="Drain")
    assert await env.settled() == set()

    env.clock.ahead += timedelta(hours=1)
    assert await env.settled() == {DRAIN, IDLE_MARK}
    mark = soon.strftime("Drain %Y-%m-%dT%H:%M:%SZ")
    await env.shows(mark.replace("Drain", "idle since") + f" (spec.idle of pool {POOL})", mark)


async def test_idle_cards_are_counted_by_pool(env: IdleEnv):
    registry = CollectorRegistry()
    DeviceMetrics(registry, env.stage.followed["devices"].store)

    def counted() -> float | None:
        return registry.get_sample_value("croupier_pool_idle_cards", {"pool": POOL})

    async def is_(number: float) -> bool:
        return counted() == number

    await until_async(lambda: is_(0), "no idle card")
    await env.idle(SINCE)
    await until_async(lambda: is_(1), "one idle card")
