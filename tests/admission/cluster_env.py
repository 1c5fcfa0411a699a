"""The complete webhook in front of a real cluster, with the availability of its nodes.

Only namespaces with its label use the webhook, so other tests on the cluster are not affected.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec

from croupier.admission import certificates, configurations
from croupier.admission.certificate_rotation import ROTATION_RULES, RotationStep
from croupier.admission.configurations import UrlTarget, WebhookConfigurationOptions
from croupier.admission.mutate import PodMutator
from croupier.admission.pools import PoolAccessGuard
from croupier.admission.registration import KINDS
from croupier.admission.reservations import CachedBudgets, PodQuotaGuard, ReservationGuard
from croupier.admission.server import WebhookServer
from croupier.api import kinds
from croupier.api.gpu import GPUPool
from croupier.api.pod_requests import LEAN_NODES, LEAN_PODS
from croupier.api.quotas import RESOURCE_QUOTAS
from croupier.capacity import availability
from croupier.core import quantity
from croupier.core.availability import Availability
from croupier.core.claims.budget import UNLIMITED, ReservationLimits
from croupier.core.fallbacks.policy import FallbackPolicy
from croupier.core.pods.request_parser import GPU, LEDGER
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.cache.watch_state import ReflectorOptions
from croupier.kube.client import api_client, config, transport
from croupier.kube.client.api_client import Client, DeleteOptions, Selection
from croupier.kube.client.config import Config
from croupier.kube.client.credentials import Credential
from croupier.kube.client.errors import NotFound
from croupier.kube.serving.http_server import Address, ListenOptions, RotatingCertificate
from croupier_lab import shared_cluster
from croupier_lab.cluster import Cluster
from tests.polling import until, until_async

NAME = "croupier-gate"
LOOPBACK = "127.0.0.1"
WARNING = re.compile(r'299 \S+ "(.*)"')

Raw = dict[str, Any]


@dataclass(frozen=True)
class CreateResult:
    """The created pod, or the message of the refusal."""

    pod: Raw | None
    warnings: list[str]
    refused: str = ""


@dataclass
class WebhookClusterEnv:
    api: Client
    known: Availability
    namespace: str
    policy: FallbackPolicy = field(default_factory=FallbackPolicy)
    """The policy for the next pod."""
    pools: dict[str, GPUPool] = field(default_factory=dict)
    nodes: dict[str, set[str]] = field(default_factory=dict)
    taken: set[tuple[str, str]] = field(default_factory=set)
    """Held resources by node."""
    limits: ReservationLimits = UNLIMITED
    reservations: Store[Any] = field(default_factory=lambda: Store(kinds.RESERVATIONS))
    quotas: Store[Any] = field(default_factory=lambda: Store(RESOURCE_QUOTAS))
    """Caches of the webhook."""
    smallest: int = 1
    """The smallest share without a pool, read when the webhook starts."""
    existing: set[str] = field(default_factory=set)
    """The pods that the webhook knows."""
    _config: Config = field(kw_only=True)

    async def cut(self, wanted: Mapping[str, Mapping[str, int]]) -> None:
        """Replace the nodes and their allocatable, and wait until the webhook knows them."""
        gone = self.nodes.keys() - wanted.keys()
        expected = {
            name: {**dict.fromkeys(self.nodes.get(name, ()), 0), **amounts}
            for name, amounts in wanted.items()
        }
        for name in gone:
            await self.api.delete(kinds.NODES, name)
            del self.nodes[name]
        for name, amounts in wanted.items():
            written = {resource: str(amount) for resource, amount in amounts.items()}
            await self._cut_one(name, written)
            self.nodes[name] = set(written)
        await until(lambda: self._knows(expected, gone), "the webhook to know the nodes")

    def _knows(self, wanted: Mapping[str, Mapping[str, int]], gone: set[str]) -> bool:
        offers = (
            self.known.three(name, resource).allocatable == quantity.parse(str(amount))
            for name, amounts in wanted.items()
            for resource, amount in amounts.items()
        )
        return all(offers) and gone.isdisjoint(self.known.nodes())

    async def _cut_one(self, name: str, written: dict[str, str]) -> None:
        if name not in self.nodes:
            await self.api.create(kinds.NODES, {"metadata": {"name": name}})
        gone = dict.fromkeys(self.nodes.get(name, set()) - written.keys())
        amounts = {"cpu": "64", "pods": "110", **gone, **written}
        status = {"status": {"capacity": amounts, "allocatable": amounts}}
        await self.api.patch(kinds.NODES, name, status, subresource="status")

    async def take(self, taken: Mapping[str, Mapping[str, int]]) -> None:
        """Create running pods that hold these resources."""
        for node, amounts in taken.items():
            limits = {resource: str(amount) for resource, amount in amounts.items()}
            await self.create(pod(f"holds-{node}", limits, nodeName=node))
            for resource, amount in amounts.items():
                self.taken.add((node, resource))
                await self._allocated(node, resource, amount)

    async def _allocated(self, node: str, resource: str, amount: int) -> None:
        wanted = quantity.parse(str(amount))
        await until(
            lambda: self.known.three(node, resource).allocated == wanted,
            f"{amount} of {resource} to be taken on {node}",
        )

    async def create(self, body: Raw, *, dry_run: bool = False) -> CreateResult:
        """Create the pod; returns it with the warnings."""
        return await create_pod(self._config, self.namespace, body, dry_run=dry_run)

    async def sweep(self) -> None:
        """Delete all pods, and wait until the webhook knows it."""
        now = DeleteOptions(grace_seconds=0)
        await self.api.delete_collection(kinds.PODS, Selection(namespace=self.namespace), how=now)
        while self.taken:
            await self._allocated(*self.taken.pop(), 0)

    async def clear(self) -> None:
        await self.sweep()
        await self.cut({})

    async def is_open(self) -> bool:
        answer = await self.create(pod("probe", {GPU: "1"}), dry_run=True)
        return answer.pod is not None and LEDGER in limits(answer.pod)["main"]


async def create_pod(reached: Config, namespace: str, body: Raw, *, dry_run: bool = False) -> CreateResult:
    """Create the pod with a plain request, because clients do not return warnings."""
    url = f"{reached.server}/api/v1/namespaces/{namespace}/pods"
    context = transport.tls(reached, Credential(None, None, None))
    query = {"dryRun": "All"} if dry_run else {}
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, params=query, ssl=context) as answer,
    ):
        said = msgspec.json.decode(await answer.read())
        warnings = [_unquoted(one) for one in answer.headers.getall("Warning", ())]
    return (
        CreateResult(said, warnings) if answer.status < 300 else CreateResult(None, warnings, said["message"])
    )


def pod(name: str, amounts: dict[str, str], annotations: dict[str, str] | None = None, **spec: Any) -> Raw:
    """A pod with one container and a scheduler that does not exist."""
    container = {"name": "main", "image": "any", "resources": {"limits": amounts}}
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"schedulerName": "none", "containers": [container], **spec},
    }


def limits(found: Raw) -> dict[str, dict[str, str]]:
    """Limits by container; the API server guarantees that requests are equal."""
    containers = (*found["spec"]["containers"], *found["spec"].get("initContainers", ()))
    return {container["name"]: container["resources"].get("limits", {}) for container in containers}


@contextlib.asynccontextmanager
async def webhook_cluster(cluster: Cluster, **options: Any) -> AsyncIterator[WebhookClusterEnv]:
    namespace = shared_cluster.create_namespace(cluster, "webhook")
    cluster.kubectl("label", "namespace", namespace, f"{NAME}={namespace}")
    reached = config.load(cluster.kubeconfig)
    try:
        async with api_client.connect(reached) as api, _index(api) as known:
            env = WebhookClusterEnv(api, known, namespace, _config=reached, **options)
            async with _serving(env):
                await until_async(env.is_open, "the API server to ask us")
                yield env
                await env.clear()
    finally:
        shared_cluster.delete_namespace(cluster, namespace)


@contextlib.asynccontextmanager
async def _index(api: Client) -> AsyncIterator[Availability]:
    nodes, pods = Store(LEAN_NODES), Store(LEAN_PODS)
    bound = Selection(fields="spec.nodeName!=")
    reflectors = (Reflector(api, nodes), Reflector(api, pods, selection=bound))
    reading = [asyncio.create_task(reflector.run()) for reflector in reflectors]
    try:
        for reflector in reflectors:
            await reflector.synced()
        yield availability.maintain(nodes, pods)
    finally:
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


@contextlib.asynccontextmanager
async def _following(env: WebhookClusterEnv) -> AsyncIterator[None]:
    """Fill the caches of Reservations and quotas, if these kinds exist."""
    chosen, rules = Selection(namespace=env.namespace), ReflectorOptions(optional=True)
    reading = [
        asyncio.create_task(Reflector(env.api, store, selection=chosen, rules=rules).run())
        for store in (env.reservations, env.quotas)
    ]
    try:
        yield
    finally:
        for task in reading:
            task.cancel()
        await asyncio.wait(reading)


@contextlib.asynccontextmanager
async def _serving(env: WebhookClusterEnv) -> AsyncIterator[None]:
    ring = certificates.after_step(
        RotationStep.BEGIN, None, datetime.now(UTC), hosts=(LOOPBACK,), rules=ROTATION_RULES
    )
    served = RotatingCertificate()
    served.replace(ring.certificate, ring.key)
    budgets = CachedBudgets(
        lambda namespace: [one for one in env.reservations if one.metadata.namespace == namespace],
        lambda namespace: [one for one in env.quotas if one.metadata.namespace == namespace],
        lambda: env.limits,
    )
    mutator = PodQuotaGuard(PodMutator(env.known, lambda: env.policy, smallest=env.smallest), budgets)
    hook = WebhookServer(
        mutator,
        ListenOptions(Address(LOOPBACK, 0), served),
        PoolAccessGuard(env.pools.get),
        ReservationGuard(budgets, lambda _namespace, pod: pod in env.existing, env.smallest),
    )
    async with _following(env), hook.serving() as taken:
        options = WebhookConfigurationOptions(
            UrlTarget(taken.url, LOOPBACK), namespaces={NAME: env.namespace}, name=NAME
        )
        try:
            for kind, wanted in zip(KINDS, configurations.documents(options, ring.bundle), strict=True):
                await env.api.apply(kind, wanted, force=True)
            yield
        finally:
            for kind in KINDS:
                with contextlib.suppress(NotFound):
                    await env.api.delete(kind, NAME)


def _unquoted(warning: str) -> str:
    found = WARNING.fullmatch(warning)
    return re.sub(r"\\(.)", r"\1", found[1]) if found else warning
