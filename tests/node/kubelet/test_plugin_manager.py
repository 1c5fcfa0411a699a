"""Device plugins without a kubelet or with an invalid socket report the problem and try again."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from croupier.core.nodes import plugin_devices
from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from croupier.node.cards.card_driver import ContainerEdits
from croupier.node.kubelet.allocator import Allocator, AllocatorInputs
from croupier.node.kubelet.plugin_manager import PluginManager, PluginOptions
from tests.core.kubelet_env import GPU, NODE, PERCENT, whole
from tests.polling import until


class EmptyKubelet:
    """A kubelet without devices."""

    async def registered(self) -> dict[str, tuple[str, ...]]:
        return {}

    async def holdings(self) -> tuple[KubeletAssignment, ...]:
        return ()


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[PluginManager]:
    allocator = Allocator(EmptyKubelet(), AllocatorInputs(list, lambda _: ContainerEdits()))
    plugins = PluginManager(PluginOptions(NODE, directory), allocator, EmptyKubelet())
    stop = asyncio.Event()
    task = asyncio.ensure_future(plugins.run(stop))
    try:
        yield plugins
    finally:
        stop.set()
        await task


def listening(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


async def test_without_a_kubelet_no_socket_is_bound_and_the_problem_is_reported(tmp_path):
    async with running(tmp_path) as plugins:
        await plugins.serve(plugin_devices.served_resources([whole()]))

        await until(lambda: plugins.status.troubles, "the trouble")

        assert plugins.status.troubles == (
            f"no kubelet listens at {tmp_path / 'kubelet.sock'}; no devices are offered to pods",
        )
        assert plugins.status.serves == frozenset()
        assert not list(tmp_path.iterdir())


async def test_a_socket_that_cannot_be_created_is_reported(tmp_path):
    deep = tmp_path / ("x" * 80)
    deep.mkdir()
    (deep / "kubelet.sock").touch()
    async with running(deep) as plugins:
        await plugins.serve(plugin_devices.served_resources([whole()]))

        await until(lambda: plugins.status.troubles, "the trouble")

        assert "is longer than 107 bytes" in plugins.status.troubles[0]


async def test_registration_with_a_dead_kubelet_is_retried_and_reported(tmp_path):
    """The kubelet's socket still exists, like after a crash."""
    listening(tmp_path / "kubelet.sock").close()
    async with running(tmp_path) as plugins:
        await plugins.serve(plugin_devices.served_resources([whole()]))

        await until(lambda: len(plugins.status.troubles) == 2, "the troubles", 60.0)

        assert [trouble.split(":")[0] for trouble in sorted(plugins.status.troubles)] == [
            f"the kubelet refused to register the device plugin of {PERCENT}",
            f"the kubelet refused to register the device plugin of {GPU}",
        ]
        assert len(list(tmp_path.glob("croupier-*"))) == 2, "the retries leave no sockets behind"
    assert not list(tmp_path.glob("croupier-*"))


async def test_sockets_of_a_killed_process_are_removed_and_live_sockets_are_kept(tmp_path):
    listening(tmp_path / "croupier-dead.sock").close()
    with listening(tmp_path / "croupier-alive.sock"), listening(tmp_path / "nvidia-gpu.sock"):
        async with running(tmp_path):
            await until(
                lambda: not (tmp_path / "croupier-dead.sock").exists(), "the removal of the dead socket"
            )

    assert {path.name for path in tmp_path.iterdir()} == {"croupier-alive.sock", "nvidia-gpu.sock"}
