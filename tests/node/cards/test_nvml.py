"""Real cards through the real nvidia-ml-py and a fake driver in C: inspection, repartitioning, faults."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from croupier.core.cards import catalogue
from croupier.core.model import mig
from croupier.core.model.mig import MigPlacement
from croupier.kube.client.clock import SystemClock
from croupier.node.agent.repartitioning import Repartitioned, Repartitioner, RepartitionFailed
from croupier.node.cards.card_driver import CardError, DriverSnapshot
from croupier.node.cards.nvml import NvmlCards
from tests.core.mig_builders import layout
from tests.node.nvml_env import CARDS, NvmlEnv
from tests.node.simulated_env import FIRST, SECOND, OffsetClock, observed_card

IN_USE, DRIVER_NOT_LOADED = 19, 9
MEDIUM = layout("2g.20gb:2,3g.30gb:1")
SMALL = layout("1g.10gb:7")


@pytest.fixture
def env(nvml_library, tmp_path, monkeypatch):
    env = NvmlEnv(nvml_library, tmp_path)
    env.install("SIM-70GB", "SIM-70GB")
    monkeypatch.setenv(CARDS, str(env.file))
    return env


@asynccontextmanager
async def opened(
    env: NvmlEnv, call_timeout: float = 60.0, clock: SystemClock | None = None
) -> AsyncIterator[NvmlCards]:
    """The cards as a new process finds them."""
    cards = NvmlCards(
        clock=clock or SystemClock(), library=str(env.library), host=env.host, timeout=call_timeout
    )
    await cards.open()
    try:
        yield cards
    finally:
        await cards.close()


@pytest.mark.parametrize("model", catalogue.MODELS, ids=lambda model: model.name)
async def test_a_card_has_the_properties_that_its_driver_reports(env, model):
    env.install(model.name)

    async with opened(env) as cards:
        sighting = await cards.inspect()

    (card,) = sighting.cards
    assert (sighting.driver, sighting.cuda) == ("570.124.06", "12.8")
    assert (card.index, card.address, card.minor) == (0, FIRST, 0)
    assert (card.vendor, card.device, card.class_) == ("10de", model.pci_device, "0302")
    assert (card.product, card.memory_mib) == (model.product, model.memory_mib)
    assert (card.compute_major, card.compute_minor) == (model.compute_major, model.compute_minor)
    link = (card.pcie_generation, card.pcie_width)
    assert (card.numa_node, link) == (0, (5 if model.compute_major >= 9 else 4, 16))
    assert sorted(card.kinds, key=lambda kind: kind.name) == sorted(model.kinds, key=lambda kind: kind.name)
    assert (card.mig_capable, card.mig_enabled, card.slots) == (model.mig_capable, False, ())
    assert card.health.healthy
    assert card.health.metrics["powerWatts"] == "63"


async def test_a_profile_without_a_name_gets_the_name_by_the_drivers_rule(env):
    env.install("A100-40GB", "H200")
    unnamed = (line.partition("MIG ")[0] if line.startswith("profile ") else line for line in env.says())
    env.file.write_text("\n".join(unnamed) + "\n")

    async with opened(env) as cards:
        names = [{kind.name for kind in card.kinds} for card in (await cards.inspect()).cards]

    assert names[0] == {kind.name for kind in catalogue.find("A100-40GB").kinds}
    assert {"1g.18gb", "2g.35gb", "3g.71gb", "7g.141gb", "1g.18gb+me"} <= names[1]


async def test_an_unsupported_profile_is_left_out(env):
    """Newer drivers have `1g.10gb-me`, which has the same size as 1g.10gb."""
    env.add(0, "profile 13 99 1 7 14 1 0 0 0 0 10240 1 0,1,2,3,4,5,6 MIG 1g.10gb-me")
    async with opened(env) as cards:
        odd, plain = (await cards.inspect()).cards

    assert odd.kinds == plain.kinds


async def test_a_card_is_repartitioned_repeatedly_and_made_whole(env):
    async with opened(env) as cards:
        repartitioner = Repartitioner(cards, SystemClock())
        for target in (SMALL, MEDIUM, mig.WHOLE, MEDIUM):
            assert await repartitioner.apply(await observed_card(cards), target) == Repartitioned()
            card = await observed_card(cards)
            assert card.layout == target
            assert card.mig_enabled == bool(target)
            assert len({slot.uuid for slot in card.slots}) == sum(number for _, number in target)
        assert (await observed_card(cards, SECOND)).slots == ()

    async with opened(env) as again:
        assert (await observed_card(again)).slots == card.slots
    assert [slot.id for slot in card.slots] == ["2g.20gb-0", "2g.20gb-2", "3g.30gb-4"]


STEPS = [
    ("nvmlDeviceSetMigMode", mig.WHOLE, "could not turn MIG mode off"),
    ("nvmlComputeInstanceDestroy", SMALL, "could not destroy 2g.20gb-0"),
    ("nvmlGpuInstanceDestroy", SMALL, "could not destroy 2g.20gb-0"),
    ("nvmlDeviceCreateGpuInstanceWithPlacement", SMALL, "could not create 1g.10gb-0"),
    ("nvmlGpuInstanceCreateComputeInstance", SMALL, "could not create 1g.10gb-0"),
]


@pytest.mark.parametrize(("call", "target", "sentence"), STEPS, ids=[step[0] for step in STEPS])
async def test_the_old_layout_stays_if_the_driver_refuses_a_step(env, call, target, sentence):
    async with opened(env) as cards:
        repartitioner = Repartitioner(cards, SystemClock())
        await repartitioner.apply(await observed_card(cards), MEDIUM)
        env.fault(call, IN_USE)

        outcome = await repartitioner.apply(await observed_card(cards), target)

        assert isinstance(outcome, RepartitionFailed)
        assert outcome.restored, outcome.sentence
        assert f"{sentence}: the card is in use by another process; stop the process" in outcome.sentence
        assert (await observed_card(cards)).layout == MEDIUM


async def test_the_remainder_of_an_interrupted_step_is_not_reported_and_does_not_block(env):
    """A GPU instance without a compute instance remains if the agent is killed between the two calls."""
    env.set(0, "mig", "1 1 1 0")
    env.add(0, "gi 5 9 4 3")
    async with opened(env) as cards:
        assert (await observed_card(cards)).slots == ()

        outcome = await Repartitioner(cards, SystemClock()).apply(await observed_card(cards), SMALL)

        assert outcome == Repartitioned()
        assert (await observed_card(cards)).layout == SMALL
    assert "gi 5 9 4 3" not in env.says()


async def test_the_remainder_of_an_interrupted_step_does_not_keep_mig_mode_enabled(env):
    env.set(0, "mig", "1 1 1 0")
    env.add(0, "gi 5 9 4 3")
    async with opened(env) as cards:
        assert (
            await Repartitioner(cards, SystemClock()).apply(await observed_card(cards), mig.WHOLE)
            == Repartitioned()
        )
        assert not (await observed_card(cards)).mig_enabled


async def test_an_instance_partitioned_further_by_hand_is_recognized_and_can_be_removed(env):
    env.set(0, "mig", "1 1 1 0")
    env.add(0, "gi 1 9 4 3")
    env.add(0, "ci 1 0 0 1 MIG-hand-0")
    env.add(0, "ci 1 1 0 1 MIG-hand-1")
    async with opened(env) as cards:
        assert [slot.profile for slot in (await observed_card(cards)).slots] == ["1c.3g.30gb"]

        assert (
            await Repartitioner(cards, SystemClock()).apply(await observed_card(cards), MEDIUM)
            == Repartitioned()
        )

        assert (await observed_card(cards)).layout == MEDIUM


async def test_a_card_that_needs_a_reset_is_reported(env):
    env.set(0, "mig", "1 0 0 1")
    async with opened(env) as cards:
        with pytest.raises(CardError, match="GPU requires restart"):
            await cards.enable_mig(FIRST, True)


async def test_an_incomplete_mig_device_is_removed(env):
    env.fault("nvmlGpuInstanceCreateComputeInstance", IN_USE)
    async with opened(env) as cards:
        await cards.enable_mig(FIRST, True)
        with pytest.raises(CardError):
            await cards.create(FIRST, MigPlacement("1g.10gb", 0, 1))

    assert not [line for line in env.says() if line.startswith("gi ")]


async def test_a_missing_device_profile_or_card_is_an_error(env):
    async with opened(env) as cards:
        await cards.enable_mig(FIRST, True)
        with pytest.raises(CardError, match="no MIG device MIG-none"):
            await cards.destroy(FIRST, "MIG-none")
        with pytest.raises(CardError, match="no MIG profile"):
            await cards.create(FIRST, MigPlacement("9g.90gb", 0, 1))
        with pytest.raises(CardError, match="the driver reports: Not Found"):
            await cards.enable_mig("0000:77:00.0", True)


async def test_an_xid_ends_the_wait_and_counts_as_a_fault_for_a_minute(env):
    clock = OffsetClock()
    async with opened(env, clock=clock) as cards:
        assert (await observed_card(cards, SECOND)).health.healthy
        env.xid(1, 48)

        await asyncio.wait_for(cards.changed(600), timeout=60)

        health = (await observed_card(cards, SECOND)).health
        assert (health.healthy, health.reason, health.xid) == (False, "CriticalXID", 48)
        assert "an uncorrectable memory error" in health.message
        assert (await observed_card(cards, FIRST)).health.healthy
        env.xid(1, 45)
        await asyncio.wait_for(cards.changed(600), timeout=60)
        health = (await observed_card(cards, SECOND)).health
        assert (health.healthy, health.xid) == (False, 48), "the XID of the cleanup does not replace it"

        clock.ahead = 61
        after = (await observed_card(cards, SECOND)).health
        assert (after.healthy, after.xid) == (True, 48)


async def test_cards_are_watched_again_after_mig_mode_changed(env):
    """The driver cannot change the MIG mode of a watched card, so watching stops during the change."""
    async with opened(env) as cards:
        await cards.inspect()
        await cards.enable_mig(FIRST, True)
        await cards.inspect()
        env.xid(0, 79)

        await asyncio.wait_for(cards.changed(600), timeout=60)

        assert (await observed_card(cards)).health.xid == 79


async def test_the_wait_ends_after_its_time_without_an_event(env):
    clock = OffsetClock()
    async with opened(env, clock=clock) as cards:
        await cards.inspect()
        waiting = asyncio.ensure_future(cards.changed(600))
        await asyncio.sleep(0)
        assert not waiting.done()
        clock.ahead = 601

        await asyncio.wait_for(waiting, timeout=60)


FAULTS = {
    "hot": ("temperature", "95 90", "Overheated"),
    "memory errors": ("ecc", "2 0", "ECCErrors"),
    "a row that cannot be replaced": ("ecc", "0 1", "RowRemapFailed"),
    "lost": ("lost", "1", "CardLost"),
}


@pytest.mark.parametrize(("key", "value", "reason"), FAULTS.values(), ids=FAULTS)
async def test_a_fault_is_reported_of_one_card_only(env, key, value, reason):
    async with opened(env) as cards:
        before = await observed_card(cards)
        env.set(0, key, value)

        sighting = await cards.inspect()

        faulty, healthy = sighting.cards
        assert (faulty.uuid, faulty.address, faulty.health.reason) == (before.uuid, before.address, reason)
        assert healthy.health.healthy


async def test_an_unexpected_error_of_one_card_does_not_affect_the_others(env):
    async with opened(env) as cards:
        await cards.inspect()
        env.fault("nvmlDeviceGetMigMode", 999)

        assert [card.health.healthy for card in (await cards.inspect()).cards] == [False, True]
        assert [card.health.healthy for card in (await cards.inspect()).cards] == [True, True]


async def test_a_card_that_never_answered_is_left_out(env):
    env.set(0, "lost", "1")
    async with opened(env) as cards:
        (card,) = (await cards.inspect()).cards

    assert (card.index, card.address) == (1, SECOND)


async def test_a_driver_that_is_installed_or_restarted_later_is_used_at_the_next_inspection(env):
    text = env.file.read_text()
    env.file.unlink()
    async with opened(env) as cards:
        with pytest.raises(CardError, match="the NVIDIA driver is not loaded; install or load it"):
            await cards.inspect()

        env.file.write_text(text)
        assert len((await cards.inspect()).cards) == 2

        env.fault("nvmlDeviceGetCount_v2", DRIVER_NOT_LOADED)
        with pytest.raises(CardError, match="not loaded"):
            await cards.inspect()
        assert len((await cards.inspect()).cards) == 2


async def test_a_hanging_call_is_reported_and_later_calls_succeed(env):
    async with opened(env, call_timeout=0.5) as cards:
        await cards.inspect()
        env.fault("nvmlDeviceGetMigMode", milliseconds=1_500)
        with pytest.raises(CardError, match="has not answered for"):
            await cards.inspect()

        async def answers() -> DriverSnapshot:
            while True:
                try:
                    return await cards.inspect()
                except CardError:
                    await asyncio.sleep(0.1)

        sighting = await asyncio.wait_for(answers(), timeout=60)
        assert len(sighting.cards) == 2


async def test_a_created_instance_that_the_driver_does_not_list_is_an_error(env):
    async with opened(env) as cards:
        await cards.enable_mig(FIRST, True)
        env.fault("nvmlDeviceGetMaxMigDeviceCount", 3, count=9)

        with pytest.raises(CardError, match="but does not list it"):
            await cards.create(FIRST, MigPlacement("1g.10gb", 0, 1))


def test_a_missing_library_is_reported(nvml_library):
    """It needs its own process, because a library cannot be unloaded."""
    program = (
        "import asyncio\n"
        "from croupier.kube.client.clock import SystemClock\n"
        "from croupier.node.cards.card_driver import CardError\n"
        "from croupier.node.cards.nvml import NvmlCards\n"
        "for library in (None, '/no/such/library.so'):\n"
        "    try:\n"
        "        asyncio.run(NvmlCards(clock=SystemClock(), library=library).inspect())\n"
        "    except CardError as error:\n"
        "        print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    first, second = run.stdout.splitlines()
    assert first == "libnvidia-ml.so.1 was not found; install the NVIDIA driver, or give its path with --nvml"
    assert second.startswith("cannot load the library of the NVIDIA driver: /no/such/library.so")


UID = "0b1c2d3e-aaaa-bbbb-cccc-0123456789ab"


async def test_processes_are_told_by_the_pod_of_their_cgroup(env):
    env.run(0, 11, f"/kubepods/burstable/pod{UID}/4f5c")
    env.run(0, 12, "/system.slice/some.service", name="python", kind="G")
    env.run(1, 13, f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-4f5c.scope", kind="M")
    env.run(1, 14, "/ended")
    (env.host / "proc/14/cgroup").unlink()

    async with opened(env) as cards:
        await cards.inspect()
        assert await cards.users() == {FIRST: {UID, "python"}, SECOND: {UID}}

        env.end(11)
        env.set(1, "lost", "1")
        assert await cards.users() == {FIRST: {"python"}}, "a lost card says nothing"


async def test_processes_on_mig_devices_are_found(env):
    async with opened(env) as cards:
        await cards.enable_mig(FIRST, True)
        await cards.create(FIRST, MigPlacement("2g.20gb", 0, 2))
        await cards.inspect()
        (instance,) = [line.split()[1] for line in env.says() if line.startswith("gi ")]
        env.run(0, 11, f"/kubepods/pod{UID}/4f5c", kind=f"C {instance}")

        assert await cards.users() == {FIRST: {UID}, SECOND: frozenset()}


async def test_a_driver_that_cannot_list_processes_says_nothing(env):
    not_supported = 3
    for kind in ("Compute", "Graphics", "MPSCompute"):
        env.fault(f"nvmlDeviceGet{kind}RunningProcesses_v3", not_supported, count=1000)

    async with opened(env) as cards:
        await cards.inspect()
        assert await cards.users() == {}
