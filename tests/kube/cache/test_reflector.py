"""A store that follows a healthy API server."""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import pytest_asyncio
from msgspec import Struct

from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import EVERYTHING, Client, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource
from tests.kube.builders import CONFIG_MAPS, Metadata, config_map
from tests.kube.watched_store import QUICK_RETRIES, watched_store
from tests.polling import until, until_async

OURS = "metadata.name!=kube-root-ca.crt"


class Picky(Struct, frozen=True):
    """A kind whose `data` may only be "good": every other value is invalid."""

    metadata: Metadata
    data: dict[str, Literal["good"]] = {}


DEFINITIONS: Resource[dict[str, Any]] = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, dict
)
PICKY = Resource("", "v1", "configmaps", "ConfigMap", True, Picky)


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig)) as connected:
        yield connected


async def test_the_store_lists_existing_objects_and_follows_changes(api, namespace):
    await api.create(CONFIG_MAPS, config_map("old"), namespace=namespace)

    async with watched_store(api, CONFIG_MAPS, Selection(namespace, fields=OURS)) as mirror:
        assert mirror.names() == ["old"]
        await api.create(CONFIG_MAPS, config_map("new"), namespace=namespace)
        await api.patch(CONFIG_MAPS, "new", {"data": {"n": "2"}}, namespace=namespace)
        await api.delete(CONFIG_MAPS, "old", namespace=namespace)
        await until(lambda: len(mirror.changes) >= 4)

    assert mirror.changes == [("came", "old"), ("came", "new"), ("changed", "new"), ("went", "old")]
    assert mirror.names() == ["new"]


async def test_a_closed_watch_resumes_at_its_version(api, namespace):
    rules = ReflectorOptions(backoff=QUICK_RETRIES.backoff, watch_seconds=1)

    async with watched_store(api, CONFIG_MAPS, Selection(namespace, fields=OURS), rules) as mirror:
        for number in range(3):
            seen = mirror.reflector.stats.watches
            await until(lambda: mirror.reflector.stats.watches > seen)  # noqa: B023  # read at once
            await api.create(CONFIG_MAPS, config_map(f"c{number}"), namespace=namespace)
        await until(lambda: len(mirror.changes) >= 3)

    assert mirror.changes == [("came", "c0"), ("came", "c1"), ("came", "c2")]
    assert mirror.reflector.stats.lists == 1


async def test_an_invalid_object_is_counted_and_hides_no_other(api, namespace):
    await api.create(CONFIG_MAPS, config_map("bad-early", say="ugh"), namespace=namespace)
    await api.create(CONFIG_MAPS, config_map("good-early", say="good"), namespace=namespace)

    async with watched_store(api, PICKY, Selection(namespace, fields=OURS)) as mirror:
        assert mirror.names() == ["good-early"]
        await api.create(CONFIG_MAPS, config_map("bad-late", say="ugh"), namespace=namespace)
        await api.create(CONFIG_MAPS, config_map("good-late", say="good"), namespace=namespace)
        await until(lambda: mirror.names() == ["good-early", "good-late"])

        await api.patch(CONFIG_MAPS, "good-late", {"data": {"say": "ugh"}}, namespace=namespace)
        await api.delete(CONFIG_MAPS, "good-late", namespace=namespace)
        await until(lambda: mirror.names() == ["good-early"])

    assert mirror.reflector.stats.skipped == 4  # two objects, one turned bad, and its deletion
    assert mirror.reflector.stats.lists == 1


async def test_an_index_that_fails_on_one_object_hides_no_other(api, namespace):
    async with watched_store(api, CONFIG_MAPS, Selection(namespace, fields=OURS)) as mirror:
        by_color = mirror.store.index(lambda found: [found.data["color"]])
        await api.create(CONFIG_MAPS, config_map("odd"), namespace=namespace)
        await api.create(CONFIG_MAPS, config_map("even", color="red"), namespace=namespace)
        await until(lambda: by_color.get("red"))

    assert mirror.names() == ["even"]
    assert mirror.reflector.stats.skipped == 1


async def test_staleness_is_the_age_of_the_last_response(api, namespace):
    reflector = Reflector(api, Store(CONFIG_MAPS), selection=Selection(namespace))
    assert reflector.staleness() == math.inf
    assert not reflector.has_synced

    async with watched_store(api, CONFIG_MAPS, Selection(namespace)) as mirror:
        assert mirror.reflector.staleness() < 30
        assert mirror.reflector.has_synced


async def test_a_failed_list_is_retried_and_reported(api):
    store = Store(Resource("no.such.group", "v1", "things", "Thing", False, dict))
    reflector = Reflector(api, store, rules=QUICK_RETRIES)
    task = asyncio.create_task(reflector.run())
    await until(lambda: reflector.stats.failures >= 3)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not reflector.has_synced
    assert reflector.last_error is not None
    assert "404" in str(reflector.last_error)


async def test_subscribers_get_the_time_of_the_list_request(api, namespace):
    store = Store(CONFIG_MAPS)
    moments: list[float] = []
    store.subscribe(lambda _: None, relisted=moments.append)
    reflector = Reflector(api, store, selection=Selection(namespace))
    task = asyncio.create_task(reflector.run())
    await reflector.synced()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert len(moments) == 1


async def test_an_optional_kind_has_no_objects_until_it_is_installed(api, cluster):
    made_up = f"{secrets.token_hex(4)}.test.croupier.io"
    widgets: Resource[dict[str, Any]] = Resource(made_up, "v1", "widgets", "Widget", False, dict)

    async with watched_store(api, widgets, EVERYTHING, replace(QUICK_RETRIES, optional=True)) as mirror:
        assert mirror.names() == []
        assert mirror.reflector.last_error is not None
        await api.create(DEFINITIONS, _definition(made_up))
        try:
            await until_async(lambda: _created(api, widgets), "the API server to know the kind")
            await until(lambda: mirror.names() == ["one"], "the object to be seen")
        finally:
            await api.delete(DEFINITIONS, f"widgets.{made_up}")
        await until(lambda: mirror.names() == [], "its objects to go with the kind")


async def _created(api, widgets) -> bool:
    with suppress(NotFound):
        await api.create(widgets, {"metadata": {"name": "one"}})
        return True
    return False


def _definition(group: str) -> dict[str, Any]:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    return {
        "metadata": {"name": f"widgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version],
        },
    }
