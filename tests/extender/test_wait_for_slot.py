"""Filter waits while too many binds are running, for a limited time."""

import asyncio

import pytest

from croupier.extender import binder
from croupier.extender.binder import Binder
from croupier.extender.protocol import ExtenderBindingArgs


@pytest.fixture
def busy(monkeypatch):
    """A binder with a limit of two binds, which last until an event is set."""
    monkeypatch.setattr(binder, "MAX_CONCURRENT_BINDS", 2)
    made, go = Binder(None, None, None, None, ttl=None), asyncio.Event()  # type: ignore[arg-type]  # nothing is bound
    monkeypatch.setattr(made, "_bind", lambda _args: go.wait())
    return made, go


async def under_way(made: Binder, count: int) -> list["asyncio.Task[str]"]:
    asked = [ExtenderBindingArgs(f"pod-{n}", "ns", f"uid-{n}", "node-1") for n in range(count)]
    binds = [asyncio.create_task(made.bind(args)) for args in asked]
    await asyncio.sleep(0)
    return binds


async def test_the_next_pod_waits_until_a_bind_has_ended(busy):
    made, go = busy
    binds = await under_way(made, 2)

    async def waited() -> bool:
        await made.wait_for_slot()
        return bool(go.is_set())

    waiting = asyncio.create_task(waited())
    await asyncio.sleep(0)
    go.set()
    await asyncio.gather(*binds)

    assert await waiting


async def test_hanging_binds_delay_filter_for_a_limited_time(busy, monkeypatch):
    monkeypatch.setattr(binder, "MAX_SLOT_WAIT", 0.01)
    made, go = busy
    binds = await under_way(made, 2)

    await made.wait_for_slot()
    still_running = [bind for bind in binds if not bind.done()]

    go.set()
    await asyncio.gather(*binds)

    assert still_running == binds
