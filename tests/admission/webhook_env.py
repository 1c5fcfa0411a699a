"""A webhook for the pods of one namespace of a real API server, which records its requests."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from croupier.admission import certificates_shared
from croupier.admission.certificate_rotation import ROTATION_RULES, RotationRules
from croupier.admission.certificates_shared import SharedCertificate
from croupier.admission.configurations import UrlTarget, WebhookConfigurationOptions
from croupier.admission.registration import KINDS, Registration
from croupier.admission.review import AdmissionRequest, AdmissionVerdict
from croupier.admission.server import WebhookServer
from croupier.api import kinds
from croupier.core.jsonpatch import Operation
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import ApiError, NotFound
from croupier.kube.client.resource import Resource
from croupier.kube.serving.http_server import Address, ListenOptions, RotatingCertificate
from croupier_lab import ports
from tests.polling import until_async

PROBE = "probe"


class StampMutator:
    """Admits every pod with a stamp, refuses pods with a bad annotation, and records the pods."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.requests: list[AdmissionRequest] = []

    def mutate(self, request: AdmissionRequest) -> AdmissionVerdict:
        self.requests.append(request)
        metadata = (request.object or {}).get("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "")
        if name != PROBE:
            self.seen.append(name)
        annotations = metadata.get("annotations") or {}
        if "gpu.mps.io/bad" in annotations:
            return AdmissionVerdict(allowed=False, sentence="the annotation gpu.mps.io/bad is bad")
        if "stamp" in annotations:
            return AdmissionVerdict()
        value = {**annotations, "stamp": "here"}
        return AdmissionVerdict(
            operations=(Operation("add", "/metadata/annotations", value),), warnings=("stamped",)
        )


class AllowAllPools:
    """Allows every pod to use every pool."""

    def mutate(self, _request: AdmissionRequest) -> AdmissionVerdict:
        return AdmissionVerdict()


@dataclass
class WebhookEnv:
    """`open()` runs one replica; there may be several, with one address or with their own."""

    api: Client
    namespace: str
    options: WebhookConfigurationOptions
    port: int
    rules: RotationRules = ROTATION_RULES
    clock: Clock = field(default_factory=SystemClock)
    stamp: Any = field(default_factory=StampMutator)
    """Decides about pods."""
    guard: Any = field(default_factory=AllowAllPools)
    """Decides about pods that request a pool."""
    recheck: float = 0.2
    client_authority: Path | None = None
    """The CA of the client certificate that the webhook demands; without it every client is answered."""
    client_names: frozenset[str] = frozenset()
    _hooks: list[WebhookServer] = field(default_factory=list)

    @property
    def registration(self) -> Registration:
        return Registration(self.api, self.options)

    def certificate(self, served: RotatingCertificate, *, register: Any = None) -> SharedCertificate:
        settings = certificates_shared.SharedCertificateOptions(
            self.namespace, hosts=self.options.target.hosts, rules=self.rules, recheck=self.recheck
        )
        return SharedCertificate(self.api, register or self.registration, served, settings, clock=self.clock)

    @contextlib.asynccontextmanager
    async def replica(self, *, port: int | None = None) -> AsyncIterator[SharedCertificate]:
        """One replica: its certificate, its watches, its server."""
        served = RotatingCertificate(self.client_authority)
        certificate = self.certificate(served)
        address = Address("127.0.0.1", self.port if port is None else port)
        listen = ListenOptions(address, served, self.client_names)
        async with self.watching(certificate.watcher.wake):
            keeping = asyncio.create_task(certificate.run())
            try:
                await asyncio.wait_for(certificate.watcher.loaded.wait(), 30)
                hook = WebhookServer(self.stamp, listen, self.guard)
                self._hooks.append(hook)
                async with hook.serving():
                    certificate.watcher.answer()
                    yield certificate
            finally:
                keeping.cancel()
                await asyncio.wait({keeping})

    @contextlib.asynccontextmanager
    async def watching(self, wake: Callable[..., None]) -> AsyncIterator[None]:
        tasks = []
        secret = Selection(namespace=self.namespace, fields=f"metadata.name={certificates_shared.NAME}")
        ours = Selection(fields=f"metadata.name={self.options.name}")
        followed: list[tuple[Resource[Any], Selection]] = [(kinds.SECRETS, secret)]
        for kind, selection in followed + [(kind, ours) for kind in KINDS]:
            store: Store[Any] = Store(kind)
            store.subscribe(wake)
            tasks.append(asyncio.create_task(Reflector(self.api, store, selection=selection).run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[SharedCertificate]:
        """One replica that the API server calls already."""
        async with self.replica() as certificate:
            await self.asked()
            yield certificate

    def hangs_up(self) -> None:
        """Close connections after every answer, as a stopping server does."""
        for hook in self._hooks:
            hook.posts.closing = True

    async def asked(self) -> None:
        """Wait until the API server uses the configurations."""

        async def stamped() -> bool:
            with contextlib.suppress(ApiError):
                pod = await self.create(PROBE, dry_run=True, annotations={"gpu.mps.io/x": "1"}, raw=True)
                return "stamp" in pod["metadata"]["annotations"]
            return False

        await until_async(stamped, "the API server to call the webhook")

    async def create(
        self,
        name: str = "",
        *,
        raw: bool = False,
        dry_run: bool = False,
        annotations: dict[str, str] | None = None,
        spec: dict[str, Any] | None = None,
        generate: str = "",
        namespace: str = "",
    ) -> Any:
        named = {"name": name} if name else {"generateName": generate}
        body = {
            "metadata": {**named, "namespace": namespace or self.namespace, "annotations": annotations or {}},
            "spec": spec or plain(),
        }
        kind: Any = kinds.PODS.raw if raw else kinds.PODS
        return await self.api.create(kind, body, dry_run=dry_run)

    async def leave(self) -> None:
        """Delete the configurations."""
        for kind in KINDS:
            with contextlib.suppress(NotFound):
                await self.api.delete(kind, self.options.name)


def plain(**resources: Any) -> dict[str, Any]:
    """A pod spec with one container and a nodeSelector that matches no node."""
    container = {"name": "main", "image": "any", **({"resources": resources} if resources else {})}
    return {"containers": [container], "nodeSelector": {"no": "node"}}


def gpu(resource: str = "nvidia.com/gpu", amount: str = "1") -> dict[str, Any]:
    return plain(requests={resource: amount}, limits={resource: amount})


def webhook_options(namespace: str, port: int, **options: Any) -> WebhookConfigurationOptions:
    target = UrlTarget(f"https://127.0.0.1:{port}", "127.0.0.1")
    return WebhookConfigurationOptions(
        target, namespaces={"kubernetes.io/metadata.name": namespace}, name=f"croupier-{namespace}", **options
    )


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports; separate calls could return the same port."""
    return ports.free(count, chance=random.Random())  # noqa: S311  # ports, no secret


def free_port() -> int:
    return free_ports(1)[0]
