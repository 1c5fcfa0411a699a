"""A busy API server: real 429s with Retry-After, from its own priority and fairness.

The user `busy` gets a priority level without seats. Such a level still serves
one request at a time, so one that never ends takes that place, and everything
else is refused until it does end.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime

import aiohttp
import pytest

from croupier.kube.client import api_client, config, transport
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.config import Config
from croupier.kube.client.credentials import Credential
from croupier.kube.client.errors import NotFound, TooManyRequests
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.client.retry import RetryOptions
from tests.kube.builders import CONFIG_MAPS, config_map
from tests.polling import until, until_async

FLOW = "flowcontrol.apiserver.k8s.io"
LEVELS: Resource[Raw] = Resource(
    FLOW, "v1", "prioritylevelconfigurations", "PriorityLevelConfiguration", False, dict
)
SCHEMAS: Resource[Raw] = Resource(FLOW, "v1", "flowschemas", "FlowSchema", False, dict)
BINDINGS: Resource[Raw] = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False, dict
)

NO_SEATS = {
    "metadata": {"name": "no-seats"},
    "spec": {
        "type": "Limited",
        "limited": {
            "nominalConcurrencyShares": 0,
            "lendablePercent": 0,
            "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        },
    },
}
EVERY_RESOURCE = {
    "verbs": ["*"],
    "apiGroups": ["*"],
    "resources": ["*"],
    "namespaces": ["*"],
    "clusterScope": True,
}
FOR_BUSY = {
    "metadata": {"name": "busy"},
    "spec": {
        "priorityLevelConfiguration": {"name": "no-seats"},
        "matchingPrecedence": 2,
        "rules": [
            {"subjects": [{"kind": "User", "user": {"name": "busy"}}], "resourceRules": [EVERY_RESOURCE]}
        ],
    },
}
ADMIN = {
    "metadata": {"name": "busy"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "busy"}],
}


class FastClock:
    """A clock whose sleeps take no time, and which records them."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> datetime:
        return SystemClock().now()

    def monotonic(self) -> float:
        return SystemClock().monotonic()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


@asynccontextmanager
async def no_seat_for(busy: Config, admin: Client) -> AsyncIterator[None]:
    """Inside the block, every request of the user `busy` is refused."""
    for resource, body in ((BINDINGS, ADMIN), (LEVELS, NO_SEATS), (SCHEMAS, FOR_BUSY)):
        await admin.apply(resource, body)
    done = asyncio.Event()
    async with api_client.connect(busy, retry=RetryOptions(tries=1)) as api, asyncio.TaskGroup() as group:

        async def refused_by_now() -> bool:
            """A request from before the level was active has another seat, so send a new one each time."""
            group.create_task(take_the_seat(busy, done))
            await asyncio.sleep(0.2)
            return await refused(api)

        try:
            await until_async(refused_by_now, "the API server to refuse")
            yield
        finally:
            done.set()


async def take_the_seat(busy: Config, done: asyncio.Event) -> None:
    """A request whose body does not end before `done` is set."""

    async def body() -> AsyncIterator[bytes]:
        yield b'{"kind":'
        await done.wait()
        yield b"null}"

    url = f"{busy.server}/api/v1/namespaces/default/configmaps"
    headers = {"Impersonate-User": "busy", "Content-Type": "application/json"}
    tls = transport.tls(busy, Credential())
    async with aiohttp.ClientSession() as session:
        with suppress(aiohttp.ClientError):  # the seat is taken already
            await session.post(url, data=body(), headers=headers, ssl=tls)


async def refused(api: Client) -> bool:
    try:
        await api.get(CONFIG_MAPS, "any", namespace="default")
    except TooManyRequests:
        return True
    except NotFound:
        return False
    return False


async def test_retry_after_is_honoured_within_bounds_and_then_the_write_succeeds(private_lab):
    lab = await private_lab()
    mine = config.load(lab.kubeconfig)
    busy = replace(mine, impersonate={"Impersonate-User": ("busy",)})
    codes: list[int] = []
    clock = FastClock()

    def observe(_verb: str, _resource: str, code: int, _seconds: float) -> None:
        codes.append(code)

    async with (
        api_client.connect(mine) as admin,
        api_client.connect(
            busy, clock=clock, observe=observe, retry=RetryOptions(tries=4), chance=lambda: 0.5
        ) as api,
    ):
        async with no_seat_for(busy, admin):
            with pytest.raises(TooManyRequests) as caught:
                await api.create(CONFIG_MAPS, config_map(), namespace="default")
            assert caught.value.retry_after == 1.0
            assert codes == [429] * 4
            assert clock.waits == [pytest.approx(1.1)] * 3, "what was asked for, and a little chance"

        await api.create(CONFIG_MAPS, config_map(), namespace="default")


async def test_a_write_is_retried_until_there_is_a_free_seat(private_lab):
    lab = await private_lab()
    mine = config.load(lab.kubeconfig)
    busy = replace(mine, impersonate={"Impersonate-User": ("busy",)})
    codes: list[int] = []

    def observe(_verb: str, _resource: str, code: int, _seconds: float) -> None:
        codes.append(code)

    async with api_client.connect(mine) as admin, api_client.connect(busy, observe=observe) as api:
        async with no_seat_for(busy, admin):
            writing = asyncio.create_task(api.create(CONFIG_MAPS, config_map(), namespace="default"))
            await until(lambda: codes, "a first refusal")
        await asyncio.wait_for(writing, 60)

    assert codes[0] == 429
    assert codes[-1] == 201
