"""Every verb, on a real API server."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from croupier.kube.client import api_client, config, merge
from croupier.kube.client.api_client import Client, DeleteOptions, PatchType, Selection
from croupier.kube.client.errors import AlreadyExists, BadRequest, Conflict, Forbidden, Invalid, NotFound
from croupier.kube.client.resource import Raw, Resource
from croupier.kube.client.transport import ApiRequest
from croupier.kube.client.watch_protocol import Bookmark, ObjectEvent
from tests.kube.builders import CONFIG_MAPS, PODS, ConfigMap, Metadata, config_map
from tests.polling import until_async

ACCOUNTS: Resource[Raw] = Resource("", "v1", "serviceaccounts", "ServiceAccount", True, dict)
SECRETS: Resource[Raw] = Resource("", "v1", "secrets", "Secret", True, dict)


@pytest_asyncio.fixture
async def api(cluster: Any) -> AsyncIterator[Client]:
    async with api_client.connect(config.load(cluster.kubeconfig), field_manager="test") as connected:
        yield connected


async def test_create_get_and_delete(api, namespace):
    created = await api.create(CONFIG_MAPS, config_map(color="red"), namespace=namespace)
    assert await api.get(CONFIG_MAPS, "settings", namespace=namespace) == created
    assert created.data == {"color": "red"}

    await api.delete(CONFIG_MAPS, "settings", namespace=namespace)
    with pytest.raises(NotFound, match='configmaps "settings" not found'):
        await api.get(CONFIG_MAPS, "settings", namespace=namespace)


async def test_a_struct_can_be_created_too(api, namespace):
    body = ConfigMap(metadata=Metadata(name="typed", namespace=namespace), data={"a": "b"})

    assert (await api.create(CONFIG_MAPS, body)).data == {"a": "b"}


async def test_a_second_create_raises_already_exists(api, namespace):
    await api.create(CONFIG_MAPS, config_map(), namespace=namespace)

    with pytest.raises(AlreadyExists):
        await api.create(CONFIG_MAPS, config_map(), namespace=namespace)


async def test_an_update_from_an_old_version_conflicts(api, namespace):
    old = await api.create(CONFIG_MAPS.raw, config_map(n="1"), namespace=namespace)
    await api.update(CONFIG_MAPS, {**old, "data": {"n": "2"}})

    with pytest.raises(Conflict) as caught:
        await api.update(CONFIG_MAPS, {**old, "data": {"n": "3"}})

    assert not isinstance(caught.value, AlreadyExists)
    assert (await api.get(CONFIG_MAPS, "settings", namespace=namespace)).data == {"n": "2"}


async def test_a_partly_decoded_object_cannot_be_put_but_its_merge_can(api, namespace):
    await api.create(CONFIG_MAPS, {**config_map(n="1"), "binaryData": {"b": "AAAA"}}, namespace=namespace)
    whole = await api.get(CONFIG_MAPS.raw, "settings", namespace=namespace)
    changed = msgspec.structs.replace(msgspec.convert(whole, ConfigMap), data={"n": "2"})

    with pytest.raises(TypeError, match=r"would erase.*merge\.typed"):
        await api.update(CONFIG_MAPS, changed)
    await api.update(CONFIG_MAPS, merge.typed(whole, changed))

    after = await api.get(CONFIG_MAPS.raw, "settings", namespace=namespace)
    assert (after["data"], after["binaryData"]) == ({"n": "2"}, {"b": "AAAA"})


PATCHES = {
    "merge": (PatchType.MERGE, {"data": {"a": None, "b": "2"}}),
    "json": (
        PatchType.JSON,
        [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/b", "value": "2"}],
    ),
    "strategic": (PatchType.STRATEGIC, {"data": {"$patch": "replace", "b": "2"}}),
}


@pytest.mark.parametrize(("kind", "patch"), PATCHES.values(), ids=PATCHES)
async def test_patch(api, namespace, kind, patch):
    await api.create(CONFIG_MAPS, config_map(a="1"), namespace=namespace)

    patched = await api.patch(CONFIG_MAPS, "settings", patch, namespace=namespace, patch_type=kind)

    assert patched.data == {"b": "2"}


async def test_apply_creates_owns_and_conflicts_without_force(api, namespace):
    ours = {"metadata": {"name": "settings", "namespace": namespace}, "data": {"a": "ours"}}
    theirs = {**ours, "data": {"a": "theirs"}}
    await api.apply(CONFIG_MAPS, ours)

    with pytest.raises(Conflict, match=r"conflict.*\"test\""):
        await api.apply(CONFIG_MAPS, theirs, field_manager="other")
    assert (await api.apply(CONFIG_MAPS, theirs, field_manager="other", force=True)).data == {"a": "theirs"}


async def test_a_client_writes_with_its_own_field_manager(api, namespace):
    await api.with_field_manager("pool-controller").create(
        CONFIG_MAPS, config_map(a="1"), namespace=namespace
    )

    found = await api.get(CONFIG_MAPS.raw, "settings", namespace=namespace)
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["pool-controller"]


async def test_a_dry_run_is_validated_and_not_stored(api, namespace):
    with pytest.raises(Invalid) as caught:
        await api.create(CONFIG_MAPS, config_map("Not A Name"), namespace=namespace, dry_run=True)
    assert caught.value.causes[0]["field"] == "metadata.name"

    await api.create(CONFIG_MAPS, config_map(), namespace=namespace, dry_run=True)
    with pytest.raises(NotFound):
        await api.get(CONFIG_MAPS, "settings", namespace=namespace)


async def test_a_delete_with_preconditions_keeps_the_successor(api, namespace):
    first = await api.create(CONFIG_MAPS, config_map(n="1"), namespace=namespace)
    await api.delete(CONFIG_MAPS, "settings", namespace=namespace)
    second = await api.create(CONFIG_MAPS, config_map(n="2"), namespace=namespace)

    for guard in (
        DeleteOptions(uid=first.metadata.uid),
        DeleteOptions(resource_version=first.metadata.resource_version),
    ):
        with pytest.raises(Conflict):
            await api.delete(CONFIG_MAPS, "settings", namespace=namespace, how=guard)
    await api.delete(CONFIG_MAPS, "settings", namespace=namespace, how=DeleteOptions(uid=second.metadata.uid))


async def test_a_dry_run_of_a_delete_deletes_nothing(api, namespace):
    await api.create(CONFIG_MAPS, config_map(), namespace=namespace)

    await api.delete(CONFIG_MAPS, "settings", namespace=namespace, dry_run=True)
    await api.delete_collection(CONFIG_MAPS, Selection(namespace=namespace), dry_run=True)

    assert await api.get(CONFIG_MAPS, "settings", namespace=namespace)


async def test_orphans_outlive_their_owner(api, namespace):
    owner = await api.create(CONFIG_MAPS, config_map("owner"), namespace=namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}
    child = {"metadata": {"name": "child", "ownerReferences": [reference]}}
    await api.create(CONFIG_MAPS, child, namespace=namespace)

    await api.delete(CONFIG_MAPS, "owner", namespace=namespace, how=DeleteOptions(propagation="Orphan"))

    async def orphaned() -> bool:
        child = await api.get(CONFIG_MAPS.raw, "child", namespace=namespace)
        return "ownerReferences" not in child["metadata"]

    await until_async(orphaned)


async def test_pages_are_complete_and_have_one_resource_version(api, namespace):
    await asyncio.gather(
        *(api.create(CONFIG_MAPS, config_map(f"c{n}"), namespace=namespace) for n in range(7))
    )
    mine = Selection(namespace=namespace, fields="metadata.name!=kube-root-ca.crt")

    pages = [page async for page in api.pages(CONFIG_MAPS, mine, limit=3)]

    assert [len(page.items) for page in pages] == [3, 3, 1]
    assert len({page.resource_version for page in pages}) == 1
    assert len((await api.list(CONFIG_MAPS, mine, limit=3)).items) == 7


async def test_label_selectors_apply_to_list_and_delete_collection(api, namespace):
    for name, color in (("a", "red"), ("b", "red"), ("c", "blue")):
        body = {"metadata": {"name": name, "labels": {"color": color}}}
        await api.create(CONFIG_MAPS, body, namespace=namespace)
    red = Selection(namespace=namespace, labels="color=red")

    assert len((await api.list(CONFIG_MAPS, red)).items) == 2
    await api.delete_collection(CONFIG_MAPS, red)
    left = await api.list(CONFIG_MAPS, Selection(namespace=namespace, labels="color"))
    assert [found.metadata.name for found in left.items] == ["c"]


async def test_a_watch_shows_changes_after_a_list(api, namespace):
    mine = Selection(namespace=namespace, labels="seen")
    start = (await api.list(CONFIG_MAPS, mine)).resource_version
    body = {"metadata": {"name": "w", "labels": {"seen": "yes"}}, "data": {"n": "1"}}
    await api.create(CONFIG_MAPS, body, namespace=namespace)
    await api.patch(CONFIG_MAPS, "w", {"data": {"n": "2"}}, namespace=namespace)
    await api.delete(CONFIG_MAPS, "w", namespace=namespace)

    seen = []
    async with aclosing(api.watch(CONFIG_MAPS, mine, resource_version=start, seconds=30)) as batches:
        async for batch in batches:
            seen += [
                (event.type, event.object.data["n"]) for event in batch if isinstance(event, ObjectEvent)
            ]
            if len(seen) >= 3:
                break

    assert seen == [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")]


async def test_a_watch_ends_after_its_timeout_with_a_bookmark(api, namespace):
    """It tells how far others have changed. If none has since the watch is open, there is no bookmark."""
    mine = Selection(namespace=namespace, fields="metadata.name=mine")
    start = (await api.list(CONFIG_MAPS, mine)).resource_version
    await api.create(CONFIG_MAPS, config_map("other"), namespace=namespace)
    changes = itertools.count()

    async def bookmarks() -> list[Bookmark]:
        """The API server sends one two seconds before the end, unless it is late."""
        found: list[Bookmark] = []
        async for batch in api.watch(CONFIG_MAPS, mine, resource_version=start, seconds=3):
            if not batch:  # the watch is open
                change = {"data": {"changes": str(next(changes))}}
                await api.patch(CONFIG_MAPS, "other", change, namespace=namespace)
            found += [event for event in batch if isinstance(event, Bookmark)]
        return found

    marks = await until_async(bookmarks, "a watch with a bookmark")
    assert all(mark.resource_version for mark in marks)


async def test_a_very_long_watch_line_is_decoded(api, namespace):
    start = (await api.list(CONFIG_MAPS, Selection(namespace=namespace))).resource_version
    huge = "x" * 900_000
    await api.create(CONFIG_MAPS, config_map("huge", text=huge), namespace=namespace)

    mine = Selection(namespace=namespace, fields="metadata.name=huge")
    async with aclosing(api.watch(CONFIG_MAPS, mine, resource_version=start, seconds=30)) as batches:
        assert await anext(batches) == (), "the watch is open"
        (event,) = await anext(batches)

    assert event.object.data["text"] == huge


def bare_pod(name: str, namespace: str) -> Raw:
    container = {"name": "main", "image": "none", "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}
    spec = {"schedulerName": "none", "containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def test_status_and_spec_are_written_separately(api, namespace):
    await api.create(PODS, bare_pod("p", namespace))
    patch = {"metadata": {"labels": {"from": "status"}}, "status": {"message": "hello"}}

    await api.patch(
        PODS, "p", patch, namespace=namespace, subresource="status", patch_type=PatchType.STRATEGIC
    )

    found = await api.get(PODS.raw, "p", namespace=namespace)
    assert found["status"]["message"] == "hello"
    whole = {**found, "status": {**found["status"], "message": "again"}}
    await api.update(PODS, whole, subresource="status")
    assert (await api.get(PODS.raw, "p", namespace=namespace, subresource="status"))["status"][
        "message"
    ] == "again"


async def test_a_binding_resize_and_eviction(api, namespace):
    created = await api.create(PODS.raw, bare_pod("p", namespace))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p", "uid": created["metadata"]["uid"], "annotations": {"dealt": "yes"}},
        "target": {"kind": "Node", "name": "nowhere"},
    }
    await api.create(PODS, binding, namespace=namespace, name="p", subresource="binding")
    found = await api.get(PODS.raw, "p", namespace=namespace)
    assert (found["spec"]["nodeName"], found["metadata"]["annotations"]["dealt"]) == ("nowhere", "yes")

    limits = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "800m"}}}]}}
    with pytest.raises((Forbidden, Invalid)):  # a Guaranteed pod must move its request too
        await api.patch(
            PODS, "p", limits, namespace=namespace, subresource="resize", patch_type=PatchType.STRATEGIC
        )

    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    await api.create(PODS, eviction, namespace=namespace, name="p", subresource="eviction", dry_run=True)


async def test_a_token_for_a_service_account(api, namespace):
    await api.apply(ACCOUNTS, {"metadata": {"name": "robot", "namespace": namespace}})

    answer = await api.create(
        ACCOUNTS, {"spec": {"expirationSeconds": 600}}, namespace=namespace, name="robot", subresource="token"
    )

    assert answer["status"]["token"]


async def test_errors_have_distinct_types(api, namespace):
    await api.create(CONFIG_MAPS, config_map(), namespace=namespace)
    with pytest.raises(BadRequest):
        await api.patch(CONFIG_MAPS, "settings", {}, namespace=namespace, patch_type=PatchType.JSON)
    with pytest.raises(NotFound):
        await api.get(Resource("no.such.group", "v1", "things", "Thing", False, dict), "x")


async def test_raw_requests_any_path(api):
    version = msgspec.json.decode(await api.raw(ApiRequest("GET", "/version")))

    assert int(version["major"]) >= 1


async def test_every_attempt_is_observed(cluster, namespace):
    seen: list[tuple[str, str, int]] = []

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        assert seconds >= 0
        seen.append((verb, resource, code))

    async with api_client.connect(config.load(cluster.kubeconfig), observe=observe) as api:
        await api.create(CONFIG_MAPS, config_map(), namespace=namespace)
        with pytest.raises(NotFound):
            await api.get(CONFIG_MAPS, "absent", namespace=namespace)

        async for _ in api.watch(CONFIG_MAPS, Selection(namespace), resource_version="0", seconds=1):
            pass
        with pytest.raises(NotFound):
            async for _ in api.watch(Resource("no.such.group", "v1", "things", "Thing", False, dict)):
                pass

    assert seen == [
        ("create", "configmaps", 201),
        ("get", "configmaps", 404),
        ("watch", "configmaps", 200),
        ("watch", "things.no.such.group", 404),
    ]


async def test_pages_yield_to_the_event_loop(api, namespace):
    for number in range(6):
        await api.create(CONFIG_MAPS, config_map(f"c{number}"), namespace=namespace)
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    busy = asyncio.create_task(neighbour())
    seen = [turns async for _ in api.pages(CONFIG_MAPS, Selection(namespace), limit=1)]
    busy.cancel()

    assert all(later > earlier for earlier, later in itertools.pairwise(seen))
