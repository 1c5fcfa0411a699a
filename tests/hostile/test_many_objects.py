"""One tenant creates thousands of PodAllocations; another tenant's single one is served in its turn.

Asserted are numbers of reconciles, not times: the other tenant's key waits for one turn of the flood and the
keys that workers hold already, and objects beyond the limit cost one write.
"""

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from croupier.api import kinds
from croupier.controllers.limits.allocation_order import MAX_PER_POD
from croupier.controllers.limits.podallocation import PodAllocationController, PodAllocationOptions
from croupier.core.resizing.model import TOO_MANY
from croupier.kube.client import api_client, concurrency, config
from croupier.kube.client.api_client import Selection
from croupier.kube.client.identity import Key
from croupier.kube.controller.reconcile import DONE, Result
from croupier_lab import shared_cluster
from tests.controllers.limits_env import NODE, LimitsEnv
from tests.polling import until, until_async

SECONDS = 30
WORKERS = PodAllocationOptions().options.workers
SETTLE = 400.0
"""Seconds until ten thousand objects have a status; the machine may be slow."""


@pytest_asyncio.fixture
async def limits(cluster: Any, crds: Any, namespace: str) -> AsyncIterator[LimitsEnv]:
    """The environment of the other tenant; the controller serves all namespaces."""
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        made = LimitsEnv(api, namespace, watched=Selection())
        await made.node(cpu="16", memory="32Gi", pods="110")
        yield made
        await api.delete(kinds.NODES, NODE)


@pytest_asyncio.fixture
async def attacker(cluster: Any, crds: Any, limits: LimitsEnv) -> AsyncIterator[str]:
    """The namespace of the tenant who creates many objects."""
    name = shared_cluster.create_namespace(cluster, "attacker")
    yield name
    await limits.api.delete_collection(kinds.POD_ALLOCATIONS, Selection(name))
    shared_cluster.delete_namespace(cluster, name, shared_cluster.namespaced(crds))


async def flood(limits: LimitsEnv, namespace: str, objects: int, *, pods: int) -> None:
    def body(number: int) -> dict[str, Any]:
        spec = {"namespace": namespace, "podName": f"p{number % pods}", "desiredCPULimit": "100m"}
        return {"metadata": {"name": f"a{number:05}"}, "spec": spec}

    await concurrency.gather_limited(
        limits.api.create(kinds.POD_ALLOCATIONS, body(number), namespace=namespace)
        for number in range(objects)
    )


async def reasons(limits: LimitsEnv, namespace: str) -> dict[str, int]:
    """How many PodAllocations have each reason."""
    counts: dict[str, int] = {}
    for item in (await limits.api.list(kinds.POD_ALLOCATIONS, Selection(namespace))).items:
        code = item.status.reason.partition(":")[0]
        counts[code] = counts.get(code, 0) + 1
    return counts


async def test_one_allocation_is_not_delayed_by_thousands_of_another_tenant(limits, attacker, size, tell):
    limits.max_per_namespace = size.objects // 3
    await flood(limits, attacker, size.objects, pods=size.objects)
    await limits.runs("web")
    async with limits.moved() as made:
        await until(lambda: len(limits.order) > WORKERS, "the flood to be processed")
        began = time.monotonic()
        await limits.set_limit("web", "800m")
        await limits.has("web", main="800m")
        took, ours = time.monotonic() - began, Key(limits.namespace, "web")
        waited = limits.order.index(ours) - limits.arrived[ours]
        tell(f"{size.objects} objects of one tenant: another's was set in {took:.1f} s, after {waited} keys")
        assert waited <= WORKERS + 1, "one turn of the other namespace, and the keys that workers held"

        await until_async(lambda: settled(limits, attacker), "the flood to be answered", within=SETTLE)
        beyond = size.objects - limits.max_per_namespace
        assert await reasons(limits, attacker) == {"PodNotFound": limits.max_per_namespace, TOO_MANY: beyond}
        await waiting_objects_cost_nothing(limits, made, attacker)
        await the_next_one_counts_after_a_deletion(limits, attacker)


async def waiting_objects_cost_nothing(
    limits: LimitsEnv, made: PodAllocationController, attacker: str
) -> None:
    """No write. Objects beyond the limit ask for no reconcile, the others for one in a long time."""
    writes = limits.metric("mbcas_status_writes_total")
    items = (await limits.api.list(kinds.POD_ALLOCATIONS, Selection(attacker))).items
    for item in items:
        again = DONE if item.status.reason.startswith(TOO_MANY) else Result(limits.retries.most)
        assert await made.reconcile(Key(attacker, item.metadata.name)) == again
    assert made.controller.options.resync is None
    assert limits.metric("mbcas_status_writes_total") == writes


async def the_next_one_counts_after_a_deletion(limits: LimitsEnv, attacker: str) -> None:
    await limits.api.delete(kinds.POD_ALLOCATIONS, "a00000", namespace=attacker)

    async def promoted() -> bool:
        return (await reasons(limits, attacker))["PodNotFound"] == limits.max_per_namespace

    await until_async(promoted, "the next PodAllocation to count")


async def test_thousands_of_allocations_of_one_pod_are_not_compared_with_each_other(limits, attacker, size):
    """Each of them would otherwise reconcile all others, which grows with the square."""
    await flood(limits, attacker, size.objects, pods=1)
    async with limits.moved():
        await until_async(lambda: settled(limits, attacker), "the flood to be answered", within=SETTLE)
        assert await reasons(limits, attacker) == {
            "PodNotFound": MAX_PER_POD,
            TOO_MANY: size.objects - MAX_PER_POD,
        }
        assert len(limits.order) < 4 * size.objects


async def settled(limits: LimitsEnv, namespace: str) -> bool:
    return "" not in await reasons(limits, namespace)
