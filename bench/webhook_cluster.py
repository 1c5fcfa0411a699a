"""A cluster with `croupier webhook`: its nodes, and AdmissionReviews for it."""

import asyncio
import random
import re
import ssl
import sys
import time
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec
import psutil

from bench import filled_cluster, objects
from bench.env import BenchEnv
from croupier.api import kinds
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client
from croupier_lab import ports, process
from croupier_lab.controlplane import API_COMPONENTS
from croupier_lab.lab import Lab
from croupier_lab.lifecycle import LabPlan
from croupier_lab.probe import Endpoint
from croupier_lab.process import Program

NAME = "croupier-webhook"
NAMESPACE, CROUPIER_NAMESPACE = "bench", "d8-gpu-operator"
LOOPBACK = "127.0.0.1"
TIMEOUT = 120.0
POLL = 0.1
REQUESTED, OFFERED = "nvidia.com/mig-2g.20gb", "nvidia.com/mig-1g.10gb"
"""The resource that every pod requests, and the one that every node offers instead."""


@dataclass(frozen=True, slots=True)
class WebhookEndpoint:
    """URL and trusted CA of a webhook."""

    url: str
    trust: ssl.SSLContext


@dataclass(slots=True)
class WebhookCluster:
    lab: Lab
    api: Client
    port: int
    health: int
    nodes: int = 0

    @property
    def cpu(self) -> float:
        """CPU seconds of the webhook."""
        spent = psutil.Process(self.lab.process(NAME).pid).cpu_times()
        return spent.user + spent.system

    async def door(self) -> WebhookEndpoint:
        found = await self.api.get(kinds.MUTATING_WEBHOOKS, NAME)
        bundle = b64decode(found.webhooks[0].client_config.ca_bundle).decode()
        return webhook_endpoint(f"https://{LOOPBACK}:{self.port}/mutate", bundle)

    async def grow(self, nodes: int) -> None:
        """Create nodes up to this number and wait until the webhook has them in its cache."""
        await filled_cluster.in_parallel(self._node, range(self.nodes, nodes))
        self.nodes = nodes
        await self.knows("nodes", nodes)

    async def knows(self, cache: str, count: int) -> None:
        line = re.compile(rf'^croupier_store_objects{{resource="{cache}"}} {count}(\.0)?$', re.MULTILINE)
        url = f"http://{LOOPBACK}:{self.health}/metrics"
        async with asyncio.timeout(TIMEOUT), aiohttp.ClientSession() as session:
            while True:
                async with session.get(url) as answer:
                    if line.search(await answer.text()):
                        return
                await asyncio.sleep(POLL)

    async def _node(self, number: int) -> None:
        body, status = objects.node(number), objects.node_status(number)
        for amounts in ("capacity", "allocatable"):
            status["status"][amounts] = {**status["status"][amounts], OFFERED: "28"}
        await self.api.create(filled_cluster.NODES, body)
        await self.api.patch(filled_cluster.NODES, body["metadata"]["name"], status, subresource="status")


@asynccontextmanager
async def raised(on: BenchEnv) -> AsyncIterator[WebhookCluster]:
    async with (
        on.raised(LabPlan(parts=API_COMPONENTS)) as lab,
        api_client.connect(config.load(lab.kubeconfig)) as api,
    ):
        for space in (NAMESPACE, CROUPIER_NAMESPACE):
            await api.create(filled_cluster.NAMESPACES, {"metadata": {"name": space}})
        await api.create(filled_cluster.ACCOUNTS, {"metadata": {"name": "default"}}, namespace=NAMESPACE)
        yield await _started(lab, api)


async def _started(lab: Lab, api: Client) -> WebhookCluster:
    port, health = ports.free(2, chance=random.Random())  # noqa: S311 (ports, no secret)
    options = (f"--listen={LOOPBACK}:{port}", f"--url=https://{LOOPBACK}:{port}")
    speaking = (f"--health={LOOPBACK}:{health}", f"--kubeconfig={lab.kubeconfig}", "--log-level=warning")
    # --prefer-available also watches pods: the most expensive option.
    command = (sys.executable, "-m", "croupier.cli", "webhook", "--prefer-available", *options, *speaking)
    lab.adopt(process.start(Program(NAME, command), lab.logs))
    endpoint, deadline = Endpoint(f"http://{LOOPBACK}:{health}/readyz"), time.monotonic() + TIMEOUT
    await lab.answers(NAME, endpoint, deadline, within=TIMEOUT)
    house = WebhookCluster(lab, api, port, health)
    async with asyncio.timeout(TIMEOUT):
        while not await _is_called(house):  # noqa: ASYNC110 (polls the API server)
            await asyncio.sleep(POLL)
    return house


async def _is_called(house: WebhookCluster) -> bool:
    """Whether the API server calls the webhook."""
    made = await house.api.create(filled_cluster.PODS, pod("probe"), namespace=NAMESPACE, dry_run=True)
    return is_marked(made)


def is_marked(made: dict[str, Any]) -> bool:
    return "gpu.mps.io/ledger" in made["spec"]["containers"][0]["resources"]["limits"]


def pod(name: str, resource: str = REQUESTED) -> dict[str, Any]:
    """A pod of realistic size that is not scheduled."""
    made: dict[str, Any] = objects.pod(0, 1)
    made["metadata"] |= {"name": name, "namespace": NAMESPACE}
    del made["spec"]["nodeName"]
    made["spec"]["schedulerName"] = "no-such-scheduler"
    amounts = {"cpu": "2", resource: "1"}
    made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
    return made


def review(number: int) -> bytes:
    request = {
        "uid": f"00000000-0000-0000-0000-{number:012d}",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "namespace": NAMESPACE,
        "dryRun": True,
        "object": pod(f"question-{number}"),
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return msgspec.json.encode(body)


def webhook_endpoint(url: str, bundle: str) -> WebhookEndpoint:
    return WebhookEndpoint(url, ssl.create_default_context(cadata=bundle))


async def send_reviews(there: WebhookEndpoint, questions: Sequence[bytes], *, at_once: int) -> list[float]:
    """Send all reviews; returns the seconds of each. Every answer must contain the fallback."""
    taken: list[float] = []
    waiting = iter(questions)
    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(_send(session, there, waiting, taken.append))
    return taken


async def _send(
    session: aiohttp.ClientSession, there: WebhookEndpoint, waiting: Any, took: Callable[[float], None]
) -> None:
    headers = {"Content-Type": "application/json"}
    for body in waiting:
        began = time.perf_counter()
        async with session.post(there.url, data=body, headers=headers, ssl=there.trust) as got:
            answer = msgspec.json.decode(await got.read())["response"]
        took(time.perf_counter() - began)
        assert OFFERED.encode().replace(b"/", b"~1") in b64decode(answer["patch"])
