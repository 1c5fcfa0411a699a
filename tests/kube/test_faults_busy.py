"""A busy API server: real 429s with Retry-After, from its own priority and fairness."""

import asyncio
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.clock import SystemClock
from croupier.kube.errors import TooManyRequests
from croupier.kube.resource import Raw, Resource
from croupier.kube.sender import Patience
from tests.kube.kinds import CONFIG_MAPS, config_map
from tests.kube.waiting import until_async

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


class Impatient:
    """A clock on which waiting takes no time, and that remembers how long was waited."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> datetime:
        return SystemClock().now()

    def monotonic(self) -> float:
        return SystemClock().monotonic()

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)


async def refuse_busy(admin: Client, as_busy: Client) -> None:
    """From now on the API server has no seat for the user `busy`."""
    for resource, body in ((BINDINGS, ADMIN), (LEVELS, NO_SEATS), (SCHEMAS, FOR_BUSY)):
        await admin.apply(resource, body)

    async def refused() -> bool:
        try:
            await as_busy.get(CONFIG_MAPS, "any", namespace="default")
        except TooManyRequests:
            return True
        except Exception:
            return False
        return False

    await until_async(refused)


async def test_retry_after_is_honoured_within_bounds_and_then_the_write_goes_through(private_lab):
    lab = await private_lab()
    mine = config.load(lab.kubeconfig)
    busy = replace(mine, impersonate={"Impersonate-User": ("busy",)})
    codes: list[int] = []
    clock = Impatient()

    def observe(_verb: str, _resource: str, code: int, _seconds: float) -> None:
        codes.append(code)

    async with (
        client.connect(mine) as admin,
        client.connect(
            busy, clock=clock, observe=observe, patience=Patience(tries=4), chance=lambda: 0.5
        ) as api,
        client.connect(busy, patience=Patience(tries=1)) as once,
    ):
        await refuse_busy(admin, once)
        with pytest.raises(TooManyRequests) as caught:
            await api.create(CONFIG_MAPS, config_map(), namespace="default")
        assert caught.value.retry_after == 1.0
        assert codes == [429] * 4
        assert clock.waits == [pytest.approx(1.1)] * 3, "what was asked for, and a little chance"

        await seat_again(admin, api)


async def seat_again(admin: Client, api: Client) -> None:
    await admin.delete(SCHEMAS, "busy")

    async def written() -> Any:
        try:
            return await api.create(CONFIG_MAPS, config_map("late"), namespace="default")
        except TooManyRequests:
            return None

    await until_async(written)
