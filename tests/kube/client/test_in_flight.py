"""Requests in flight are limited, except renewals of Leases; a queued write is fenced when it is sent."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from aiohttp import web

from croupier.kube.client import api_client
from croupier.kube.client.api_client import Client
from croupier.kube.client.config import Config
from croupier.kube.client.retry import RetryOptions
from croupier.kube.controller.leader_election import NotLeader
from croupier.kube.controller.lease import LEASES
from tests.kube.builders import CONFIG_MAPS, config_map
from tests.polling import until

LIMIT = 4


class SlowEndpoint:
    """A loopback server that answers nothing until it is opened, and counts what it received."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.received: Counter[str] = Counter()
        self.waiting = 0
        self.most = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.received[f"{request.method} {request.path.rsplit('/', 2)[1]}"] += 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        await self.opened.wait()
        await asyncio.sleep(0)
        self.waiting -= 1
        return web.json_response({"metadata": {"name": "a", "namespace": "ns"}})

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            self.opened.set()
            await runner.cleanup()


@pytest_asyncio.fixture
async def endpoint() -> AsyncIterator[SlowEndpoint]:
    yield SlowEndpoint()


@pytest_asyncio.fixture
async def api(endpoint: SlowEndpoint) -> AsyncIterator[Client]:
    async with (
        endpoint.serve() as url,
        api_client.connect(Config(server=url), retry=RetryOptions(in_flight=LIMIT)) as connected,
    ):
        yield connected


def read(api: Client, count: int) -> "list[asyncio.Task[object]]":
    async def one() -> object:
        return await api.get(CONFIG_MAPS, "a", namespace="ns")

    return [asyncio.create_task(one()) for _ in range(count)]


async def test_a_lease_is_renewed_while_all_slots_are_taken(api, endpoint):
    reads = read(api, 3 * LIMIT)
    await until(lambda: endpoint.waiting == LIMIT, "the limit to be reached")

    renewal = asyncio.create_task(api.prioritized(60.0).get(LEASES, "a", namespace="ns"))
    await until(lambda: endpoint.received["GET leases"] == 1, "the renewal")
    endpoint.opened.set()
    await renewal
    await asyncio.gather(*reads)

    assert endpoint.received["GET configmaps"] == 3 * LIMIT
    assert endpoint.most == LIMIT + 1


async def test_cancelled_requests_give_their_slots_back(api, endpoint):
    """Both requests that were sent and requests that wait for a slot."""
    cancelled = read(api, 3 * LIMIT)
    await until(lambda: endpoint.waiting == LIMIT, "the limit to be reached")
    for task in cancelled:
        task.cancel()
    await asyncio.wait(cancelled)
    endpoint.opened.set()

    await asyncio.gather(*read(api, 2 * LIMIT))


async def test_a_write_that_waited_for_a_slot_is_refused_after_the_lease_was_lost(api, endpoint):
    led = True

    def permit() -> None:
        if not led:
            raise NotLeader("the lease was lost")

    reads = read(api, LIMIT)
    await until(lambda: endpoint.waiting == LIMIT, "the limit to be reached")
    fenced = api.fenced(permit)
    write = asyncio.create_task(fenced.create(CONFIG_MAPS, config_map("a"), namespace="ns"))
    await asyncio.sleep(0)
    led = False
    endpoint.opened.set()

    with pytest.raises(NotLeader):
        await write
    await asyncio.gather(*reads)
    assert not [request for request in endpoint.received if request.startswith("POST")]
