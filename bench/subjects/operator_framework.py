"""The same with kopf, the most used Python operator framework: its in-memory indexes and event handlers.

It is treated well: no peering, no Events posted, no logging, and its indexes keep three fields an object.
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import kopf

from bench.subjects.meter import Meter, asked, say


class Counter:
    """Objects met for the first time, then events."""

    def __init__(self) -> None:
        self.met: set[tuple[str | None, str | None]] = set()
        self.events = 0
        self.changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed.clear()
            await self.changed.wait()


def handlers(counter: Counter) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)

    @kopf.index("pods", registry=registry)  # type: ignore[arg-type]  # kopf's own types are narrower than its use
    async def pods(namespace: str, name: str, spec: Any, status: Any, **_: Any) -> Any:
        meet(namespace, name)
        return {(namespace, name): (spec.get("nodeName"), status.get("phase"), len(spec["containers"]))}

    @kopf.index("nodes", registry=registry)
    async def nodes(name: str, status: Any, **_: Any) -> Any:
        meet(None, name)
        return {name: dict(status.get("allocatable", {}))}

    @kopf.on.event("pods", registry=registry)
    async def happened(**_: Any) -> None:
        counter.events += 1
        counter.changed.set()

    def meet(namespace: str | None, name: str) -> None:
        counter.met.add((namespace, name))
        counter.changed.set()

    return registry


async def main(awaited_objects: int, pods: int) -> None:
    counter, stop = Counter(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        meter = Meter.start()
        group.create_task(operate(handlers(counter), stop))
        await counter.until(lambda: len(counter.met) >= awaited_objects)
        say(objects=len(counter.met), **meter.read())
        # Handlers run after the indexes are complete: those of the first list are not events of ours.
        await counter.until(lambda: counter.events >= pods)
        while awaited := await asked():
            await measure_events(counter, int(awaited))
        stop.set()


async def operate(registry: kopf.OperatorRegistry, stop: asyncio.Event) -> None:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    await kopf.operator(
        registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop
    )


async def measure_events(counter: Counter, awaited: int) -> None:
    before = counter.events
    meter = Meter.start()
    say(ready=True)
    await counter.until(lambda: counter.events - before >= awaited)
    say(events=counter.events - before, **meter.read())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(int(sys.argv[2]), int(sys.argv[3])))
