"""Throughput of watch events into a store, without network.

The events are objects of the cluster, encoded as watch lines and fed in chunks.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from bench.subjects.meter import Meter, report
from croupier.api.kinds import PODS
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config, watch_protocol
from croupier.kube.client.identity import Key

PIECE = 64 * 1024


async def main(kubeconfig: Path, events: int) -> None:
    async with api_client.connect(config.load(kubeconfig)) as api:
        pods = [pod async for page in api.pages(PODS.raw) for pod in page.items][:events]
    lines = [line(pod, version) for version in range(1 + events // len(pods)) for pod in pods][:events]
    stream = b"".join(lines)
    store, reader = Store(PODS), watch_protocol.WatchDecoder(PODS.type)
    by_node = store.index(lambda pod: [pod.spec.node_name])
    meter, absorbed = Meter.start(), 0
    for start in range(0, len(stream), PIECE):
        for event in reader.feed(stream[start : start + PIECE]):
            if isinstance(event, watch_protocol.ObjectEvent):
                absorbed += store.put(event.object)
    report(events=absorbed, bytes=len(stream) / events, **meter.read())
    if absorbed != events or not by_node.values() or Key("", "") in store:
        raise SystemExit(f"only {absorbed} of {events} events changed the store")


def line(pod: dict[str, object], version: int) -> bytes:
    meta = pod["metadata"]
    changed = {
        **pod,
        "metadata": {**(meta if isinstance(meta, dict) else {}), "resourceVersion": f"r{version}"},
    }
    return msgspec.json.encode({"type": "MODIFIED", "object": changed}) + b"\n"


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
