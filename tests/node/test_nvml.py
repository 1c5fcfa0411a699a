"""Real cards through the real nvidia-ml-py, over a pretend driver in C: seen, cut, reported, survived."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from croupier.core.cards import catalogue, mig
from croupier.core.cards.mig import Piece
from croupier.kube.clock import SystemClock
from croupier.node.agent.recutting import Applied, Failed, Recutter
from croupier.node.cards.cards import CardError, Sighting
from croupier.node.cards.nvml import NvmlCards
from tests.core.layouts import laid
from tests.node.nvml_bench import CARDS, NvmlBench
from tests.node.simulation import FIRST, SECOND, Later, seen

IN_USE, DRIVER_NOT_LOADED = 19, 9
MEDIUM = laid("2g.20gb:2,3g.30gb:1")
SMALL = laid("1g.10gb:7")


@pytest.fixture
def bench(nvml_library, tmp_path, monkeypatch):
    bench = NvmlBench(nvml_library, tmp_path)
    bench.install("SIM-70GB", "SIM-70GB")
    monkeypatch.setenv(CARDS, str(bench.file))
    return bench


@asynccontextmanager
async def opened(
    bench: NvmlBench, patience: float = 60.0, clock: SystemClock | None = None
) -> AsyncIterator[NvmlCards]:
    """As a new process would find them."""
    cards = NvmlCards(
        clock=clock or SystemClock(), library=str(bench.library), host=bench.host, patience=patience
    )
    await cards.open()
    try:
        yield cards
    finally:
        await cards.close()


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
async def test_a_card_is_what_its_driver_tells(bench, model):
    bench.install(model.name)

    async with opened(bench) as cards:
        sighting = await cards.look()

    (card,) = sighting.cards
    assert (sighting.driver, sighting.cuda) == ("570.124.06", "12.8")
    assert (card.index, card.address, card.minor) == (0, FIRST, 0)
    assert (card.vendor, card.device, card.class_) == ("10de", model.pci_device, "0302")
    assert (card.product, card.memory_mib) == (model.product, model.memory_mib)
    assert card.compute == (model.compute_major, model.compute_minor)
    assert (card.numa, card.pcie) == (0, (5 if model.compute_major >= 9 else 4, 16))
    assert sorted(card.kinds, key=lambda kind: kind.name) == sorted(model.kinds, key=lambda kind: kind.name)
    assert (card.mig_capable, card.mig_enabled, card.slots) == (model.mig_capable, False, ())
    assert card.health.healthy
    assert card.health.metrics["powerWatts"] == "63"


async def test_a_profile_the_driver_does_not_name_is_named_the_way_it_would(bench):
    bench.install("A100-40GB", "H200")
    unnamed = (line.partition("MIG ")[0] if line.startswith("profile ") else line for line in bench.says())
    bench.file.write_text("\n".join(unnamed) + "\n")

    async with opened(bench) as cards:
        names = [{kind.name for kind in card.kinds} for card in (await cards.look()).cards]

    assert names[0] == {kind.name for kind in catalogue.find("A100-40GB").kinds}
    assert {"1g.18gb", "2g.35gb", "3g.71gb", "7g.141gb", "1g.18gb+me"} <= names[1]


async def test_a_profile_that_has_no_name_of_ours_is_left_out(bench):
    """Newer drivers know `1g.10gb-me`, which is the same as 1g.10gb to everybody who counts."""
    bench.add(0, "profile 13 99 1 7 14 1 0 0 0 0 10240 1 0,1,2,3,4,5,6 MIG 1g.10gb-me")
    async with opened(bench) as cards:
        odd, plain = (await cards.look()).cards

    assert odd.kinds == plain.kinds


async def test_a_card_is_cut_and_cut_anew_and_made_whole(bench):
    async with opened(bench) as cards:
        recutter = Recutter(cards, SystemClock())
        for target in (SMALL, MEDIUM, mig.WHOLE, MEDIUM):
            assert await recutter.apply(await seen(cards), target) == Applied()
            card = await seen(cards)
            assert card.layout == target
            assert card.mig_enabled == bool(target)
            assert len({slot.uuid for slot in card.slots}) == sum(number for _, number in target)
        assert (await seen(cards, SECOND)).slots == ()

    async with opened(bench) as again:
        assert (await seen(again)).slots == card.slots
    assert [slot.id for slot in card.slots] == ["2g.20gb-0", "2g.20gb-2", "3g.30gb-4"]


STEPS = [
    ("nvmlDeviceSetMigMode", mig.WHOLE, "could not turn MIG mode off"),
    ("nvmlComputeInstanceDestroy", SMALL, "could not destroy 2g.20gb-0"),
    ("nvmlGpuInstanceDestroy", SMALL, "could not destroy 2g.20gb-0"),
    ("nvmlDeviceCreateGpuInstanceWithPlacement", SMALL, "could not create 1g.10gb-0"),
    ("nvmlGpuInstanceCreateComputeInstance", SMALL, "could not create 1g.10gb-0"),
]


@pytest.mark.parametrize(("call", "target", "sentence"), STEPS, ids=[step[0] for step in STEPS])
async def test_a_driver_that_refuses_a_step_leaves_the_old_layout(bench, call, target, sentence):
    async with opened(bench) as cards:
        recutter = Recutter(cards, SystemClock())
        await recutter.apply(await seen(cards), MEDIUM)
        bench.fault(call, IN_USE)

        outcome = await recutter.apply(await seen(cards), target)

        assert isinstance(outcome, Failed)
        assert outcome.restored, outcome.sentence
        assert f"{sentence}: it is in use by another process; end that, or drain the card" in outcome.sentence
        assert (await seen(cards)).layout == MEDIUM


async def test_what_an_interrupted_step_left_behind_is_not_told_and_not_in_the_way(bench):
    """A GPU instance without a compute instance, as of an agent that was killed between the two."""
    bench.set(0, "mig", "1 1 1 0")
    bench.add(0, "gi 5 9 4 3")
    async with opened(bench) as cards:
        assert (await seen(cards)).slots == ()

        outcome = await Recutter(cards, SystemClock()).apply(await seen(cards), SMALL)

        assert outcome == Applied()
        assert (await seen(cards)).layout == SMALL
    assert "gi 5 9 4 3" not in bench.says()


async def test_what_an_interrupted_step_left_behind_does_not_keep_mig_mode_on(bench):
    bench.set(0, "mig", "1 1 1 0")
    bench.add(0, "gi 5 9 4 3")
    async with opened(bench) as cards:
        assert await Recutter(cards, SystemClock()).apply(await seen(cards), mig.WHOLE) == Applied()
        assert not (await seen(cards)).mig_enabled


async def test_an_instance_cut_further_by_hand_is_seen_as_such_and_can_be_removed(bench):
    bench.set(0, "mig", "1 1 1 0")
    bench.add(0, "gi 1 9 4 3")
    bench.add(0, "ci 1 0 0 1 MIG-hand-0")
    bench.add(0, "ci 1 1 0 1 MIG-hand-1")
    async with opened(bench) as cards:
        assert [slot.profile for slot in (await seen(cards)).slots] == ["1c.3g.30gb"]

        assert await Recutter(cards, SystemClock()).apply(await seen(cards), MEDIUM) == Applied()

        assert (await seen(cards)).layout == MEDIUM


async def test_a_card_that_must_be_reset_first_says_so(bench):
    bench.set(0, "mig", "1 0 0 1")
    async with opened(bench) as cards:
        with pytest.raises(CardError, match="GPU requires restart"):
            await cards.enable_mig(FIRST, True)


async def test_a_device_that_could_not_be_finished_is_taken_away_again(bench):
    bench.fault("nvmlGpuInstanceCreateComputeInstance", IN_USE)
    async with opened(bench) as cards:
        await cards.enable_mig(FIRST, True)
        with pytest.raises(CardError):
            await cards.create(FIRST, Piece("1g.10gb", 0, 1))

    assert not [line for line in bench.says() if line.startswith("gi ")]


async def test_what_is_not_there_is_told(bench):
    async with opened(bench) as cards:
        await cards.enable_mig(FIRST, True)
        with pytest.raises(CardError, match="no MIG device MIG-none"):
            await cards.destroy(FIRST, "MIG-none")
        with pytest.raises(CardError, match="no MIG profile"):
            await cards.create(FIRST, Piece("9g.90gb", 0, 1))
        with pytest.raises(CardError, match="the driver says: Not Found"):
            await cards.enable_mig("0000:77:00.0", True)


async def test_an_xid_wakes_who_waits_and_is_held_against_the_card_for_a_minute(bench):
    clock = Later()
    async with opened(bench, clock=clock) as cards:
        assert (await seen(cards, SECOND)).health.healthy
        bench.xid(1, 48)

        await asyncio.wait_for(cards.changed(600), timeout=60)

        sick = (await seen(cards, SECOND)).health
        assert (sick.healthy, sick.reason, sick.xid) == (False, "CriticalXID", 48)
        assert "an uncorrectable memory error" in sick.message
        assert (await seen(cards, FIRST)).health.healthy
        bench.xid(1, 45)
        await asyncio.wait_for(cards.changed(600), timeout=60)
        sick = (await seen(cards, SECOND)).health
        assert (sick.healthy, sick.xid) == (False, 48), "the clean-up after it makes nothing better"

        clock.ahead = 61
        after = (await seen(cards, SECOND)).health
        assert (after.healthy, after.xid) == (True, 48)


async def test_cards_are_watched_again_after_mig_mode_changed(bench):
    """The driver changes no mode of a card that somebody watches, so the adapter lets go meanwhile."""
    async with opened(bench) as cards:
        await cards.look()
        await cards.enable_mig(FIRST, True)
        await cards.look()
        bench.xid(0, 79)

        await asyncio.wait_for(cards.changed(600), timeout=60)

        assert (await seen(cards)).health.xid == 79


async def test_without_news_the_time_passes(bench):
    clock = Later()
    async with opened(bench, clock=clock) as cards:
        await cards.look()
        waiting = asyncio.ensure_future(cards.changed(600))
        await asyncio.sleep(0)
        clock.ahead = 601

        await asyncio.wait_for(waiting, timeout=60)


SICK = {
    "hot": ("temperature", "95 90", "Overheated"),
    "memory errors": ("ecc", "2 0", "ECCErrors"),
    "a row that cannot be replaced": ("ecc", "0 1", "RowRemapFailed"),
    "lost": ("lost", "1", "CardLost"),
}


@pytest.mark.parametrize(("key", "value", "reason"), SICK.values(), ids=SICK)
async def test_trouble_is_told_of_one_card_and_the_others_go_on(bench, key, value, reason):
    async with opened(bench) as cards:
        before = await seen(cards)
        bench.set(0, key, value)

        sighting = await cards.look()

        sick, well = sighting.cards
        assert (sick.uuid, sick.address, sick.health.reason) == (before.uuid, before.address, reason)
        assert well.health.healthy


async def test_a_card_that_answers_strangely_takes_no_other_with_it(bench):
    async with opened(bench) as cards:
        await cards.look()
        bench.fault("nvmlDeviceGetMigMode", 999)

        assert [card.health.healthy for card in (await cards.look()).cards] == [False, True]
        assert [card.health.healthy for card in (await cards.look()).cards] == [True, True]


async def test_a_card_that_never_answered_is_left_out(bench):
    bench.set(0, "lost", "1")
    async with opened(bench) as cards:
        (card,) = (await cards.look()).cards

    assert (card.index, card.address) == (1, SECOND)


async def test_a_driver_that_comes_later_and_goes_away_is_found_at_the_next_look(bench):
    text = bench.file.read_text()
    bench.file.unlink()
    async with opened(bench) as cards:
        with pytest.raises(CardError, match="the NVIDIA driver is not loaded; install or load it"):
            await cards.look()

        bench.file.write_text(text)
        assert len((await cards.look()).cards) == 2

        bench.fault("nvmlDeviceGetCount_v2", DRIVER_NOT_LOADED)
        with pytest.raises(CardError, match="not loaded"):
            await cards.look()
        assert len((await cards.look()).cards) == 2


async def test_a_call_that_hangs_is_told_and_wedges_nobody(bench):
    async with opened(bench, patience=0.5) as cards:
        await cards.look()
        bench.fault("nvmlDeviceGetMigMode", milliseconds=1_500)
        with pytest.raises(CardError, match="has not answered for"):
            await cards.look()

        async def answers() -> Sighting:
            while True:
                try:
                    return await cards.look()
                except CardError:
                    await asyncio.sleep(0.1)

        sighting = await asyncio.wait_for(answers(), timeout=60)
        assert len(sighting.cards) == 2


async def test_an_instance_the_driver_makes_and_does_not_show_is_an_error(bench):
    async with opened(bench) as cards:
        await cards.enable_mig(FIRST, True)
        bench.fault("nvmlDeviceGetMaxMigDeviceCount", 3, count=9)

        with pytest.raises(CardError, match="and does not show it"):
            await cards.create(FIRST, Piece("1g.10gb", 0, 1))


def test_a_library_that_is_not_there_is_told(nvml_library):
    """In a process of its own: a library is loaded once for good."""
    program = (
        "import asyncio\n"
        "from croupier.kube.clock import SystemClock\n"
        "from croupier.node.cards.cards import CardError\n"
        "from croupier.node.cards.nvml import NvmlCards\n"
        "for library in (None, '/no/such/library.so'):\n"
        "    try:\n"
        "        asyncio.run(NvmlCards(clock=SystemClock(), library=library).look())\n"
        "    except CardError as error:\n"
        "        print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    first, second = run.stdout.splitlines()
    assert first == "libnvidia-ml.so.1 is not found; install the NVIDIA driver, or say where it is"
    assert second.startswith("the NVIDIA driver's library cannot be loaded: /no/such/library.so")
