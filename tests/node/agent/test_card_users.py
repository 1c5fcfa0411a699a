"""The agent reports idle cards and strangers, with NVML and with simulated cards, on a real API server."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from croupier.api import kinds
from croupier.api.gpu.agent_report import CardReport
from croupier.api.mps.allocation import ALLOCATION
from croupier.core.cards.card_use import SETTLE
from croupier.node.cards.nvml import NvmlCards
from tests.controllers.ledger_env import FakeWatchClock
from tests.node.agent_env import AgentEnv, at_work
from tests.node.nvml_env import CARDS, NvmlEnv
from tests.polling import until, until_async

PERCENT = "gpu.mps.io/percent"


@pytest.fixture
def clock(env: AgentEnv) -> FakeWatchClock:
    env.clock = made = FakeWatchClock()
    return made


@pytest_asyncio.fixture
async def driver(nvml_library: Path, tmp_path: Path, monkeypatch: Any) -> AsyncIterator[NvmlEnv]:
    made = NvmlEnv(nvml_library, tmp_path / "nvml")
    made.folder.mkdir()
    made.install("A100-80GB", "A100-80GB")
    monkeypatch.setenv(CARDS, str(made.file))
    yield made


def cgroup(pod: Any) -> str:
    return f"/kubepods/burstable/pod{pod.metadata.uid}/4f5c"


async def pod(env: AgentEnv, name: str, *cards: int, namespace: str = "default") -> Any:
    """A pod on the node; it holds half of these cards."""
    entries = [{"card": env.card(card), "index": card, "percent": 50} for card in cards]
    meta = {"name": f"{name}-{env.node}", "annotations": {ALLOCATION: json.dumps(entries)} if cards else {}}
    container = {"name": "main", "image": "none", "resources": {"limits": {PERCENT: "50"} if cards else {}}}
    spec = {"nodeName": env.node, "containers": [container], "terminationGracePeriodSeconds": 0}
    made = await env.api.create(kinds.PODS, {"metadata": meta, "spec": spec}, namespace=namespace)
    await until(lambda: env.pods.named(made.metadata.name, namespace), "the pod to be seen")
    return made


async def report(env: AgentEnv, index: int, right: Callable[[CardReport], bool], what: str) -> CardReport:
    """Wait until the published line of the card is as wanted."""

    async def line() -> CardReport | None:
        cards = [card for card in (await env.report()).cards if card.index == index and right(card)]
        return cards[0] if cards else None

    found = await until_async(line, what)
    assert found is not None
    return found


def holder(pod: Any) -> str:
    return f"{pod.metadata.key}/{pod.metadata.uid}"


async def test_nvml_tells_strangers_and_idle_cards(env: AgentEnv, driver: NvmlEnv, clock: FakeWatchClock):
    mine, other = await pod(env, "mine", 0), await pod(env, "other")
    driver.run(0, 11, cgroup(mine))
    driver.run(1, 12, cgroup(other))
    driver.run(1, 13, "/user.slice", name="python")
    driver.run(1, 14, "/system.slice", name="nvidia-cuda-mps")
    cards = NvmlCards(clock=clock, library=str(driver.library), host=driver.host)
    async with at_work(env, cards=cards) as agent:
        await agent.started.wait()
        clock.ahead += SETTLE
        strange = await report(env, 1, lambda card: bool(card.strangers), "strangers")
        assert strange.strangers == (holder(other), "process python")
        assert strange.idle_since is None, "a card without holders is free, not idle"
        used = await report(env, 0, lambda _: True, "the first card")
        assert (used.idle_since, used.strangers) == (None, ())

        driver.end(11)
        driver.end(12)
        await report(env, 1, lambda card: card.strangers == ("process python",), "one stranger to go")
        clock.ahead += SETTLE
        idle = await report(env, 0, lambda card: card.idle_since is not None, "the card to be idle")
        assert idle.idle_since is not None
        assert clock.now() - idle.idle_since >= SETTLE

        driver.run(0, 15, cgroup(mine))
        await report(env, 0, lambda card: card.idle_since is None, "the card to be used again")


async def test_clients_of_mps_use_their_card_and_its_server_is_no_stranger(
    env: AgentEnv, driver: NvmlEnv, clock: FakeWatchClock
):
    """The server belongs to a pod of `croupier mps`; the driver lists a client apart from other processes."""
    mine = await pod(env, "mine", 0)
    daemons = await pod(env, "croupier-mps", namespace=env.namespace)
    driver.run(0, 11, cgroup(daemons), name="nvidia-cuda-mps")
    driver.run(0, 12, cgroup(mine), kind="M")
    driver.run(1, 13, "/user.slice")
    cards = NvmlCards(clock=clock, library=str(driver.library), host=driver.host)
    async with at_work(env, cards=cards) as agent:
        await agent.started.wait()
        clock.ahead += SETTLE
        await report(env, 1, lambda card: bool(card.strangers), "a later look")
        used = await report(env, 0, lambda _: True, "the shared card")
        assert (used.idle_since, used.strangers) == (None, ())

        driver.end(12)
        clock.ahead += SETTLE
        idle = await report(env, 0, lambda card: card.idle_since is not None, "the card to be idle")
        assert idle.strangers == (), "a server without clients is no use of the card"


async def test_short_processes_cost_no_writes(env: AgentEnv, driver: NvmlEnv, clock: FakeWatchClock):
    mine = await pod(env, "mine", 0)
    cards = NvmlCards(clock=clock, library=str(driver.library), host=driver.host)
    agent = env.agent(cards)
    await cards.open()
    try:
        for _ in range(3):  # the first rounds publish labels and conditions
            await agent.round()
        quiet = len(env.writes)
        for number in range(20):
            driver.run(0, 20 + number, cgroup(mine))
            driver.run(1, 60 + number, "/user.slice", name=f"short-{number}")
            await agent.round()
            driver.end(20 + number)
            driver.end(60 + number)
            clock.ahead += SETTLE / 2
            await agent.round()
        assert env.writes[quiet:] == []
    finally:
        await cards.close()


async def test_a_restarted_agent_continues_the_idle_time(env: AgentEnv, clock: FakeWatchClock):
    await pod(env, "mine", 0)
    env.suffers(cards={0: {"users": []}})
    async with at_work(env) as agent:
        await agent.started.wait()
        clock.ahead += 2 * SETTLE
        before = await report(env, 0, lambda card: card.idle_since is not None, "the card to be idle")

    clock.ahead += 60 * SETTLE
    async with at_work(env) as agent:
        await agent.started.wait()
        assert (await report(env, 0, lambda _: True, "the card")).idle_since == before.idle_since


async def test_simulated_cards_play_users(env: AgentEnv, clock: FakeWatchClock):
    mine = await pod(env, "mine", 0, 1, 2)
    env.suffers(cards={0: {"users": [mine.metadata.key, "trainer"]}, 1: {"users": []}})
    async with at_work(env) as agent:
        await agent.started.wait()
        clock.ahead += SETTLE
        used = await report(env, 0, lambda card: bool(card.strangers), "a stranger")
        await report(env, 1, lambda card: card.idle_since is not None, "the card to be idle")
        unknown = await report(env, 2, lambda _: True, "a card without users in the file")

    assert (used.idle_since, used.strangers) == (None, ("process trainer",))
    assert (unknown.idle_since, unknown.strangers) == (None, ())
