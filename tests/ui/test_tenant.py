"""A tenant gets no name of another namespace, in no answer, and all amounts.

The other tenant's word is searched in the whole text of each answer, as in other people's bugs: derived views
that leak what the list hides (radar#626, radar#1753).
"""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from croupier.api import kinds
from tests.ui.hostile_env import HostileLab, PageAnswer, ServedPage
from tests.ui.hostile_world import CARDS, FREE, HIDDEN_CARD, HOLDING, NODE, SECRET, SHARED, TENANT

VIEWERS = ("tenant", "cards")
FREE_SHARE, HOLDERS = 7, 8
WHAT_IF = {
    "one card": {"form": {"cards": 1, "percent": 25, "namespace": TENANT}},
    "of the pool": {"form": {"cards": 1, "percent": 25, "pool": "shared", "namespace": TENANT}, "copies": 3},
    "too many": {
        "form": {"cards": 9, "percent": 100, "namespace": TENANT},
        "strategies": ["BinPack", "Spread"],
    },
    "in the name of the other": {"form": {"cards": 1, "percent": 100, "namespace": "default"}, "copies": 9},
}


def of(hostile: HostileLab, viewer: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {hostile.tokens[viewer]}"}


def paths() -> tuple[str, ...]:
    return (
        "me",
        "snapshot?part=cards",
        "snapshot?part=names",
        *(f"cards/{card}" for card in CARDS),
        "pools/shared",
        "explain/pods/apple/mine",
        "explain/pods/apple/waits",
        f"market/{NODE}",
        "history",
        "history/at?at=99999999999",
        f"history/lines?card={HOLDING}",
        f"history/lines?card={SHARED}",
        "history.csv?from=0&to=99999999999",
        "audit",
    )


def leaks(answer: PageAnswer, viewer: str) -> bool:
    """A reader of GPUDevices and GPUPools reads the names of pools, reasons and messages there."""
    text = answer.text
    if viewer == "cards":
        for allowed in (f"{SECRET}-pool", f"{SECRET} asked for it", f"waits for {SECRET}-job"):
            text = text.replace(allowed, "")
    return SECRET in text


@pytest.mark.parametrize("viewer", VIEWERS)
@pytest.mark.parametrize("path", paths())
async def test_no_answer_names_the_other_tenant(path, viewer, hostile, bearer_page: ServedPage):
    whole = await bearer_page.get(f"/api/v1/{path}")
    answer = await bearer_page.get(f"/api/v1/{path}", **of(hostile, viewer))
    assert not leaks(answer, viewer), answer.text
    assert answer.status in (200, 404), answer.text
    assert whole.status in (200, 404)


async def test_the_administrator_gets_these_names(bearer_page: ServedPage):
    """Otherwise their absence would prove nothing."""
    named = {path for path in paths() if SECRET in (await bearer_page.get(f"/api/v1/{path}")).text}
    names = {"snapshot?part=names", "history/at?at=99999999999", "history.csv?from=0&to=99999999999"}
    cards = {f"cards/{HOLDING}", f"cards/{SHARED}", f"history/lines?card={HOLDING}"}
    assert names | cards <= named


@pytest.mark.parametrize("viewer", VIEWERS)
@pytest.mark.parametrize(
    "path",
    [
        f"explain/pods/{SECRET}/{SECRET}-job",
        f"explain/pods/{SECRET}/{SECRET}-waits",
        f"history/lines?pod={SECRET}/{SECRET}-job",
    ],
)
async def test_what_is_hidden_cannot_be_told_from_what_does_not_exist(path, viewer, hostile, bearer_page):
    hidden = await bearer_page.get(f"/api/v1/{path}", **of(hostile, viewer))
    absent = await bearer_page.get(f"/api/v1/{path.replace(SECRET, 'absent')}", **of(hostile, viewer))
    assert hidden.status == absent.status
    assert hidden.text.replace(SECRET, "absent") == absent.text


async def test_a_pod_that_does_not_exist_is_not_found_without_the_right_to_list_events(
    hostile, bearer_page, headers_page
):
    """In mode headers no viewer has it: the page may not impersonate viewers to read."""
    for page, viewer in ((bearer_page, of(hostile, "tenant")), (headers_page, {})):
        answer = await page.get(f"/api/v1/explain/pods/{TENANT}/absent", **viewer)
        assert (answer.status, "there is no pod apple/absent" in answer.sentence) == (404, True), answer.text


async def test_cards_of_hidden_pools_cannot_be_told_from_cards_that_do_not_exist(hostile, bearer_page):
    for path, absent in ((f"cards/{HIDDEN_CARD}", "cards/absent"), (f"pools/{SECRET}-pool", "pools/absent")):
        hidden = await bearer_page.get(f"/api/v1/{path}", **of(hostile, "tenant"))
        missing = await bearer_page.get(f"/api/v1/{absent}", **of(hostile, "tenant"))
        assert (hidden.status, missing.status) == (404, 404)
        name = path.partition("/")[2]
        assert hidden.sentence.replace(name, "absent") == missing.sentence


@pytest.mark.parametrize("viewer", VIEWERS)
async def test_amounts_are_there(viewer, hostile: HostileLab, bearer_page: ServedPage):
    cards = (await bearer_page.get("/api/v1/snapshot", **of(hostile, viewer))).data["tables"]["cards"]
    names = await bearer_page.get("/api/v1/snapshot?part=names", **of(hostile, viewer))
    holders = names.data["tables"]["holders"]
    assert (set(cards) == set(CARDS)) == (viewer == "cards")
    assert {HOLDING, SHARED} <= set(cards)
    assert sorted(share for _, share in cards[HOLDING][HOLDERS]) == [20, 60]
    assert (cards[HOLDING][FREE_SHARE], cards[SHARED][FREE_SHARE]) == (20, 25)
    named = {
        holders[str(number)][0]: share for number, share in cards[SHARED][HOLDERS] if str(number) in holders
    }
    assert [(holder.split("/")[:2], share) for holder, share in named.items()] == [([TENANT, "mine"], 25)]


@pytest.mark.parametrize("viewer", VIEWERS)
@pytest.mark.parametrize("body", WHAT_IF.values(), ids=WHAT_IF)
async def test_what_if_counts_right_and_names_nobody(body, viewer, hostile, bearer_page: ServedPage):
    whole = await bearer_page.post("/api/v1/what-if", body)
    answer = await bearer_page.post("/api/v1/what-if", body, **of(hostile, viewer))
    assert (whole.status, answer.status) == (200, 200), answer.text
    assert not leaks(answer, viewer), answer.text
    placed, expected = (
        [(result["placed"], result["missing"]) for result in each.data["results"]] for each in (answer, whole)
    )
    assert placed == expected


async def test_a_preview_counts_the_pods_of_others(hostile: HostileLab, bearer_page: ServedPage):
    body = {"action": "drain", "cards": [HOLDING, SHARED]}
    answer = await bearer_page.post("/api/v1/preview", body, **of(hostile, "cards"))
    assert not leaks(answer, "cards"), answer.text
    holding, shared = answer.data["objects"]
    assert holding["holders"] == [{"pod": "2 pods of other namespaces", "share": ""}]
    assert shared["holders"] == [
        {"pod": f"{TENANT}/mine", "share": "25 %"},
        {"pod": "1 pod of another namespace", "share": ""},
    ]


@pytest.mark.parametrize("viewer", VIEWERS)
async def test_the_stream_tells_amounts_and_no_names(viewer, hostile: HostileLab, bearer_page: ServedPage):
    """A pod of the other tenant gets 5 % of a card that the tenant sees, and ends: the share is told."""
    headers = of(hostile, viewer)
    head = (await bearer_page.get("/api/v1/snapshot", **headers)).data
    stream = f"{bearer_page.origin}/api/v1/stream?after={head['process']}.{head['seq']}"
    told: list[str] = []
    async with (
        asyncio.timeout(30),
        aiohttp.ClientSession() as web,
        web.get(stream, headers=headers) as answer,
    ):
        assert answer.headers["X-Accel-Buffering"] == "no"
        async with hostile.api() as api:
            ledger = await api.get(kinds.NODE_RESERVATIONS.raw, NODE)
            await api.patch(
                kinds.NODE_RESERVATIONS.raw, NODE, with_holder(ledger, f"{SECRET}/{SECRET}-2/uid")
            )
            assert await shares(answer, told) == [5, 25, 50]
            await api.patch(kinds.NODE_RESERVATIONS.raw, NODE, {"spec": {"cards": ledger["spec"]["cards"]}})
            assert await shares(answer, told) == [25, 50]
    assert SECRET not in "".join(told)
    assert FREE not in "".join(told), "it did not change"


def with_holder(ledger: dict[str, Any], holder: str) -> dict[str, Any]:
    cards = [
        {**card, "holders": {**card["holders"], holder: 5}} if card["id"] == SHARED else card
        for card in ledger["spec"]["cards"]
    ]
    return {"spec": {"cards": cards}}


async def shares(answer: aiohttp.ClientResponse, told: list[str]) -> list[int]:
    """Read until the card changes; the shares that it has then."""
    while line := (await answer.content.readline()).decode():
        told.append(line)
        changes: dict[str, Any] = json.loads(line[6:]) if line.startswith("data: ") else {}
        if (row := changes.get("tables", {}).get("cards", {}).get(SHARED)) is not None:
            return sorted(share for _, share in row[HOLDERS])
    return []
