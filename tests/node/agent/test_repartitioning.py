"""After repartitioning, a card has the requested layout or its old one, whatever happens in between."""

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.model import mig
from croupier.core.model.mig import Layout
from croupier.node.agent.repartition_journal import RepartitionJournal
from croupier.node.agent.repartitioning import (
    Repartitioned,
    Repartitioner,
    RepartitionFailed,
    RepartitionResult,
)
from croupier.node.cards.card_driver import CardDriver, CardError
from tests.core.mig_builders import layout
from tests.node.simulated_env import FIRST, SECOND, SimulatedCardsEnv, observed_card

MEDIUM = layout("2g.20gb:2,3g.30gb:1")
SMALL = layout("1g.10gb:7")


T = TypeVar("T")


class KilledError(BaseException):
    """Simulates SIGKILL: no handler catches it."""


@dataclass
class CrashingCards:
    """Cards whose process is killed at step `dies_at`, just before or just after it takes effect."""

    cards: CardDriver
    dies_at: int
    after: bool
    steps: int = 0
    source = "simulated"

    async def _step(self, step: Coroutine[None, None, T]) -> T:
        self.steps += 1
        if self.steps == self.dies_at and not self.after:
            step.close()
            raise KilledError
        result = await step
        if self.steps == self.dies_at:
            raise KilledError
        return result

    async def enable_mig(self, address, on):
        await self._step(self.cards.enable_mig(address, on))

    async def create(self, address, piece):
        return await self._step(self.cards.create(address, piece))

    async def destroy(self, address, uuid):
        await self._step(self.cards.destroy(address, uuid))

    async def inspect(self):
        return await self.cards.inspect()

    async def users(self):
        return await self.cards.users()

    async def open(self):
        await self.cards.open()

    async def close(self):
        await self.cards.close()

    async def changed(self, seconds):
        await self.cards.changed(seconds)

    def container_edits(self, held):
        return self.cards.container_edits(held)


@pytest.fixture
def env(tmp_path):
    return SimulatedCardsEnv(tmp_path)


def repartitioner(env: SimulatedCardsEnv, cards: CardDriver, deadline: float = 120) -> Repartitioner:
    journal = RepartitionJournal(env.folder / "journal.json")
    return Repartitioner(cards, env.clock, deadline=deadline, journal=journal)


async def repartition(env: SimulatedCardsEnv, target: Layout, address: str = FIRST) -> RepartitionResult:
    """Repartition the card with a new agent."""
    cards = await env.start()
    return await repartitioner(env, cards).apply(await observed_card(cards, address), target)


async def layout_of(env: SimulatedCardsEnv, address: str = FIRST) -> str:
    return mig.layout_text((await observed_card(await env.start(), address)).layout)


async def test_a_card_is_repartitioned_repeatedly_and_made_whole(env):
    for target in (SMALL, MEDIUM, mig.WHOLE, MEDIUM):
        assert await repartition(env, target) == Repartitioned()
        assert await layout_of(env) == mig.layout_text(target)

    assert await layout_of(env, SECOND) == "whole"


async def test_a_card_with_the_requested_layout_is_not_changed(env):
    await repartition(env, MEDIUM)
    before = await observed_card(await env.start())
    env.suffer(card0={"fail": "all"})

    assert await repartition(env, MEDIUM) == Repartitioned()
    assert await observed_card(await env.start()) == before


async def test_a_device_that_is_in_both_layouts_is_kept(env):
    await repartition(env, layout("2g.20gb:1"))
    (kept,) = (await observed_card(await env.start())).slots

    await repartition(env, MEDIUM)

    assert kept in (await observed_card(await env.start())).slots


async def test_an_impossible_layout_is_refused_before_any_change(env):
    await repartition(env, SMALL)
    before = await observed_card(await env.start())

    outcome = await repartition(env, layout("3g.30gb:2,2g.20gb:1"))

    assert isinstance(outcome, RepartitionFailed)
    assert outcome.restored
    assert "needs 8 compute slices" in outcome.sentence
    assert await observed_card(await env.start()) == before


