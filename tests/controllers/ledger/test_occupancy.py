"""The condition Occupied of each card, on a real API server: Withdrawn before a card is changed."""

from collections.abc import Awaitable
from typing import Any

import pytest

from croupier.api import kinds, meta
from croupier.api.withheld import WithheldCard
from croupier.core.model.card import CardGrant
from croupier.core.model.refusal import Refusal
from croupier.core.model.withheld import Withheld
from tests.controllers.conftest import in_the_api_server
from tests.controllers.ledger_env import NODE, LedgerEnv, card
from tests.polling import until, until_async

SECONDS = 30

DRAIN = "gpu.deckhouse.io/drain"
ASSIGNMENT = "gpu.deckhouse.io/assignment"
ALL = ("capacity", "holders", "occupancy")
TIMEOUT = 60.0


async def says(world: LedgerEnv, device: str, reason: str) -> None:
    last = ""

    async def look() -> bool:
        nonlocal last
        found = await world.api.get(kinds.GPU_DEVICES, device)
        last = next(
            (condition.reason for condition in found.status.conditions if condition.type == "Occupied"),
            "nothing",
        )
        return last == reason

    try:
        await until_async(look, f"{device} to be {reason}", TIMEOUT)
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {last}, {world.cards()}") from None


async def note(world: LedgerEnv, device: str, **annotations: str | None) -> None:
    notes = {{"drain": DRAIN, "assignment": ASSIGNMENT}[key]: value for key, value in annotations.items()}
    await world.api.patch(kinds.GPU_DEVICES, device, {"metadata": {"annotations": notes}})


async def status(world: LedgerEnv, device: str, **fields: Any) -> None:
    await world.api.patch(kinds.GPU_DEVICES, device, {"status": fields}, subresource="status")


async def claimed(world: LedgerEnv, device: str) -> bool:
    """Whether a new pod could get the card."""
    answer = await world.manager.reserve(f"{world.namespace}/new/9", NODE, 1, 10)
    await world.manager.release(f"{world.namespace}/new/9", NODE)
    return not isinstance(answer, Refusal) and any(part.card == device for part in answer)


async def test_the_condition_names_the_generation_that_was_read(world):
    await world.node()
    device = await world.device(0)
    async with world.works(*ALL):
        await says(world, device, "Free")
        await until_async(lambda: names_generation(world, device, 1), "the condition of generation 1")

        await world.api.patch(kinds.GPU_DEVICES, device, {"spec": {}})
        await until_async(lambda: names_generation(world, device, 2), "the condition of generation 2")


async def names_generation(world: LedgerEnv, device: str, generation: int) -> bool:
    found = await world.api.get(kinds.GPU_DEVICES, device)
    condition = meta.condition(found.status.conditions, "Occupied")
    assert condition is not None
    return found.metadata.generation == condition.observed_generation == generation


async def test_a_drained_card_is_withdrawn_once_its_last_holder_is_gone(world):
    await world.node()
    device = await world.device(0)
    async with world.works(*ALL):
        await says(world, device, "Free")
        await world.runs("a", device)
        holder = world.holder(await world.get("a"))
        await world.plant(holder, device)
        await says(world, device, "InUse")

        await note(world, device, drain="repair")
        await world.shows({device: (False, 50)})
        await says(world, device, "InUse")
        await world.delete("a")
        await says(world, device, "Withdrawn")
        assert not await claimed(world, device)

        await note(world, device, drain=None)
        await says(world, device, "Free")
        assert await claimed(world, device)


async def withdrawal(world: LedgerEnv, device: str, state: str) -> tuple[str, str, str] | None:
    """Status, reason and message of the condition Drained or Retired."""
    found = await world.api.get(kinds.GPU_DEVICES, device)
    conditions = {condition.type: condition for condition in found.status.conditions}
    written = conditions.get(state)
    return (written.status, written.reason, written.message) if written is not None else None


async def tells(world: LedgerEnv, device: str, state: str, expected: tuple[str, str, str] | None) -> None:
    async def look() -> bool:
        return await withdrawal(world, device, state) == expected

    try:
        await until_async(look, f"{state} of {device} to be {expected}", TIMEOUT)
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {await withdrawal(world, device, state)}") from None


