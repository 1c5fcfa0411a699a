"""A process stops its components in order, and reports every failure."""

import asyncio
import gc
import os
import signal

import pytest
import structlog

from croupier.kube.client.errors import ConfigError
from croupier.kube.serving import component_runner
from croupier.kube.serving.component_runner import Component, ComponentRunner
from tests.polling import until


@pytest.fixture
def log_lines():
    with structlog.testing.capture_logs() as lines:
        yield lines


class ComponentEnv:
    """Components that record their events."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.all_up = asyncio.Event()

    def part(self, name: str, grace: float = 10.0) -> Component:
        async def life(stop: asyncio.Event) -> None:
            self.lines.append(f"{name} up")
            await stop.wait()
            await asyncio.sleep(0.01)
            self.lines.append(f"{name} down")

        return Component(name, life, grace)

    def stubborn(self, name: str) -> Component:
        async def life(stop: asyncio.Event) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                self.lines.append(f"{name} cut off")

        return Component(name, life, grace=0.05)

    def last(self) -> Component:
        async def life(stop: asyncio.Event) -> None:
            self.all_up.set()
            await stop.wait()

        return Component("last", life)


async def stopped(story: ComponentEnv, *parts: Component, by: signal.Signals = signal.SIGTERM) -> int:
    process = ComponentRunner([*parts, story.last()])
    running = asyncio.create_task(process.run())
    await story.all_up.wait()
    assert not process.stopping
    os.kill(os.getpid(), by)
    code = await asyncio.wait_for(running, 10)
    assert process.stopping
    return code


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_stops_the_components_in_reverse_order(by):
    story = ComponentEnv()

    assert await stopped(story, story.part("client"), story.part("events"), story.part("lease"), by=by) == 0
    assert story.lines == [
        "client up",
        "events up",
        "lease up",
        "lease down",
        "events down",
        "client down",
    ]


async def test_a_component_that_does_not_stop_is_cancelled_and_the_others_stop_normally():
    story = ComponentEnv()

    assert await stopped(story, story.part("events"), story.stubborn("controller")) == 1
    assert story.lines == ["events up", "controller cut off", "events down"]


async def test_a_second_signal_stops_immediately(log_lines):
    story = ComponentEnv()
    slow = Component("slow", story.stubborn("slow").run, grace=3600)
    process = ComponentRunner([slow, story.last()])
    running = asyncio.create_task(process.run())
    await story.all_up.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: process.stopping)
    os.kill(os.getpid(), signal.SIGTERM)

    assert await asyncio.wait_for(running, 10) == 1
    assert story.lines == ["slow cut off"]
    assert "the process got a second stop request and stops immediately" in [
        line["event"] for line in log_lines
    ]


async def test_a_crash_stops_the_process_with_a_message_and_a_traceback(log_lines):
    story = ComponentEnv()

    async def broken(stop: asyncio.Event) -> None:
        await asyncio.sleep(0)
        async with asyncio.TaskGroup() as group:
            group.create_task(fails())

    async def fails() -> None:
        raise ValueError("the ledger is upside down")

    assert await ComponentRunner([story.part("events"), Component("audit", broken)]).run() == 1
    assert story.lines == ["events up", "events down"]
    (line,) = [line for line in log_lines if line["log_level"] == "error"]
    assert line["event"] == "audit crashed, stopping the process: the ledger is upside down"
    assert line["exc_info"] is not None


async def test_a_component_that_ends_early_is_a_failure(log_lines):
    async def brief(stop: asyncio.Event) -> None:
        await asyncio.sleep(0)

    assert await ComponentRunner([Component("watch", brief)]).run() == 1
    assert "watch ended unexpectedly, stopping the process" in [line["event"] for line in log_lines]


async def test_a_crash_during_shutdown_is_a_failure(log_lines):
    story = ComponentEnv()

    async def clumsy(stop: asyncio.Event) -> None:
        await stop.wait()
        raise RuntimeError("could not flush")

    assert await stopped(story, Component("events", clumsy)) == 1
    assert "events crashed, stopping the process: could not flush" in [line["event"] for line in log_lines]


async def test_a_cancellable_component_is_cancelled_on_stop():
    story = ComponentEnv()

    async def reflector() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            story.lines.append("reflector cancelled")

    assert await stopped(story, component_runner.until_cancelled("reflector", reflector)) == 0
    assert story.lines == ["reflector cancelled"]


async def test_a_crash_of_a_cancellable_component_is_reported():
    async def reflector() -> None:
        raise RuntimeError("no")

    assert await ComponentRunner([component_runner.until_cancelled("reflector", reflector)]).run() == 1


async def test_a_component_that_cannot_be_cancelled_aborts_the_process(monkeypatch):
    monkeypatch.setattr(component_runner, "CANCEL_TIMEOUT", 0.05)
    story = ComponentEnv()
    let_go = asyncio.Event()
    aborted: list[int] = []

    async def deaf(stop: asyncio.Event) -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    process = ComponentRunner([Component("deaf", deaf, grace=0.05), story.last()], abort=aborted.append)
    running = asyncio.create_task(process.run())
    await story.all_up.wait()
    process.stop()
    assert await asyncio.wait_for(running, 10) == 1
    assert aborted == [1]
    let_go.set()


def test_a_failed_start_is_logged_in_one_sentence(log_lines):
    async def start() -> int:
        raise ConfigError("no kubeconfig at /nowhere; name one with --kubeconfig")

    assert component_runner.main(start) == 1
    assert [line["event"] for line in log_lines] == [
        "the process cannot start: no kubeconfig at /nowhere; name one with --kubeconfig"
    ]


def test_main_returns_the_exit_code():
    async def start() -> int:
        return 3

    assert component_runner.main(start) == 3


def test_a_process_collects_garbage_although_commands_do_not():
    async def start() -> int:
        return int(gc.isenabled())

    gc.disable()
    try:
        assert component_runner.main(start) == 1
    finally:
        gc.enable()
        gc.unfreeze()