@pytest.mark.parametrize("step", range(1, 11))
async def test_a_failed_step_restores_the_old_layout(env, step):
    """Seven devices are destroyed and three created. Whichever step fails, the seven are restored."""
    await repartition(env, SMALL)
    env.suffer(card0={"fail": step})

    outcome = await repartition(env, MEDIUM)

    assert isinstance(outcome, RepartitionFailed)
    assert outcome.restored
    assert outcome.sentence.startswith(
        f"card 0 ({FIRST}) could not be partitioned into 2g.20gb:2,3g.30gb:1: could not "
    )
    assert f"(step {step}, simulated by the faults file); its old layout is restored" in outcome.sentence
    assert await layout_of(env) == "1g.10gb:7"


async def test_a_failed_rollback_is_reported_and_the_next_attempt_restores_the_old_layout(env):
    await repartition(env, SMALL)
    env.suffer(card0={"fail": [3, 4]})
    stuck = await repartition(env, MEDIUM)
    assert isinstance(stuck, RepartitionFailed)
    assert not stuck.restored
    assert "its old layout could not be restored either" in stuck.sentence

    env.suffer()
    cards = await env.start()
    again = repartitioner(env, cards)
    assert again.unfinished() == {FIRST}
    assert await again.recover(await observed_card(cards)) == Repartitioned()

    assert await layout_of(env) == "1g.10gb:7"
    assert repartitioner(env, cards).unfinished() == frozenset()


async def test_a_lost_card_is_reported_and_not_changed(env):
    env.suffer(card0={"gone": True}, card1={})
    cards = await env.start()
    env.suffer()
    card = await observed_card(cards)
    env.suffer(card0={"gone": True})

    outcome = await repartitioner(env, cards).apply(card, SMALL)

    assert outcome == RepartitionFailed(
        f"card 0 ({FIRST}) cannot be partitioned into 1g.10gb:7: the card is not on the PCI bus",
        restored=False,
    )


async def test_a_change_that_takes_too_long_is_rolled_back(env):
    await repartition(env, SMALL)
    cards = await env.start()
    card = await observed_card(cards)
    env.suffer(card0={"slow": 50})
    change = asyncio.ensure_future(repartitioner(env, cards, deadline=120).apply(card, MEDIUM))

    await env.clock.let_pass(119)
    assert len((await observed_card(cards)).slots) == 5
    assert not change.done()
    await env.clock.let_pass(2)
    env.suffer()
    await env.clock.let_pass(60)

    outcome = await change
    assert isinstance(outcome, RepartitionFailed)
    assert "it took longer than 120 s; its old layout is restored" in outcome.sentence
    assert await layout_of(env) == "1g.10gb:7"


async def test_a_driver_that_never_answers_does_not_block_forever(env):
    cards = await env.start()
    card = await observed_card(cards)
    env.suffer(card0={"slow": 80_000})
    change = asyncio.ensure_future(repartitioner(env, cards, deadline=120).apply(card, MEDIUM))

    await env.clock.let_pass(241)

    outcome = await change
    assert isinstance(outcome, RepartitionFailed)
    assert outcome.restored, "MIG mode was never turned on, so there is nothing to undo"


async def test_the_next_agent_finishes_a_change_that_was_cancelled(env):
    await repartition(env, SMALL)
    cards = await env.start()
    card = await observed_card(cards)
    env.suffer(card0={"slow": 10})
    change = asyncio.ensure_future(repartitioner(env, cards).apply(card, MEDIUM))
    await env.clock.let_pass(35)
    change.cancel()
    await asyncio.gather(change, return_exceptions=True)
    assert len((await observed_card(await env.start())).slots) == 4

    env.suffer()
    assert await repartition(env, MEDIUM) == Repartitioned()

    assert await layout_of(env) == "2g.20gb:2,3g.30gb:1"


