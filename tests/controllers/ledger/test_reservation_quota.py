"""Reservations are charged like pods: real quotas, with either capacity manager."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.quotas import RESOURCE_QUOTAS
from croupier.api.scheduling_v1 import PRIORITY_CLASSES
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.core.claims.budget import ReservationLimits
from croupier.core.pods.request_parser import CARDS, GPU, LEDGER, PERCENT, RATIO
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import ApiError
from tests.controllers import reservation_env as offices
from tests.controllers.reservation_env import ReservationEnv
from tests.polling import until_async

SECONDS = 20

SHARES, WHOLE = f"requests.{PERCENT}", f"requests.{GPU}"


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


@pytest_asyncio.fixture(params=["InMemory", "CRD"])
async def office(api, lab, clean_cluster, namespace, request) -> AsyncIterator[ReservationEnv]:
    """Needs a lab, because quotas are counted by a controller of Kubernetes."""
    async with offices.reservation_env(api, namespace, request.param) as made:
        yield made


async def limit(office: ReservationEnv, **hard: str) -> None:
    names = {"percent": SHARES, "gpu": WHOLE}
    body = {"metadata": {"name": "cards"}, "spec": {"hard": {names[key]: hard[key] for key in hard}}}
    await office.api.create(RESOURCE_QUOTAS, body, namespace=office.namespace)

    async def counted() -> bool:
        found = await office.api.get(RESOURCE_QUOTAS, "cards", namespace=office.namespace)
        return len(found.status.used) == len(hard)

    await until_async(counted, "the quota to be counted")


async def pod(office: ReservationEnv, name: str, percent: int, cards: int = 1) -> None:
    """A pod as admission makes it of its annotations."""
    limits = {PERCENT: str(cards * percent), LEDGER: "1"}
    container = {"name": "main", "image": "any", "resources": {"limits": limits}}
    annotations = {CARDS: str(cards), RATIO: str(percent)}
    body = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"schedulerName": "none", "containers": [container]},
    }
    await office.api.create(kinds.PODS, body, namespace=office.namespace)


async def phases(office: ReservationEnv) -> list[str]:
    listed = await office.api.list(kinds.RESERVATIONS, Selection(office.namespace))
    return [item.status.phase for item in listed.items]


async def test_a_quota_of_one_card_is_not_a_cluster(office: ReservationEnv):
    """Twenty Reservations on two nodes at once: one card is granted."""
    for node in ("node-1", "node-2"):
        await office.open(node, cards=9)
    await limit(office, gpu="1")
    for number in range(20):
        await office.ask(f"r{number}", f"node-{1 + number % 2}", cards=1, percent=100)

    async with office.works():

        async def decided() -> bool:
            return set(await phases(office)) == {"Reserved", "Failed"} and "Pending" not in await phases(
                office
            )

        await until_async(decided, "all Reservations to be decided")
        assert sorted(await phases(office)) == ["Failed"] * 19 + ["Reserved"]
        assert sum(office.used("node-1") + office.used("node-2")) == 100
        refused = await _first(office, "Failed")
        assert refused.status.message == (
            "exceeds ResourceQuota cards: it asks for 1 of nvidia.com/gpu, and of 1 pods use 0 and "
            "Reservations hold 1; ask for less, or delete a pod or a Reservation"
        )
        assert refused.status.conditions[0].reason == "QuotaExceeded"
        await office.told(refused.metadata.name, "ReservationFailed")

        held = await _first(office, "Reserved")
        assert [(each.resource, each.amount) for each in held.status.charged] == [(WHOLE, 1)]
        await office.delete(held.metadata.name)

        async def another() -> bool:
            holding = await _first(office, "Reserved")
            return holding is not None and holding.metadata.name != held.metadata.name

        await until_async(another, "another Reservation to get the card")


async def _first(office: ReservationEnv, phase: str) -> Any:
    listed = await office.api.list(kinds.RESERVATIONS, Selection(office.namespace))
    return next((item for item in listed.items if item.status.phase == phase), None)


async def test_pods_and_reservations_share_a_quota(office: ReservationEnv):
    await office.open("node-1", cards=4)
    await limit(office, percent="150")
    await pod(office, "running", 60)
    async with office.works():
        await office.ask("large", cards=2, percent=50)
        await office.becomes("large", "Failed", "of 150 pods use 60 and Reservations hold 0")
        await office.ask("small", cards=1, percent=90)
        await office.becomes("small", "Reserved")


async def test_a_pod_that_takes_over_its_reservation_is_charged_once(office: ReservationEnv):
    await office.open("node-1", cards=4)
    await limit(office, percent="200")
    async with office.works():
        await office.ask("first", cards=2, percent=50)
        await office.becomes("first", "Reserved")
        await pod(office, "first", 50, cards=2)

        async def charged_to_the_pod() -> bool:
            found = await office.get("first")
            return found is not None and not found.status.charged

        await until_async(charged_to_the_pod, "the pod to be charged")
        await office.ask("second", cards=2, percent=50)
        await office.becomes("second", "Reserved")
        await office.ask("third", cards=1, percent=3)
        await office.becomes("third", "Failed", "of 200 pods use 100 and Reservations hold 100")


async def test_a_pod_that_requests_nothing_frees_no_quota(office: ReservationEnv):
    await office.open("node-1", cards=4)
    await limit(office, percent="100")
    async with office.works():
        await office.ask("first", cards=1, percent=100)
        await office.becomes("first", "Reserved")
        await office.pod("first")
        await until_async(lambda: _bound(office, "first"), "the pod to be bound")
        assert [each.amount for each in (await office.becomes("first", "Reserved")).status.charged] == [100]

        await office.ask("second", cards=1, percent=50)
        await office.becomes("second", "Failed", "Reservations hold 100")

        await office.delete("first")
        await office.becomes("first", "Reserved")  # deleted, and charged until its pod ends
        await office.pod_ends("first")
        await office.vanishes("first")
        await office.becomes("second", "Reserved")


async def _bound(office: ReservationEnv, name: str) -> bool:
    found = await office.get(name)
    return found is not None and bool(found.status.pod_uid)


async def test_a_raised_quota_is_noticed(office: ReservationEnv):
    await office.open("node-1")
    await limit(office, percent="10")
    async with office.works():
        await office.ask("mine")
        await office.becomes("mine", "Failed", "exceeds ResourceQuota cards")
        more = {"spec": {"hard": {SHARES: "100"}}}
        await office.api.patch(RESOURCE_QUOTAS, "cards", more, namespace=office.namespace)
        await office.becomes("mine", "Reserved")


async def test_the_limits_of_the_operator(office: ReservationEnv):
    office.limits = ReservationLimits(max_per_namespace=2, max_cards_per_namespace=3)
    await office.open("node-1", cards=8)
    async with office.works():
        await office.ask("first", cards=2)
        await office.becomes("first", "Reserved")
        await office.ask("wide", cards=2)
        await office.becomes("wide", "Failed", "the setting reservations.maxCardsPerNamespace allows 3")
        await office.ask("second", cards=1)
        await office.becomes("second", "Reserved")
        await office.ask("third", cards=1)
        await office.becomes("third", "Failed", "the setting reservations.maxPerNamespace allows 2")


async def test_a_reservation_without_a_pod_ends_by_default(office: ReservationEnv):
    office.limits = ReservationLimits(max_ttl=86400, default_ttl=2)
    await office.open("node-1")
    async with office.works():
        await office.ask("mine")
        await office.becomes("mine", "Released", "s without a bound pod")
        await office.uses([0, 0])


async def test_a_reservation_granted_without_an_end_keeps_its_terms(office: ReservationEnv):
    """As after an upgrade: the default came later than the Reservation."""
    await office.open("node-1")
    async with office.works():
        await office.ask("old")
        assert (await office.becomes("old", "Reserved")).status.expire_time is None
    office.limits = ReservationLimits(max_ttl=60, default_ttl=30)
    async with office.works():
        await office.ask("new", percent=10)
        fresh = await office.becomes("new", "Reserved")
        old = await office.becomes("old", "Reserved")

    assert old.status.expire_time is None
    assert fresh.status.expire_time is not None
    assert fresh.metadata.creation_timestamp is not None
    assert fresh.status.expire_time - fresh.metadata.creation_timestamp < timedelta(seconds=60)


async def test_a_ttl_beyond_the_longest_gets_nothing(office: ReservationEnv):
    office.limits = replace(office.limits, max_ttl=60)
    await office.open("node-1")
    async with office.works():
        await office.ask("long", ttlSeconds=61)
        await office.becomes("long", "Failed", "the setting reservations.maxTTL allows 60 s")
        assert office.used() == [0, 0]


async def test_priority_comes_from_a_class(office: ReservationEnv):
    await office.open("node-1", cards=1)
    name = f"{office.namespace}-high"
    await office.api.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": 1000})
    try:
        await office.ask("older", cards=1, percent=60)
        await office.ask("urgent", cards=1, percent=60, priorityClassName=name)
        await office.ask("unknown", cards=1, percent=60, priorityClassName="no-such-class")
        async with office.works():
            await office.becomes("urgent", "Reserved")
            await office.becomes("older", "Failed", "card 0 is short by 20 %")
            refused = await office.becomes("unknown", "Failed", "PriorityClass no-such-class does not exist")
            assert refused.status.conditions[0].reason == "UnknownPriorityClass"
    finally:
        await office.api.delete(PRIORITY_CLASSES, name)


async def test_kubernetes_itself_can_limit_the_number(api: Client, lab: Any, crds: Any, namespace: str):
    """Object count quotas apply to Reservations as to every kind; Kubernetes looks for new kinds seldom."""
    env = ReservationEnv(api, namespace, InMemoryCapacityManager())
    hard = {"count/reservations.mps.nvidia.com": "1"}
    body = {"metadata": {"name": "count"}, "spec": {"hard": hard}}
    await api.create(RESOURCE_QUOTAS, body, namespace=namespace)

    async def counted() -> bool:
        found = await api.get(RESOURCE_QUOTAS, "count", namespace=namespace)
        return bool(found.status.used)

    await until_async(counted, "the quota to be counted", within=200.0)
    await env.ask("first")
    with pytest.raises(ApiError, match="exceeded quota: count"):
        await env.ask("second")
