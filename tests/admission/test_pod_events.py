"""Events about admitted pods are recorded once, and only if the pod exists."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from croupier.admission import pod_events
from croupier.admission.pod_events import EXPIRY, MAX_PENDING, PendingPodEvents
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.api import kinds
from croupier.api.pod_identity import (
    POD_IDENTITIES,
    PodIdentity,
    PodIdentityAnnotations,
    PodIdentityMeta,
)
from croupier.core.fallbacks.fallback import ANNOTATION, PodEvent
from croupier.core.jsonpatch import Operation
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import ApiError
from croupier.kube.client.identity import Key
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from tests.admission.webhook_env import StampMutator, WebhookEnv, gpu
from tests.polling import until_async

REWRITTEN = PodEvent("GPUFallback", "no node offers 2g.20gb, so main gets 1g.10gb")
STUCK = PodEvent("GPUNothingFits", "no node offers 2g.20gb, nor a replacement for it")


QUOTAS: Resource[Raw] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)


class Clock:
    """A clock that advances only by the test."""

    now_ = 0.0

    def monotonic(self) -> float:
        return self.now_

    def now(self) -> datetime:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class RecordedEvents:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def record(self, regarding: Any, reason: str, note: str, *, action: str, type: str = "Normal") -> None:
        self.told.append((regarding.name, reason, type))


def asked(name: str = "", generate: str = "", *, dry_run: bool = False) -> AdmissionRequest:
    pod = {"metadata": {"name": name, "generateName": generate}}
    return AdmissionRequest("u", namespace="team", name=name, object=pod, dry_run=dry_run)


def appears(
    name: str, generate: str = "", *, namespace: str = "team", fallback: str = "x"
) -> ObjectChange[PodIdentity]:
    metadata = PodIdentityMeta(
        name=name,
        generate_name=generate,
        namespace=namespace,
        uid=f"uid-{name}",
        annotations=PodIdentityAnnotations(fallback=fallback),
    )
    return ObjectChange(Key(namespace, name), None, PodIdentity(metadata=metadata))


SILENT = {
    "another pod": (asked("p"), appears("q"), 0.0),
    "a pod of that name elsewhere": (asked("p"), appears("p", namespace="other"), 0.0),
    "a dry run": (asked("p", dry_run=True), appears("p"), 0.0),
    "a pod that comes too late": (asked("p"), appears("p"), EXPIRY + 1),
    "a pod that was not rewritten": (asked("p"), appears("p", fallback=""), 0.0),
    "a pod whose name is the prefix of others": (asked(generate="p"), appears("p"), 0.0),
}


@pytest.mark.parametrize(("request_", "change", "later"), SILENT.values(), ids=SILENT)
def test_no_event_is_recorded_for(request_, change, later):
    book, clock = RecordedEvents(), Clock()
    kept = PendingPodEvents(book.record, clock)

    kept.expect(request_, (REWRITTEN,))
    clock.now_ += later
    kept.seen(change)

    assert book.told == []


def test_a_named_pod_gets_one_event():
    book = RecordedEvents()
    kept = PendingPodEvents(book.record, Clock())
    kept.expect(asked("p"), (REWRITTEN,))

    kept.seen(appears("p"))
    kept.seen(ObjectChange(Key("team", "p"), appears("p").new, appears("p").new))
    kept.seen(appears("p"))

    assert book.told == [("p", "GPUFallback", "Normal")]


def test_all_pods_of_one_owner_get_an_event():
    book = RecordedEvents()
    kept = PendingPodEvents(book.record, Clock())
    kept.expect(asked(generate="job-"), (STUCK,))

    for name in ("job-1", "job-2"):
        kept.seen(appears(name, "job-", fallback=""))

    assert book.told == [(name, "GPUNothingFits", "Warning") for name in ("job-1", "job-2")]


def test_memory_is_bounded():
    kept = PendingPodEvents(RecordedEvents().record, Clock())
    for index in range(MAX_PENDING + 10):
        kept.expect(asked(f"p-{index}"), (REWRITTEN,))

    assert len(kept._expected) == MAX_PENDING


class Rewriter(StampMutator):
    """Rewrites every pod, and passes its Events to two replicas."""

    def __init__(self, *replicas: PendingPodEvents) -> None:
        super().__init__()
        self.replicas = replicas

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        for replica in self.replicas:
            replica.expect(request, (REWRITTEN,))
        value = {ANNOTATION: "2g.20gb->1g.10gb", "stamp": "here"}
        return AdmissionVerdict(operations=(Operation("add", "/metadata/annotations", value),))


@contextlib.asynccontextmanager
async def two_replicas(env: WebhookEnv) -> AsyncIterator[None]:
    """Both replicas watch all pods and have their Events."""
    stop, tasks, kept = asyncio.Event(), [], []
    for _ in range(2):
        recorder = EventRecorder(env.api, pod_events.REPORTER, naming=events.stable_name)
        kept.append(PendingPodEvents(recorder.record))
        store = Store(POD_IDENTITIES)
        store.subscribe(kept[-1].seen)
        reflector = Reflector(env.api, store, selection=Selection(namespace=env.namespace))
        tasks += [asyncio.create_task(reflector.run()), asyncio.create_task(recorder.run(stop))]
        await reflector.synced()
    env.stamp = Rewriter(*kept)
    try:
        async with env.open():
            yield
    finally:
        stop.set()
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks, timeout=10)


async def test_every_new_pod_has_one_event_with_two_replicas(env):
    async with two_replicas(env):
        quota = {"metadata": {"name": "few"}, "spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}
        await env.api.create(QUOTAS, quota, namespace=env.namespace)
        await until_async(lambda: _counted(env), "the quota to be counted")

        await env.create("dry", spec=gpu(), dry_run=True)
        pods = [await env.create("named", spec=gpu())]
        pods += [await env.create(generate="made-", spec=gpu()) for _ in range(2)]
        with pytest.raises(ApiError, match="exceeded quota"):
            await env.create("refused", spec=gpu())

        async def told() -> list[Any]:
            found = await env.api.list(kinds.EVENTS, Selection(namespace=env.namespace))
            ours = [item for item in found.items if item.reporting_controller == pod_events.REPORTER]
            return ours if len(ours) >= len(pods) else []

        events = await until_async(told, "the Events")

    events = await told()
    assert sorted(event.regarding.uid for event in events) == sorted(pod.metadata.uid for pod in pods)
    assert {(event.reason, event.note, event.type) for event in events} == {
        ("GPUFallback", REWRITTEN.sentence, "Normal")
    }
    assert {event.regarding.kind for event in events} == {"Pod"}


async def _counted(env: WebhookEnv) -> bool:
    quota = await env.api.get(QUOTAS, "few", namespace=env.namespace)
    return "used" in quota.get("status", {})
