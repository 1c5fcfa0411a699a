"""A minimal alternative: list pages decoded with the json module and kept as dicts, without a watch."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from bench.subjects.meter import Meter, say
from croupier.kube import client, config
from croupier.kube.client import Client
from croupier.kube.transport import Request


async def main(kubeconfig: Path) -> None:
    async with client.connect(config.load(kubeconfig)) as api:
        meter = Meter.start()
        kept = await listed(api, "/api/v1/nodes") + await listed(api, "/api/v1/pods")
        say(objects=len(kept), **meter.read())


async def listed(api: Client, path: str) -> list[Any]:
    kept: list[Any] = []
    query = {"limit": "500"}
    while True:
        page = json.loads(await api.raw(Request("GET", path, query)))
        kept += page["items"]
        if not page["metadata"].get("continue"):
            return kept
        query["continue"] = page["metadata"]["continue"]


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