async def test_a_driver_that_accepts_a_step_without_effect_is_detected(env):
    class InactiveDriver(CrashingCards):
        async def create(self, address, piece):
            return "MIG-imagined"

    cards = await env.start()
    outcome = await repartitioner(env, InactiveDriver(cards, dies_at=0, after=False)).apply(
        await observed_card(cards), SMALL
    )

    assert isinstance(outcome, RepartitionFailed)
    assert "the driver accepted every step, but the card has another partitioning" in outcome.sentence
    assert outcome.restored


async def test_a_journal_entry_of_another_card_is_ignored(env):
    await repartition(env, SMALL)
    env.suffer(card0={"fail": [3, 4]})
    await repartition(env, MEDIUM)

    env.suffer(card0={"replaced": 1})
    cards = await env.start()
    left = await layout_of(env)
    assert await repartitioner(env, cards).recover(await observed_card(cards)) == Repartitioned()

    assert await layout_of(env) == left


async def test_a_change_succeeds_without_a_usable_journal(env, tmp_path):
    (tmp_path / "journal.json").write_text("}")
    assert await repartition(env, SMALL) == Repartitioned()

    (tmp_path / "journal.json").unlink()
    (tmp_path / "journal.json").mkdir()
    cards = await env.start()
    nowhere = RepartitionJournal(tmp_path / "plain" / "journal.json")
    (tmp_path / "plain").write_text("a file where a directory should be")
    assert (
        await Repartitioner(cards, env.clock, journal=nowhere).apply(await observed_card(cards), MEDIUM)
        == Repartitioned()
    )


POSSIBLE = [
    layout(text)
    for text in (
        "whole",
        "1g.10gb:7",
        "2g.20gb:2,3g.30gb:1",
        "3g.30gb:2",
        "1g.10gb:3,4g.40gb:1",
        "2g.20gb:3",
        "1g.20gb:3",
        "7g.70gb:1",
        "1g.10gb:2,2g.20gb:1,3g.30gb:1",
    )
]


@given(
    old=st.sampled_from(POSSIBLE),
    target=st.sampled_from(POSSIBLE),
    deaths=st.lists(st.tuples(st.integers(1, 18), st.booleans()), max_size=3),
    fails=st.sets(st.integers(1, 20), max_size=3),
    gives_up=st.booleans(),
)
@settings(deadline=None)
async def test_from_every_crash_point_it_ends_at_the_target_or_the_old_layout(
    old, target, deaths, fails, gives_up
):
    """The process may be killed several times, before or after any step, and steps may fail."""
    with tempfile.TemporaryDirectory() as folder:
        env = SimulatedCardsEnv(Path(folder))
        await repartition(env, old)
        env.suffer(card0={"fail": sorted(fails)} if fails else {})
        for dies_at, after in deaths:
            crashing = CrashingCards(await env.start(), dies_at, after)
            try:
                await repartitioner(env, crashing).apply(await observed_card(crashing), target)
            except KilledError:
                continue
        cards = await env.start()
        last = repartitioner(env, cards)
        outcome = await (last.recover if gives_up else lambda card: last.apply(card, target))(
            await observed_card(cards)
        )

        now = (await observed_card(cards)).layout
        if isinstance(outcome, Repartitioned):
            assert now in ((old, target) if gives_up else (target,))
        elif outcome.restored:
            assert now in (old, target)
        else:
            assert last.unfinished() == {FIRST}
            env.suffer()
            assert await last.recover(await observed_card(cards)) == Repartitioned()
            assert (await observed_card(cards)).layout in (old, target)


async def test_a_failed_inspection_is_a_failed_change(env):
    cards = await env.start()
    card = await observed_card(cards)
    env.faults.write_text("driver: false")

    outcome = await repartitioner(env, cards).apply(card, SMALL)

    assert isinstance(outcome, RepartitionFailed)
    assert "no NVIDIA driver" in outcome.sentence
    with pytest.raises(CardError):
        await cards.inspect()
