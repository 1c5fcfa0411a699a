"""Bookings of waiting pods on a real cluster: counted, bound, expired, and reported once."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.core_v1 import Event
from croupier.controllers.pools import booking
from croupier.controllers.pools.booking import EXPIRED, WAITING_PODS, BookingMetrics, BookingOptions, Bookings
from croupier.core.pods.request_parser import POOL
from croupier.core.pools.booking import TTL
from croupier.core.pools.hints import POD_LABEL
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, DeleteOptions, Selection
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from croupier_lab import shared_cluster
from tests.controllers.ledger_env import FakeWatchClock, running, watched
from tests.polling import until, until_async

TEAM = "booked-team"
NODE = "booked-node"
WITHIN = 60.0


@dataclass
class BookingEnv:
    api: Client
    namespace: str
    clock: FakeWatchClock = field(default_factory=FakeWatchClock)
    ttl: timedelta = TTL
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    heard: list[str] = field(default_factory=list)
    bookings: Bookings | None = None

    @contextlib.asynccontextmanager
    async def opens(self) -> AsyncIterator[Bookings]:
        """Run a new controller without history."""
        stop = asyncio.Event()
        recorder = EventRecorder(self.api, booking.REPORTER, naming=events.stable_name)
        chosen = Selection(self.namespace, labels=WAITING_PODS.labels, fields=WAITING_PODS.fields)
        self.registry = CollectorRegistry()
        settings = BookingOptions(self.ttl, clock=self.clock, expiry_metrics=BookingMetrics(self.registry))
        async with (
            watched(self.api, kinds.PODS, chosen) as pods,
            watched(self.api, kinds.GPU_POOLS, Selection()) as pools,
        ):
            made = Bookings(pods, pools, recorder, settings)
            made.subscribe(self.heard.append)
            async with running(made.run(stop)):
                recording = asyncio.create_task(recorder.run(stop))
                try:
                    yield made
                finally:
                    stop.set()
                    await recording

    async def pod(self, name: str, *units: int, early: int = 0, labelled: bool = True) -> None:
        containers = [_container(f"c{number}", amount) for number, amount in enumerate(units)]
        body: dict[str, Any] = {
            "metadata": {"name": name, "labels": {POD_LABEL: TEAM} if labelled else {}},
            "spec": {"schedulerName": "none", "containers": containers},
        }
        if early:
            body["spec"]["initContainers"] = [_container("early", early)]
        await self.api.create(kinds.PODS, body, namespace=self.namespace)

    async def bind(self, name: str) -> None:
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
        await self.api.create(kinds.PODS, body, namespace=self.namespace, name=name, subresource="binding")

    async def told(self) -> list[Event]:
        """Expiry Events of the pods and of the pool."""
        listed = [
            *(await self.api.list(kinds.EVENTS, Selection(self.namespace))).items,
            *(await self.api.list(kinds.EVENTS, Selection("default"))).items,
        ]
        return [event for event in listed if event.reason == EXPIRED and f"{self.namespace}/" in event.note]

    def metric(self) -> float | None:
        return self.registry.get_sample_value("croupier_bookings_expired_total", {"pool": TEAM})


def _container(name: str, units: int) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": {"limits": {f"{POOL}{TEAM}": str(units)}}}


@pytest.fixture
def booking_namespace(cluster: Any, crds: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    name = shared_cluster.create_namespace(cluster, request.node.name)
    yield name
    shared_cluster.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def env(cluster: Any, booking_namespace: str, clean_cluster: None) -> AsyncIterator[BookingEnv]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        await api.create(kinds.NODES, {"metadata": {"name": NODE}})
        pool = {"metadata": {"name": TEAM}, "spec": {"allocation": {"mode": "Exclusive"}}}
        await api.create(kinds.GPU_POOLS, pool)
        yield BookingEnv(api, booking_namespace)
        everything = Selection(booking_namespace)
        await api.delete_collection(kinds.PODS, everything, how=DeleteOptions(grace_seconds=0))


async def test_booked_units_follow_the_pods(env: BookingEnv):
    async with env.opens() as bookings:
        await env.pod("plain", 2)
        await env.pod("many", 1, 1, early=5)
        await env.pod("stranger", 7, labelled=False)
        await until(lambda: env.heard.count(TEAM) >= 1, "the subscriber to be notified", WITHIN)
        await until(lambda: bookings.booked(TEAM) == 7, "both to be booked", WITHIN)
        assert bookings.booked("another") == 0

        await env.bind("many")
        await until(lambda: bookings.booked(TEAM) == 2, "the bound pod to leave the bookings", WITHIN)
        done = {"status": {"phase": "Failed"}}
        await env.api.patch(kinds.PODS, "plain", done, namespace=env.namespace, subresource="status")
        await until(lambda: bookings.booked(TEAM) == 0, "the failed pod to leave the bookings", WITHIN)
        assert await env.told() == []
        assert env.metric() == 0


async def test_an_expiry_is_reported_once_across_leaders(env: BookingEnv):
    async with env.opens() as bookings:
        await env.pod("late", 3)
        await until(lambda: bookings.booked(TEAM) == 3, "it to be booked", WITHIN)
        heard = len(env.heard)
        env.clock.ahead = TTL + timedelta(seconds=2)
        bookings.controller.add(TEAM)

        reported = await until_async(lambda: _all_told(env), "both Events", WITHIN)
        assert len(env.heard) > heard
        assert (bookings.booked(TEAM), env.metric()) == (0, 1)
        bookings.controller.add(TEAM)
        bookings.controller.add(TEAM)

    async with env.opens() as again:
        await until(lambda: env.metric() == 1, "the new controller to reconcile", WITHIN)
        assert again.booked(TEAM) == 0

    assert {event.regarding.kind for event in reported} == {"Pod", "GPUPool"}
    assert {event.note for event in reported} == {
        f"the booking of 3 of pool {TEAM} by pod {env.namespace}/late expired after 120 s without a node: "
        "other pods may use the units, and this pod is still scheduled when units are free"
    }
    assert {event.reporting_controller for event in reported} == {"gpu-admission-webhook"}
    after = await env.told()
    assert {event.metadata.uid for event in after} == {event.metadata.uid for event in reported}
    assert all(event.series is None for event in after)


async def _all_told(env: BookingEnv) -> list[Event]:
    reported = await env.told()
    return reported if len(reported) >= 2 else []


async def test_a_booking_expires_without_any_event(env: BookingEnv):
    env.ttl = timedelta(seconds=2)
    async with env.opens() as bookings:
        await env.pod("late", 1)

        await until_async(lambda: _all_told(env), "both Events", WITHIN)

        assert bookings.booked(TEAM) == 0
        await env.api.delete(kinds.GPU_POOLS, TEAM)
        await until(lambda: env.metric() is None, "the series of the pool to be removed", WITHIN)
