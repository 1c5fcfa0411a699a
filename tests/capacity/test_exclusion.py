"""The two capacity managers exclude each other, on a real API server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import pytest_asyncio

from croupier.capacity import exclusion
from croupier.capacity.exclusion import OtherManagerActive, SharedLease
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Raw
from croupier.kube.controller import lease
from croupier.kube.controller.lease import LEASES, LeaseRecord, LeaseTimings

QUICK = LeaseTimings(duration=1, renew_deadline=0.8, every=0.1)
KINDS: Any = ("InMemory", "CRD")


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@pytest.mark.parametrize("kind", KINDS)
async def test_no_other_manager_runs(api, namespace, kind):
    assert await exclusion.ensure_inactive(api, namespace, kind) == LeaseRecord()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("InMemory", "extender-0 runs the in-memory capacity manager .* stop that extender"),
        ("CRD", "extender-0 runs the CRD capacity manager .* stop all extenders and managers"),
    ],
)
async def test_a_running_manager_is_detected(api, namespace, kind, message):
    async with _renewed(api, exclusion.LEASE_OF[kind], namespace):
        with pytest.raises(OtherManagerActive, match=message):
            await exclusion.ensure_inactive(api, namespace, kind, terms=LeaseTimings(every=0.2))


@pytest.mark.parametrize("kind", KINDS)
async def test_an_expired_lease_is_ignored(api, namespace, kind):
    name = exclusion.LEASE_OF[kind]
    dead = lease.acquired(lease.new(name, namespace), "dead", now=SystemClock().now(), terms=QUICK)
    await api.create(LEASES, dead)

    expired = await exclusion.ensure_inactive(api, namespace, kind, terms=QUICK)

    assert expired.holder == "dead"


async def test_the_processes_of_the_crd_manager_share_one_lease(api, namespace):
    """A process that sees the renewal of another one writes nothing; the last one renews."""
    first, second = SharedLease(api, namespace, "first"), SharedLease(api, namespace, "second")
    await first.renew()
    await second.renew()
    assert await _holder(api, namespace) == "second"

    await first.renew()
    assert await _holder(api, namespace) == "second"
    await first.renew()
    assert await _holder(api, namespace) == "first"
    await second.renew()
    assert await _holder(api, namespace) == "first"


async def test_the_in_memory_manager_marks_the_lease_of_stopped_managers_as_released(api, namespace):
    await SharedLease(api, namespace, "stopped", terms=QUICK).renew()
    expired = await exclusion.ensure_inactive(api, namespace, "CRD", terms=QUICK)

    await exclusion.exclude_crd_managers(api, namespace, expired)

    assert await _holder(api, namespace) == ""
    await exclusion.exclude_crd_managers(api, namespace, LeaseRecord())  # again, in the next leadership


async def test_a_crd_manager_that_started_in_the_meantime_wins(api, namespace):
    """It renewed the Lease after it was observed: before the last check, or during it."""
    shared = SharedLease(api, namespace, "early", terms=QUICK)
    await shared.renew()
    expired = await exclusion.ensure_inactive(api, namespace, "CRD", terms=QUICK)
    await SharedLease(api, namespace, "late").renew()

    with pytest.raises(OtherManagerActive, match="late runs the CRD capacity manager"):
        await exclusion.exclude_crd_managers(api, namespace, expired)
    assert await _holder(api, namespace) == "late"


async def test_a_renewal_during_the_last_check_is_noticed(api, namespace, monkeypatch):
    await SharedLease(api, namespace, "early", terms=QUICK).renew()
    expired = await exclusion.ensure_inactive(api, namespace, "CRD", terms=QUICK)
    update = api.update

    async def too_late(resource: Any, body: Any, **options: Any) -> Any:
        monkeypatch.setattr(api, "update", update)
        await SharedLease(api, namespace, "late").renew()
        return await update(resource, body, **options)

    monkeypatch.setattr(api, "update", too_late)
    with pytest.raises(OtherManagerActive):
        await exclusion.exclude_crd_managers(api, namespace, expired)
    assert await _holder(api, namespace) == "late"


async def test_processes_that_start_at_the_same_time_never_both_serve(api, namespace):
    """Each kind writes its own Lease before it reads the other one."""

    async def in_memory() -> bool:
        try:
            expired = await exclusion.ensure_inactive(api, namespace, "CRD", terms=QUICK)
            book = lease.new(exclusion.LEASE_OF["InMemory"], namespace)
            await api.create(LEASES, lease.acquired(book, "memory", now=SystemClock().now(), terms=QUICK))
            await exclusion.exclude_crd_managers(api, namespace, expired)
        except OtherManagerActive:
            return False
        return True

    async def shared() -> bool:
        await SharedLease(api, namespace, "late").renew()
        return not (await exclusion.ensure_inactive(api, namespace, "InMemory", terms=QUICK)).holder

    for _ in range(8):
        assert not all(await asyncio.gather(in_memory(), shared()))
        for name in exclusion.LEASE_OF.values():
            await _delete(api, name, namespace)


async def _delete(api: Client, name: str, namespace: str) -> None:
    with suppress(NotFound):
        await api.delete(LEASES, name, namespace=namespace)


async def _holder(api: Client, namespace: str) -> str:
    current = await api.get(LEASES, exclusion.LEASE_OF["CRD"], namespace=namespace)
    return lease.read(current).holder


@asynccontextmanager
async def _renewed(api: Client, name: str, namespace: str) -> AsyncIterator[None]:
    """A Lease that another process renews all the time."""

    def next_body(held: Raw) -> Raw:
        return lease.acquired(held, "extender-0", now=SystemClock().now(), terms=LeaseTimings())

    async def renew(held: Raw) -> None:
        while True:
            held = await api.update(LEASES, next_body(held))
            await asyncio.sleep(0.05)

    renewing = asyncio.create_task(renew(await api.create(LEASES, next_body(lease.new(name, namespace)))))
    try:
        yield
    finally:
        renewing.cancel()
        await asyncio.wait([renewing])
