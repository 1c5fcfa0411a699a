"""Cutting a card anew keeps one promise: it ends as asked, or as it was, whatever happens in between."""

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.core.cards import mig
from croupier.core.cards.mig import Layout
from croupier.node.agent.recutting import Applied, Failed, Outcome, Recutter
from croupier.node.agent.recutting_journal import FileJournal
from croupier.node.cards.cards import CardError, Cards
from tests.core.layouts import laid
from tests.node.simulation import FIRST, SECOND, Bench, seen

MEDIUM = laid("2g.20gb:2,3g.30gb:1")
SMALL = laid("1g.10gb:7")


T = TypeVar("T")


class KilledError(BaseException):
    """What SIGKILL is to a process: nothing after it runs, no handler expects it."""


@dataclass
class Mortal:
    """Cards whose process dies at the so-manieth step, just before or just after it took effect."""

    cards: Cards
    dies_at: int
    after: bool
    steps: int = 0
    source = "simulated"

    async def _mortal(self, step: Coroutine[None, None, T]) -> T:
        self.steps += 1
        if self.steps == self.dies_at and not self.after:
            step.close()
            raise KilledError
        result = await step
        if self.steps == self.dies_at:
            raise KilledError
        return result

    async def enable_mig(self, address, on):
        await self._mortal(self.cards.enable_mig(address, on))

    async def create(self, address, piece):
        return await self._mortal(self.cards.create(address, piece))

    async def destroy(self, address, uuid):
        await self._mortal(self.cards.destroy(address, uuid))

    async def look(self):
        return await self.cards.look()

    async def open(self):
        await self.cards.open()

    async def close(self):
        await self.cards.close()

    async def changed(self, seconds):
        await self.cards.changed(seconds)

    def container_edits(self, held):
        return self.cards.container_edits(held)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


def recutter(bench: Bench, cards: Cards, deadline: float = 120) -> Recutter:
    journal = FileJournal(bench.folder / "journal.json")
    return Recutter(cards, bench.clock, deadline=deadline, journal=journal)


async def recut(bench: Bench, target: Layout, address: str = FIRST) -> Outcome:
    """As an agent that has just started would."""
    cards = await bench.start()
    return await recutter(bench, cards).apply(await seen(cards, address), target)


async def layout(bench: Bench, address: str = FIRST) -> str:
    return mig.spelled((await seen(await bench.start(), address)).layout)


async def test_a_whole_card_is_cut_and_cut_anew_and_made_whole(bench):
    for target in (SMALL, MEDIUM, mig.WHOLE, MEDIUM):
        assert await recut(bench, target) == Applied()
        assert await layout(bench) == mig.spelled(target)

    assert await layout(bench, SECOND) == "whole"


async def test_a_card_that_is_cut_as_asked_is_not_touched(bench):
    await recut(bench, MEDIUM)
    before = await seen(await bench.start())
    bench.suffer(card0={"fail": "all"})

    assert await recut(bench, MEDIUM) == Applied()
    assert await seen(await bench.start()) == before


async def test_what_stays_in_its_place_stays_the_same_device(bench):
    await recut(bench, laid("2g.20gb:1"))
    (kept,) = (await seen(await bench.start())).slots

    await recut(bench, MEDIUM)

    assert kept in (await seen(await bench.start())).slots


async def test_what_cannot_be_is_refused_before_anything_is_touched(bench):
    await recut(bench, SMALL)
    before = await seen(await bench.start())

    outcome = await recut(bench, laid("3g.30gb:2,2g.20gb:1"))

    assert isinstance(outcome, Failed)
    assert outcome.restored
    assert "needs 8 compute slices" in outcome.sentence
    assert await seen(await bench.start()) == before


@pytest.mark.parametrize("step", range(1, 11))
async def test_a_step_that_fails_puts_the_old_layout_back(bench, step):
    """Seven are destroyed and three made; whichever fails, the seven are there again."""
    await recut(bench, SMALL)
    bench.suffer(card0={"fail": step})

    outcome = await recut(bench, MEDIUM)

    assert isinstance(outcome, Failed)
    assert outcome.restored
    assert outcome.sentence.startswith(
        f"card 0 ({FIRST}) could not be cut into 2g.20gb:2,3g.30gb:1: could not "
    )
    assert f"(step {step}, by the file of faults); its old layout is restored" in outcome.sentence
    assert await layout(bench) == "1g.10gb:7"


async def test_when_nothing_works_it_says_so_and_the_next_try_knows_what_was_before(bench):
    await recut(bench, SMALL)
    bench.suffer(card0={"fail": [3, 4]})
    stuck = await recut(bench, MEDIUM)
    assert isinstance(stuck, Failed)
    assert not stuck.restored
    assert "nor could its old layout be restored" in stuck.sentence

    bench.suffer()
    cards = await bench.start()
    again = recutter(bench, cards)
    assert again.unfinished() == {FIRST}
    assert await again.recover(await seen(cards)) == Applied()

    assert await layout(bench) == "1g.10gb:7"
    assert recutter(bench, cards).unfinished() == frozenset()


