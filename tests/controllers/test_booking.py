"""Pods that wait for a pool, on a real cluster: counted, bound, expired, and told of once."""

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
from croupier.controllers.pools.booking import EXPIRED, WAITING, BookingMetrics, Bookings, Settings
from croupier.core.pods.request import POOL
from croupier.core.pools.booking import TTL
from croupier.core.pools.hints import POD_LABEL
from croupier.kube import client, config
from croupier.kube.client import Client, Deletion, Selection
from croupier.kube.events import Recorder
from croupier.lab import borrowed
from tests.controllers.world import Watch, running, watched
from tests.kube.waiting import until, until_async

TEAM = "booked-team"
NODE = "booked-node"
WITHIN = 60.0


@dataclass
class Office:
    api: Client
    namespace: str
    clock: Watch = field(default_factory=Watch)
    ttl: timedelta = TTL
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    heard: list[str] = field(default_factory=list)
    bookings: Bookings | None = None

    @contextlib.asynccontextmanager
    async def opens(self) -> AsyncIterator[Bookings]:
        """One who comes to office and knows nothing."""
        stop = asyncio.Event()
        recorder = Recorder(self.api, booking.REPORTER, naming=booking.naming)
        chosen = Selection(self.namespace, labels=WAITING.labels, fields=WAITING.fields)
        self.registry = CollectorRegistry()
        settings = Settings(self.ttl, clock=self.clock, figures=BookingMetrics(self.registry))
        async with (
            watched(self.api, kinds.PODS, chosen) as pods,
            watched(self.api, kinds.GPU_POOLS, Selection()) as pools,
        ):
            made = Bookings(pods, pools, recorder, settings)
            made.subscribe(self.heard.append)
            async with running(made.run(stop)):
                telling = asyncio.create_task(recorder.run(stop))
                try:
                    yield made
                finally:
                    stop.set()
                    await telling

    async def pod(self, name: str, *units: int, early: int = 0, labelled: bool = True) -> None:
        containers = [_container(f"c{number}", one) for number, one in enumerate(units)]
        body: dict[str, Any] = {
            "metadata": {"name": name, "labels": {POD_LABEL: TEAM} if labelled else {}},
            "spec": {"schedulerName": "nobody", "containers": containers},
        }
        if early:
            body["spec"]["initContainers"] = [_container("early", early)]
        await self.api.create(kinds.PODS, body, namespace=self.namespace)

    async def bind(self, name: str) -> None:
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
        await self.api.create(kinds.PODS, body, namespace=self.namespace, name=name, subresource="binding")

    async def told(self) -> list[Event]:
        """About our pods, and about the pool because of them."""
        listed = [
            *(await self.api.list(kinds.EVENTS, Selection(self.namespace))).items,
            *(await self.api.list(kinds.EVENTS, Selection("default"))).items,
        ]
        return [one for one in listed if one.reason == EXPIRED and f"{self.namespace}/" in one.note]

    def metric(self) -> float | None:
        return self.registry.get_sample_value("gpu_reservations_expired_total", {"pool": TEAM})


def _container(name: str, units: int) -> dict[str, Any]:
    return {"name": name, "image": "none", "resources": {"limits": {f"{POOL}{TEAM}": str(units)}}}


@pytest.fixture
def district(cluster: Any, crds: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    name = borrowed.create_namespace(cluster, request.node.name)
    yield name
    borrowed.delete_namespace(cluster, name)


@pytest_asyncio.fixture
async def office(cluster: Any, district: str, clean_cluster: None) -> AsyncIterator[Office]:
    async with client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        await api.create(kinds.NODES, {"metadata": {"name": NODE}})
        pool = {"metadata": {"name": TEAM}, "spec": {"allocation": {"mode": "Exclusive"}}}
        await api.create(kinds.GPU_POOLS, pool)
        yield Office(api, district)
        everything = Selection(district)
        await api.delete_collection(kinds.PODS, everything, how=Deletion(grace_seconds=0))


async def test_what_is_booked_follows_the_pods(office: Office):
    async with office.opens() as bookings:
        await office.pod("plain", 2)
        await office.pod("many", 1, 1, early=5)
        await office.pod("stranger", 7, labelled=False)
        await until(lambda: office.heard.count(TEAM) >= 1, "whoever listens to hear of it", WITHIN)
        await until(lambda: bookings.booked(TEAM) == 7, "both to be booked", WITHIN)
        assert bookings.booked("another") == 0

        await office.bind("many")
        await until(lambda: bookings.booked(TEAM) == 2, "the bound one to hold instead of book", WITHIN)
        done = {"status": {"phase": "Failed"}}
        await office.api.patch(kinds.PODS, "plain", done, namespace=office.namespace, subresource="status")
        await until(lambda: bookings.booked(TEAM) == 0, "a failed one to book nothing", WITHIN)
        assert await office.told() == []
        assert office.metric() == 0


async def test_an_end_is_told_once_whoever_comes_to_office(office: Office):
    async with office.opens() as bookings:
        await office.pod("late", 3)
        await until(lambda: bookings.booked(TEAM) == 3, "it to be booked", WITHIN)
        heard = len(office.heard)
        office.clock.ahead = TTL + timedelta(seconds=2)
        bookings.controller.add(TEAM)

        told = await until_async(lambda: _all_told(office), "both Events", WITHIN)
        assert len(office.heard) > heard
        assert (bookings.booked(TEAM), office.metric()) == (0, 1)
        bookings.controller.add(TEAM)
        bookings.controller.add(TEAM)

    async with office.opens() as again:
        await until(lambda: office.metric() == 1, "the new one to look", WITHIN)
        assert again.booked(TEAM) == 0

    assert {one.regarding.kind for one in told} == {"Pod", "GPUPool"}
    assert {one.note for one in told} == {
        f"the booking of 3 of pool {TEAM} by pod {office.namespace}/late expired after 120 s without a node: "
        "others may have them now, and the pod is still bound when there is room"
    }
    assert {one.reporting_controller for one in told} == {"gpu-admission-webhook"}
    after = await office.told()
    assert {one.metadata.uid for one in after} == {one.metadata.uid for one in told}
    assert all(one.series is None for one in after)


async def _all_told(office: Office) -> list[Event]:
    told = await office.told()
    return told if len(told) >= 2 else []


async def test_time_alone_ends_a_booking(office: Office):
    office.ttl = timedelta(seconds=2)
    async with office.opens() as bookings:
        await office.pod("late", 1)

        await until_async(lambda: _all_told(office), "both Events", WITHIN)

        assert bookings.booked(TEAM) == 0
        await office.api.delete(kinds.GPU_POOLS, TEAM)
        await until(lambda: office.metric() is None, "the series of the pool to go with it", WITHIN)
