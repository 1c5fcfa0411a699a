"""Runs scenarios/fallback through the webhook of a real API server."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.pods.request_parser import LEDGER
from croupier_lab.cluster import Cluster
from tests.admission import cluster_env as envs
from tests.admission.cluster_env import CreateResult, WebhookClusterEnv
from tests.core import fallback_scenarios
from tests.core.fallback_scenarios import ExpectedResult, FallbackScenario

pytestmark = pytest.mark.asyncio(loop_scope="module")

NO_CARDS = (LEDGER, "cpu", "memory")
STORIES = fallback_scenarios.scenarios()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_env(lab: object, cluster: Cluster) -> AsyncIterator[WebhookClusterEnv]:
    async with envs.webhook_cluster(cluster) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def env(shared_env: WebhookClusterEnv) -> AsyncIterator[WebhookClusterEnv]:
    yield shared_env
    await shared_env.clear()


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
async def test_a_scenario_has_the_expected_result(story: FallbackScenario, env: WebhookClusterEnv):
    env.policy = story.policy
    for act in story.acts:
        await env.sweep()
        await env.cut(act.nodes)
        await env.take(act.taken)
        for part in act.parts:
            answer = await env.create({**part.pod, "spec": {**part.pod["spec"], "schedulerName": "none"}})
            assert ended(answer, part.ending) == part.ending, f"{part.name}: {answer.refused}"


def ended(answer: CreateResult, told: ExpectedResult) -> ExpectedResult:
    """The actual result, with messages reduced to the expected part if they contain it."""
    if answer.pod is None:
        return ExpectedResult(refused=_cut(answer.refused, told.refused))
    amounts = envs.limits(answer.pod)
    cards = {
        name: {resource: amount for resource, amount in one.items() if resource not in NO_CARDS}
        for name, one in amounts.items()
    }
    asked = any(amount != "0" for card in cards.values() for amount in card.values())
    assert any(LEDGER in one for one in amounts.values()) == asked, "cards and the mark come together"
    return ExpectedResult(
        asks={name: one for name, one in cards.items() if one},
        annotation=answer.pod["metadata"].get("annotations", {}).get(fallback.ANNOTATION),
        warning=_cut("\n".join(answer.warnings), told.warning) if answer.warnings else None,
    )


def _cut(said: str, told: str | None) -> str:
    return told if told and told in said else said


MISSION = {
    "a smaller slice": (
        {"nvidia.com/mig-1g.10gb": 28, "nvidia.com/mig-2g.20gb": 0},
        ("training-job", "trainer", "nvidia.com/mig-2g.20gb"),
        ("nvidia.com/mig-1g.10gb", "2g.20gb->1g.10gb"),
        "container trainer gets nvidia.com/mig-1g.10gb instead, the nearest smaller profile there is",
    ),
    "what was asked for": (
        {"nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-3g.30gb": 4},
        ("training-job", "trainer", "nvidia.com/mig-2g.20gb"),
        ("nvidia.com/mig-2g.20gb", ""),
        "",
    ),
    "a larger slice": (
        {"nvidia.com/mig-2g.20gb": 8, "nvidia.com/mig-1g.10gb": 0},
        ("test", "test", "nvidia.com/mig-1g.10gb"),
        ("nvidia.com/mig-2g.20gb", "1g.10gb->2g.20gb"),
        "container test gets nvidia.com/mig-2g.20gb instead, the nearest larger profile, "
        "as there is no smaller one",
    ),
}


BROUGHT = {
    "by a pod that is rewritten": ({"nvidia.com/mig-2g.20gb": "1"}, "2g.20gb->1g.10gb"),
    "by a pod that stays as it is": ({"nvidia.com/mig-1g.10gb": "1"}, None),
    "by a pod without cards": ({"cpu": "1"}, None),
}


@pytest.mark.parametrize(("asks", "written"), BROUGHT.values(), ids=BROUGHT)
async def test_the_annotation_that_a_pod_brings_is_removed(asks, written, env: WebhookClusterEnv):
    await env.cut({"gpu-worker": {"nvidia.com/mig-1g.10gb": 28}})

    answer = await env.create(envs.pod("copied", asks, {fallback.ANNOTATION: "7g.80gb->gpu", "team": "a"}))

    assert answer.pod is not None, answer.refused
    annotations = answer.pod["metadata"]["annotations"]
    assert annotations["team"] == "a"
    assert annotations.get(fallback.ANNOTATION) == written


@pytest.mark.parametrize(("node", "asks", "gets", "warning"), MISSION.values(), ids=MISSION)
async def test_kubectl_shows_the_warning(node, asks, gets, warning, env: WebhookClusterEnv, cluster: Cluster):
    env.policy = FallbackPolicy()
    await env.cut({"gpu-worker": node})
    name, container, resource = asks
    manifest = f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {env.namespace}}}
spec:
  schedulerName: none
  containers:
  - name: {container}
    image: any
    resources:
      requests: {{{resource}: 1}}
      limits: {{{resource}: 1}}
"""

    told = await asyncio.to_thread(cluster.kubectl, "apply", "-f", "-", stdin=manifest)

    shown = f"no node offers {resource}: {warning}"
    assert told.stderr == (f"Warning: {shown}\n" if warning else "")
    made = await env.api.get(kinds.PODS, name, namespace=env.namespace)
    (only,) = made.spec.containers
    assert only.resources.limits == only.resources.requests == {gets[0]: "1", LEDGER: "1"}
    assert made.metadata.annotations.get(fallback.ANNOTATION, "") == gets[1]
