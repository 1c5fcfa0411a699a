"""Decisions about PodAllocations: no Applied without a report, and no unnecessary change."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core import quantity
from croupier.core.market import units
from croupier.core.market.terms import PodShape
from croupier.core.model.reason import Reason
from croupier.core.quantity import Quantity
from croupier.core.resizing import messages as resize_words
from croupier.core.resizing import model as resize_model
from croupier.core.resizing import resize
from croupier.core.resizing.model import (
    AllocationLimit,
    DesiredLimit,
    LastStatus,
    ResizeCondition,
    ResizeContainer,
    ResizeInputs,
    ResizePod,
    ResizeVerdict,
)

NOW = datetime(2030, 1, 31, 12, tzinfo=UTC)


def cpu(millis: int) -> Quantity:
    return quantity.millis(millis)


def pod(*containers: ResizeContainer, **changes: Any) -> ResizePod:
    held = containers or (ResizeContainer("main", cpu(500), cpu(100), cpu(500)),)
    request = sum(units.at_least(one.request) for one in held)
    shape = PodShape("default", request, original=sum(units.at_least(one.limit) for one in held))
    return replace(ResizePod("uid-1", held, shape, node="node-1"), **changes)


def desired_limit(millis: int = 500, **changes: Any) -> DesiredLimit:
    made = DesiredLimit(
        "default", "web", "web", cpu(millis), NOW - timedelta(hours=1), pod_namespace="default"
    )
    return replace(made, **changes)


def last_status(code: str = "Resizing", millis: int = 500, **changes: Any) -> LastStatus:
    phase: Any = {"Enforced": "Applied"}.get(code, "Failed" if code in resize_model.RETRIED else "Pending")
    made = LastStatus(
        ResizeVerdict(phase, Reason(code)),
        "uid-1",
        cpu(millis),
        1,
        {"main": cpu(500)},
        restarts=0,
        attempted=NOW,
    )
    return replace(made, **changes)


amounts = st.integers(0, 40).map(lambda steps: cpu(steps * 50))
limits = st.integers(1, 40).map(lambda steps: cpu(steps * 50))
conditions = st.none() | st.builds(
    ResizeCondition,
    st.sampled_from(["Deferred", "Infeasible", "Error", ""]),
    st.just("why"),
    st.integers(0, 3),
)


@st.composite
def containers(draw: Any) -> tuple[ResizeContainer, ...]:
    held = []
    for name in draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")])):
        limit = draw(limits)
        held.append(
            ResizeContainer(
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
def resize_inputs(draw: Any) -> ResizeInputs:
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
    codes = ["", "Recorded", *sorted(resize_words.SET_AFTER_WRITE | resize_model.RETRIED)]
    code = draw(st.sampled_from(codes))
    before = LastStatus(
        ResizeVerdict(draw(st.sampled_from(["Pending", "Applied", "Failed"])), Reason(code, "earlier")),
        draw(st.sampled_from(["", "uid-1", "uid-1", "uid-1", "uid-0"])),
        draw(st.sampled_from([None, desired, desired, cpu(50)])),
        draw(st.sampled_from([None, 1, 1, 2])),
        draw(st.sampled_from([{}, {one.name: one.limit for one in held}])),
        restarts=draw(st.sampled_from([None, 0, 1, kept.restarts, kept.restarts])),
        attempted=draw(st.sampled_from([None, NOW, NOW - timedelta(seconds=61)])),
    )
    made = desired_limit(
        last_status=before,
        desired=desired,
        pod_namespace=draw(st.sampled_from(["default", "default", "default", "kube-system"])),
        owner=draw(st.sampled_from(["", "uid-1", "uid-1", "uid-0"])),
        node=draw(st.sampled_from(["", "node-1", "node-1", "node-2"])),
    )
    seen = draw(st.sampled_from([True, True, True, True, True, False]))
    return ResizeInputs(made, replace(kept, shape=shape) if seen else None, NOW, due=draw(st.booleans()))


def proven(scene: ResizeInputs) -> bool:
    """Every rule for Applied.

    Restarts count from our last change of this pod; before the first change there is nothing to compare with.
    """
    asked, seen = scene.desired_limit, scene.pod
    return (
        seen is not None
        and asked.pod_namespace == asked.namespace
        and asked.node in ("", seen.node)
        and asked.owner in ("", seen.uid)
        and asked.last_status.uid in ("", seen.uid)
        and seen.phase == "Running"
        and not seen.terminating
        and all(container.state == "" for container in seen.containers)
        and (asked.last_status.uid != seen.uid or asked.last_status.restarts in (None, seen.restarts))
        and seen.observed >= seen.generation
        and seen.pending is None
        and seen.in_progress is None
        and all(container.reported == container.limit for container in seen.containers)
        and seen.reported == asked.desired
    )


@given(resize_inputs())
def test_applied_is_never_set_without_a_report(scene):
    if resize.decide(scene).verdict.phase == "Applied":
        assert proven(scene)


def holding(**changes: Any) -> ResizePod:
    """A pod that has the desired limit, with some changes."""
    return pod(**{"generation": 2, "observed": 2, **changes})


def main(**changes: Any) -> ResizeContainer:
    return replace(ResizeContainer("main", cpu(500), cpu(100), cpu(500)), **changes)


SPOILT: dict[str, tuple[DesiredLimit, ResizePod, str]] = {
    "an earlier pod": (desired_limit(last_status=last_status(uid="uid-0")), holding(), "PodReplaced"),
    "owned by an earlier pod": (
        desired_limit(last_status=last_status(), owner="uid-0"),
        holding(),
        "PodReplaced",
    ),
    "another namespace": (
        desired_limit(last_status=last_status(), pod_namespace="b"),
        holding(),
        "NamespaceMismatch",
    ),
    "the agent of another node": (
        desired_limit(last_status=last_status(), node="node-2"),
        holding(),
        "WrongNode",
    ),
    "not running yet": (desired_limit(last_status=last_status()), holding(phase="Pending"), "PodPending"),
    "finished": (desired_limit(last_status=last_status()), holding(phase="Failed"), "PodFinished"),
    "being deleted": (desired_limit(last_status=last_status()), holding(terminating=True), "PodTerminating"),
    "pod-level resources": (
        desired_limit(last_status=last_status()),
        holding(pod_level=True),
        "PodLevelResources",
    ),
    "a container that does not run": (
        desired_limit(last_status=last_status()),
        holding(containers=(main(state="CrashLoopBackOff"),)),
        "NotRunning",
    ),
    "a restart": (
        desired_limit(last_status=last_status()),
        holding(containers=(main(restarts=1),)),
        "Restarted",
    ),
    "another spec": (
        desired_limit(last_status=last_status()),
        holding(containers=(main(limit=cpu(600)),)),
        "ForeignWriter",
    ),
    "not observed": (desired_limit(last_status=last_status()), holding(observed=1), "Resizing"),
    "deferred": (
        desired_limit(last_status=last_status()),
        holding(pending=ResizeCondition("Deferred")),
        "Deferred",
    ),
    "infeasible": (
        desired_limit(last_status=last_status()),
        holding(pending=ResizeCondition("Infeasible")),
        "Infeasible",
    ),
    "in progress": (
        desired_limit(last_status=last_status()),
        holding(in_progress=ResizeCondition()),
        "InProgress",
    ),
    "in error": (
        desired_limit(last_status=last_status()),
        holding(in_progress=ResizeCondition("Error")),
        "KubeletError",
    ),
    "another report": (
        desired_limit(last_status=last_status()),
        holding(containers=(main(reported=cpu(400)),)),
        "Resizing",
    ),
    "no report": (
        desired_limit(last_status=last_status()),
        holding(containers=(main(reported=None),)),
        "Resizing",
    ),
    "no report for a minute": (
        desired_limit(last_status=last_status(attempted=NOW - timedelta(seconds=60))),
        holding(containers=(main(reported=None),)),
        "QuotaNotEnforced",
    ),
}


@pytest.mark.parametrize(("asked", "seen", "reason"), SPOILT.values(), ids=SPOILT)
def test_each_rule_alone_prevents_applied(asked, seen, reason):
    assert decided(desired_limit(last_status=last_status()), holding()).verdict.phase == "Applied"

    verdict = decided(asked, seen).verdict

    assert (verdict.code, verdict.phase == "Applied") == (reason, False)


def test_an_infeasible_limit_is_reset_to_the_applied_limit():
    asked = desired_limit(900, last_status=last_status(millis=900))
    seen = holding(containers=(main(limit=cpu(900)),), pending=ResizeCondition("Infeasible", "too much", 2))
    found = decided(asked, seen)
    assert found.change == resize.LimitChange({"main": cpu(500)}, back=True)

    again = decided(replace(asked, last_status=last_status("Infeasible", 900)), seen, due=False)
    assert again.change is None, "a refused reset is retried with backoff, too"


@given(resize_inputs())
def test_a_change_is_valid_and_equals_the_desired_limit(scene):
    decision = resize.decide(scene)
    change, seen = decision.change, scene.pod
    if change is None:
        return
    assert seen is not None
    assert scene.desired_limit.is_of(seen.uid)
    assert scene.desired_limit.namespace == scene.desired_limit.pod_namespace
    assert scene.desired_limit.node in ("", seen.node)
    assert seen.shape.qos != "BestEffort"
    assert bool(change.requests) == (seen.shape.qos == "Guaranteed")
    if change.back:
        assert change.limits == {container.name: container.reported for container in seen.containers}
        return
    assert change.sum == scene.desired_limit.desired
    assert scene.desired_limit.last_status.originals, "the original limit is recorded first"
    assert all(limit.nanos > 0 and limit.is_multiple_of(cpu(10)) for limit in change.limits.values())
    assert (
        any(change.limits[container.name] != container.limit for container in seen.containers)
        or change.requests
    )
    if seen.shape.qos == "Burstable":
        assert all(change.limits[container.name] >= container.request for container in seen.containers)
        stays = any(change.limits[container.name] != container.request for container in seen.containers)
        assert stays or not seen.shape.memory_pinned, "it would become Guaranteed"


@given(resize_inputs())
def test_the_reason_fits_into_the_status(scene):
    verdict = resize.decide(scene).verdict
    assert verdict.code.isalnum()
    assert verdict.code[0].isupper()
    assert str(verdict.reason).startswith(f"{verdict.code}: ")
    assert "\n" not in str(verdict.reason)
    assert len(str(verdict.reason)) <= 1024


@given(resize_inputs())
def test_a_repeated_decision_changes_nothing(scene):
    """Nothing is written without a change; a failure is not retried before it is due."""
    first = resize.decide(scene)
    if first.change is not None or first.again == 0.0 or scene.pod is None:
        return
    again = replace(
        scene, desired_limit=replace(scene.desired_limit, last_status=written(scene, first)), due=False
    )
    second = resize.decide(again)

    assert second.change is None
    assert second.verdict == first.verdict or first.verdict.code == "ForeignWriter"
    assert not second.attempted


def written(scene: ResizeInputs, decision: resize.ResizeDecision) -> LastStatus:
    """The status as written."""
    before, verdict = scene.desired_limit.last_status, decision.verdict
    keeps = before.uid == decision.uid and before.originals
    return LastStatus(
        verdict,
        decision.uid,
        scene.desired_limit.desired,
        scene.desired_limit.generation,
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

    assert (verdict.phase, verdict.code) == ("Failed", reason)
    assert verdict.retried
    assert resize_words.refused(status, message, [{"reason": "NodeCapacity"}]).code == "NodeCapacity"


def test_a_long_message_is_shortened_to_one_line():
    verdict = resize_words.refused(422, "no\n" * 2000)

    assert len(str(verdict.reason)) < 1024
    assert "\n" not in str(verdict.reason)


def decided(asked: DesiredLimit, seen: ResizePod | None, **changes: Any) -> resize.ResizeDecision:
    return resize.decide(replace(ResizeInputs(asked, seen, NOW), **changes))


def test_the_original_limit_is_recorded_before_the_first_change():
    first = decided(desired_limit(800), pod())
    assert (first.change, first.originals, first.verdict.code) == (None, {"main": cpu(500)}, "Recorded")

    second = decided(desired_limit(800, last_status=last_status("Recorded", 800)), pod())
    assert second.change is not None
    assert second.change.limits == {"main": cpu(800)}


def test_a_changed_spec_is_attributed_to_another_writer():
    for word in resize_words.SET_AFTER_WRITE:
        found = decided(desired_limit(800, last_status=last_status(word, 800)), pod())
        assert (found.verdict.code, found.change) == ("ForeignWriter", None)


def test_a_new_desired_limit_is_not_delayed_by_the_old_backoff():
    asked = desired_limit(800, generation=2, last_status=last_status("Infeasible", 6400))

    assert decided(asked, pod(), due=False).change is not None


def test_a_condition_of_an_earlier_spec_is_ignored_until_the_kubelet_observes_the_new_one():
    stale = ResizeCondition("Infeasible", "too much", generation=1)

    unseen = pod(generation=2, observed=1, pending=stale)
    assert decided(desired_limit(500, last_status=last_status()), unseen).verdict.code == "Resizing"
    seen = pod(generation=2, observed=2, pending=stale)
    assert decided(desired_limit(500, last_status=last_status()), seen).verdict.code == "Infeasible", (
        "the change was of another field"
    )


def test_an_older_allocation_of_a_deleted_pod_has_no_precedence():
    dead = desired_limit(900, name="dead", owner="uid-0", created=NOW - timedelta(days=1))

    assert (
        decided(desired_limit(500, last_status=last_status()), pod(), rivals=(dead,)).verdict.phase
        == "Applied"
    )


def test_an_older_allocation_of_another_node_has_no_precedence():
    reaching = desired_limit(900, name="reaching", node="node-2", created=NOW - timedelta(days=1))

    assert (
        decided(desired_limit(500, last_status=last_status()), pod(), rivals=(reaching,)).verdict.phase
        == "Applied"
    )


def test_of_two_allocations_of_the_same_second_the_active_one_has_precedence():
    working, newcomer = desired_limit(500, name="z", last_status=last_status()), desired_limit(900, name="a")

    assert decided(working, pod(), rivals=(newcomer,)).verdict.phase == "Applied"
    late = decided(newcomer, pod(), rivals=(working,))
    assert (late.verdict.code, late.originals) == ("DuplicateAllocation", {"main": cpu(500)})


def test_an_allocation_beyond_a_limit_fails_and_keeps_its_record():
    last = last_status("Enforced")
    exceeded = AllocationLimit("namespace team-a", 3000, ", or have the setting raised")
    decision = resize.decide(ResizeInputs(desired_limit(800, last_status=last), None, NOW, exceeded=exceeded))

    assert (decision.verdict.phase, str(decision.verdict.reason)) == (
        "Failed",
        "TooManyAllocations: namespace team-a has more than 3000 PodAllocations, and only the oldest 3000 are"
        " applied; delete some, or have the setting raised",
    )
    assert (decision.uid, decision.originals) == (last.uid, last.originals)
    assert (decision.change, decision.again) == (None, None)
