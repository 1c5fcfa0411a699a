"""PodAllocations on a real API server: every reason of the status, and no redundant writes."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import convert_podallocation as wire
from croupier.api import kinds, market_pod
from croupier.controllers.limits.podallocation import NAME
from croupier.core import quantity
from croupier.core.resizing import messages as resize_words
from croupier.core.resizing.resize import LimitChange
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import PatchType, Selection
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.errors import Invalid, NotFound
from croupier.kube.client.identity import Key
from croupier.kube.client.resource import Raw, Resource
from croupier_lab import shared_cluster
from tests.controllers.ledger_env import caught_up
from tests.controllers.limits_env import NODE, LimitsEnv, container, patch_of
from tests.polling import until_async

QUOTAS: Resource[Raw] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)
RANGES: Resource[Raw] = Resource("", "v1", "limitranges", "LimitRange", True, dict)


@pytest.fixture(scope="module")
def shared_namespace(cluster: Any, crds: Any) -> Iterator[str]:
    """One namespace for all tests of this file."""
    name = shared_cluster.create_namespace(cluster, "limit-stories")
    yield name
    shared_cluster.delete_namespace(cluster, name, shared_cluster.namespaced(crds))


@pytest_asyncio.fixture
async def limits(cluster: Any, shared_namespace: str) -> AsyncIterator[LimitsEnv]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as api:
        made = LimitsEnv(api, shared_namespace)
        await made.node(cpu="16", memory="32Gi", pods="110")
        yield made
        await api.delete(kinds.NODES, NODE)
        for item in (await api.list(kinds.PODS, Selection(shared_namespace))).items:
            await made.delete(item.metadata.name)
        await api.delete_collection(kinds.POD_ALLOCATIONS, Selection(shared_namespace))


async def test_a_limit_is_applied_when_the_kubelet_reports_it(limits):
    await limits.runs("web")
    async with limits.moved():
        await limits.set_limit("web", "0.8")
        await limits.has("web", main="800m")
        asked = await limits.becomes("web", "Pending", "Resizing: 800m was requested")
        assert (asked.status.applied_cpu_limit, asked.status.original_cpu_limit) == (None, "500m")

        await limits.reports("web")
        allocation = await limits.becomes(
            "web", "Applied", "Enforced: the kubelet of no-kubelet reports 800m"
        )

        async def counted() -> bool:
            return bool(limits.metric("mbcas_podallocations", phase="Applied") == 1)

        await until_async(counted, "it to be counted")

    status = allocation.status
    assert (status.applied_cpu_limit, status.observed_desired_cpu_limit) == ("800m", "800m")
    assert status.original_container_limits == {"main": "500m"}
    assert status.pod_uid == (await limits.get("web")).metadata.uid
    assert [(reference.kind, reference.name) for reference in allocation.metadata.owner_references] == [
        ("Pod", "web")
    ]
    assert [(condition.type, condition.status, condition.reason) for condition in status.conditions] == [
        ("Applied", "True", "Enforced")
    ]
    pod = await limits.get("web")
    assert pod.spec.containers[0].resources.requests == {"cpu": "100m"}, "only limits change"
    assert limits.metric("mbcas_resizes_total", direction="up") == 1
    assert limits.metric("mbcas_resize_duration_seconds_count") == 1


async def test_the_original_limit_stays_recorded_over_changes_and_restarts(limits):
    await limits.runs("web")
    async with limits.moved():
        await limits.applied("web", "2", main="2")
        await limits.applied("web", "200m", main="200m")
    async with limits.moved():
        allocation = await limits.applied("web", "300m", main="300m")

    assert allocation.status.original_cpu_limit == "500m"


async def test_a_limit_is_split_by_the_original_limits(limits):
    sidecar = container("proxy", "10m", "100m", restartPolicy="Always")
    await limits.runs("web", container("app", "100m", "400m"), container("log", "50m", "100m"))
    await limits.runs("meshed", container("app", "100m", "400m"), spec={"initContainers": [sidecar]})
    async with limits.moved():
        await limits.applied("web", "1", app="800m", log="200m")
        await limits.applied("web", "200m", app="150m", log="50m")
        allocation = await limits.applied("meshed", "1", app="800m", proxy="200m")

    assert allocation.status.original_container_limits == {"app": "400m", "proxy": "100m"}


UNFIT: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "guaranteed": (
        [
            {
                "name": "main",
                "image": "none",
                "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
            }
        ],
        {},
        "Guaranteed: its QoS class is Guaranteed",
    ),
    "limitless": (
        [container(), container("free", "100m", None)],
        {},
        "NoCPULimit: no CPU limit in container free",
    ),
    "best effort": ([container("main", None, None)], {}, "BestEffort: "),
    "restarts": (
        [container(resizePolicy=[{"resourceName": "cpu", "restartPolicy": "RestartContainer"}])],
        {},
        "RestartPolicy: container main restarts",
    ),
    "windows": ([container()], {"spec": {"os": {"name": "windows"}}}, "WindowsPod: "),
    "static": (
        [container()],
        {"annotations": {"kubernetes.io/config.source": "file"}},
        "StaticPod: static pods cannot be resized",
    ),
    "autoscaled": (
        [container()],
        {
            "annotations": {
                "vpaUpdates": "Pod resources updated by tuner: container 0: cpu request, cpu limit"
            }
        },
        "Autoscaler: VerticalPodAutoscaler tuner sets the same limit",
    ),
    "below its request": (
        [container("main", "800m", "2")],
        {},
        "BelowRequest: Kubernetes refuses a limit below the request; set at least 800m",
    ),
    "would become guaranteed": (
        [
            {
                "name": "main",
                "image": "none",
                "resources": {
                    "requests": {"cpu": "700m", "memory": "1Gi"},
                    "limits": {"cpu": "2", "memory": "1Gi"},
                },
            }
        ],
        {},
        "BelowRequest: with limits equal to requests its QoS class would become Guaranteed;"
        " set at least 710m",
    ),
}


RECHECKED = ("below its request", "guaranteed", "limitless")


@pytest.mark.parametrize("story", RECHECKED, ids=lambda story: story.replace(" ", "-"))
async def test_a_failed_one_is_evaluated_again_without_a_write(limits, story):
    containers, extra, sentence = UNFIT[story]
    limits.retries = Backoff(first=0.1, most=0.1)
    await limits.runs("odd", *containers, **extra)
    async with limits.moved():
        await limits.set_limit("odd", "700m")
        allocation = await limits.becomes("odd", "Failed", sentence)
        count = _evaluations(limits)

        async def evaluated() -> bool:
            return _evaluations(limits) >= count + 5

        await until_async(evaluated, "five more evaluations")
        after = await limits.get_allocation("odd")

    assert after.metadata.resource_version == allocation.metadata.resource_version
    assert allocation.status.applied_cpu_limit is None, "nothing was applied"


def _evaluations(limits: LimitsEnv) -> float:
    return limits.metric("croupier_reconciles_total", controller=NAME, outcome="again")


async def test_what_makes_a_limit_possible_is_noticed(limits):
    await limits.runs("odd", container("main", "800m", "2"))
    async with limits.moved():
        await limits.set_limit("odd", "700m")
        await limits.becomes("odd", "Failed", "BelowRequest")
        smaller = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]}}
        how: dict[str, Any] = {"patch_type": PatchType.STRATEGIC, "subresource": "resize"}
        await limits.api.patch(kinds.PODS, "odd", smaller, namespace=limits.namespace, **how)
        await limits.has("odd", main="700m")
        await limits.reports("odd")
        allocation = await limits.becomes("odd", "Applied")

    assert allocation.status.applied_cpu_limit == "700m"


async def test_applied_refers_to_the_observed_generation(limits):
    await limits.runs("web")
    async with limits.moved():
        first = await limits.applied("web", "800m", main="800m")
        await limits.set_limit("web", "300m")
        asked = await limits.get_allocation("web")
        later = await limits.becomes("web", "Pending", "Resizing")

    assert first.status.observed_generation == first.metadata.generation
    assert asked.status.observed_generation < asked.metadata.generation or asked.status.phase != "Applied"
    assert later.status.observed_generation == later.metadata.generation == asked.metadata.generation
    assert later.status.applied_cpu_limit == "800m", "in force until the kubelet reports"


@pytest.mark.parametrize("story", UNFIT, ids=lambda story: story.replace(" ", "-"))
async def test_a_pod_that_cannot_be_resized_is_not_changed(limits, story):
    containers, extra, sentence = UNFIT[story]
    await limits.runs("odd", *containers, **extra)
    before = (await limits.get("odd")).spec
    async with limits.moved():
        await limits.set_limit("odd", "700m")
        allocation = await limits.becomes("odd", "Failed", sentence)

    assert (await limits.get("odd")).spec == before
    assert allocation.status.last_attempt_time is None
    assert limits.metric("mbcas_resize_failures_total", reason=sentence.partition(":")[0]) == 1


async def test_an_opted_in_guaranteed_pod_is_resized_with_its_requests(limits):
    resources = {"limits": {"cpu": "500m", "memory": "1Gi"}}
    made = {"name": "main", "image": "none", "resources": resources}
    await limits.runs("firm", made, labels={"mbcas.io/allow-guaranteed": "true"})
    async with limits.moved():
        await limits.applied("firm", "700m", main="700m")

    pod = await limits.get("firm")
    assert pod.spec.containers[0].resources.requests["cpu"] == "700m"
    assert pod.status.qos_class == "Guaranteed"


async def test_an_opted_in_container_may_restart(limits):
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    await limits.runs("web", container(resizePolicy=policy), annotations={"mbcas.io/allow-restart": "true"})
    async with limits.moved():
        await limits.set_limit("web", "700m")
        await limits.has("web", main="700m")
        await limits.reports("web", restarts=1)
        await limits.becomes("web", "Applied")


async def test_a_pending_pod_is_resized_when_it_runs(limits):
    await limits.pod("web")
    async with limits.moved():
        await limits.set_limit("web", "700m")
        await limits.becomes("web", "Pending", "PodPending: pod web is not running yet (on node no-kubelet)")
        await limits.reports("web")
        await limits.has("web", main="700m")


async def test_deferred_in_progress_and_error_are_distinguished(limits):
    await limits.runs("web")
    async with limits.moved():
        await limits.set_limit("web", "700m")
        await limits.has("web", main="700m")
        await limits.condition("web", "PodResizePending", "Deferred", "Node didn't have enough resource: cpu")
        await limits.becomes("web", "Pending", "Deferred: Node didn't have enough resource: cpu")
        await limits.condition("web", "PodResizeInProgress")
        await limits.becomes("web", "Pending", "InProgress: ")
        await limits.condition("web", "PodResizeInProgress", "Error", "failed to write cpu.cfs_quota_us")
        await limits.becomes("web", "Failed", "KubeletError: failed to write cpu.cfs_quota_us")
        await limits.reports("web")
        await limits.becomes("web", "Applied")


async def test_an_infeasible_limit_is_reset_and_retried(limits):
    await limits.runs("web")
    async with limits.moved():
        await limits.set_limit("web", "64")
        await limits.has("web", main="64")
        await limits.condition("web", "PodResizePending", "Infeasible", "Node didn't have enough capacity")
        await limits.has("web", main="500m")
        allocation = await limits.becomes(
            "web", "Failed", "Infeasible: Node didn't have enough capacity; the limit is reset to 500m"
        )
        assert allocation.status.applied_cpu_limit is None
        await limits.reports("web")
        await limits.has("web", main="64")  # retried
        await limits.condition("web", "PodResizePending", "Infeasible", "Node didn't have enough capacity")
        await limits.has("web", main="500m")
        await limits.reports("web")
        await limits.applied("web", "700m", main="700m")  # a feasible limit is not delayed

    assert limits.metric("mbcas_resizes_total", direction="back") == 2
    assert (
        "Warning Infeasible: Node didn't have enough capacity; the limit is reset to 500m"
        in await limits.events("web")
    )


async def test_a_kubelet_without_a_report_for_a_minute_is_named(limits):
    await limits.runs("web")
    async with limits.moved() as controller:
        await limits.set_limit("web", "700m")
        await limits.becomes("web", "Pending", "Resizing")
        limits.clock.ahead = timedelta(seconds=61)
        controller.controller.add(key(limits, "web"))
        await limits.becomes(
            "web",
            "Failed",
            "QuotaNotEnforced: 700m was requested more than a minute ago"
            ", but the kubelet of no-kubelet has not observed it",
        )
        await limits.reports("web", main="500m")
        await limits.becomes(
            "web",
            "Failed",
            "QuotaNotEnforced: 700m was requested more than a minute ago"
            ", but the kubelet of no-kubelet reports 500m",
        )
        await limits.reports("web")
        await limits.becomes("web", "Applied")


async def test_an_old_report_is_not_accepted(limits):
    """The kubelet still reports the old 700m; the report counts only after it has observed the new spec."""
    await limits.runs("web")
    async with limits.moved() as controller:
        await limits.set_limit("web", "700m")
        await limits.has("web", main="700m")
        await limits.becomes("web", "Pending", "Resizing")
        await limits.reports("web", behind=1)
        await caught_up(limits.api, limits.followed)
        await controller.reconcile(key(limits, "web"))
        await limits.becomes("web", "Pending", "Resizing")
        await limits.reports("web")
        await limits.becomes("web", "Applied")


async def test_a_restart_requires_a_new_report(limits):
    await limits.runs("web")
    async with limits.moved():
        first = await limits.applied("web", "700m", main="700m")
        await limits.reports("web", restarts=1)

        async def again() -> bool:
            status = (await limits.becomes("web", "Applied")).status
            return bool(status.observed_restarts == 1)

        await until_async(again, "the proof to be made again")
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        pod = json.loads(
            json.dumps(
                {
                    "containerStatuses": [
                        {
                            "name": "main",
                            "image": "none",
                            "imageID": "",
                            "ready": False,
                            "restartCount": 2,
                            "state": waiting,
                        }
                    ]
                }
            )
        )
        await limits.says("web", pod)
        allocation = await limits.becomes(
            "web", "Pending", "NotRunning: not running: main (CrashLoopBackOff)"
        )
        assert allocation.status.original_cpu_limit == first.status.original_cpu_limit


async def test_another_writer_is_named_and_overwritten(limits, cluster):
    await limits.runs("web")
    async with limits.moved():
        await limits.applied("web", "700m", main="700m")
        cluster.kubectl(
            "patch",
            "pod",
            "web",
            "-n",
            limits.namespace,
            "--subresource=resize",
            "--field-manager=tuner",
            "-p",
            patch_of({"main": "900m"}),
        )
        await limits.becomes(
            "web",
            "Failed",
            "ForeignWriter: tuner changed the limits (main 900m) after 700m was set; it will be set again",
        )
        await limits.has("web", main="700m")
        await limits.reports("web")
        await limits.becomes("web", "Applied")

    assert limits.metric("mbcas_resize_failures_total", reason="ForeignWriter") == 1


async def test_a_limit_refused_by_a_quota_is_set_when_the_quota_allows_it(limits):
    await limits.runs("web")
    async with existing(limits, QUOTAS, {"hard": {"limits.cpu": "1"}}):

        async def counted() -> bool:
            found = await limits.api.get(QUOTAS, "cap", namespace=limits.namespace)
            return "limits.cpu" in found.get("status", {}).get("used", {})

        await until_async(counted, "the quota to be counted")
        async with limits.moved():
            await limits.set_limit("web", "2")
            allocation = await limits.becomes("web", "Failed", "QuotaExceeded: ")
            assert "exceeded quota: cap" in allocation.status.reason
            assert allocation.status.applied_cpu_limit is None
            assert allocation.status.last_attempt_time is not None
            await limits.api.delete(QUOTAS, "cap", namespace=limits.namespace)
            await limits.has("web", main="2")


async def test_a_limit_range_refuses_a_limit(limits):
    await limits.runs("web")
    most = {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}
    async with existing(limits, RANGES, most), limits.moved():
        await limits.set_limit("web", "2")
        await limits.becomes("web", "Failed", "LimitRange: ")


async def test_requests_beyond_the_node_are_refused_by_the_api_server(limits):
    made = {"name": "main", "image": "none", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}}
    await limits.runs("firm", made, labels={"mbcas.io/allow-guaranteed": "true"})
    async with limits.moved():
        await limits.set_limit("firm", "64")
        await limits.becomes("firm", "Failed", "NodeCapacity: ")
        assert await limits.limits("firm") == {"main": "500m"}


async def test_missing_permission_to_resize_is_reported(limits, cluster):
    """Allowed to write PodAllocations, but not pods/resize, which must be granted by name."""
    rules = [
        {
            "apiGroups": ["allocation.mbcas.io"],
            "resources": ["podallocations", "podallocations/status"],
            "verbs": ["patch"],
        }
    ]
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "half"},
        "rules": rules,
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "half"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "half"},
        "subjects": [{"kind": "User", "name": "half", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    for one in (role, binding):
        cluster.kubectl("apply", "-n", limits.namespace, "-f", "-", stdin=json.dumps(one))
    who = replace(config.load(cluster.kubeconfig), impersonate={"Impersonate-User": ("half",)})
    await limits.runs("web")
    async with api_client.connect(who) as half, limits.moved(by=half):
        await limits.set_limit("web", "700m")
        allocation = await limits.becomes("web", "Failed", "NotPermitted: ")
        assert 'cannot patch resource "pods/resize"' in allocation.status.reason


async def test_missing_replaced_and_finished_pods(limits):
    async with limits.moved():
        await limits.set_limit("web", "700m")
        await limits.becomes(
            "web", "Failed", f"PodNotFound: pod web does not exist in namespace {limits.namespace}"
        )
        await limits.runs("web")
        await limits.has("web", main="700m")
        await limits.reports("web", phase="Succeeded")
        await limits.becomes("web", "Failed", "PodFinished: pod web has finished (Succeeded)")
        await limits.delete("web")
        await limits.runs("web", container("main", "100m", "400m"))

        async def gone_or_replaced() -> bool:
            found = await limits.get_allocation("web")
            return found is None or "PodReplaced: " in found.status.reason

        await until_async(gone_or_replaced, "the new pod to be distinguished")

        async def collected() -> bool:
            return await limits.get_allocation("web") is None

        await until_async(collected, "it to go with its pod", within=60)
        assert await limits.limits("web") == {"main": "400m"}, "the recreated pod is not resized"


async def test_a_terminating_pod_is_not_changed(limits):
    await limits.runs("web", finalizers=["test.croupier/hold"])
    async with limits.moved():
        await limits.applied("web", "700m", main="700m")
        await limits.delete("web")
        await limits.becomes("web", "Failed", "PodTerminating: pod web is being deleted")
        await limits.set_limit("web", "900m")
        await limits.becomes("web", "Failed", "PodTerminating")
        assert await limits.limits("web") == {"main": "700m"}
    await limits.api.patch(kinds.PODS, "web", {"metadata": {"finalizers": None}}, namespace=limits.namespace)


async def test_a_change_for_a_deleted_pod_does_not_reach_its_successor(limits):
    seen = replace(
        market_pod.resize_pod(await limits.runs("web")), uid="6d2b1c0a-0000-4000-8000-000000000000"
    )
    patch = wire.resize_patch(seen, LimitChange({"main": quantity.parse("2")}))
    with pytest.raises(Invalid) as refused:
        await limits.api.patch(
            kinds.PODS,
            "web",
            patch,
            namespace=limits.namespace,
            patch_type=PatchType.STRATEGIC,
            subresource="resize",
        )
    assert resize_words.refused(refused.value.status, refused.value.message).code == "Conflict"
    assert await limits.limits("web") == {"main": "500m"}


async def test_the_older_allocation_takes_precedence_until_it_is_deleted(limits):
    await limits.runs("web")
    async with limits.moved():
        await limits.set_limit("web", "700m", name="b-first")
        await limits.becomes("b-first", "Pending", "Resizing")
        await limits.set_limit("web", "900m", name="a-second")
        await limits.becomes(
            "a-second",
            "Failed",
            "DuplicateAllocation: PodAllocation b-first of pod web is older and takes precedence",
        )
        assert await limits.limits("web") == {"main": "700m"}

        await limits.api.delete(kinds.POD_ALLOCATIONS, "b-first", namespace=limits.namespace)
        await limits.has("web", main="900m")
        allocation = await limits.becomes("a-second", "Pending", "Resizing")
        assert allocation.status.original_cpu_limit == "500m", "the record of the first one is used"


async def test_a_pod_of_another_namespace_is_refused(limits):
    async with limits.moved():
        await limits.set_limit("coredns", "700m", namespace="kube-system")
        await limits.becomes(
            "coredns",
            "Failed",
            f"NamespaceMismatch: it is in namespace {limits.namespace}"
            " and names a pod of namespace kube-system",
        )


async def test_nothing_is_written_without_a_change(limits):
    await limits.runs("web")
    await limits.runs("odd", container("main", "100m", None))
    async with limits.moved() as controller:
        await limits.applied("web", "700m", main="700m")
        for name in ("odd", "missing"):
            await limits.set_limit(name, "700m")
            await limits.becomes(name, "Failed")
        before = await versions(limits)
        writes = limits.metric("mbcas_status_writes_total")
        for _ in range(60):  # one minute
            limits.clock.ahead += timedelta(seconds=1)
            for name in ("web", "odd", "missing"):
                again = (await controller.reconcile(key(limits, name))).requeue_after
                assert again == (None if name == "web" else limits.retries.most)

    assert await versions(limits) == before
    assert limits.metric("mbcas_status_writes_total") == writes


async def versions(limits: LimitsEnv) -> set[str]:
    here = Selection(limits.namespace)
    allocations = (await limits.api.list(kinds.POD_ALLOCATIONS, here)).items
    pods = (await limits.api.list(kinds.PODS, here)).items
    found = [allocation.metadata for allocation in allocations] + [pod.metadata for pod in pods]
    return {one.resource_version for one in found}


def key(limits: LimitsEnv, name: str) -> Key:
    return Key(limits.namespace, name)


@contextlib.asynccontextmanager
async def existing(limits: LimitsEnv, kind: Resource[Raw], spec: dict[str, Any]) -> AsyncIterator[None]:
    body = {"metadata": {"name": "cap"}, "spec": spec}
    await limits.api.create(kind, body, namespace=limits.namespace)
    try:
        yield
    finally:
        with contextlib.suppress(NotFound):
            await limits.api.delete(kind, "cap", namespace=limits.namespace)
