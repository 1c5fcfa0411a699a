"""The whole controller: store, keys, workqueue, workers, expectations, metrics; reconcile does little."""

import asyncio
import os
import sys
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from bench.subjects.meter import Meter, report
from croupier.api.core_v1 import Pod
from croupier.api.kinds import PODS
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.identity import Key
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.reconcile import DONE, Result
from croupier.kube.serving import logs
from croupier.kube.serving.metrics import ProcessMetrics

WORKERS = 16


class BenchController:
    """Counts its reconciles; in writing mode it writes the status of each pod once."""

    def __init__(self, api: Client, store: Store[Pod], reflector: Reflector[Pod]) -> None:
        self.api = api
        self.store = store
        self.reconciles = 0
        self.wanted = 0
        self.enough = asyncio.Event()
        self.unwritten: set[Key] = set()
        metrics = ProcessMetrics(CollectorRegistry()).controller("bench")
        self.controller: Controller[Key] = Controller(
            "bench", self.reconcile, ControllerOptions(workers=WORKERS), metrics=metrics
        )
        self.controller.watch(store, reflector, lambda pod: [Key(pod.metadata.namespace, pod.metadata.name)])

    async def reconcile(self, key: Key) -> Result:
        if self.store.get(key) is not None and key in self.unwritten:
            self.unwritten.remove(key)
            self.controller.wrote(key, PODS, await self.write(key, "reconciled"))
        self.reconciles += 1
        if self.reconciles == self.wanted:
            self.enough.set()
        return DONE

    async def write(self, key: Key, how: str) -> Pod:
        patch = {"status": {"message": f"{how} by process {os.getpid()}"}}
        return await self.api.patch(PODS, key.name, patch, namespace=key.namespace, subresource="status")

    async def until(self, reconciles: int) -> None:
        if self.reconciles < reconciles:
            self.wanted = reconciles
            self.enough.clear()
            await self.enough.wait()


async def main(kubeconfig: Path, changes: int, writes: int) -> None:
    logs.setup(level="warning")
    async with api_client.connect(config.load(kubeconfig)) as api, asyncio.TaskGroup() as group:
        store = Store(PODS)
        reflector = Reflector(api, store)
        reflecting = group.create_task(reflector.run())
        await reflector.synced()
        subject, stop = BenchController(api, store, reflector), asyncio.Event()
        group.create_task(subject.controller.run(stop))
        await subject.until(len(store))
        await idle(subject, changes)
        await writing(subject, writes)
        stop.set()
        reflecting.cancel()
        await patch_without_controller(subject, writes)


async def idle(subject: BenchController, changes: int) -> None:
    """Put changed pods into the store, as a watch would; the versions are restored afterwards."""
    before = list(subject.store)[:changes]
    after = [_revised(pod) for pod in before]
    reconciles = subject.reconciles
    meter = Meter.start()
    for start in range(0, len(after), 100):
        for pod in after[start : start + 100]:
            subject.store.put(pod)
        await asyncio.sleep(0)
    await subject.until(reconciles + len(after))
    report(reconciles=subject.reconciles - reconciles, **meter.read())
    for pod in before:
        subject.store.put(pod)
    await subject.until(reconciles + 2 * len(after))


async def writing(subject: BenchController, writes: int) -> None:
    keys = list(subject.store.keys())[:writes]
    subject.unwritten.update(keys)
    reconciles = subject.reconciles
    meter = Meter.start()
    for key in keys:
        subject.controller.add(key)
    await subject.until(reconciles + 2 * len(keys))
    report(written=len(keys), reconciles=subject.reconciles - reconciles, **meter.read())


async def patch_without_controller(subject: BenchController, writes: int) -> None:
    """The same writes with the same concurrency but without a controller."""
    keys = list(subject.store.keys())[:writes]
    waiting = iter(keys)

    async def worker() -> None:
        for key in waiting:
            await subject.write(key, "written")

    meter = Meter.start()
    await asyncio.gather(*(worker() for _ in range(WORKERS)))
    report(written=len(keys), **meter.read())


def _revised(pod: Pod) -> Pod:
    meta = msgspec.structs.replace(pod.metadata, resource_version=f"{pod.metadata.resource_version}x")
    return msgspec.structs.replace(pod, metadata=meta)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
