"""What was done to a pod is told once, about the pod that exists, and never of one that does not."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import pytest

from croupier.admission import notices
from croupier.admission.notices import PATIENCE, REMEMBERED, Notices
from croupier.admission.review import AdmissionRequest, Verdict
from croupier.api import kinds
from croupier.api.sighting import FALLBACK, SIGHTINGS, Annotations, Metadata, Sighting
from croupier.core.fallbacks.fallback import Note
from croupier.core.jsonpatch import Operation
from croupier.kube.client import Selection
from croupier.kube.errors import ApiError
from croupier.kube.events import Recorder
from croupier.kube.identity import Key
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Raw, Resource
from croupier.kube.store import Change, Store
from tests.admission.desk import Desk, Stamp, gpu
from tests.kube.waiting import until_async

REWRITTEN = Note("GPUFallback", "no node offers 2g.20gb, so main gets 1g.10gb")
STUCK = Note("GPUNothingFits", "no node offers 2g.20gb, nor what may take its place")


QUOTAS: Resource[Raw] = Resource("", "v1", "resourcequotas", "ResourceQuota", True, dict)


class Clock:
    """Stands still until it is moved."""

    now_ = 0.0

    def monotonic(self) -> float:
        return self.now_

    def now(self) -> datetime:
        raise NotImplementedError

    async def sleep(self, seconds: float) -> None:
        raise NotImplementedError


class Notebook:
    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def record(self, regarding: Any, reason: str, note: str, *, action: str, type: str = "Normal") -> None:
        self.told.append((regarding.name, reason, type))


def asked(name: str = "", generate: str = "", *, dry_run: bool = False) -> AdmissionRequest:
    pod = {"metadata": {"name": name, "generateName": generate}}
    return AdmissionRequest("u", namespace="team", name=name, object=pod, dry_run=dry_run)


def appears(
    name: str, generate: str = "", *, namespace: str = "team", fallback: str = "x"
) -> Change[Sighting]:
    metadata = Metadata(
        name=name,
        generate_name=generate,
        namespace=namespace,
        uid=f"uid-{name}",
        annotations=Annotations(fallback=fallback),
    )
    return Change(Key(namespace, name), None, Sighting(metadata=metadata))


SILENT = {
    "another pod": (asked("p"), appears("q"), 0.0),
    "a pod of that name elsewhere": (asked("p"), appears("p", namespace="other"), 0.0),
    "a dry run": (asked("p", dry_run=True), appears("p"), 0.0),
    "a pod that comes too late": (asked("p"), appears("p"), PATIENCE + 1),
    "a pod that was not rewritten after all": (asked("p"), appears("p", fallback=""), 0.0),
    "a pod whose name is the prefix of others": (asked(generate="p"), appears("p"), 0.0),
}


@pytest.mark.parametrize(("request_", "change", "later"), SILENT.values(), ids=SILENT)
def test_nothing_is_told_of(request_, change, later):
    book, clock = Notebook(), Clock()
    kept = Notices(book, clock)

    kept.expect(request_, (REWRITTEN,))
    clock.now_ += later
    kept.seen(change)

    assert book.told == []


def test_a_pod_with_its_own_name_is_told_of_once():
    book = Notebook()
    kept = Notices(book, Clock())
    kept.expect(asked("p"), (REWRITTEN,))

    kept.seen(appears("p"))
    kept.seen(Change(Key("team", "p"), appears("p").new, appears("p").new))
    kept.seen(appears("p"))

    assert book.told == [("p", "GPUFallback", "Normal")]


def test_all_pods_of_one_owner_are_told_of():
    book = Notebook()
    kept = Notices(book, Clock())
    kept.expect(asked(generate="job-"), (STUCK,))

    for name in ("job-1", "job-2"):
        kept.seen(appears(name, "job-", fallback=""))

    assert book.told == [(name, "GPUNothingFits", "Warning") for name in ("job-1", "job-2")]


def test_memory_is_bounded():
    kept = Notices(Notebook(), Clock())
    for index in range(REMEMBERED + 10):
        kept.expect(asked(f"p-{index}"), (REWRITTEN,))

    assert len(kept._expected) == REMEMBERED


class Rewriter(Stamp):
    """Rewrites every pod, and has two replicas remember it."""

    def __init__(self, *replicas: Notices) -> None:
        super().__init__()
        self.replicas = replicas

    def mutate(self, request: AdmissionRequest) -> Verdict:
        for one in self.replicas:
            one.expect(request, (REWRITTEN,))
        value = {FALLBACK: "2g.20gb->1g.10gb", "stamp": "here"}
        return Verdict(operations=(Operation("add", "/metadata/annotations", value),))


@contextlib.asynccontextmanager
async def two_replicas(desk: Desk) -> AsyncIterator[None]:
    """Both see every pod, and both were asked about it."""
    stop, tasks, kept = asyncio.Event(), [], []
    for _ in range(2):
        recorder = Recorder(desk.api, notices.REPORTER, naming=notices.naming)
        kept.append(Notices(recorder))
        store = Store(SIGHTINGS)
        store.subscribe(kept[-1].seen)
        reflector = Reflector(desk.api, store, selection=Selection(namespace=desk.namespace))
        tasks += [asyncio.create_task(reflector.run()), asyncio.create_task(recorder.run(stop))]
        await reflector.synced()
    desk.stamp = Rewriter(*kept)
    try:
        async with desk.open():
            yield
    finally:
        stop.set()
        for task in tasks[::2]:
            task.cancel()
        await asyncio.wait(tasks, timeout=10)


async def test_on_a_cluster_every_new_pod_has_one_event_however_many_replicas_there_are(desk):
    async with two_replicas(desk):
        quota = {"metadata": {"name": "few"}, "spec": {"hard": {"requests.nvidia.com/gpu": "3"}}}
        await desk.api.create(QUOTAS, quota, namespace=desk.namespace)
        await until_async(lambda: _counted(desk), "the quota to be counted")

        await desk.create("dry", spec=gpu(), dry_run=True)
        pods = [await desk.create("named", spec=gpu())]
        pods += [await desk.create(generate="made-", spec=gpu()) for _ in range(2)]
        with pytest.raises(ApiError, match="exceeded quota"):
            await desk.create("refused", spec=gpu())

        async def told() -> list[Any]:
            found = await desk.api.list(kinds.EVENTS, Selection(namespace=desk.namespace))
            ours = [one for one in found.items if one.reporting_controller == notices.REPORTER]
            return ours if len(ours) >= len(pods) else []

        events = await until_async(told, "the Events")

    events = await told()
    assert sorted(one.regarding.uid for one in events) == sorted(one.metadata.uid for one in pods)
    assert {(one.reason, one.note, one.type) for one in events} == {
        ("GPUFallback", REWRITTEN.sentence, "Normal")
    }
    assert {one.regarding.kind for one in events} == {"Pod"}


async def _counted(desk: Desk) -> bool:
    quota = await desk.api.get(QUOTAS, "few", namespace=desk.namespace)
    return "used" in quota.get("status", {})