async def test_a_lost_card_is_told_and_touched_no_further(bench):
    bench.suffer(card0={"gone": True}, card1={})
    cards = await bench.start()
    bench.suffer()
    card = await seen(cards)
    bench.suffer(card0={"gone": True})

    outcome = await recutter(bench, cards).apply(card, SMALL)

    assert outcome == Failed(
        f"card 0 ({FIRST}) cannot be cut into 1g.10gb:7: it is not there", restored=False
    )


async def test_a_change_that_takes_too_long_is_given_up_and_undone(bench):
    await recut(bench, SMALL)
    cards = await bench.start()
    card = await seen(cards)
    bench.suffer(card0={"slow": 50})
    change = asyncio.ensure_future(recutter(bench, cards, deadline=120).apply(card, MEDIUM))

    await bench.clock.let_pass(119)
    assert len((await seen(cards)).slots) == 5
    assert not change.done()
    await bench.clock.let_pass(2)
    bench.suffer()
    await bench.clock.let_pass(60)

    outcome = await change
    assert isinstance(outcome, Failed)
    assert "it was not done within 120 s; its old layout is restored" in outcome.sentence
    assert await layout(bench) == "1g.10gb:7"


async def test_a_driver_that_never_answers_wedges_nobody(bench):
    cards = await bench.start()
    card = await seen(cards)
    bench.suffer(card0={"slow": 80_000})
    change = asyncio.ensure_future(recutter(bench, cards, deadline=120).apply(card, MEDIUM))

    await bench.clock.let_pass(241)

    outcome = await change
    assert isinstance(outcome, Failed)
    assert outcome.restored, "MIG mode was never turned on, so there is nothing to undo"


async def test_an_agent_that_is_told_to_stop_leaves_a_card_the_next_one_finishes(bench):
    await recut(bench, SMALL)
    cards = await bench.start()
    card = await seen(cards)
    bench.suffer(card0={"slow": 10})
    change = asyncio.ensure_future(recutter(bench, cards).apply(card, MEDIUM))
    await bench.clock.let_pass(35)
    change.cancel()
    await asyncio.gather(change, return_exceptions=True)
    assert len((await seen(await bench.start())).slots) == 4

    bench.suffer()
    assert await recut(bench, MEDIUM) == Applied()

    assert await layout(bench) == "2g.20gb:2,3g.30gb:1"


async def test_a_driver_that_says_yes_and_does_nothing_is_found_out(bench):
    class Deaf(Mortal):
        async def create(self, address, piece):
            return "MIG-imagined"

    cards = await bench.start()
    outcome = await recutter(bench, Deaf(cards, dies_at=0, after=False)).apply(await seen(cards), SMALL)

    assert isinstance(outcome, Failed)
    assert "the driver said yes to every step, yet the card is cut otherwise" in outcome.sentence
    assert outcome.restored


async def test_a_journal_of_another_board_is_not_believed(bench):
    await recut(bench, SMALL)
    bench.suffer(card0={"fail": [3, 4]})
    await recut(bench, MEDIUM)

    bench.suffer(card0={"replaced": 1})
    cards = await bench.start()
    left = await layout(bench)
    assert await recutter(bench, cards).recover(await seen(cards)) == Applied()

    assert await layout(bench) == left


async def test_a_journal_that_cannot_be_read_or_written_stops_nobody(bench, tmp_path):
    (tmp_path / "journal.json").write_text("}")
    assert await recut(bench, SMALL) == Applied()

    (tmp_path / "journal.json").unlink()
    (tmp_path / "journal.json").mkdir()
    cards = await bench.start()
    nowhere = FileJournal(tmp_path / "plain" / "journal.json")
    (tmp_path / "plain").write_text("a file where a directory should be")
    assert await Recutter(cards, bench.clock, journal=nowhere).apply(await seen(cards), MEDIUM) == Applied()


POSSIBLE = [
    laid(text)
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
    """However often it is killed, before or after whichever step, with steps that fail besides."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        await recut(bench, old)
        bench.suffer(card0={"fail": sorted(fails)} if fails else {})
        for dies_at, after in deaths:
            mortal = Mortal(await bench.start(), dies_at, after)
            try:
                await recutter(bench, mortal).apply(await seen(mortal), target)
            except KilledError:
                continue
        cards = await bench.start()
        last = recutter(bench, cards)
        outcome = await (last.recover if gives_up else lambda card: last.apply(card, target))(
            await seen(cards)
        )

        now = (await seen(cards)).layout
        if isinstance(outcome, Applied):
            assert now in ((old, target) if gives_up else (target,))
        elif outcome.restored:
            assert now in (old, target)
        else:
            assert last.unfinished() == {FIRST}
            bench.suffer()
            assert await last.recover(await seen(cards)) == Applied()
            assert (await seen(cards)).layout in (old, target)


async def test_errors_of_looking_are_outcomes_too(bench):
    cards = await bench.start()
    card = await seen(cards)
    bench.faults.write_text("driver: false")

    outcome = await recutter(bench, cards).apply(card, SMALL)

    assert isinstance(outcome, Failed)
    assert "no NVIDIA driver" in outcome.sentence
    with pytest.raises(CardError):
        await cards.look()
