"""Changes in stores become reconciles of keys: never too early, never concurrent, never lost."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import structlog
from prometheus_client import CollectorRegistry

from croupier.kube.cache.expectations import Expectations
from croupier.kube.cache.store import Store
from croupier.kube.client.backoff import Backoff
from croupier.kube.client.errors import Conflict
from croupier.kube.client.identity import Key
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.reconcile import DONE, Result, TerminalError
from croupier.kube.serving.metrics import ProcessMetrics
from tests.kube.builders import PODS, Pod, pod
from tests.polling import until

QUICK = ControllerOptions(workers=4, timeout=5.0, retries=Backoff(first=0.005, most=0.02))

Act = Callable[[str], Awaitable[Result]]


class ControllerEnv:
    """A store filled by the test, and a controller whose reconciles are recorded."""

    def __init__(
        self, options: ControllerOptions = QUICK, expectations: Expectations[str] | None = None
    ) -> None:
        self.store: Store[Pod] = Store(PODS)
        self.complete = asyncio.Event()
        self.looks: Counter[str] = Counter()
        self.acts: dict[str, Act] = {}
        self.metrics = ProcessMetrics(CollectorRegistry())
        self.leads = True
        self.controller: Controller[str] = Controller(
            "pods",
            self.reconcile,
            options=options,
            metrics=self.metrics.controller("pods"),
            expectations=expectations or Expectations(),
        )
        self.controller.watch(self.store, self, lambda found: [found.metadata.name])

    async def synced(self) -> None:
        await self.complete.wait()

    def held(self) -> bool:
        return self.leads

    async def reconcile(self, key: str) -> Result:
        self.looks[key] += 1
        act = self.acts.get(key)
        return await act(key) if act else DONE

    def count(self, outcome: str) -> float:
        value = self.metrics.registry.get_sample_value(
            "croupier_reconciles_total", {"controller": "pods", "outcome": outcome}
        )
        return value or 0.0

    @contextlib.asynccontextmanager
    async def running(self, complete: bool = True) -> AsyncIterator[asyncio.Event]:
        stop = asyncio.Event()
        if complete:
            self.complete.set()
        task = asyncio.create_task(self.controller.run(stop, leader_check=self))
        try:
            yield stop
        finally:
            stop.set()
            await asyncio.wait_for(task, 10)

    def writes_at_first(self, key: str, written: Pod) -> None:
        """The first reconcile of `key` ends in a write with the response `written`."""

        async def writes(key: str) -> Result:
            if self.looks[key] == 1:
                self.controller.wrote(key, PODS, written)
            return DONE

        self.acts[key] = writes

    async def looked(self, **counts: int) -> None:
        await until(lambda: all(self.looks[key] >= count for key, count in counts.items()), f"{counts}")
        await self.quiet()

    async def quiet(self) -> None:
        """Wait until all ready keys are done."""
        for _ in range(20):
            await asyncio.sleep(0)


def version(name: str, number: str) -> Pod:
    return pod(name, version=number)


async def test_nothing_is_reconciled_before_the_caches_have_synced():
    world = ControllerEnv()
    async with world.running(complete=False):
        world.store.put(pod("early"))
        await world.quiet()
        assert world.looks == {}

        world.complete.set()
        await world.looked(early=1)


async def test_existing_and_new_objects_are_reconciled():
    world = ControllerEnv()
    world.store.put(pod("old"))
    async with world.running():
        await world.looked(old=1)
        world.store.put(pod("new"))
        await world.looked(new=1)
        world.store.put(version("old", "2"))
        await world.looked(old=2)
        world.store.remove(Key("shop", "old"))
        await until(lambda: sum(world.looks.values()) == 4)


async def test_changes_within_the_delay_are_reconciled_once():
    world = ControllerEnv()
    herd: Store[Pod] = Store(PODS)
    world.controller.watch(herd, world, lambda _: ["herd"], within=0.5)
    herd.put(pod("dog"))
    async with world.running():
        await world.looked(herd=1)
        for number in range(8):
            herd.put(pod(f"sheep-{number}"))
        await world.quiet()
        assert world.looks == {"herd": 1}
        await world.looked(herd=2)
        assert world.looks == {"herd": 2}


async def test_one_key_is_never_reconciled_concurrently():
    world = ControllerEnv()
    running, most = 0, 0

    async def slow(key: str) -> Result:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        return DONE

    world.acts["busy"] = slow
    async with world.running():
        for number in range(30):
            world.store.put(version("busy", str(number)))
            await asyncio.sleep(0.001)
        await until(lambda: world.looks["busy"] >= 3 and running == 0)
    assert most == 1


async def test_different_keys_are_reconciled_concurrently():
    world = ControllerEnv()
    together = asyncio.Barrier(4)

    async def meet(key: str) -> Result:
        await together.wait()
        return DONE

    async with world.running():
        for name in ("a", "b", "c", "d"):
            world.acts[name] = meet
            world.store.put(pod(name))
        await until(lambda: world.count("done") == 4)


async def test_requeue_after_reconciles_without_a_change():
    world = ControllerEnv()

    async def patient(key: str) -> Result:
        return Result(requeue_after=0.01) if world.looks[key] < 3 else DONE

    world.acts["a"] = patient
    async with world.running():
        world.store.put(pod("a"))
        await world.looked(a=3)
        assert (world.count("again"), world.count("done")) == (2, 1)


async def test_a_failure_is_retried_until_it_succeeds():
    world = ControllerEnv()

    async def flaky(key: str) -> Result:
        if world.looks[key] < 4:
            raise RuntimeError("not yet")
        return DONE

    world.acts["a"] = flaky
    async with world.running():
        world.store.put(pod("a"))
        await world.looked(a=4)
        assert (world.count("error"), world.count("done")) == (3, 1)


async def test_a_terminal_error_is_not_retried_until_the_object_changes():
    world = ControllerEnv(ControllerOptions(retries=Backoff(first=0.001), resync=0.01))

    async def hopeless(key: str) -> Result:
        if world.looks[key] == 1:
            raise TerminalError("the name of the pool is empty")
        return DONE

    world.acts["a"] = hopeless
    world.store.put(pod("a"))
    world.store.put(pod("witness"))
    async with world.running():
        await world.looked(witness=5)
        assert world.looks["a"] == 1, "neither retries nor resyncs touch it"

        world.store.put(version("a", "2"))
        await world.looked(a=2)


async def test_resync_reconciles_all_keys_periodically():
    world = ControllerEnv(ControllerOptions(resync=0.01))
    world.store.put(pod("a"))
    world.store.put(pod("b"))
    async with world.running():
        await world.looked(a=3, b=3)


async def test_a_reconcile_that_times_out_is_retried():
    world = ControllerEnv(ControllerOptions(timeout=0.02, retries=Backoff(first=0.001)))

    async def hangs(key: str) -> Result:
        if world.looks[key] == 1:
            await asyncio.Event().wait()
        return DONE

    world.acts["a"] = hangs
    with structlog.testing.capture_logs() as said:
        async with world.running():
            world.store.put(pod("a"))
            await world.looked(a=2)
    assert "timed out after 0.02 s" in [line.get("error") for line in said]


async def test_a_reconcile_that_cancels_itself_does_not_end_the_worker():
    world = ControllerEnv(ControllerOptions(workers=1, retries=Backoff(first=0.001)))

    async def suicidal(key: str) -> Result:
        if world.looks[key] == 1:
            raise asyncio.CancelledError
        return DONE

    world.acts["a"] = suicidal
    async with world.running():
        world.store.put(pod("a"))
        await world.looked(a=2)


async def test_a_reconcile_without_a_result_is_an_error():
    world = ControllerEnv()

    async def forgetful(key: str) -> Any:
        return None if world.looks[key] == 1 else DONE

    world.acts["a"] = forgetful
    with structlog.testing.capture_logs() as said:
        async with world.running():
            world.store.put(pod("a"))
            await world.looked(a=2)
    assert any("must return DONE or a Result, not None" in str(line.get("error")) for line in said)


async def test_log_lines_of_a_reconcile_carry_controller_key_and_id():
    world = ControllerEnv()
    seen: list[dict[str, Any]] = []

    async def speaks(key: str) -> Result:
        seen.append(dict(structlog.contextvars.get_contextvars()))
        return DONE

    world.acts["a"] = speaks
    async with world.running():
        world.store.put(pod("a"))
        await world.looked(a=1)
        world.store.put(version("a", "2"))
        await world.looked(a=2)
    assert seen == [
        {"controller": "pods", "key": "a", "reconcile": 1},
        {"controller": "pods", "key": "a", "reconcile": 2},
    ]


async def test_a_conflict_is_logged_as_info():
    world = ControllerEnv()

    async def races(key: str) -> Result:
        if world.looks[key] == 1:
            raise Conflict(409, "Conflict", "changed")
        return DONE

    world.acts["a"] = races
    with structlog.testing.capture_logs() as said:
        async with world.running():
            world.store.put(pod("a"))
            await world.looked(a=2)
    assert {line["log_level"] for line in said} == {"info"}


async def test_a_key_is_held_back_until_the_store_shows_its_write():
    world = ControllerEnv()
    world.writes_at_first("a", version("a", "7"))
    async with world.running():
        world.store.put(version("a", "5"))
        await world.looked(a=1)
        world.store.put(version("a", "6"))
        world.controller.add("a")
        await world.quiet()
        assert world.looks["a"] == 1, "the cache is older than our write"

        world.store.put(version("a", "7"))
        await world.looked(a=2)
        assert world.looks["a"] == 2


async def test_a_list_after_the_write_releases_the_key():
    world = ControllerEnv()
    world.writes_at_first("a", version("a", "7"))
    async with world.running():
        world.store.put(version("a", "5"))
        await world.looked(a=1)
        world.store.relisted(asyncio.get_running_loop().time() - 60)
        await world.quiet()
        assert world.looks["a"] == 1
        world.store.relisted(asyncio.get_running_loop().time())
        await world.looked(a=2)


async def test_a_write_without_effect_holds_no_key_back():
    """The response has the version that is already in the store, and no watch event follows."""
    world = ControllerEnv()
    world.store.put(version("a", "5"))

    async def writes(key: str) -> Result:
        world.controller.wrote(key, PODS, version("a", "5"))
        return DONE

    world.acts["a"] = writes
    async with world.running():
        await world.looked(a=1)
        world.controller.add("a")
        await world.looked(a=2)
    assert world.controller.expectations.held == 0


async def test_a_key_is_held_back_until_a_deletion_is_observed():
    world = ControllerEnv()

    async def deletes(key: str) -> Result:
        if world.looks[key] == 1:
            world.controller.deleted(key, PODS, version("child", "3"))
        return DONE

    world.acts["a"] = deletes
    async with world.running():
        world.store.put(version("child", "3"))
        world.store.put(pod("a"))
        await world.looked(a=1)
        world.store.put(version("a", "2"))
        await world.quiet()
        assert world.looks["a"] == 1
        world.store.remove(Key("shop", "child"))
        await world.looked(a=2)


async def test_a_write_that_is_never_observed_holds_a_key_until_its_timeout():
    world = ControllerEnv(expectations=Expectations(timeout=0.05))
    world.writes_at_first("a", version("elsewhere", "7"))
    async with world.running():
        world.store.put(pod("a"))
        await world.looked(a=2)
    missed = world.metrics.registry.get_sample_value(
        "croupier_expectations_missed_total", {"controller": "pods"}
    )
    assert missed == 1


async def test_no_reconcile_starts_after_the_lease_is_lost():
    world = ControllerEnv()
    async with world.running():
        world.store.put(pod("a"))
        await world.looked(a=1)
        world.leads = False
        world.store.put(pod("b"))
        await world.quiet()
        world.leads = True
        world.store.put(pod("c"))
        await world.quiet()
        assert world.looks == {"a": 1}, "and does not come back before a new shift"


async def test_stopping_finishes_ready_keys_and_accepts_no_new_ones():
    world = ControllerEnv(ControllerOptions(workers=1))
    gate = asyncio.Event()

    async def waits(key: str) -> Result:
        await gate.wait()
        return Result(requeue_after=0.001)

    for name in ("a", "b", "c"):
        world.acts[name] = waits
        world.store.put(pod(name))
    async with world.running() as stop:
        await until(lambda: sum(world.looks.values()) == 1)
        stop.set()
        await world.quiet()
        world.store.put(pod("late"))
        gate.set()
    assert world.looks == {"a": 1, "b": 1, "c": 1}


async def test_stopping_before_the_caches_have_synced_ends_the_run():
    world = ControllerEnv()
    async with world.running(complete=False):
        world.store.put(pod("a"))
    assert world.looks == {}


async def test_a_second_run_starts_without_state():
    world = ControllerEnv()
    world.store.put(pod("a"))
    for shift in (1, 2):
        async with world.running():
            await world.looked(a=shift)


async def test_cancelling_ends_immediately():
    world = ControllerEnv()
    ended: list[str] = []

    async def hangs(key: str) -> Result:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(key)
        return DONE

    world.acts["a"] = hangs
    world.store.put(pod("a"))
    world.complete.set()
    task = asyncio.create_task(world.controller.run(asyncio.Event(), leader_check=world))
    await until(lambda: world.looks["a"] == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["a"]
    assert world.count("cancelled") == 1
