"""What device plugins do where no kubelet is, or no socket can be made: they say so, and try again."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

from croupier.core.nodes import devices
from croupier.core.nodes.handed import Holding
from croupier.node.cards.cards import Edits
from croupier.node.kubelet.plugin import Plugins, Settings
from croupier.node.kubelet.plugin_desk import Desk, Equipment
from tests.core.served import GPU, NODE, PERCENT, whole
from tests.kube.waiting import until


class Nobody:
    """A kubelet that knows no devices."""

    async def registered(self) -> dict[str, tuple[str, ...]]:
        return {}

    async def holdings(self) -> tuple[Holding, ...]:
        return ()


@contextlib.asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Plugins]:
    desk = Desk(Nobody(), Equipment(list, lambda _: Edits()))
    plugins = Plugins(Settings(NODE, directory), desk, Nobody())
    stop = asyncio.Event()
    task = asyncio.ensure_future(plugins.run(stop))
    try:
        yield plugins
    finally:
        stop.set()
        await task


def listening(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


async def test_without_a_kubelet_nothing_is_bound_and_it_is_said(tmp_path):
    async with running(tmp_path) as plugins:
        await plugins.serve(devices.offer([whole()]))

        await until(lambda: plugins.standing.troubles, "the trouble")

        assert plugins.standing.troubles == (
            f"no kubelet listens at {tmp_path / 'kubelet.sock'}: nothing is served",
        )
        assert plugins.standing.serves == frozenset()
        assert not list(tmp_path.iterdir())


async def test_a_socket_that_cannot_be_made_is_named(tmp_path):
    deep = tmp_path / ("x" * 80)
    deep.mkdir()
    (deep / "kubelet.sock").touch()
    async with running(deep) as plugins:
        await plugins.serve(devices.offer([whole()]))

        await until(lambda: plugins.standing.troubles, "the trouble")

        assert "the path of a socket may have 107 bytes" in plugins.standing.troubles[0]


async def test_a_kubelet_that_is_dead_is_tried_again_and_named(tmp_path):
    """Its socket is still there, as after a crash."""
    listening(tmp_path / "kubelet.sock").close()
    async with running(tmp_path) as plugins:
        await plugins.serve(devices.offer([whole()]))

        await until(lambda: len(plugins.standing.troubles) == 2, "the troubles", 60.0)

        assert [trouble.split(":")[0] for trouble in sorted(plugins.standing.troubles)] == [
            f"the kubelet does not take {PERCENT}",
            f"the kubelet does not take {GPU}",
        ]
        assert len(list(tmp_path.glob("croupier-*"))) == 2, "bound, and none left behind by the tries"
    assert not list(tmp_path.glob("croupier-*"))


async def test_what_a_killed_process_left_is_removed_and_what_lives_is_not(tmp_path):
    listening(tmp_path / "croupier-dead.sock").close()
    with listening(tmp_path / "croupier-alive.sock"), listening(tmp_path / "nvidia-gpu.sock"):
        async with running(tmp_path):
            await until(lambda: not (tmp_path / "croupier-dead.sock").exists(), "the dead one to go")

    assert {path.name for path in tmp_path.iterdir()} == {"croupier-alive.sock", "nvidia-gpu.sock"}
