"""Properties of the fallback for any pod, cluster and policy."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from croupier.core import jsonpatch, quantity
from croupier.core.availability import AccountedPod, Availability
from croupier.core.cards import profile_size
from croupier.core.fallbacks import fallback
from croupier.core.fallbacks import policy as fallback_policy
from croupier.core.fallbacks.fallback import ANNOTATION, FallbackChanges, FallbackDenied, FallbackUnchanged
from croupier.core.fallbacks.policy import DIRECTION, DIRECTIONS, MIN_MEMORY, FallbackPolicy
from croupier.core.pods import podspec_view, request_parser
from croupier.core.pods.podspec_view import ContainerView, PodSpecView
from croupier.core.pods.request_parser import GPU, MIG
from croupier.core.quantity import ZERO

PROFILES = (
    "1g.5gb",
    "1g.10gb",
    "1g.10gb.me",
    "1g.20gb",
    "2g.10gb",
    "2g.20gb",
    "3g.40gb",
    "4g.40gb",
    "7g.80gb",
)
MEMORY = (5, 10, 10, 20, 10, 20, 40, 40, 80)
DEVICES = (GPU, *(MIG + name for name in PROFILES))
FLOORS = (None, None, None, "0", "5Gi", "10Gi", "20e9", "40Gi", "200Gi")

counts = st.sampled_from((1, 2, 3, 7, 0))
amounts = st.dictionaries(st.sampled_from(DEVICES), counts, max_size=3)
offers = st.dictionaries(st.sampled_from(DEVICES), st.sampled_from((4, 12, 28, 0)), max_size=4)


@dataclass(frozen=True)
class Cluster:
    """Kept with the index so that a failing example is readable."""

    nodes: dict[str, dict[str, int]]
    taken: dict[str, dict[str, int]]

    @property
    def index(self) -> Availability:
        index = Availability()
        for node, has in self.nodes.items():
            index.set_node(node, _quantities(has))
            held = _quantities(self.taken.get(node, {}))
            index.set_pod(AccountedPod(f"others/{node}", node, node, held))
        return index


def _quantities(counted: dict[str, int]) -> dict[str, quantity.Quantity]:
    return {name: quantity.parse(str(count)) for name, count in counted.items()}


clusters = st.builds(
    Cluster,
    nodes=st.fixed_dictionaries({"node-1": offers, "node-2": offers}),
    taken=st.dictionaries(st.sampled_from(("node-1", "node-2")), offers),
)
policies = st.builds(
    FallbackPolicy,
    direction=st.sampled_from(("nearest", "nearest", *DIRECTIONS)),
    min_memory=st.sampled_from([None if floor is None else quantity.parse(floor) for floor in FLOORS]),
    prefer_available=st.booleans(),
    quantities=st.sampled_from(("keep", "scale")),
)


@st.composite
def resources(draw: st.DrawFn) -> Any:
    """Requests, limits or both, equal if both are set; with unrelated resources; maps may be null."""
    asked = draw(amounts)
    kept = {name: draw(st.sampled_from(("requests", "limits", "both"))) for name in asked}
    both = {
        key: {name: str(asked[name]) for name, where in kept.items() if where in (key, "both")}
        for key in ("requests", "limits")
    }
    others = draw(
        st.sampled_from(({}, {"requests": {"cpu": "1"}}, {"limits": {"memory": "1Gi", "example.com/x": "1"}}))
    )
    made: dict[str, Any] = {key: {**others.get(key, {}), **both[key]} or None for key in both}
    return (
        draw(st.sampled_from((made, {**made, "claims": [{"name": "later"}]}))) if any(made.values()) else None
    )


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    names = iter(
        [draw(st.sampled_from(("a", "b"))), "b", "c", "d", "e", "f"]
    )  # duplicate names are invalid, but possible

    def containers(most: int, **more: Any) -> list[dict[str, Any]]:
        return [
            {"name": next(names), "resources": draw(resources()), "futureField": {"x": 1}, **more}
            for _ in range(draw(st.sampled_from((1, most, 0))))
        ]

    noted = draw(st.sampled_from((None, {}, {"example.com/note": "kept"}, {ANNOTATION: "7g.80gb->gpu"})))
    said = draw(st.sampled_from(({}, {}, {}, {DIRECTION: "down"}, {DIRECTION: "off"}, {MIN_MEMORY: "10Gi"})))
    return {
        "metadata": {"name": "pod", "annotations": {**noted, **said} if noted is not None else None},
        "spec": {
            "containers": containers(3),
            "initContainers": [*containers(1), *containers(1, restartPolicy="Always"), *containers(1)],
            "futureField": [1, {"y": None}],
        },
    }


def read(pod: Any) -> PodSpecView:
    spec = podspec_view.read(pod)
    assert isinstance(spec, PodSpecView), spec
    return spec


def play(
    pod: dict[str, Any], cluster: Cluster, policy: FallbackPolicy
) -> tuple[FallbackChanges, dict[str, Any]]:
    """The decision, with Unchanged as a Fallback without operations, and the pod afterwards."""
    decision = fallback.decide(read(pod), cluster.index, policy)
    assert not isinstance(decision, FallbackDenied), decision
    made = (
        decision if isinstance(decision, FallbackChanges) else FallbackChanges((), warnings=decision.warnings)
    )
    event(
        "rewritten"
        if made.rewrites
        else "stuck"
        if made.warnings
        else "mended"
        if made.operations
        else "same"
    )
    return made, jsonpatch.apply(pod, made.operations)


def pairs(before: Any, after: Any) -> Iterator[tuple[ContainerView, ContainerView]]:
    return zip(read(before).containers, read(after).containers, strict=True)


def others(pod: dict[str, Any]) -> Any:
    """The pod without card resources and our annotation; an empty map equals no map."""
    rest = copy.deepcopy(pod)
    annotations = rest["metadata"].pop("annotations") or {}
    annotations.pop(ANNOTATION, None)
    for one in (*rest["spec"]["containers"], *rest["spec"]["initContainers"]):
        found = one.pop("resources") or {}
        for key in ("requests", "limits"):
            named = found.pop(key, None) or {}
            one[key] = {
                name: value for name, value in named.items() if not request_parser.is_card_resource(name)
            }
        one["rest of resources"] = found
    return annotations, rest


@given(pods(), clusters, policies)
def test_a_second_pass_changes_nothing(pod, cluster, policy):
    decision, after = play(pod, cluster, policy)

    again = fallback.decide(read(after), cluster.index, policy)
    assert again == FallbackUnchanged(() if decision.rewrites else decision.warnings)


@given(pods(), clusters, policies)
def test_only_resources_and_our_annotation_are_touched(pod, cluster, policy):
    given = copy.deepcopy(pod)
    decision, after = play(pod, cluster, policy)

    assert pod == given
    assert others(after) == others(pod)
    said = read(after).annotations.get(ANNOTATION)
    assert said == (decision.annotation if decision.rewrites else read(pod).annotations.get(ANNOTATION))


@given(pods(), clusters, policies)
def test_requests_equal_limits_and_are_integers_afterwards(pod, cluster, policy):
    _, after = play(pod, cluster, policy)

    for view in read(after).containers:
        assert view.limits == view.asks
        assert all(
            amount.nanos >= 0 and amount.is_multiple_of(quantity.parse("1")) for amount in view.asks.values()
        )


@given(pods(), clusters, policies)
def test_requests_and_limits_change_together(pod, cluster, policy):
    decision, after = play(pod, cluster, policy)

    for before, then in pairs(pod, after):
        moved = {
            rewrite.source: rewrite.target for rewrite in decision.rewrites if rewrite.path == before.path
        }
        assert then.requests.keys() == {moved.get(name, name) for name in before.requests}


@given(pods(), clusters, policies)
def test_every_replacement_exists(pod, cluster, policy):
    decision, after = play(pod, cluster, policy)

    for before, then in pairs(pod, after):
        for resource, amount in then.asks.items():
            exists = cluster.index.exists(resource)
            assert exists or amount == before.asks.get(resource)
            assert exists or not amount or not decision.rewrites or not resource.startswith(MIG)


@given(pods(), clusters, policies)
def test_the_number_is_kept_or_scaled_to_the_memory(pod, cluster, policy):
    decision, after = play(pod, cluster, policy)

    for before, then in pairs(pod, after):
        own = [rewrite for rewrite in decision.rewrites if rewrite.path == before.path]
        extra = sum(one.given - one.asked for one in own)
        assert _devices(then) == _devices(before) + extra
    for rewrite in decision.rewrites:
        asked, given = profile_size.parse(rewrite.source), profile_size.parse(rewrite.target)
        assert asked is not None
        if policy.quantities == "keep" or given is None:
            assert rewrite.given == rewrite.asked
        else:
            assert (
                (rewrite.given - 1) * given.memory
                < rewrite.asked * asked.memory
                <= rewrite.given * given.memory
            )


def _devices(view: ContainerView) -> int:
    return sum(amount.whole for amount in view.asks.values())


@given(pods(), clusters, policies, st.sampled_from(("Admit", "Deny")))
def test_the_replacement_equals_that_of_a_simple_search(pod, cluster, policy, when_nothing_fits):
    policy = replace(policy, prefer_available=False, when_nothing_fits=when_nothing_fits)
    spec, index = read(pod), cluster.index
    own = fallback_policy.policy_of(spec.annotations, policy)
    assert isinstance(own, FallbackPolicy)
    asked = {name for view in spec.containers for name, amount in view.asks.items() if amount and name != GPU}
    found = {name: next(_search(name, index, own), None) for name in asked if not index.exists(name)}

    decision = fallback.decide(spec, index, policy)

    if all(found.values()):
        assert not isinstance(decision, FallbackDenied)
        rewrites = decision.rewrites if isinstance(decision, FallbackChanges) else ()
        assert {rewrite.source: rewrite.target for rewrite in rewrites} == found
    else:
        assert isinstance(decision, FallbackDenied) == (when_nothing_fits == "Deny")
        assert not isinstance(decision, FallbackChanges) or not decision.rewrites


def _search(resource: str, index: Availability, policy: FallbackPolicy) -> Iterator[str]:
    """All existing and allowed replacements, in an order written by hand."""
    floor, place = policy.min_memory or ZERO, PROFILES.index(resource.removeprefix(MIG))
    ladder = [one for one in range(len(PROFILES)) if quantity.parse(f"{MEMORY[one]}Gi") >= floor]
    below = [one for one in reversed(ladder) if one < place]
    above = [one for one in ladder if one > place]
    ways = {"nearest": below + above, "down": below, "up": above, "off": []}[policy.direction]
    yield from (MIG + PROFILES[way] for way in ways if index.exists(MIG + PROFILES[way]))
    if policy.direction != "off" and index.exists(GPU):
        yield GPU


@given(st.lists(st.tuples(st.integers(1, 3), counts), min_size=1, max_size=3), clusters, policies)
def test_a_free_replacement_is_preferred(containers, cluster, policy):
    missing, held = f"{MIG}3g.40gb", f"{MIG}1g.10gb"
    policy = replace(policy, prefer_available=True, quantities="keep")
    cluster = replace(
        cluster, nodes={node: has | {held: 4, missing: 0} for node, has in cluster.nodes.items()}
    )
    asked = sum(count for count, _ in containers)
    own = sum(count for _, count in containers)
    pod = {
        "spec": {
            "containers": [
                {"name": f"c{index}", "resources": {"limits": {missing: count, held: more}}}
                for index, (count, more) in enumerate(containers)
            ]
        }
    }
    order = list(_search(missing, cluster.index, policy))
    free = [one for one in order if cluster.index.max_free(one).whole >= asked + (own if one == held else 0)]

    decision, _ = play(pod, cluster, policy)

    assert {rewrite.target for rewrite in decision.rewrites} == set((free or order)[:1])


@given(pods(), clusters, policies)
def test_every_rewrite_has_a_warning(pod, cluster, policy):
    decision, _ = play(pod, cluster, policy)

    assert bool(decision.annotation) == bool(decision.rewrites)
    entries = [one for one in decision.annotation.split(",") if one]
    if len(decision.pairs) == 1:
        assert entries == ["->".join(decision.pairs[0])]
    else:
        assert entries == [f"{rewrite.container}={'->'.join(rewrite.pair)}" for rewrite in decision.rewrites]
    for source, target in {(rewrite.source, rewrite.target) for rewrite in decision.rewrites}:
        assert any(source in sentence and target in sentence for sentence in decision.warnings)
    assert all(len(sentence) < 256 for sentence in decision.warnings)
    assert [event.sentence for event in decision.events] == list(decision.warnings)
