"""A minimal alternative: list pages decoded with the json module and kept as dicts, without a watch."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from bench.subjects.meter import Meter, report
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier.kube.client.transport import ApiRequest


async def main(kubeconfig: Path) -> None:
    async with api_client.connect(config.load(kubeconfig)) as api:
        meter = Meter.start()
        kept = await listed(api, "/api/v1/nodes") + await listed(api, "/api/v1/pods")
        report(objects=len(kept), **meter.read())


async def listed(api: Client, path: str) -> list[Any]:
    kept: list[Any] = []
    query = {"limit": "500"}
    while True:
        page = json.loads(await api.raw(ApiRequest("GET", path, query)))
        kept += page["items"]
        if not page["metadata"].get("continue"):
            return kept
        query["continue"] = page["metadata"]["continue"]


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
