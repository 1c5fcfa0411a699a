"""A backlog of watch events over TLS: the cost of catching up."""

import asyncio
import sys
from pathlib import Path

from bench.subjects.meter import Meter, read_command, report
from croupier.api.kinds import NAMESPACES, PODS
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config, watch_protocol
from croupier.kube.client.api_client import Client


async def main(kubeconfig: Path, events: int) -> None:
    async with api_client.connect(config.load(kubeconfig)) as api:
        before = (await api.list(NAMESPACES)).resource_version
        report(ready=True)
        await read_command()
        meter = Meter.start()
        report(events=await absorbed(api, before, events), **meter.read())


async def absorbed(api: Client, since: str, events: int) -> int:
    store, seen = Store(PODS), 0
    async for batch in api.watch(PODS, resource_version=since):
        for event in batch:
            if isinstance(event, watch_protocol.WatchError):
                raise event.error
            if isinstance(event, watch_protocol.ObjectEvent):
                seen += store.put(event.object)
        if seen >= events:
            break
    return seen


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
