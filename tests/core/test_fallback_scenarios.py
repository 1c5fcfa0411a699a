"""Runs scenarios/fallback as pure functions: the final requests of each pod and its messages."""

from typing import Any

import pytest

from croupier.core import jsonpatch, quantity
from croupier.core.availability import Availability, Occupant
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks.fallback import Denied, Fallback, Unchanged
from croupier.core.fallbacks.policy import Policy
from croupier.core.pods import podspec
from croupier.core.pods.podspec import PodSpec
from tests.core import fallback_stories
from tests.core.fallback_stories import Act, Ending, Part

STORIES = fallback_stories.stories()
PARTS = {
    f"{name}: {part.name}": (story.policy, act, part)
    for name, story in STORIES.items()
    for act in story.acts
    for part in act.parts
}


def cluster(act: Act) -> Availability:
    index = Availability()
    for node, amounts in act.nodes.items():
        index.set_node(node, {name: quantity.parse(str(count)) for name, count in amounts.items()})
    for node, amounts in act.taken.items():
        held = {name: quantity.parse(str(count)) for name, count in amounts.items()}
        index.set_pod(Occupant(f"others/{node}", f"uid-{node}", node, held))
    return index


def read(pod: Any) -> PodSpec:
    spec = podspec.read(pod)
    assert isinstance(spec, PodSpec), spec
    return spec


@pytest.mark.parametrize(("policy", "act", "part"), PARTS.values(), ids=PARTS)
def test_the_pod_has_the_expected_result(policy: Policy, act: Act, part: Part):
    decision = fallback.decide(read(part.pod), cluster(act), policy)

    if part.ending.refused is not None:
        assert isinstance(decision, Denied), decision
        assert part.ending.refused in decision.sentence
    else:
        assert not isinstance(decision, Denied), decision
        _ends(part, decision)


def _ends(part: Part, decision: Fallback | Unchanged) -> None:
    after = jsonpatch.apply(part.pod, decision.operations if isinstance(decision, Fallback) else ())
    told: Ending = part.ending
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
