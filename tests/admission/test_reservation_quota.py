"""Quotas and limits of Reservations at admission, and of pods next to Reservations, on a real API server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.quotas import RESOURCE_QUOTAS
from croupier.core.claims.budget import UNLIMITED, ReservationLimits
from croupier.core.model import smallest_share
from croupier.core.pods.request_parser import CARDS, PERCENT, RATIO
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import ApiError
from croupier_lab.cluster import Cluster
from tests.admission import cluster_env as envs
from tests.admission.cluster_env import WebhookClusterEnv
from tests.polling import until, until_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

SHARES = f"requests.{PERCENT}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opened(lab: object, crds: object, cluster: Cluster) -> AsyncIterator[WebhookClusterEnv]:
    """A namespace with a quota of 150 percent."""
    async with envs.webhook_cluster(cluster, smallest=smallest_share.DEFAULT) as env:
        body = {"metadata": {"name": "cards"}, "spec": {"hard": {SHARES: "150"}}}
        await env.api.create(RESOURCE_QUOTAS, body, namespace=env.namespace)
        await until(lambda: _used(env) == "0", "the webhook to know the quota")
        yield env


@pytest_asyncio.fixture(loop_scope="module")
async def env(opened: WebhookClusterEnv) -> AsyncIterator[WebhookClusterEnv]:
    opened.limits = UNLIMITED
    yield opened
    await opened.sweep()
    await opened.api.delete_collection(kinds.RESERVATIONS, Selection(opened.namespace))
    await until(lambda: not list(opened.reservations), "the Reservations to be gone")
    await until(lambda: _used(opened) == "0", "the quota to be free")


def _used(env: WebhookClusterEnv) -> str:
    return next((quota.status.used.get(SHARES, "") for quota in env.quotas), "")


async def reserve(env: WebhookClusterEnv, name: str, cards: int = 1, percent: int = 50, **spec: Any) -> str:
    """The refusal; empty after it was created and the webhook knows it."""
    wanted = {"podKey": f"{env.namespace}/{name}", "nodeName": "node-1", "numCards": cards, **spec}
    body = {"metadata": {"name": name}, "spec": {**wanted, "percentPerCard": percent}}
    try:
        await env.api.create(kinds.RESERVATIONS, body, namespace=env.namespace)
    except ApiError as refused:
        return str(refused)
    await until(lambda: env.reservations.named(name, env.namespace) is not None, f"the cache to have {name}")
    return ""


async def test_reservations_count_against_the_quota(env: WebhookClusterEnv):
    assert await reserve(env, "first", cards=2) == ""

    assert (
        "exceeds ResourceQuota cards: it asks for 51 of gpu.mps.io/percent, and of 150 pods use 0 and "
        "Reservations hold 100; ask for less, or delete a pod or a Reservation"
    ) in await reserve(env, "second", percent=51)
    assert await reserve(env, "third", percent=50) == ""


async def test_a_pod_counts_next_to_reservations_but_not_next_to_its_own(env: WebhookClusterEnv):
    assert await reserve(env, "mine", cards=2) == ""
    half = {CARDS: "1", RATIO: "60"}

    refused = (await env.create(envs.pod("stranger", {}, half))).refused
    assert "the pod exceeds ResourceQuota cards: it asks for 60 of gpu.mps.io/percent" in refused
    own = await env.create(envs.pod("mine", {}, {CARDS: "2", RATIO: "50"}))
    assert own.pod is not None, own.refused


async def test_a_reservation_for_a_pod_that_exists_is_left_to_the_controller(env: WebhookClusterEnv):
    assert await reserve(env, "first", cards=3) == ""
    env.existing.add("known")

    assert await reserve(env, "known", cards=2) == ""
    assert "exceeds ResourceQuota" in await reserve(env, "unknown", cards=2)


async def test_the_limits_of_the_operator(env: WebhookClusterEnv):
    env.limits = ReservationLimits(max_per_namespace=2, max_cards_per_namespace=3, max_ttl=60)

    assert await reserve(env, "first", cards=2, percent=3) == ""
    assert "reservations.maxCardsPerNamespace allows 3" in await reserve(env, "wide", cards=2, percent=3)
    assert "reservations.maxTTL allows 60 s" in await reserve(env, "long", percent=3, ttlSeconds=61)
    assert await reserve(env, "second", percent=3, ttlSeconds=60) == ""
    assert "reservations.maxPerNamespace allows 2" in await reserve(env, "third", percent=3)


async def test_an_update_is_checked_for_its_time_only(env: WebhookClusterEnv):
    assert await reserve(env, "mine", cards=3) == ""
    env.limits = ReservationLimits(max_per_namespace=1, max_ttl=60)

    async def patch(**spec: Any) -> None:
        await env.api.patch(kinds.RESERVATIONS, "mine", {"spec": spec}, namespace=env.namespace)

    with pytest.raises(ApiError, match=r"reservations\.maxTTL allows 60 s"):
        await patch(ttlSeconds=61)
    await patch(ttlSeconds=60)
    labels = {"metadata": {"labels": {"any": "label"}}}
    await env.api.patch(kinds.RESERVATIONS, "mine", labels, namespace=env.namespace)


async def test_what_failed_or_was_released_holds_nothing(env: WebhookClusterEnv):
    assert await reserve(env, "first", cards=3) == ""
    status = {"status": {"phase": "Failed", "message": "no cards"}}
    await env.api.patch(kinds.RESERVATIONS, "first", status, namespace=env.namespace, subresource="status")

    async def admitted() -> bool:
        return await reserve(env, "second", cards=3) == ""

    await until_async(admitted, "the next Reservation to be admitted")


async def test_shares_below_the_smallest_are_refused(env: WebhookClusterEnv):
    """For pods and Reservations, with the sentence of the ledger."""
    sentence = smallest_share.refusal(1, smallest_share.DEFAULT)
    assert sentence is not None

    by_annotations = await env.create(envs.pod("tiny", {}, {CARDS: "1", RATIO: "1"}))
    by_resource = await env.create(envs.pod("tiny", {PERCENT: "1"}))

    assert sentence.reason in by_annotations.refused
    assert sentence.reason in by_resource.refused
    assert sentence.reason in await reserve(env, "tiny", percent=1)
    assert (await env.create(envs.pod("small", {PERCENT: "3"}))).pod is not None
