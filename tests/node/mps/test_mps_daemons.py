"""The MPS daemon of a card: kept, adopted, restarted and ended, whatever is killed in between."""

import asyncio
import json
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from croupier.core.nodes.mps_daemon import STEP_TIMEOUT, DaemonRecord, DaemonRequest, Off, Ready, Withhold
from croupier.node.mps import mps_supervisor
from croupier.node.mps.mps_control import MpsControl, MpsError
from croupier.node.mps.mps_folder import MpsFolder
from tests.cli.command import CROUPIER
from tests.node import nvml_env
from tests.node.mps import mps_env as setting
from tests.node.mps.mps_env import EXCLUSIVE, PROGRAM, UUID, Killed, MpsEnv, said
from tests.polling import until

SECONDS = 50

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="not root: a daemon needs its own /dev/shm, which only root can mount"
)
POD = "team/half"


@pytest_asyncio.fixture
async def env() -> AsyncIterator[MpsEnv]:
    with setting.short_folder() as folder:
        async with setting.mps_env(folder) as made:
            yield made


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if nvml_env.compiler() is None:
        pytest.skip("no C compiler (cc) on this machine: the stand-in of a CUDA program cannot be built")
    return setting.client(tmp_path_factory.mktemp("client"))


async def test_a_card_of_an_mps_pool_gets_a_daemon_and_gives_it_back(env):
    env.observe()
    await env.is_ready()

    started = json.loads((env.card.log / "started").read_text())
    assert started == {"arguments": ["-f", "-multiuser-server"], "cards": UUID}
    assert env.modes.mode == "ExclusiveProcess"
    for directory in (env.card.pipe, env.card.log, env.card.shm):
        assert stat.S_IMODE(directory.stat().st_mode) == 0o1777, "clients that are not root can use it"

    pid = env.pid()
    env.observe(EXCLUSIVE)
    await env.becomes(Off)

    assert mps_supervisor.start_time(pid) is None
    assert env.modes.mode == "Default"
    assert not env.card.path.exists()
    assert env.steps == ["Prepare", "SetExclusive", "Start", "Quit", "SetDefault", "Forget"]


async def test_the_mode_is_left_only_after_the_pods_with_shares_have_ended(env):
    env.observe(**{POD: 50})
    await env.is_ready()
    pid = env.pid()

    env.observe(EXCLUSIVE, **{POD: 50})
    await env.becomes(Withhold, "its MPS daemon ends after team/half has ended")
    assert mps_supervisor.start_time(pid) is not None
    assert env.modes.mode == "ExclusiveProcess"

    env.observe(EXCLUSIVE)
    await env.becomes(Off)


async def test_a_killed_daemon_withholds_its_card_until_its_clients_are_gone(env, program):
    env.observe(**{POD: 50})
    await env.is_ready()
    busy = env.connects(program)
    assert said(busy)

    killed = env.pid()
    env.kills_daemon()
    await env.becomes(Withhold, "its MPS daemon ended; it is started again after team/half has ended")
    assert env.pid() == killed

    setting.ends(busy)
    env.observe()
    await env.is_ready()
    assert env.pid() != killed
    record = env.card.record()
    assert record is not None
    assert record.servers == 0, "the server of the killed daemon was ended"


async def test_a_killed_daemon_without_clients_is_started_again_after_a_delay(env):
    env.observe(**{POD: 50})
    await env.is_ready()
    env.kills_daemon()
    await env.becomes(Withhold, "its MPS daemon ended: it was ended by signal 9")

    env.clock.ahead += 60
    await env.is_ready()


async def test_a_daemon_that_hangs_is_replaced_after_its_pods(env):
    env.observe(**{POD: 50})
    await env.is_ready()
    hung = env.pid()
    env.daemons._control._timeout = 1.0
    env.order("hang")
    env.clock.ahead += STEP_TIMEOUT
    await env.becomes(Withhold, "its MPS daemon does not answer; it is started again after team/half")
    assert mps_supervisor.start_time(hung) is not None, "it is not ended while a pod uses it"

    env.observe()
    await until_step(env, "Kill")
    env.order()
    env.daemons._control._timeout = 5.0
    await env.is_ready()
    assert env.pid() != hung


async def until_step(env: MpsEnv, action: str) -> None:
    for _ in range(200):
        await env.becomes(Withhold)
        if action in env.steps:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"no step {action}: {env.steps}")


async def test_a_daemon_that_refuses_to_start_withholds_the_card_with_its_words(env):
    env.order("exit")
    env.observe()
    await env.becomes(Withhold, "its MPS daemon ended: MPS is not supported on this device")

    env.order()
    env.clock.ahead += 60
    await env.is_ready()


async def test_a_daemon_that_refuses_its_limits_withholds_the_card(env):
    env.observe()
    await env.is_ready()
    env.order("refuse")
    env.observe(**{POD: 50})
    await env.becomes(Withhold, "its MPS daemon did not take its limits")

    env.order()
    await env.is_ready()


@pytest.mark.parametrize("step", range(3))
async def test_an_agent_killed_between_two_steps_of_starting_is_continued(env, step):
    env.killed_after = step
    env.observe()
    with pytest.raises(Killed):
        await env.becomes(Ready)

    env.killed_after = None
    env.restarts_agent()
    env.observe()
    await env.is_ready()

    assert (env.steps, env.modes.mode) == (["Prepare", "SetExclusive", "Start"], "ExclusiveProcess")


