"""Runs scenarios/fallback as pure functions: the final requests of each pod and its messages."""

from typing import Any

import pytest

from croupier.core import jsonpatch, quantity
from croupier.core.availability import AccountedPod, Availability
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks.fallback import FallbackChanges, FallbackDenied, FallbackUnchanged
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.pods import podspec_view
from croupier.core.pods.podspec_view import PodSpecView
from tests.core import fallback_scenarios
from tests.core.fallback_scenarios import ExpectedResult, FallbackCase, PodCase

STORIES = fallback_scenarios.scenarios()
PARTS = {
    f"{name}: {part.name}": (story.policy, act, part)
    for name, story in STORIES.items()
    for act in story.acts
    for part in act.parts
}


def cluster(act: FallbackCase) -> Availability:
    index = Availability()
    for node, amounts in act.nodes.items():
        index.set_node(node, {name: quantity.parse(str(count)) for name, count in amounts.items()})
    for node, amounts in act.taken.items():
        held = {name: quantity.parse(str(count)) for name, count in amounts.items()}
        index.set_pod(AccountedPod(f"others/{node}", f"uid-{node}", node, held))
    return index


def read(pod: Any) -> PodSpecView:
    spec = podspec_view.read(pod)
    assert isinstance(spec, PodSpecView), spec
    return spec


@pytest.mark.parametrize(("policy", "act", "part"), PARTS.values(), ids=PARTS)
def test_the_pod_has_the_expected_result(policy: FallbackPolicy, act: FallbackCase, part: PodCase):
    brought = read(part.pod)
    pod = jsonpatch.apply(part.pod, podspec_view.remove_annotation(brought, fallback.ANNOTATION))
    decision = fallback.decide(read(pod), cluster(act), policy)

    if part.ending.refused is not None:
        assert isinstance(decision, FallbackDenied), decision
        assert part.ending.refused in decision.sentence
    else:
        assert not isinstance(decision, FallbackDenied), decision
        _ends(pod, decision, part.ending)


def _ends(pod: Any, decision: FallbackChanges | FallbackUnchanged, told: ExpectedResult) -> None:
    after = jsonpatch.apply(pod, decision.operations if isinstance(decision, FallbackChanges) else ())
    spec = read(after)

    assert {
        container.name: _text(container.asks) for container in spec.containers if container.asks
    } == told.asks
    assert {
        container.name: _text(container.limits) for container in spec.containers if container.limits
    } == told.asks
    assert spec.annotations.get(fallback.ANNOTATION) == told.annotation
    assert bool(decision.warnings) == (told.warning is not None), decision.warnings
    assert told.warning is None or told.warning in "\n".join(decision.warnings)
    assert all(len(sentence) < 256 for sentence in decision.warnings)
    assert tuple(event.sentence for event in decision.events) == decision.warnings


def _text(amounts: Any) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def test_the_required_scenarios_exist():
    assert {
        "scenario-1",
        "scenario-2",
        "upgrade",
        "repartition",
        "untouched",
        "nothing-fits",
    } <= STORIES.keys()
