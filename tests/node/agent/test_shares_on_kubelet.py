"""Shares of cards on a real kubelet: a container is a client of its card's MPS daemon, with its limit."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from croupier.node.mps.mps_folder import MpsFolder
from tests.node import nvml_env
from tests.node.agent.test_node_on_kubelet import (  # noqa: F401  # fixtures of the same node
    GPU,
    PERCENT,
    POOL,
    AgentProcessEnv,
    env,
    ours,
)
from tests.node.mps import mps_env
from tests.node.mps.mps_env import PROGRAM, Supervisor
from tests.node.nvml_env import NvmlEnv
from tests.node.plugin_env import TIMEOUT, pod
from tests.polling import until_async

SECONDS = 60

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or nvml_env.compiler() is None,
    reason="needs root, for the /dev/shm of a daemon, and a C compiler, for the stand-in of a CUDA program",
)


@pytest.fixture
def driver(env: AgentProcessEnv, nvml_library: Path, tmp_path: Path) -> NvmlEnv:  # noqa: F811  # the fixture
    made = NvmlEnv(nvml_library, tmp_path)
    made.install("H100", "H100")
    env.driver = made
    return made


def client_pod(name: str, program: Path, asks: dict[str, int], **more: Any) -> dict[str, Any]:
    """A pod whose program connects to the MPS daemon of its environment, as user 1000."""
    made = pod(name, asks, **more)
    made["spec"]["volumes"] = [{"name": "program", "hostPath": {"path": str(program)}}]
    container = made["spec"]["containers"][0]
    container["command"] = ["sh", "-c", "env; exec /program"]
    container["volumeMounts"] = [{"name": "program", "mountPath": "/program"}]
    container["securityContext"] = {"runAsUser": 1000}
    return made


async def told(env: AgentProcessEnv, name: str) -> str:  # noqa: F811  # the type of the fixture
    """The limit that the daemon told the program of the pod."""

    async def said() -> str:
        return (await env.kubelet.environment(name)).get("LIMIT", "")

    return str(json.loads(await until_async(said, f"{name} to be told its limit", TIMEOUT))["text"])


async def enforced(env: AgentProcessEnv, index: int, says: str) -> None:  # noqa: F811  # the type of the fixture
    async def right() -> bool:
        state = (await env.report()).cards[index].enforcement
        return (
            state is not None
            and says in f"{state.by} {'ready' if state.ready else 'not ready'} {state.message}"
        )

    await until_async(right, f"card {index} to say {says}", TIMEOUT)


async def test_a_container_connects_to_its_daemon_and_is_told_the_limit_of_the_ledger(env, driver):  # noqa: F811  # fixtures
    with mps_env.short_folder() as folder:
        program = mps_env.client(folder)
        program.chmod(0o755)
        folder.chmod(0o755)
        supervisor = Supervisor(folder / "mps")
        env.more = {"mps": supervisor.folder, "mps-control": PROGRAM}
        await env.starts()
        await env.kubelet.shows({GPU: 2, PERCENT: 0})
        await enforced(env, 0, "MPSClient not ready no process `croupier mps`")
        try:
            await supervisor.starts()
            await env.kubelet.shows({GPU: 2, PERCENT: 200})
            await _share_without_a_pool(env, driver, program)
            await _share_of_a_pool(env, driver, program)
        finally:
            await env.ends()
            await supervisor.dies()
            mps_env.ends_processes(supervisor.folder)


async def _share_without_a_pool(env: AgentProcessEnv, driver: NvmlEnv, program: Path) -> None:  # noqa: F811  # its type
    """The daemon starts with the first share and ends after the last."""
    granted = [{"card": env.card(0), "index": 0, "percent": 30}]
    await env.kubelet.opens(client_pod("third", program, {PERCENT: 30}, promised=granted))
    await env.kubelet.runs("third")
    assert await told(env, "third") == f"percent 30 memory 0={81559 * 30 // 100}M"
    assert (await env.kubelet.environment("third"))["USER_ID"] == "1000"
    assert driver.value(0, "mode") == "3"

    await env.dies()
    assert env.kubelet.phase("third") == "Running"
    await env.starts()
    await enforced(env, 0, "MPSClient ready the MPS daemon of the card limits")
    assert driver.value(0, "mode") == "3"

    await env.gone("third")
    await until_async(lambda: _is_default(driver, 0), "the compute mode to be restored", TIMEOUT)


async def _share_of_a_pool(env: AgentProcessEnv, driver: NvmlEnv, program: Path) -> None:  # noqa: F811  # its type
    """The daemon is there before the shares, and a killed one withholds them."""
    await env.pool([1], mode="MPS")
    await env.kubelet.shows({POOL: 100, GPU: 1})
    granted = [{"card": env.card(1), "index": 1, "percent": 50}]
    await env.kubelet.opens(client_pod("half", program, {POOL: 50}, promised=granted))
    await env.kubelet.runs("half")
    assert (await told(env, "half")).startswith("percent 50 ")

    record = MpsFolder(env.more["mps"]).cards()[0].record()
    assert record is not None
    os.kill(record.pid, signal.SIGKILL)
    await enforced(env, 1, "MPSClient not ready its MPS daemon ended; it is started again after")
    await env.kubelet.shows({POOL: 0})
    assert env.kubelet.phase("half") == "Running"

    await env.gone("half")
    await env.kubelet.shows({POOL: 100})

    await env.pool([1], mode="Exclusive")
    await env.kubelet.shows({POOL: 1})
    assert await _is_default(driver, 1)


async def _is_default(driver: NvmlEnv, card: int) -> bool:
    return driver.value(card, "mode") == "0"


async def test_a_container_of_a_hami_core_pool_gets_the_operators_library(env, driver):  # noqa: F811  # fixtures
    folder = env.folder / "hami"
    env.more = {"hami-core": folder, "host": "/", "mps": env.folder / "mps"}
    await env.starts()
    await env.kubelet.shows({GPU: 2})
    await env.pool([0], mode="MPS", enforcement="HAMiCore")
    await enforced(env, 0, f"HAMiCore not ready {folder} on the node has no libvgpu.so and no ld.so.preload")

    folder.mkdir()
    (folder / "libvgpu.so").write_text("a stand-in")
    (folder / "ld.so.preload").write_text("")
    await env.kubelet.shows({POOL: 100})
    asks = pod("half", {POOL: 50})
    asks["spec"]["containers"][0]["command"] = [
        "sh",
        "-c",
        "echo LIBRARY=$(cat /usr/local/vgpu/libvgpu.so);"
        " test -f /etc/ld.so.preload && echo PRELOAD=yes; env; sleep 3600",
    ]
    await env.kubelet.opens(asks)
    await env.kubelet.runs("half")

    environment = await env.kubelet.environment("half")
    assert (environment["LIBRARY"], environment["PRELOAD"]) == ("a stand-in", "yes")
    assert environment["CUDA_DEVICE_SM_LIMIT"] == "50"
    assert environment["CUDA_DEVICE_MEMORY_LIMIT_0"] == f"{81559 // 2}m"
    assert driver.value(0, "mode") == "0"
    await env.gone("half")
