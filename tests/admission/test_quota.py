"""A ResourceQuota counts the rewritten request, not the original one."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from croupier.core.pods.request_parser import CARDS, MIG, PERCENT, RATIO
from croupier.kube.client.resource import Resource
from croupier_lab.cluster import Cluster
from tests.admission import cluster_env as envs
from tests.admission.cluster_env import CreateResult, WebhookClusterEnv
from tests.polling import until_async

pytestmark = pytest.mark.asyncio(loop_scope="module")

ONE_G, TWO_G = f"{MIG}1g.10gb", f"{MIG}2g.20gb"
QUOTAS: Resource[dict[str, Any]] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)
NAME = "cards"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def env(lab: object, cluster: Cluster) -> AsyncIterator[WebhookClusterEnv]:
    """The node has small slices only, and the quota allows three of them and no larger one."""
    async with envs.webhook_cluster(cluster) as opened:
        await opened.cut({"gpu-worker": {ONE_G: 28, TWO_G: 0}})
        hard = {f"requests.{name}": amount for name, amount in LIMITS.items()}
        body = {"metadata": {"name": NAME}, "spec": {"hard": hard}}
        await opened.api.create(QUOTAS, body, namespace=opened.namespace)
        await until_async(lambda: _known(opened), "the quota to be counted")
        yield opened


LIMITS = {ONE_G: "3", TWO_G: "0", PERCENT: "120"}


async def _known(env: WebhookClusterEnv) -> bool:
    found = await env.api.get(QUOTAS, NAME, namespace=env.namespace)
    return len(found.get("status", {}).get("used", {})) == len(LIMITS)


async def used(env: WebhookClusterEnv) -> dict[str, str]:
    found = await env.api.get(QUOTAS, NAME, namespace=env.namespace)
    return {name.removeprefix("requests."): amount for name, amount in found["status"]["used"].items()}


async def ask(env: WebhookClusterEnv, name: str, limits: dict[str, str], **annotations: str) -> CreateResult:
    return await env.create(envs.pod(name, limits, annotations))


async def test_a_rewritten_request_is_charged_after_the_rewrite(env: WebhookClusterEnv):
    await env.sweep()
    await until_async(lambda: _uses(env, ONE_G, "0"), "the quota to be free again")

    first = await ask(env, "first", {TWO_G: "2"})
    assert first.pod is not None, first.refused
    assert await used(env) == {ONE_G: "2", TWO_G: "0", PERCENT: "0"}

    second = await ask(env, "second", {TWO_G: "2"})
    assert f"exceeded quota: {NAME}, requested: requests.{ONE_G}=2" in second.refused
    assert (await ask(env, "third", {TWO_G: "1"})).pod is not None


async def test_an_unchanged_request_is_charged_as_it_is(env: WebhookClusterEnv):
    await env.sweep()
    unchanged = {"gpu-webhook.k8s.io/fallback-policy": "off"}

    answer = await ask(env, "large", {TWO_G: "1"}, **unchanged)

    assert f"exceeded quota: {NAME}, requested: requests.{TWO_G}=1" in answer.refused


async def test_a_request_by_annotations_is_charged_in_percent(env: WebhookClusterEnv):
    await env.sweep()
    await until_async(lambda: _uses(env, PERCENT, "0"), "the quota to be free again")
    halves = {CARDS: "2", RATIO: "50"}

    first = await ask(env, "first", {}, **halves)
    second = await ask(env, "second", {}, **halves)

    assert first.pod is not None, first.refused
    assert f"requested: requests.{PERCENT}=100, used: requests.{PERCENT}=100" in second.refused


async def _uses(env: WebhookClusterEnv, resource: str, amount: str) -> bool:
    return (await used(env))[resource] == amount