async def closed(world: LedgerEnv, device: str) -> WithheldCard | None:
    return (await world.api.get(kinds.GPU_DEVICES, device)).status.withheld


async def test_a_drained_card_says_why_and_which_pods_it_waits_for(world):
    await world.node()
    device = await world.device(0)
    async with world.works(*ALL):
        await says(world, device, "Free")
        await world.runs("train-0", device)
        await world.plant(world.holder(await world.get("train-0")), device)
        await note(world, device, drain="swap the fan")

        waits = f"swap the fan; waits for pod {world.namespace}/train-0"
        await tells(world, device, "Drained", ("False", "WaitingForPods", waits))
        assert await closed(world, device) == WithheldCard(state="Drained", reason="swap the fan")
        await world.shows({device: (False, 50)})
        assert world.ledger().cards[0].withheld == Withheld("Drained", "swap the fan")

        await world.delete("train-0")
        drained = ("True", "NoPods", "swap the fan; no pod holds the card")
        await tells(world, device, "Drained", drained)
        await says(world, device, "Withdrawn")

        await note(world, device, drain=None)
        await tells(world, device, "Drained", None)
        await says(world, device, "Free")
        assert await closed(world, device) is None
        assert world.ledger().cards[0].withheld is None


async def test_a_retired_card_stays_in_the_ledger_with_its_reason(world):
    """Only a card that is listed can be named in a refusal."""
    await world.node()
    device = await world.device(0)
    async with world.works(*ALL):
        await says(world, device, "Free")
        away = {
            "labels": {"gpu.deckhouse.io/ignore": "true"},
            "annotations": {"gpu.deckhouse.io/retired": "worn out"},
        }
        await world.api.patch(kinds.GPU_DEVICES, device, {"metadata": away})

        await tells(world, device, "Retired", ("True", "NoPods", "worn out; no pod holds the card"))
        assert await closed(world, device) == WithheldCard(state="Retired", reason="worn out")
        answer = await world.manager.reserve(f"{world.namespace}/new/9", NODE, 1, 100)
        assert isinstance(answer, Refusal)
        assert answer.reason == "has no card that takes new pods (1 card is retired: worn out)"


@in_the_api_server
async def test_a_card_that_its_pool_changes_is_not_drained_by_a_person(world):
    await world.node()
    device = await world.device(0)
    async with world.works(*ALL):
        await says(world, device, "Free")
        await note(world, device, drain="pool shared changes how it is shared")
        await says(world, device, "Withdrawn")

        expected = WithheldCard(state="Changing", reason="pool shared changes how it is shared")
        await until_async(lambda: _is(closed(world, device), expected), "the reason", TIMEOUT)
        assert await withdrawal(world, device, "Drained") is None


async def _is(found: Awaitable[Any], expected: Any) -> bool:
    return bool(await found == expected)


WAITING = {"enabled": True, "state": "Waiting", "target": "1g.10gb:7"}


async def waits_for_its_cut(world: LedgerEnv, device: str) -> None:
    await status(world, device, cut=WAITING)


async def drifted(world: LedgerEnv, device: str) -> None:
    await status(world, device, cut={"state": "Drifted"})


async def enters_a_pool(world: LedgerEnv, device: str) -> None:
    await note(world, device, assignment="shared")


async def faulted(world: LedgerEnv, device: str) -> None:
    await status(world, device, state="Faulted")


async def vanished(world: LedgerEnv, device: str) -> None:
    condition = {"type": "Vanished", "status": "True", "reason": "NotOnTheBus", "message": ""}
    await status(world, device, conditions=[{**condition, "lastTransitionTime": "2030-01-01T00:00:00Z"}])


async def ignored(world: LedgerEnv, device: str) -> None:
    await world.api.patch(
        kinds.GPU_DEVICES, device, {"metadata": {"labels": {"gpu.deckhouse.io/ignore": "true"}}}
    )


async def its_agent_is_silent(world: LedgerEnv, device: str) -> None:
    await world.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": NODE}})
    condition = {"type": "AgentSilent", "status": "True", "reason": "NoHeartbeat", "message": ""}
    body = {"status": {"conditions": [{**condition, "lastTransitionTime": "2030-01-01T00:00:00Z"}]}}
    await world.api.patch(kinds.GPU_NODE_INVENTORIES, NODE, body, subresource="status")


