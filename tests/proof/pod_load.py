"""One scheduler with its extender as its own process: it creates, filters, binds and deletes pods.

Run as `python -m tests.proof.pod_load`. It calls the ranking and the binder of the extender like
kube-scheduler does over HTTP, for real pods.
"""

import argparse
import asyncio
import random
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

from croupier.api import kinds
from croupier.api.core_v1 import Pod
from croupier.extender import pod_request as pod_requests
from croupier.extender.protocol import ExtenderBindingArgs
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, DeleteOptions
from croupier.kube.controller.events import EventRecorder
from tests.proof.flow_env import pod_manifest
from tests.proof.manager_env import LedgerManagerEnv
from tests.proof.processes import emit, log_to_stderr, read_command

AT_ONCE = 4
TRIES = 4
NOW = DeleteOptions(grace_seconds=0)


class PodWorker:
    def __init__(self, api: Client, house: LedgerManagerEnv, options: Any) -> None:
        self._api = api
        self._house = house
        self._name: str = options.name
        self._nodes: list[str] = options.nodes.split(",")
        self._namespace: str = options.namespace
        self._quota: int = options.pods
        self._chance = random.Random(options.name)  # noqa: S311  # reproducible, not secret
        self._made = 0
        self._there: list[str] = []
        self.count: Counter[str] = Counter()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(AT_ONCE):
                tasks.create_task(self._run_worker())
        await self._house.binder.drain()

    async def _run_worker(self) -> None:
        while self._made < self._quota:
            self._made += 1
            pod = await self._create(f"{self._name}-{self._made}")
            self.count["bound" if await self._place(pod) else "waits"] += 1
            self._there.append(pod.metadata.name)
            if len(self._there) > self._quota // 3 or self._chance.random() < 0.3:
                await self._remove(self._there.pop(self._chance.randrange(len(self._there))))

    async def _create(self, name: str) -> Pod:
        manifest = pod_manifest(name, self._chance.choice((1, 1, 2)), self._chance.choice((20, 50, 60, 100)))
        return await self._api.create(kinds.PODS, manifest, namespace=self._namespace)

    async def _place(self, pod: Pod) -> bool:
        """Like the scheduler: filter, bind, and retry if the bind was refused."""
        for _ in range(TRIES):
            seen = await self._api.get(kinds.PODS, pod.metadata.name, namespace=self._namespace)
            choice = self._house.index.choose(pod_requests.read(seen), self._nodes)
            if not isinstance(choice, str):
                await asyncio.sleep(0.3)  # other pods are deleted in the meantime
                continue
            where = ExtenderBindingArgs(pod.metadata.name, self._namespace, pod.metadata.uid, choice)
            if self._chance.random() < 0.1:  # the scheduler retries after a timeout
                answers = await asyncio.gather(*(self._house.binder.bind(where) for _ in range(2)))
                why = answers[0]
            else:
                why = await self._house.binder.bind(where)
            if not why:
                return True
            self.count["refused at bind"] += 1
        return False

    async def _remove(self, name: str) -> None:
        await self._api.delete(kinds.PODS, name, namespace=self._namespace, how=NOW)

    async def close(self) -> None:
        for name in self._there:
            await self._remove(name)


async def start(options: Any) -> None:
    async with api_client.connect(config.load(options.kubeconfig)) as api:
        house = LedgerManagerEnv(api, EventRecorder(api, "proof"), ttl=timedelta(seconds=30), flush_after=0.5)
        await house.synced()
        dealer = PodWorker(api, house, options)
        emit("ready")
        await read_command()
        await dealer.run()
        emit(dealer.count)
        await read_command()
        await dealer.close()
        emit("closed")
        await house.close()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--pods", type=int, required=True)
    log_to_stderr()
    asyncio.run(start(parser.parse_args()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