@pytest.mark.parametrize("step", range(3))
async def test_an_agent_killed_between_two_steps_of_ending_is_continued(env, step):
    env.observe()
    await env.is_ready()
    pid, before = env.pid(), len(env.steps)
    env.clock.ahead += 2
    env.killed_after = before + step
    env.observe(EXCLUSIVE)
    with pytest.raises(Killed):
        await env.becomes(Off)

    env.killed_after = None
    env.restarts_agent()
    env.observe(EXCLUSIVE)
    await env.becomes(Off)

    assert (env.modes.mode, env.card.path.exists()) == ("Default", False)
    assert mps_supervisor.start_time(pid) is None


async def test_a_running_daemon_is_adopted_by_a_new_agent_and_by_a_new_supervisor(env):
    env.observe(**{POD: 50})
    await env.is_ready()
    pid, steps = env.pid(), list(env.steps)

    env.restarts_agent()
    env.observe(**{POD: 50})
    await env.is_ready()
    await env.supervisor.dies()
    await env.is_ready()
    await env.supervisor.starts()
    await env.is_ready()

    assert (env.pid(), env.steps) == (pid, steps)
    env.kills_daemon()
    await env.becomes(Withhold, "its MPS daemon ended")


async def test_a_process_with_the_recorded_id_and_another_start_time_is_a_stranger(env):
    stranger = await asyncio.create_subprocess_exec("sleep", "600")
    try:
        env.card.prepare()
        env.card.write_request(DaemonRequest(3, run=True))
        env.card.write_record(DaemonRecord(3, stranger.pid, alive=True), started=1)
        env.modes.mode = "ExclusiveProcess"
        await until(lambda: not (env.card.record() or DaemonRecord(0)).alive, "the record to be corrected")

        env.observe()
        env.clock.ahead += 60
        await env.becomes(Withhold, "its MPS daemon ended")
        env.clock.ahead += 60
        await env.is_ready()
        env.observe(EXCLUSIVE)
        await env.becomes(Off)
        assert stranger.returncode is None
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_card_in_another_compute_mode_gets_no_daemon(env):
    env.modes.mode = "Prohibited"
    env.observe()

    await env.becomes(Withhold, "the card is in compute mode Prohibited")
    assert env.steps == []


async def test_without_a_supervisor_the_card_says_so(env):
    await env.supervisor.dies()
    env.observe()

    await env.becomes(Withhold, "no process `croupier mps` runs on the node")


async def test_clients_without_variables_are_limited_by_the_largest_share(env, program):
    env.observe(**{POD: 30, "team/quarter": 25})
    await env.is_ready()
    own = env.connects(program, CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="25")
    stripped = env.connects(program)

    assert (said(own), said(stripped)) == ("percent 25 memory 0=24000M", "percent 30 memory 0=24000M")

    env.observe(**{POD: 60, "team/quarter": 25})
    await env.is_ready()
    server = next(line.split()[1] for line in env.told() if line.startswith("set_active_thread_percentage"))
    assert f"set_active_thread_percentage {server} 60" in env.told()
    assert f"set_device_pinned_mem_limit {server} 0 48000M" in env.told()
    setting.ends(own, stripped)


async def test_static_partitions_are_enforced_by_the_daemon(env, program):
    env.observe(static=True)
    daemon = await env.is_ready()
    assert daemon.is_static
    partitions, half = env.daemons.partitions, [f"p{n:02}" for n in range(50)]
    name = await partitions.take(env.card, "uid-1", half)
    assert await partitions.take(env.card, "uid-1", half[:10]) == name, "an init container's devices"

    inside = env.connects(program, CUDA_MPS_SM_PARTITION=name, CUDA_MPS_PINNED_DEVICE_MEM_LIMIT="0=1M")
    outside = env.connects(program)
    assert said(inside) == "chunks 8 memory 0=1M"
    assert "INVALID_RESOURCE_CONFIGURATION" in said(outside)

    with pytest.raises(MpsError, match="created no partition of 9 chunks"):
        await partitions.take(env.card, "uid-2", [f"p{n}" for n in range(40, 100)])
    await partitions.release(env.card, {"uid-2"})
    assert await partitions.take(env.card, "uid-2", [f"p{n}" for n in range(40, 100)])
    setting.ends(inside, outside)


async def test_a_second_supervisor_of_a_folder_is_refused(env):
    second = setting.Supervisor(env.folder.path)
    words = ["mps", f"--folder={env.folder.path}", f"--control={PROGRAM}"]
    process = await asyncio.create_subprocess_exec(*CROUPIER, *words, stderr=asyncio.subprocess.PIPE)
    _, errors = await process.communicate()

    assert process.returncode == 1
    assert f"another `croupier mps` already uses {second.folder}" in errors.decode()


async def test_a_missing_control_program_is_named(tmp_path):
    card = MpsFolder(tmp_path).card(UUID)
    with pytest.raises(MpsError, match="cannot run no-such-program: No such file"):
        await MpsControl("no-such-program").send(card, "quit")
