"""Controllers leave nothing behind after a leadership: indexes and subscribers end with it."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.settings_state import ActiveSettings
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.controller.lease import LEASES
from croupier.kube.serving.health import HealthChecks
from croupier.kube.serving.metrics import ProcessMetrics
from croupier.wiring import elections, manager
from croupier.wiring.live_settings import LiveSettings
from croupier.wiring.process_context import ProcessContext, ProcessOptions
from croupier.wiring.service_options import ServiceOptions
from tests.polling import until

TIMEOUT = 60.0
OFF = ActiveSettings(enabled=False)
LEADERSHIPS = 10
QUEUE_KINDS = (
    *(
        kind.full_name
        for kind in (
            kinds.NODES,
            kinds.GPU_DEVICES,
            kinds.GPU_POOLS,
            kinds.RESERVATIONS,
            kinds.POD_ALLOCATIONS,
        )
    ),
    "leases of node agents",
    "pods that wait for a pool",
)
"""Caches with subscribers during a leadership."""


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@contextlib.asynccontextmanager
async def managed(api: Client, namespace: str) -> AsyncIterator[ProcessContext]:
    """All controllers of a disabled manager, in this process."""
    settings = ProcessOptions(book="CRD", namespace=namespace)
    surface = ProcessContext(
        api, ProcessMetrics(CollectorRegistry()), HealthChecks(), settings, LiveSettings(OFF)
    )
    stop = asyncio.Event()
    parts = manager.components(surface, manager.CONTROLLERS, ServiceOptions())
    working = asyncio.gather(*(part.run(stop) for part in parts))
    try:
        yield surface
    finally:
        stop.set()
        await working


def listeners(surface: ProcessContext) -> dict[tuple[str, str], float]:
    """Indexes and subscribers, by cache and kind."""
    return {
        (sample.labels["resource"], sample.labels["kind"]): sample.value
        for family in surface.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "croupier_store_listeners"
    }


def is_leader(surface: ProcessContext) -> bool:
    """All leases are held, and the ledger's capacity manager has subscribed to its cache."""
    families = surface.metrics.registry.collect()
    leaders = [
        sample.value for family in families for sample in family.samples if sample.name == "croupier_leader"
    ]
    readers = listeners(surface)[kinds.NODE_RESERVATIONS.full_name, "subscriber"]
    return sum(leaders) == len(manager.CONTROLLERS) and readers == 2


@pytest.mark.usefixtures("clean_cluster")
async def test_ten_leaderships_leave_as_many_indexes_and_subscribers_as_one(api, namespace):
    wish = {"namespace": namespace, "podName": "missing", "desiredCPULimit": "1"}
    await api.create(
        kinds.POD_ALLOCATIONS.raw, {"metadata": {"name": "a", "namespace": namespace}, "spec": wish}
    )
    async with managed(api, namespace) as surface:
        await until(lambda: is_leader(surface), "all to lead", TIMEOUT)
        idle = listeners(surface)

        def at_work() -> bool:
            now = listeners(surface)
            return all(now[cache, "subscriber"] > idle[cache, "subscriber"] for cache in QUEUE_KINDS)

        for _ in range(LEADERSHIPS):
            surface.live_settings.update(ActiveSettings())
            await until(at_work, "every controller to work", TIMEOUT)
            surface.live_settings.update(OFF)
            await until(lambda: listeners(surface) == idle, f"{idle} again", TIMEOUT)


class ListCounter:
    """Counts the lists of the kinds that only the caches of the inventory group read."""

    KINDS = tuple(kind.full_name for kind in (kinds.LEASES, kinds.GPU_DEVICES, kinds.GPU_NODE_INVENTORIES))

    def __init__(self) -> None:
        self.lists: Counter[str] = Counter()

    def observe(self, verb: str, resource: str, code: int, _seconds: float) -> None:
        if verb == "list" and code == 200 and resource in self.KINDS:
            self.lists[resource] += 1


def leading(surface: ProcessContext) -> dict[str, float]:
    return {
        sample.labels["lease"]: sample.value
        for family in surface.metrics.registry.collect()
        for sample in family.samples
        if sample.name == "croupier_leader"
    }


@pytest.mark.usefixtures("clean_cluster")
async def test_the_loss_of_one_lease_stops_no_other_group_and_lists_nothing(cluster, api, namespace):
    counter, lost = ListCounter(), f"{namespace}/{elections.INVENTORY}"
    async with (
        api_client.connect(config.load(cluster.kubeconfig), observe=counter.observe) as own,
        managed(own, namespace) as surface,
    ):
        surface.live_settings.update(ActiveSettings())
        without_limits = len(manager.CONTROLLERS) - 1  # without a PodAllocation, that group does not start
        await until(lambda: sum(leading(surface).values()) == without_limits, "all to lead", TIMEOUT)
        await until(lambda: surface.checks.ready["caches"]() is None, "the caches", TIMEOUT)
        before, others = (
            counter.lists.copy(),
            {name for name, leads in leading(surface).items() if leads} - {lost},
        )
        renewed = {name: await holder(api, name) for name in others}

        stolen = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 1}}
        await api.patch(LEASES, elections.INVENTORY, stolen, namespace=namespace)
        await until(lambda: not leading(surface)[lost], "the loss", TIMEOUT)
        assert all(leading(surface)[name] for name in others)
        await until(lambda: leading(surface)[lost], "the group to lead again", TIMEOUT)

        assert {name: await holder(api, name) for name in others} == renewed
        assert counter.lists == before != Counter()


async def holder(api: Client, path: str) -> tuple[str, str]:
    """The holder of a Lease and since when; both change with a new leadership."""
    namespace, name = path.split("/")
    spec = (await api.get(LEASES, name, namespace=namespace))["spec"]
    return spec["holderIdentity"], spec["acquireTime"]


def exported(surface: ProcessContext) -> dict[str, float]:
    """The metrics about the cluster that a process exports without labels of nodes or pools."""
    return {
        sample.name: sample.value
        for family in surface.metrics.registry.collect()
        for sample in family.samples
        if sample.name in ("reservations_active", "gpu_device_unassigned_total")
    }


@pytest.mark.usefixtures("clean_cluster")
async def test_only_the_leader_exports_metrics_about_the_cluster(api, namespace):
    spec = {"podKey": f"{namespace}/x", "nodeName": "node-1", "numCards": 1, "percentPerCard": 10}
    made = {"metadata": {"name": "held", "namespace": namespace}, "spec": spec}
    await api.create(kinds.RESERVATIONS, made)
    reserved = {"status": {"phase": "Reserved"}}
    await api.patch(kinds.RESERVATIONS, "held", reserved, namespace=namespace, subresource="status")
    complete = {"reservations_active": 1.0, "gpu_device_unassigned_total": 0.0}
    async with contextlib.AsyncExitStack() as first_process:
        first = await first_process.enter_async_context(managed(api, namespace))
        await until(lambda: exported(first) == complete, "the first process to export", TIMEOUT)
        async with managed(api, namespace) as second:
            synced = "reservations.mps.nvidia.com"

            def knows_it() -> bool:
                families = second.metrics.registry.collect()
                samples = [sample for family in families for sample in family.samples]
                return any(
                    sample.name == "croupier_store_objects"
                    and (sample.labels["resource"], sample.value) == (synced, 1)
                    for sample in samples
                )

            await until(knows_it, "the second process to have the Reservation", TIMEOUT)
            assert exported(second) == {}, "it is not the leader"
            await first_process.aclose()
            await until(lambda: exported(second) == complete, "the second process to export", TIMEOUT)
    await api.delete(kinds.RESERVATIONS, "held", namespace=namespace)
