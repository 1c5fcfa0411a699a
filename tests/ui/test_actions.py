"""Actions on a real API server: a preview writes nothing, and a write carries the previewed versions.

No controller runs, so the tests write the states that controllers would.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from bench import card_objects
from bench.card_objects import WrittenCard, condition, percent
from croupier.api import kinds
from croupier.kube.client.errors import NotFound
from croupier_lab import nodes
from croupier_lab.nodes import SimulatedNode
from tests.cli.env import croupier
from tests.polling import until_async
from tests.ui.hostile_env import HostileLab, PageAnswer, ServedPage
from tests.ui.hostile_world import TENANT
from tests.ui.untainted import untaint_nodes

SECONDS = 30

NODE, OTHER_NODE = "gpu-actions", "gpu-elsewhere"
FREE, HELD, DRAINED, OWN, TO_DRAIN, TO_ASSIGN, STALE = (card_objects.name(NODE, index) for index in range(7))
OUTSIDE = card_objects.name(OTHER_NODE, 0)
POOL, TO_CONFIRM, TO_SHARE = "team", "unconfirmed", "reshared"


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=True)
async def world(hostile: HostileLab, bearer_page: ServedPage) -> AsyncIterator[None]:
    async with hostile.api() as api:
        for name in (NODE, OTHER_NODE):
            await card_objects.write_node(api, SimulatedNode(name, "zone-a", nodes.parse_cards("H100:7")))
        await untaint_nodes(api)
        holder = await card_objects.write_pod(api, card_objects.pod(TENANT, "trainer", node=NODE))
        reason = {"gpu.deckhouse.io/drain": "fan"}
        cards = [
            WrittenCard(NODE, 0, percent()),
            WrittenCard(NODE, 1, percent({holder: 40})),
            WrittenCard(NODE, 2, percent(), annotations=reason),
            WrittenCard(NODE, 3, percent(), POOL),
            *(WrittenCard(NODE, index, percent()) for index in (4, 5, 6)),
            WrittenCard(OTHER_NODE, 0, percent()),
        ]
        await card_objects.write_cards(api, cards)
        for name in (POOL, TO_CONFIRM, TO_SHARE):
            await card_objects.write_pool(api, *pool(name))
        waits = card_objects.pod(TENANT, "next", limits=limits(), asks={"cards": 2, "ratio": 100})
        await card_objects.write_pod(api, waits)
        spec = {"podKey": f"{TENANT}/later", "nodeName": NODE, "numCards": 1, "percentPerCard": 20}
        body = {"metadata": {"name": "later", "namespace": TENANT}, "spec": spec}
        await api.create(kinds.RESERVATIONS.raw, body)
    body = {"action": "release", "namespace": TENANT, "name": "later"}
    await until_async(lambda: knows(bearer_page, body), "the page to know the last object")
    yield


def limits() -> dict[str, str]:
    return {f"gpu.deckhouse.io/{POOL}": "200", "gpu.mps.io/ledger": "1"}


def pool(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    allocation = {"mode": "MPS"}
    spec = {"allocation": allocation, "nodeSelector": {"matchExpressions": [expression]}}
    amounts = {"total": 100, "used": 0, "booked": 0, "available": 100, "unit": "Percent"}
    status: dict[str, Any] = {"allocation": allocation, "capacity": amounts}
    if name == TO_CONFIRM:
        wrong = condition("Misconfigured", "True", "AwaitingConfirmation", "an administrator changed card 0")
        status["conditions"] = [wrong]
    return {"metadata": {"name": name}, "spec": spec}, status


async def knows(page: ServedPage, body: dict[str, Any]) -> bool:
    return (await preview(page, body)).status == 200


async def preview(page: ServedPage, body: dict[str, Any]) -> PageAnswer:
    return await page.post("/api/v1/preview", body)


async def act(page: ServedPage, body: dict[str, Any]) -> dict[str, Any]:
    """Write what a preview has shown; the only result."""
    shown = (await preview(page, body)).data
    versions = {item["name"]: item["resourceVersion"] for item in shown["objects"]}
    answer = await page.post("/api/v1/act", {**body, "versions": versions})
    (result,) = answer.data["results"]
    return dict(result)


async def progress(page: ServedPage, body: dict[str, Any]) -> tuple[bool, str]:
    answer = await page.post("/api/v1/progress", body)
    (item,) = answer.data["objects"]
    return item["done"], item["sentence"]


async def until_done(page: ServedPage, body: dict[str, Any]) -> str:
    async def done() -> str:
        finished, sentence = await progress(page, body)
        return sentence if finished else ""

    return await until_async(done, f"the action to be done: {body}", every=0.05)


PREVIEWS = {
    "a free card": (FREE, "now", f"joins pool {POOL} now"),
    "a held card": (HELD, "later", f"joins pool {POOL} when {TENANT}/trainer has ended"),
    "a drained card": (DRAINED, "now", "but gets no pods because it is drained"),
    "a card of the pool": (OWN, "unchanged", f"is in pool {POOL} already"),
    "a card of another node": (OUTSIDE, "declined", ""),
}


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize(("card", "outcome", "sentence"), PREVIEWS.values(), ids=PREVIEWS)
async def test_a_preview_tells_what_happens_and_when(card, outcome, sentence, bearer_page):
    answer = await preview(bearer_page, {"action": "assign", "cards": [card], "pool": POOL})
    (item,) = answer.data["objects"]
    assert (item["outcome"], sentence in item["sentence"]) == (outcome, True), item
    assert item["dryRun"] == {"ok": True, "message": ""}
    assert item["command"] == f"croupier assign {card} {POOL}"
    assert item["kubectl"].startswith(f"kubectl annotate gpudevice {card} ")
    assert [holder["pod"] for holder in item["holders"]] == ([f"{TENANT}/trainer"] if card == HELD else [])


@pytest.mark.usefixtures("nothing_written")
async def test_a_preview_shows_the_pool_and_the_pods_that_would_start(bearer_page):
    answer = await preview(bearer_page, {"action": "assign", "cards": [FREE], "pool": POOL})
    (effect,) = [pool for pool in answer.data["pools"] if pool["pool"] == POOL]
    assert effect["after"]["total"] - effect["before"]["total"] == 100
    assert [start["pod"] for start in answer.data["starts"]] == [f"{TENANT}/next"]


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("card", [FREE, HELD, DRAINED, OWN, OUTSIDE])
async def test_the_preview_equals_the_dry_run_of_the_command(card, hostile, bearer_page):
    shown = await preview(bearer_page, {"action": "assign", "cards": [card], "pool": POOL})
    printed = croupier(
        "assign", card, POOL, "--dry-run", "-o", "json", kubeconfig=hostile.kubeconfig("admin")
    )
    assert printed.data == shown.data, printed.err


async def test_a_drain_is_written_once_with_the_previewed_version(hostile, bearer_page):
    body = {"action": "drain", "cards": [TO_DRAIN], "reason": "swap the fan"}
    before = await hostile.version(TO_DRAIN)
    result = await act(bearer_page, body)
    assert result == {
        "kind": "GPUDevice",
        "name": TO_DRAIN,
        "ok": True,
        "message": "written",
        "resourceVersion": await hostile.version(TO_DRAIN),
    }
    assert result["resourceVersion"] != before
    async with hostile.api() as api:
        device = await api.get(kinds.GPU_DEVICES.raw, TO_DRAIN)
    assert device["metadata"]["annotations"] == {"gpu.deckhouse.io/drain": "swap the fan"}
    (own,) = [entry for entry in device["metadata"]["managedFields"] if entry["manager"] == "croupier-ui"]
    assert "f:gpu.deckhouse.io/drain" in str(own["fieldsV1"])
    assert (await progress(bearer_page, body))[0] is False, "the controllers have not withdrawn it"
    withdrawn = {"conditions": [condition("Occupied", "False", "Withdrawn")]}
    async with hostile.api() as api:
        await card_objects.write_status(api, kinds.GPU_DEVICES, TO_DRAIN, withdrawn)
    assert "is drained: no pod holds it" in await until_done(bearer_page, body)


async def test_an_object_that_changed_since_the_preview_is_not_written(hostile, bearer_page):
    body = {"action": "drain", "cards": [STALE], "reason": "late"}
    (item,) = (await preview(bearer_page, body)).data["objects"]
    async with hostile.api() as api:
        await api.patch(kinds.GPU_DEVICES, STALE, {"metadata": {"annotations": {"another": "change"}}})
    changed = await hostile.version(STALE)
    versions = {STALE: item["resourceVersion"]}
    answer = await bearer_page.post("/api/v1/act", {**body, "versions": versions})
    (result,) = answer.data["results"]
    assert (result["ok"], result["message"]) == (
        False,
        f"card {STALE} changed since the preview: preview again",
    )
    assert await hostile.version(STALE) == changed


async def test_an_assignment_is_done_when_the_controllers_have_carried_it_out(hostile, bearer_page):
    body = {"action": "assign", "cards": [TO_ASSIGN], "pool": POOL}
    assert (await progress(bearer_page, body))[0] is False
    assert (await act(bearer_page, body))["ok"]
    done, sentence = await progress(bearer_page, body)
    assert (done, sentence.startswith("waits: ")) == (False, True)
    joined = WrittenCard(NODE, 5, percent(), POOL).device()[1]
    member = [{"inventoryID": TO_ASSIGN, "node": NODE, "state": "Assigned"}]
    async with hostile.api() as api:
        await card_objects.write_status(api, kinds.GPU_DEVICES, TO_ASSIGN, joined)
        await card_objects.write_status(api, kinds.GPU_POOLS, POOL, {"devices": member})
    assert POOL in await until_done(bearer_page, body)


async def test_a_pool_is_confirmed(hostile, bearer_page):
    body = {"action": "confirm", "pool": TO_CONFIRM}
    (item,) = (await preview(bearer_page, body)).data["objects"]
    assert item["command"] == f"croupier pools confirm {TO_CONFIRM}"
    assert await progress(bearer_page, body) == (False, "this generation of the pool is not confirmed")
    assert (await act(bearer_page, body))["ok"]
    async with hostile.api() as api:
        found = await api.get(kinds.GPU_POOLS.raw, TO_CONFIRM)
        assert "1" in found["metadata"]["annotations"].values()
        await until_async(
            lambda: says(bearer_page, body, "still misconfigured: an administrator changed card 0"),
            "the confirmation",
        )
        right = condition("Misconfigured", "False", "Configured")
        await card_objects.write_status(api, kinds.GPU_POOLS, TO_CONFIRM, {"conditions": [right]})
    assert await until_done(bearer_page, body) == f"pool {TO_CONFIRM} is used again."


async def says(page: ServedPage, body: dict[str, Any], word: str) -> bool:
    return word in (await progress(page, body))[1]


async def test_a_pool_is_shared_otherwise(hostile, bearer_page):
    allocation = {"mode": "TimeSlice", "timeSlice": {"maxSlicesPerDevice": 4}}
    body = {"action": "share", "pool": TO_SHARE, "allocation": allocation}
    (item,) = (await preview(bearer_page, body)).data["objects"]
    assert (item["outcome"], item["dryRun"]["ok"]) == ("now", True), item
    assert (await act(bearer_page, body))["ok"]
    async with hostile.api() as api:
        written = await api.get(kinds.GPU_POOLS.raw, TO_SHARE)
        assert allocation.items() <= written["spec"]["allocation"].items()
        assert (await progress(bearer_page, body))[0] is False
        await card_objects.write_status(api, kinds.GPU_POOLS, TO_SHARE, {"allocation": allocation})
    assert TO_SHARE in await until_done(bearer_page, body)


@pytest.mark.usefixtures("nothing_written")
@pytest.mark.parametrize("allocation", [{"mode": "Nonsense"}, {"unknown": 1}, {"timeSlice": 3}])
async def test_an_allocation_that_does_not_exist_is_refused(allocation, bearer_page):
    body = {"action": "share", "pool": POOL, "allocation": allocation}
    for path in ("preview", "act"):
        answer = await bearer_page.post(f"/api/v1/{path}", body)
        assert (answer.status, "the allocation" in answer.sentence) == (400, True)


async def test_a_reservation_is_released(hostile, bearer_page):
    body = {"action": "release", "namespace": TENANT, "name": "later"}
    (item,) = (await preview(bearer_page, body)).data["objects"]
    assert (item["namespace"], item["dryRun"]["ok"]) == (TENANT, True)
    assert item["kubectl"] == f"kubectl delete reservation later -n {TENANT}"
    assert await progress(bearer_page, body) == (False, "the Reservation is not deleted yet")
    assert (await act(bearer_page, body))["ok"]
    async with hostile.api() as api:
        with pytest.raises(NotFound):
            await api.get(kinds.RESERVATIONS, "later", namespace=TENANT)
    assert await until_done(bearer_page, body) == "Reservation later is deleted."
