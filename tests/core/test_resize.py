"""Decisions about PodAllocations: no Applied without a report, and no unnecessary change."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import quantity
from croupier.core.market import units
from croupier.core.market.terms import Shape
from croupier.core.quantity import Quantity
from croupier.core.resizing import resize
from croupier.core.resizing import words as resize_words
from croupier.core.resizing.seen import Condition, Container, Pod, Scene, Told, Wish

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


def cpu(millis: int) -> Quantity:
    return quantity.millis(millis)


def pod(*containers: Container, **changes: Any) -> Pod:
    held = containers or (Container("main", cpu(500), cpu(100), cpu(500)),)
    request = sum(units.at_least(one.request) for one in held)
    shape = Shape("default", request, original=sum(units.at_least(one.limit) for one in held))
    return replace(Pod("uid-1", held, shape, node="node-1"), **changes)


def wish(millis: int = 500, **changes: Any) -> Wish:
    made = Wish("default", "web", "web", cpu(millis), NOW - timedelta(hours=1), pod_namespace="default")
    return replace(made, **changes)


def told(word: str = "Resizing", millis: int = 500, **changes: Any) -> Told:
    phase: Any = {"Enforced": "Applied"}.get(word, "Failed" if word in resize_words.RETRIED else "Pending")
    made = Told(phase, word, "", "uid-1", cpu(millis), 1, {"main": cpu(500)}, restarts=0, attempted=NOW)
    return replace(made, **changes)


amounts = st.integers(0, 40).map(lambda steps: cpu(steps * 50))
limits = st.integers(1, 40).map(lambda steps: cpu(steps * 50))
conditions = st.none() | st.builds(
    Condition,
    st.sampled_from(["Deferred", "Infeasible", "Error", ""]),
    st.just("why"),
    st.integers(0, 3),
)


@st.composite
def containers(draw: Any) -> tuple[Container, ...]:
    held = []
    for name in draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")])):
        limit = draw(limits)
        held.append(
            Container(
                name,
                limit,
                request=min(limit, draw(amounts)),
                reported=draw(st.none() | st.just(limit) | st.just(limit) | limits),
                state=draw(st.sampled_from(["", "", "", "CrashLoopBackOff"])),
                restarts=draw(st.integers(0, 1)),
                restarting=draw(st.booleans()),
                sidecar=draw(st.booleans()),
            )
        )
    return tuple(held)


@st.composite
def scenes(draw: Any) -> Scene:
    held = draw(containers())
    kept = pod(
        *held,
        generation=draw(st.integers(1, 3)),
        observed=draw(st.integers(1, 3)),
        phase=draw(st.sampled_from(["Running", "Running", "Running", "Pending", "Succeeded"])),
        terminating=draw(st.sampled_from([False, False, False, True])),
        pod_level=draw(st.sampled_from([False, False, False, True])),
        pending=draw(conditions),
        in_progress=draw(conditions),
    )
    qos = draw(st.sampled_from(["Burstable", "Burstable", "Guaranteed", "BestEffort"]))
    labels = draw(
        st.sampled_from([{}, {"mbcas.io/allow-guaranteed": "true", "mbcas.io/allow-restart": "true"}])
    )
    restarting = tuple(one.name for one in held if one.restarting)
    shape = replace(
        kept.shape, qos=qos, labels=labels, restarting=restarting, memory_pinned=draw(st.booleans())
    )
    total = Quantity(sum(one.limit.nanos for one in held))
    desired = draw(st.just(total) | st.just(total) | limits)
    before = Told(
        draw(st.sampled_from(["Pending", "Applied", "Failed"])),
        draw(st.sampled_from(["", "Recorded", *sorted(resize_words.ASKED | resize_words.RETRIED)])),
        "earlier",
        draw(st.sampled_from(["", "uid-1", "uid-1", "uid-1", "uid-0"])),
        draw(st.sampled_from([None, desired, desired, cpu(50)])),
        draw(st.sampled_from([None, 1, 1, 2])),
        draw(st.sampled_from([{}, {one.name: one.limit for one in held}])),
        restarts=draw(st.sampled_from([None, 0, 1, kept.restarts, kept.restarts])),
        attempted=draw(st.sampled_from([None, NOW, NOW - timedelta(seconds=61)])),
    )
    made = wish(
        told=before,
        desired=desired,
        pod_namespace=draw(st.sampled_from(["default", "default", "default", "kube-system"])),
        owner=draw(st.sampled_from(["", "uid-1", "uid-1", "uid-0"])),
        node=draw(st.sampled_from(["", "node-1", "node-1", "node-2"])),
    )
    seen = draw(st.sampled_from([True, True, True, True, True, False]))
    return Scene(made, replace(kept, shape=shape) if seen else None, NOW, due=draw(st.booleans()))


def proven(scene: Scene) -> bool:
    """Every rule for Applied.

    Restarts count from our last change of this pod; before the first change there is nothing to compare with.
    """
    asked, seen = scene.wish, scene.pod
    return (
        seen is not None
        and asked.pod_namespace == asked.namespace
        and asked.node in ("", seen.node)
        and asked.owner in ("", seen.uid)
        and asked.told.uid in ("", seen.uid)
        and seen.phase == "Running"
        and not seen.terminating
        and all(container.state == "" for container in seen.containers)
        and (asked.told.uid != seen.uid or asked.told.restarts in (None, seen.restarts))
        and seen.observed >= seen.generation
        and seen.pending is None
        and seen.in_progress is None
        and all(container.reported == container.limit for container in seen.containers)
        and seen.reported == asked.desired
    )


@given(scenes())
def test_applied_is_never_set_without_a_report(scene):
    if resize.decide(scene).verdict.phase == "Applied":
        assert proven(scene)


def holding(**changes: Any) -> Pod:
    """A pod that has the desired limit, with some changes."""
    return pod(**{"generation": 2, "observed": 2, **changes})


def main(**changes: Any) -> Container:
    return replace(Container("main", cpu(500), cpu(100), cpu(500)), **changes)


SPOILT: dict[str, tuple[Wish, Pod, str]] = {
    "an earlier pod": (wish(told=told(uid="uid-0")), holding(), "PodReplaced"),
    "owned by an earlier pod": (wish(told=told(), owner="uid-0"), holding(), "PodReplaced"),
    "another namespace": (wish(told=told(), pod_namespace="b"), holding(), "NamespaceMismatch"),
    "the agent of another node": (wish(told=told(), node="node-2"), holding(), "WrongNode"),
    "not running yet": (wish(told=told()), holding(phase="Pending"), "PodPending"),
    "finished": (wish(told=told()), holding(phase="Failed"), "PodFinished"),
    "being deleted": (wish(told=told()), holding(terminating=True), "PodTerminating"),
    "pod-level resources": (wish(told=told()), holding(pod_level=True), "PodLevelResources"),
    "a container that does not run": (
        wish(told=told()),
        holding(containers=(main(state="CrashLoopBackOff"),)),
        "NotRunning",
    ),
    "a restart": (wish(told=told()), holding(containers=(main(restarts=1),)), "Restarted"),
    "another spec": (wish(told=told()), holding(containers=(main(limit=cpu(600)),)), "ForeignWriter"),
    "not observed": (wish(told=told()), holding(observed=1), "Resizing"),
    "deferred": (wish(told=told()), holding(pending=Condition("Deferred")), "Deferred"),
    "infeasible": (wish(told=told()), holding(pending=Condition("Infeasible")), "Infeasible"),
    "in progress": (wish(told=told()), holding(in_progress=Condition()), "InProgress"),
    "in error": (wish(told=told()), holding(in_progress=Condition("Error")), "KubeletError"),
    "another report": (wish(told=told()), holding(containers=(main(reported=cpu(400)),)), "Resizing"),
    "no report": (wish(told=told()), holding(containers=(main(reported=None),)), "Resizing"),
    "no report for a minute": (
        wish(told=told(attempted=NOW - timedelta(seconds=60))),
        holding(containers=(main(reported=None),)),
        "QuotaNotEnforced",
    ),
}


@pytest.mark.parametrize(("asked", "seen", "reason"), SPOILT.values(), ids=SPOILT)
def test_each_rule_alone_prevents_applied(asked, seen, reason):
    assert decided(wish(told=told()), holding()).verdict.phase == "Applied"

    verdict = decided(asked, seen).verdict

    assert (verdict.word, verdict.phase == "Applied") == (reason, False)


def test_an_infeasible_limit_is_reset_to_the_applied_limit():
    asked = wish(900, told=told(millis=900))
    seen = holding(containers=(main(limit=cpu(900)),), pending=Condition("Infeasible", "too much", 2))
    found = decided(asked, seen)
    assert found.change == resize.Change({"main": cpu(500)}, back=True)

    again = decided(replace(asked, told=told("Infeasible", 900)), seen, due=False)
    assert again.change is None, "a refused reset is retried with backoff, too"


@given(scenes())
def test_a_change_is_valid_and_equals_the_desired_limit(scene):
    decision = resize.decide(scene)
    change, seen = decision.change, scene.pod
    if change is None:
        return
    assert seen is not None
    assert scene.wish.is_of(seen.uid)
    assert scene.wish.namespace == scene.wish.pod_namespace
    assert scene.wish.node in ("", seen.node)
    assert seen.shape.qos != "BestEffort"
    assert bool(change.requests) == (seen.shape.qos == "Guaranteed")
    if change.back:
        assert change.limits == {container.name: container.reported for container in seen.containers}
        return
    assert change.sum == scene.wish.desired
    assert scene.wish.told.originals, "the original limit is recorded first"
    assert all(limit.nanos > 0 and limit.is_multiple_of(cpu(10)) for limit in change.limits.values())
    assert (
        any(change.limits[container.name] != container.limit for container in seen.containers)
        or change.requests
    )
    if seen.shape.qos == "Burstable":
        assert all(change.limits[container.name] >= container.request for container in seen.containers)
        stays = any(change.limits[container.name] != container.request for container in seen.containers)
        assert stays or not seen.shape.memory_pinned, "it would become Guaranteed"


@given(scenes())
def test_the_reason_fits_into_the_status(scene):
    verdict = resize.decide(scene).verdict
    assert verdict.word.isalnum()
    assert verdict.word[0].isupper()
    assert verdict.reason.startswith(f"{verdict.word}: ")
    assert "\n" not in verdict.reason
    assert len(verdict.reason) <= 1024


@given(scenes())
def test_a_repeated_decision_changes_nothing(scene):
    """Nothing is written without a change; a failure is not retried before it is due."""
    first = resize.decide(scene)
    if first.change is not None or first.again == 0.0 or scene.pod is None:
        return
    again = replace(scene, wish=replace(scene.wish, told=written(scene, first)), due=False)
    second = resize.decide(again)

    assert second.change is None
    assert second.verdict == first.verdict or first.verdict.word == "ForeignWriter"
    assert not second.attempted


def written(scene: Scene, decision: resize.Decision) -> Told:
    """The status as written."""
    before, verdict = scene.wish.told, decision.verdict
    keeps = before.uid == decision.uid and before.originals
    return Told(
        verdict.phase,
        verdict.word,
        verdict.sentence,
        decision.uid,
        scene.wish.desired,
        scene.wish.generation,
        before.originals if keeps else decision.originals,
        restarts=decision.restarts,
        attempted=scene.now if decision.attempted else before.attempted,
    )


REFUSALS = {
    (403, 'pods "a" is forbidden: exceeded quota: cap, requested: limits.cpu=1500m'): "QuotaExceeded",
    (403, 'pods "a" is forbidden: maximum cpu usage per Container is 1, but limit is 2'): "LimitRange",
    (403, 'User "x" cannot patch resource "pods/resize" in API group ""'): "NotPermitted",
    (403, "denied by policy of the house"): "Refused",
    (404, "the server could not find the requested resource"): "NoResize",
    (404, 'pods "a" not found'): "Conflict",
    (409, "the object has been modified"): "Conflict",
    (422, 'Pod "a" is invalid: metadata.uid: Invalid value: "b": field is immutable'): "Conflict",
    (422, "Pod QOS Class may not change as a result of resizing"): "Invalid",
    (422, "Forbidden: Pod running on node without support for resize"): "NoResize",
    (429, "too many requests"): "Unavailable",
    (503, ""): "Unavailable",
    (0, "refused, cut or timed out"): "Unavailable",
}


@pytest.mark.parametrize(("answer", "reason"), REFUSALS.items(), ids=lambda value: str(value)[:40])
def test_every_refusal_of_the_api_server_has_a_code_and_is_retried(answer, reason):
    status, message = answer
    verdict = resize_words.refused(status, message)

    assert (verdict.phase, verdict.word) == ("Failed", reason)
    assert verdict.retried
    assert resize_words.refused(status, message, [{"reason": "NodeCapacity"}]).word == "NodeCapacity"


def test_a_long_message_is_shortened_to_one_line():
    verdict = resize_words.refused(422, "no\n" * 2000)

    assert len(verdict.reason) < 1024
    assert "\n" not in verdict.reason


def decided(asked: Wish, seen: Pod | None, **changes: Any) -> resize.Decision:
    return resize.decide(replace(Scene(asked, seen, NOW), **changes))


def test_the_original_limit_is_recorded_before_the_first_change():
    first = decided(wish(800), pod())
    assert (first.change, first.originals, first.verdict.word) == (None, {"main": cpu(500)}, "Recorded")

    second = decided(wish(800, told=told("Recorded", 800)), pod())
    assert second.change is not None
    assert second.change.limits == {"main": cpu(800)}


def test_a_changed_spec_is_attributed_to_another_writer():
    for word in resize_words.ASKED:
        found = decided(wish(800, told=told(word, 800)), pod())
        assert (found.verdict.word, found.change) == ("ForeignWriter", None)


def test_a_new_desired_limit_is_not_delayed_by_the_old_backoff():
    asked = wish(800, generation=2, told=told("Infeasible", 6400))

    assert decided(asked, pod(), due=False).change is not None


def test_a_condition_of_an_earlier_spec_is_ignored_until_the_kubelet_observes_the_new_one():
    stale = Condition("Infeasible", "too much", generation=1)

    unseen = pod(generation=2, observed=1, pending=stale)
    assert decided(wish(500, told=told()), unseen).verdict.word == "Resizing"
    seen = pod(generation=2, observed=2, pending=stale)
    assert decided(wish(500, told=told()), seen).verdict.word == "Infeasible", (
        "the change was of another field"
    )


def test_an_older_allocation_of_a_deleted_pod_has_no_precedence():
    dead = wish(900, name="dead", owner="uid-0", created=NOW - timedelta(days=1))

    assert decided(wish(500, told=told()), pod(), rivals=(dead,)).verdict.phase == "Applied"


def test_an_older_allocation_of_another_node_has_no_precedence():
    reaching = wish(900, name="reaching", node="node-2", created=NOW - timedelta(days=1))

    assert decided(wish(500, told=told()), pod(), rivals=(reaching,)).verdict.phase == "Applied"


def test_of_two_allocations_of_the_same_second_the_active_one_has_precedence():
    working, newcomer = wish(500, name="z", told=told()), wish(900, name="a")

    assert decided(working, pod(), rivals=(newcomer,)).verdict.phase == "Applied"
    late = decided(newcomer, pod(), rivals=(working,))
    assert (late.verdict.word, late.originals) == ("DuplicateAllocation", {"main": cpu(500)})