REASONS = (waits_for_its_cut, drifted, enters_a_pool, faulted, vanished, ignored, its_agent_is_silent)


@in_the_api_server
@pytest.mark.parametrize("happens", REASONS, ids=lambda change: change.__name__)
async def test_a_card_is_withdrawn_when(world, happens):
    await world.node()
    device = await world.device(0)
    async with world.works(*ALL):
        await says(world, device, "Free")
        await happens(world, device)
        await says(world, device, "Withdrawn")
        assert not await claimed(world, device)


@in_the_api_server
async def test_the_cards_of_a_paused_pool_are_withdrawn_and_follow_its_changes(world):
    await world.node()
    pool = {"metadata": {"name": "turns"}, "spec": {"allocation": {"mode": "TimeSlice"}}}
    await world.create(kinds.GPU_POOLS, pool)
    device = await world.device(0, state="Assigned", poolRef={"name": "turns"})

    async def pool_is(mode: str, maintenance: str, reason: str = "AllocationChanged") -> None:
        moment = {"lastTransitionTime": "2030-01-01T00:00:00Z", "message": ""}
        condition = {"type": "Maintenance", "status": maintenance, "reason": reason, **moment}
        now = {"allocation": {"mode": mode}, "conditions": [condition]}
        await world.api.patch(kinds.GPU_POOLS, "turns", {"status": now}, subresource="status")

    async with world.works(*ALL):
        await says(world, device, "Free")
        await pool_is("TimeSlice", "True")
        await says(world, device, "Withdrawn")
        await pool_is("TimeSlice", "True", "PerCard")
        await says(world, device, "Free")
        await world.api.patch(
            kinds.GPU_POOLS, "turns", {"spec": {"allocation": {"mode": "Exclusive", "timeSlice": None}}}
        )
        await pool_is("Exclusive", "False", "Done")
        await until(lambda: world.ledger().cards[0].mode == "Exclusive", "the new mode", TIMEOUT)
        await note(world, device, assignment=None)
        await says(world, device, "Withdrawn")


@in_the_api_server
async def test_a_card_is_allocated_as_it_is_partitioned(world):
    await world.node()
    device = await world.device(0)
    slots = [{"id": f"1g.10gb-{n}", "profile": "1g.10gb", "start": n, "size": 1} for n in range(2)]
    async with world.works(*ALL):
        await says(world, device, "Free")
        await status(world, device, cut=WAITING)
        await says(world, device, "Withdrawn")
        await status(world, device, cut={**WAITING, "state": "Applied", "slots": slots})
        await says(world, device, "Free")

        (card_now,) = world.ledger().cards
        assert (card_now.mode, [slot.id for slot in card_now.slots]) == ("MIG", ["1g.10gb-0", "1g.10gb-1"])


async def test_the_holders_of_a_card_are_reported_by_its_final_name(world):
    await world.node(gpu=1)
    labels = {"gpu.deckhouse.io/device-index": "0", "gpu.deckhouse.io/node": NODE}
    await world.create(kinds.GPU_DEVICES, {"metadata": {"name": card(0), "labels": labels}})
    await status(world, card(0), nodeName=NODE, inventoryID=card(0))
    holder = await world.runs("a", card(0))
    async with world.works(*ALL):
        await says(world, card(0), "InUse")
        device = await world.device(0)
        await says(world, device, "InUse")
        await says(world, card(0), "Withdrawn")

        assert world.ledger().grant(holder) == (CardGrant(device, 50),)


@in_the_api_server
async def test_nothing_is_written_while_nothing_changes(world):
    await world.node()
    device = await world.device(0)
    async with world.works(*ALL):
        await says(world, device, "Free")
        before = await world.api.get(kinds.GPU_DEVICES, device)
        other = await world.device(1)
        await world.shows({device: (True, 0), other: (True, 0)})
        await world.runs("a", other)
        await world.plant(world.holder(await world.get("a")), other)
        await says(world, other, "InUse")

        assert await world.api.get(kinds.GPU_DEVICES, device) == before
