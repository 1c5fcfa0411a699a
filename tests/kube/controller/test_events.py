"""Events on a real API server: visible in kubectl, and never blocking."""

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.config import Config
from croupier.kube.client.resource import Raw
from croupier.kube.client.retry import RetryOptions
from croupier.kube.controller import events
from croupier.kube.controller.event_series import EventAggregator, EventLimits, EventReference
from croupier.kube.controller.events import EVENTS, EventRecorder
from croupier.kube.controller.metrics import EventMetrics
from tests.kube.builders import CONFIG_MAPS, config_map
from tests.polling import until, until_async


class CountingMetrics(EventMetrics):
    def __init__(self) -> None:
        super().__init__(CollectorRegistry())
        self.recorded_by: Counter[str] = Counter()
        self.dropped_for: Counter[str] = Counter()

    def recorded(self, kind: str) -> None:
        self.recorded_by[kind] += 1

    def dropped(self, why: str) -> None:
        self.dropped_for[why] += 1


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


@pytest_asyncio.fixture
async def subject(api: Client, namespace: str) -> EventReference:
    made = await api.create(CONFIG_MAPS, config_map("ledger"), namespace=namespace)
    return events.reference_to(CONFIG_MAPS, made)


@contextlib.asynccontextmanager
async def recording(api: Client, **limits: Any) -> AsyncIterator[tuple[EventRecorder, CountingMetrics]]:
    tally = CountingMetrics()
    recorder = EventRecorder(
        api,
        "croupier-test",
        "replica-1",
        metrics=tally,
        journal=EventAggregator(EventLimits(**limits) if limits else EventLimits()),
    )
    stop = asyncio.Event()
    running = asyncio.create_task(recorder.run(stop))
    try:
        yield recorder, tally
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)


async def events_about(api: Client, namespace: str) -> list[Raw]:
    return (await api.list(EVENTS, Selection(namespace=namespace))).items


async def test_an_event_shows_up_in_kubectl_describe(api, subject, namespace, cluster):
    async with recording(api) as (recorder, _):
        recorder.record(subject, "Reserved", "50 % of card-0 and card-1", action="Reserve")

    described = cluster.kubectl("describe", "configmap", "ledger", "-n", namespace).stdout
    assert "Reserved" in described
    assert "50 % of card-0 and card-1" in described
    assert "croupier-test" in described
    listed = cluster.kubectl("get", "events", "-n", namespace).stdout
    assert "configmap/ledger" in listed


async def test_every_field_of_the_event_is_set(api, subject, namespace):
    pod = EventReference("v1", "Pod", namespace, "train", "uid-of-train")
    async with recording(api) as (recorder, _):
        recorder.record(subject, "NoRoom", "no card", action="Reserve", type="Warning", related=pod)

    (event,) = await events_about(api, namespace)
    assert (event["reason"], event["note"], event["action"]) == ("NoRoom", "no card", "Reserve")
    assert event["type"] == "Warning"
    assert (event["reportingController"], event["reportingInstance"]) == ("croupier-test", "replica-1")
    assert event["regarding"]["uid"] == subject.uid
    assert event["related"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": namespace,
        "name": "train",
    } | {"uid": "uid-of-train"}
    assert event["metadata"]["name"].startswith("ledger.")


async def test_repetitions_become_a_series(api, subject, namespace):
    async with recording(api, series_every=0.0) as (recorder, tally):
        recorder.record(subject, "NoRoom", "no card", action="Reserve")
        await until(lambda: tally.recorded_by["Normal"] == 1)
        for _ in range(4):
            recorder.record(subject, "NoRoom", "no card", action="Reserve")

    (event,) = await events_about(api, namespace)
    assert event["series"]["count"] == 5


async def test_stopping_writes_pending_events(api, subject, namespace):
    async with recording(api, series_every=3600.0) as (recorder, tally):
        recorder.record(subject, "NoRoom", "no card", action="Reserve")
        await until(lambda: tally.recorded_by["Normal"] == 1)
        recorder.record(subject, "NoRoom", "no card", action="Reserve")
        recorder.record(subject, "Other", "something else", action="Reserve")

    found = {event["reason"]: event for event in await events_about(api, namespace)}
    assert found["NoRoom"]["series"]["count"] == 2
    assert "Other" in found
    recorder.record(subject, "Late", "after the end", action="Reserve")
    assert tally.dropped_for == {"closed": 1}


async def test_an_expired_series_continues_in_a_new_event(api, subject, namespace):
    async with recording(api, series_every=0.0) as (recorder, tally):
        recorder.record(subject, "NoRoom", "no card", action="Reserve")
        await until(lambda: tally.recorded_by["Normal"] == 1)
        (first,) = await events_about(api, namespace)
        await api.delete(EVENTS, first["metadata"]["name"], namespace=namespace)
        recorder.record(subject, "NoRoom", "no card", action="Reserve")

        async def written_again() -> bool:
            return [event["series"]["count"] for event in await events_about(api, namespace)] == [2]

        await until_async(written_again, "the series to continue in a new Event")


async def test_a_cluster_scoped_object_has_its_events_in_default(api, namespace, cluster):
    node = EventReference("v1", "Node", "", f"node-{namespace}", f"uid-{namespace}")
    async with recording(api) as (recorder, tally):
        recorder.record(node, "Recut", "7 x 1g.10gb", action="Cut")
    assert tally.dropped_for == {}

    seen = json.loads(cluster.kubectl("get", "events", "-n", "default", "-o", "json").stdout)["items"]
    mine = [event["metadata"]["name"] for event in seen if event["involvedObject"]["name"] == node.name]
    assert len(mine) == 1
    await api.delete(EVENTS, mine[0], namespace="default")


UNUSUAL_NAMES = {
    "a long note": {"note": "word " * 1000},
    "a note in many bytes": {"note": "€" * 1024},
    "an empty note": {"note": ""},
    "a long reason": {"reason": "R" * 300},
}


@pytest.mark.parametrize("odd", UNUSUAL_NAMES.values(), ids=UNUSUAL_NAMES)
async def test_unusual_text_is_written(api, subject, namespace, odd):
    async with recording(api) as (recorder, tally):
        recorder.record(subject, **{"reason": "Odd", "note": "n", "action": "Test", **odd})

    assert tally.dropped_for == {}
    assert len(await events_about(api, namespace)) == 1


async def test_an_object_name_that_is_invalid_for_an_event(api, namespace):
    role = EventReference(
        "rbac.authorization.k8s.io/v1", "Role", namespace, "system:Odd:" + "x" * 240, "uid-role"
    )
    async with recording(api) as (recorder, tally):
        recorder.record(role, "Seen", "n", action="Look")

    assert tally.dropped_for == {}


async def test_a_refused_event_is_counted_and_dropped(api, namespace):
    nowhere = EventReference("v1", "ConfigMap", "no-such-namespace-anywhere", "x", "uid-x")
    async with recording(api) as (recorder, tally):
        recorder.record(nowhere, "Seen", "n", action="Look")
        await until(lambda: tally.dropped_for == {"refused": 1})


async def test_without_an_api_server_recording_neither_blocks_nor_fails(cluster):
    lost: Config = replace(config.load(cluster.kubeconfig), server="https://127.0.0.1:1")
    about = EventReference("v1", "ConfigMap", "shop", "x", "uid-x")
    async with api_client.connect(lost, retry=RetryOptions(tries=1)) as api:
        async with recording(api) as (recorder, tally):
            for n in range(5):
                recorder.record(about, "Seen", f"note {n}", action="Look")
        assert sum(tally.dropped_for.values()) == 5
