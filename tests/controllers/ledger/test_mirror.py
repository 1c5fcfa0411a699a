"""Mirrors of placements on a real API server, with both capacity managers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from croupier.api import kinds
from croupier.api.mps import Reservation
from croupier.api.mps.reservation import MIRROR, NO_MIRRORS, RELEASE_FINALIZER
from croupier.controllers.ledger.mirror import MirrorController, MirrorOptions
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Selection
from croupier.kube.client.errors import NotFound
from tests.controllers.ledger_env import NODE, LedgerEnv, running, watched
from tests.polling import until_async

KEEP = timedelta(minutes=10)
WRITES = ("create", "update", "patch", "delete", "apply")


@contextlib.asynccontextmanager
async def mirroring(
    world: LedgerEnv, *, enabled: bool = True, keep: timedelta = KEEP, api: Any = None
) -> AsyncIterator[None]:
    marked = Selection(world.namespace, labels=MIRROR)
    async with watched(world.api, kinds.RESERVATIONS, marked) as mirrors:
        settings = MirrorOptions(enabled=enabled, keep=keep, debounce=0.05, clock=world.clock)
        controller = MirrorController(mirrors, api or world.api, manager=world.manager, settings=settings)
        async with running(controller.run(asyncio.Event())):
            yield


@pytest.fixture(autouse=True)
async def no_reservations(world: LedgerEnv) -> AsyncIterator[None]:
    yield
    for item in (await world.api.list(kinds.RESERVATIONS, Selection(world.namespace))).items:
        name = item.metadata.name
        with contextlib.suppress(NotFound):
            await world.api.patch(
                kinds.RESERVATIONS, name, {"metadata": {"finalizers": None}}, namespace=world.namespace
            )
            await world.api.delete(kinds.RESERVATIONS, name, namespace=world.namespace)


async def mirrors(world: LedgerEnv, labels: str = MIRROR) -> dict[str, Reservation]:
    listed = await world.api.list(kinds.RESERVATIONS, Selection(world.namespace, labels=labels))
    return {item.metadata.name: item for item in listed.items}


async def phases(world: LedgerEnv, *expected: str) -> list[Reservation]:
    seen: list[Any] = []

    async def look() -> bool:
        seen[:] = (await mirrors(world)).values()
        return sorted(item.status.phase for item in seen) == sorted(expected)

    try:
        await until_async(look, f"mirrors to be {expected}", within=50)
    except AssertionError as late:
        raise AssertionError(f"{late}; they are {seen}") from None
    return seen


async def opened(world: LedgerEnv) -> str:
    """A node with one card and its ledger; the name of the card."""
    await world.node(gpu=1)
    async with world.works("capacity"):
        await world.shows({f"{NODE}-gpu-0": (True, 0)})
    return f"{NODE}-gpu-0"


async def test_a_placement_is_shown_until_it_ends(world):
    card = await opened(world)
    holder = f"{world.namespace}/trainer/0a1b2c3d-4e5f"
    async with mirroring(world):
        await world.plant(holder, card, percent=40)
        (shown,) = await phases(world, "Reserved")
        assert shown.metadata.name == "trainer-0a1b2c3d"
        assert (shown.spec.pod_key, shown.spec.node_name) == (f"{world.namespace}/trainer", NODE)
        assert (shown.spec.num_cards, shown.spec.percent_per_card) == (1, 40)
        assert [(part.id, part.percent) for part in shown.status.cards] == [(card, 40)]
        assert shown.status.pod_uid == "0a1b2c3d-4e5f"
        await world.manager.release(holder, NODE)
        await phases(world, "Released")
    world.clock.ahead += KEEP
    async with mirroring(world):  # another process deletes it
        await phases(world)


async def test_a_restart_writes_only_what_is_missing(world):
    card = await opened(world)
    await world.plant(f"{world.namespace}/early/0a1b2c3d", card, percent=40)
    async with mirroring(world):
        (before,) = await phases(world, "Reserved")
    await world.plant(f"{world.namespace}/late/1a1b2c3d", card, percent=40)
    async with mirroring(world):
        after = {item.metadata.name: item for item in await phases(world, "Reserved", "Reserved")}

    assert after["early-0a1b2c3d"].metadata.resource_version == before.metadata.resource_version


async def test_a_mirror_holds_nothing(world):
    """The controllers of the ledger neither decide nor count it, and the pod holds its share once."""
    card = await opened(world)
    holder = await world.runs("trainer", card, percent=40)
    await world.plant(holder, card, percent=40)
    async with mirroring(world), world.works() as audit:
        await world.shows({card: (True, 40)})
        await phases(world, "Reserved")
        await audit.run_once()
        assert await mirrors(world, NO_MIRRORS) == {}
        assert world.ledger().holders() == {holder}
        assert world.ledger().reservations == {}
        assert world.cards() == {card: (True, 40)}
        await world.delete("trainer")
        await world.shows({card: (True, 0)})
        await phases(world, "Released")


async def test_turning_them_off_removes_them(world):
    card = await opened(world)
    await world.plant(f"{world.namespace}/trainer/0a1b2c3d", card, percent=40)
    async with mirroring(world):
        await phases(world, "Reserved")
    async with mirroring(world, enabled=False):
        await phases(world)


async def test_a_forged_mirror_gives_nothing(world):
    card = await opened(world)
    spec = {"podKey": f"{world.namespace}/x", "nodeName": NODE, "numCards": 1, "percentPerCard": 100}
    body = {"metadata": {"name": "forged", "labels": {MIRROR: "true"}}, "spec": spec}
    await world.api.create(kinds.RESERVATIONS, body, namespace=world.namespace)
    real = {"metadata": {"name": "marked", "labels": {MIRROR: "true"}, "finalizers": [RELEASE_FINALIZER]}}
    await world.api.create(kinds.RESERVATIONS, {**real, "spec": spec}, namespace=world.namespace)
    async with mirroring(world), world.works():
        (forged,) = await phases(world, "Released")
        assert forged.metadata.name == "forged"
        assert (await mirrors(world, NO_MIRRORS)).keys() == {"marked"}
        assert world.cards() == {card: (True, 0)}
    world.clock.ahead += KEEP
    async with mirroring(world):
        await phases(world)


async def test_the_writes_of_a_placement(world, cluster):
    """Two writes after the Binding, two after the end; none while mirrors are off."""
    card = await opened(world)
    writes: list[str] = []

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        if verb in WRITES and resource == kinds.RESERVATIONS.full_name:
            writes.append(verb)

    async with api_client.connect(config.load(cluster.kubeconfig), observe=observe) as api:
        for enabled, expected in ((False, []), (True, ["create", "patch", "patch", "delete"])):
            holder = f"{world.namespace}/trainer-{enabled!s}/0a1b2c3d".lower()
            async with mirroring(world, enabled=enabled, keep=timedelta(seconds=1), api=api):
                await world.plant(holder, card, percent=40)
                await phases(world, *(["Reserved"] if enabled else []))
                await world.manager.release(holder, NODE)
                await phases(world)
            assert writes == expected
