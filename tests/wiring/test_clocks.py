"""A process on a machine with a wrong clock: nothing ends too early, and nothing is kept too long."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import SystemClock
from croupier.kube.serving.health import HealthChecks
from croupier.kube.serving.metrics import ProcessMetrics
from croupier.wiring import manager
from croupier.wiring.process_context import ProcessContext, ProcessOptions
from croupier.wiring.service_options import ServiceOptions
from tests.polling import until_async

TIMEOUT = 60.0
NODE = "worker-1"
SERVER_CLOCK = "croupier.kube.client.server_clock"
OWN_TIME = ("croupier.kube.controller.events",)
"""Modules that may use the clock of the machine: the time of an Event is not compared with anything."""


class MachineClock:
    """Shifts the clock of the machine, and records which modules read it."""

    def __init__(self, hours: float) -> None:
        self.hours = hours
        self.readers: set[str] = set()
        self._right = SystemClock.now

    def now(self, clock: SystemClock) -> datetime:
        self.readers.add(sys._getframe(2).f_globals["__name__"])
        return self._right(clock) + timedelta(hours=self.hours)


@pytest.fixture(params=[1.0, -1.0], ids=["ahead", "behind"])
def machine(request: Any, monkeypatch: Any) -> MachineClock:
    clock = MachineClock(request.param)

    def now(self: SystemClock) -> datetime:
        return clock.now(self)

    monkeypatch.setattr(SystemClock, "now", now)
    return clock


@contextlib.asynccontextmanager
async def managed(api: Client, namespace: str) -> AsyncIterator[None]:
    """All controllers of a manager in this process."""
    settings = ProcessOptions(book="CRD", namespace=namespace)
    context = ProcessContext(api, ProcessMetrics(CollectorRegistry()), HealthChecks(), settings)
    stop = asyncio.Event()
    parts = manager.components(context, manager.CONTROLLERS, ServiceOptions())
    working = asyncio.gather(*(part.run(stop) for part in parts))
    try:
        yield
    finally:
        stop.set()
        await working


async def reserve(api: Client, namespace: str, name: str, ttl: int) -> None:
    spec = {"podKey": f"{namespace}/{name}", "nodeName": NODE, "numCards": 1, "percentPerCard": 20}
    body = {"metadata": {"name": name}, "spec": {**spec, "ttlSeconds": ttl}}
    await api.create(kinds.RESERVATIONS, body, namespace=namespace)


async def phase(api: Client, namespace: str, name: str) -> str:
    return (await api.get(kinds.RESERVATIONS, name, namespace=namespace)).status.phase


async def test_reservations_end_by_the_time_of_the_api_server(cluster, clean_cluster, namespace, machine):
    async with api_client.connect(config.load(cluster.kubeconfig)) as api, managed(api, namespace):
        await api.create(kinds.NODES, {"metadata": {"name": NODE}})
        offered = {"nvidia.com/gpu": "1"}
        status = {"status": {"allocatable": offered, "capacity": offered}}
        await api.patch(kinds.NODES, NODE, status, subresource="status")
        await reserve(api, namespace, "long", 600)
        await reserve(api, namespace, "short", 5)

        async def ended() -> bool:
            return await phase(api, namespace, "short") == "Released"

        await until_async(ended, "the short Reservation to expire", within=TIMEOUT)
        long = await api.get(kinds.RESERVATIONS, "long", namespace=namespace)
        assert long.status.phase == "Reserved"
        assert long.status.last_update_time is not None
        assert long.metadata.creation_timestamp is not None
        assert abs(long.status.last_update_time - long.metadata.creation_timestamp) < timedelta(minutes=10)
        for name in ("long", "short"):
            await api.delete(kinds.RESERVATIONS, name, namespace=namespace)

        async def gone() -> bool:
            return not (await api.list(kinds.RESERVATIONS)).items

        await until_async(gone, "the Reservations to be deleted", within=TIMEOUT)

    assert machine.readers - {SERVER_CLOCK, *OWN_TIME} == set()
