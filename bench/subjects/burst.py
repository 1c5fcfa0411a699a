"""A backlog of watch events over TLS: the cost of catching up."""

import asyncio
import sys
from pathlib import Path

from bench.subjects.meter import Meter, asked, say
from croupier.api.kinds import NAMESPACES, PODS
from croupier.kube import client, config, watch
from croupier.kube.client import Client
from croupier.kube.store import Store


async def main(kubeconfig: Path, events: int) -> None:
    async with client.connect(config.load(kubeconfig)) as api:
        before = (await api.list(NAMESPACES)).resource_version
        say(ready=True)
        await asked()
        meter = Meter.start()
        say(events=await absorbed(api, before, events), **meter.read())


async def absorbed(api: Client, since: str, events: int) -> int:
    store, seen = Store(PODS), 0
    async for batch in api.watch(PODS, resource_version=since):
        for event in batch:
            if isinstance(event, watch.Failed):
                raise event.error
            if isinstance(event, watch.Change):
                seen += store.put(event.object)
        if seen >= events:
            break
    return seen


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
