"""The cost of a review grows with the pod, not with its square; a pod that no kubelet could run is refused.

Growth is measured in executed instructions, which do not depend on the machine: twice the containers may cost
little more than twice the instructions. A patch copies lists in one instruction, so its growth is a ratio of
two CPU times of the same run.
"""

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import msgspec
import pytest

from croupier.admission import mutate, review
from croupier.admission.pools import PoolAccessGuard
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.admission.server import MAX_BODY
from croupier.core import jsonpatch
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.jsonpatch import Operation
from croupier.core.pods.podspec_view import MAX_CONTAINERS, MAX_RESOURCES
from croupier.core.quantity import NANO, Quantity

MISSING = "nvidia.com/mig-2g.20gb"
POOL = "gpu.deckhouse.io/team-a"
POLICIES = {
    "the nearest profile": FallbackPolicy(),
    "the nearest that is free": FallbackPolicy(prefer_available=True),
}


class Offer:
    """A cluster with four profiles and whole cards."""

    def exists(self, resource: str) -> bool:
        return resource in self.resources()

    def resources(self) -> list[str]:
        return [f"nvidia.com/mig-{profile}" for profile in ("1g.10gb", "1g.20gb", "3g.40gb", "4g.40gb")]

    def max_free(self, resource: str) -> Quantity:
        return Quantity(7 * NANO)


def container(number: int, *resources: str) -> dict[str, Any]:
    limits = dict.fromkeys(resources, "1")
    return {"name": f"c{number}", "image": "none", "resources": {"limits": limits}}


def pod(containers: list[dict[str, Any]], init: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    spec = {"containers": containers, "initContainers": init or []}
    return {"metadata": {"name": "huge", "namespace": "team-b"}, "spec": spec}


def huge(containers: int) -> dict[str, Any]:
    return pod([container(number, MISSING) for number in range(containers)])


def rewritten(asked: dict[str, Any], policy: FallbackPolicy | None = None) -> AdmissionVerdict:
    return mutate.rewrite(asked, Offer(), policy or FallbackPolicy())


def steps(work: Callable[[], object]) -> int:
    """How many bytecode instructions `work` executes: every iteration counts, on any machine the same."""
    count = 0

    def traced(frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return traced

    before = sys.gettrace()
    gc.collect()
    gc.disable()  # finalizers of other tests' objects would be counted
    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_twice_the_containers_cost_twice_the_instructions(policy):
    half, whole = huge(MAX_CONTAINERS // 2), huge(MAX_CONTAINERS)
    verdict = rewritten(whole, policy)
    assert len(verdict.operations) >= MAX_CONTAINERS, "every container is rewritten"

    assert steps(lambda: rewritten(whole, policy)) < 2.2 * steps(lambda: rewritten(half, policy))


def test_twice_the_operations_of_a_patch_cost_twice_the_time():
    def seconds(number: int) -> float:
        document = {"list": [{"a": {"b": 0}} for _ in range(number)]}
        operations = [Operation("replace", f"/list/{at}/a/b", 1) for at in range(number)]
        began = time.process_time()
        changed = jsonpatch.apply(document, operations)
        took = time.process_time() - began
        assert changed["list"][-1] == {"a": {"b": 1}}
        assert document["list"][-1] == {"a": {"b": 0}}
        return took

    half, whole = (min(seconds(number) for _ in range(5)) for number in (8_000, 16_000))
    assert whole < 3 * half, "the square would be four times"


REFUSED = {
    "too many containers": (
        huge(MAX_CONTAINERS + 1),
        f"the pod has {MAX_CONTAINERS + 1} containers and init containers; a pod with cards may have at most"
        f" {MAX_CONTAINERS}: use several pods",
    ),
    "too many init containers": (
        pod([container(0, MISSING)], [container(number) for number in range(MAX_CONTAINERS)]),
        f"the pod has {MAX_CONTAINERS + 1} containers and init containers",
    ),
    "too many profiles in one container": (
        pod([container(0, *(f"nvidia.com/mig-1g.{gigabytes}gb" for gigabytes in range(MAX_RESOURCES + 1)))]),
        f"the pod requests {MAX_RESOURCES + 1} different card resources; at most {MAX_RESOURCES}",
    ),
}


@pytest.mark.parametrize(("asked", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_pod_that_no_kubelet_could_run_is_refused_with_a_sentence(asked, sentence):
    verdict = rewritten(asked)
    assert not verdict.allowed
    assert verdict.sentence.startswith(sentence)


def test_the_webhook_of_pools_refuses_it_as_well():
    asked = pod([container(number, POOL) for number in range(MAX_CONTAINERS + 1)])
    guard = PoolAccessGuard(find=lambda _: None)

    verdict = guard.mutate(AdmissionRequest(uid="u", operation="CREATE", object=asked))
    assert verdict.sentence.startswith(f"the pod has {MAX_CONTAINERS + 1} containers")


def test_a_review_of_the_maximum_size_is_refused_at_the_cost_of_a_small_one(size):
    """The number of containers is checked before any of them is read."""

    def reviewed(containers: int) -> int:
        request = {"uid": "u", "operation": "CREATE", "object": huge(containers)}
        body = msgspec.json.encode(
            {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        )
        assert len(body) < MAX_BODY

        def answered() -> None:
            asked = review.read(body)
            assert isinstance(asked, AdmissionRequest)
            assert not rewritten(asked.object or {}).allowed

        return steps(answered)

    assert reviewed(10 * size.containers) < 2 * reviewed(MAX_CONTAINERS + 1)
