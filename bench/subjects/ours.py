"""Croupier: two stores fed by list and watch."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from bench.subjects.meter import Meter, read_command, report
from croupier.api.core_v1 import Pod
from croupier.api.kinds import NODES, PODS
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client import api_client, config


async def main(kubeconfig: Path) -> None:
    async with api_client.connect(config.load(kubeconfig)) as api, asyncio.TaskGroup() as group:
        meter = Meter.start()
        nodes, pods = Store(NODES), Store(PODS)
        pods.index(lambda pod: [pod.spec.node_name])
        followers: tuple[Reflector[Any], ...] = (Reflector(api, nodes), Reflector(api, pods))
        tasks = [group.create_task(follower.run()) for follower in followers]
        for follower in followers:
            await follower.synced()
        report(objects=len(nodes) + len(pods), **meter.read())
        while awaited := await read_command():
            await measure_events(pods, int(awaited))
        for task in tasks:
            task.cancel()


async def measure_events(pods: Store[Pod], awaited: int) -> None:
    done, seen = asyncio.Event(), 0

    def count(_: ObjectChange[Pod]) -> None:
        nonlocal seen
        seen += 1
        if seen == awaited:
            done.set()

    stop = pods.subscribe(count)
    meter = Meter.start()
    report(ready=True)
    await done.wait()
    report(events=seen, **meter.read())
    stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
