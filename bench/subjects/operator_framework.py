"""kopf, the most used Python operator framework: event handlers that store what they receive.

Peering, Events and logging are disabled, and only three fields per object are kept. Its in-memory indexes
are not used: their cost per object grows with the number of objects (14 ms of CPU each at 2,500).
"""

import asyncio
import logging
import sys
from collections.abc import Callable
from typing import Any

import kopf

from bench.subjects.meter import Meter, read_command, report


class Seen:
    """Objects stored by the handlers, and the number of pod events."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str | None, str | None], Any] = {}
        self.events = 0
        self.changed = asyncio.Event()

    def keep(self, namespace: str | None, name: str | None, what: Any) -> None:
        self.kept[namespace, name] = what
        self.changed.set()

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self.changed.clear()
            await self.changed.wait()


def handlers(seen: Seen) -> kopf.OperatorRegistry:
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)

    @kopf.on.event("pods", registry=registry)
    async def pods(namespace: str | None, name: str | None, spec: Any, status: Any, **_: Any) -> None:
        seen.events += 1
        seen.keep(namespace, name, (spec.get("nodeName"), status.get("phase"), len(spec["containers"])))

    @kopf.on.event("nodes", registry=registry)
    async def nodes(name: str | None, status: Any, **_: Any) -> None:
        seen.keep(None, name, dict(status.get("allocatable", {})))

    return registry


async def main(awaited_objects: int) -> None:
    seen, stop = Seen(), asyncio.Event()
    async with asyncio.TaskGroup() as group:
        meter = Meter.start()
        group.create_task(operate(handlers(seen), stop))
        await seen.until(lambda: len(seen.kept) >= awaited_objects)
        report(objects=len(seen.kept), **meter.read())
        while awaited := await read_command():
            await measure_events(seen, int(awaited))
        stop.set()


async def operate(registry: kopf.OperatorRegistry, stop: asyncio.Event) -> None:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    await kopf.operator(
        registry=registry, settings=settings, clusterwide=True, standalone=True, stop_flag=stop
    )


async def measure_events(seen: Seen, awaited: int) -> None:
    before = seen.events
    meter = Meter.start()
    report(ready=True)
    await seen.until(lambda: seen.events - before >= awaited)
    report(events=seen.events - before, **meter.read())


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(int(sys.argv[2])))
