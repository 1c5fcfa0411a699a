"""A webhook for the pods of one namespace of a real API server, which records its requests."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from croupier.admission import certificates_shared
from croupier.admission.authority import RULES, Rules
from croupier.admission.certificates_shared import SharedCertificate
from croupier.admission.configurations import Url, Wish
from croupier.admission.registration import KINDS, Registration
from croupier.admission.review import AdmissionRequest, Verdict
from croupier.admission.server import Webhook
from croupier.api import kinds
from croupier.core.jsonpatch import Operation
from croupier.kube.client import Client, Selection
from croupier.kube.clock import Clock, SystemClock
from croupier.kube.errors import ApiError, NotFound
from croupier.kube.reflector import Reflector
from croupier.kube.resource import Resource
from croupier.kube.serving import Address, Listen, Rotating
from croupier.kube.store import Store
from croupier.lab import ports
from tests.kube.waiting import until_async

PROBE = "probe"


class Stamp:
    """Admits every pod with a stamp, refuses pods with a bad annotation, and records the pods."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.requests: list[AdmissionRequest] = []

    def mutate(self, request: AdmissionRequest) -> Verdict:
        self.requests.append(request)
        metadata = (request.object or {}).get("metadata", {})
        name = metadata.get("name") or metadata.get("generateName", "")
        if name != PROBE:
            self.seen.append(name)
        annotations = metadata.get("annotations") or {}
        if "gpu.mps.io/bad" in annotations:
            return Verdict(allowed=False, sentence="the annotation gpu.mps.io/bad is bad")
        if "stamp" in annotations:
            return Verdict()
        value = {**annotations, "stamp": "here"}
        return Verdict(operations=(Operation("add", "/metadata/annotations", value),), warnings=("stamped",))


class Open:
    """Allows every pod to use every pool."""

    def mutate(self, _request: AdmissionRequest) -> Verdict:
        return Verdict()


@dataclass
class Desk:
    """`open()` runs one replica; there may be several, with one address or with their own."""

    api: Client
    namespace: str
    wish: Wish
    port: int
    rules: Rules = RULES
    clock: Clock = field(default_factory=SystemClock)
    stamp: Any = field(default_factory=Stamp)
    """Decides about pods."""
    guard: Any = field(default_factory=Open)
    """Decides about pods that request a pool."""
    recheck: float = 0.2
    _hooks: list[Webhook] = field(default_factory=list)

    @property
    def registration(self) -> Registration:
        return Registration(self.api, self.wish)

    def certificate(self, served: Rotating, *, register: Any = None) -> SharedCertificate:
        settings = certificates_shared.Settings(
            self.namespace, hosts=self.wish.target.hosts, rules=self.rules, recheck=self.recheck
        )
        return SharedCertificate(self.api, register or self.registration, served, settings, clock=self.clock)

    @contextlib.asynccontextmanager
    async def replica(self, *, port: int | None = None) -> AsyncIterator[SharedCertificate]:
        """One replica: its certificate, its watches, its server."""
        served = Rotating()
        certificate = self.certificate(served)
        listen = Listen(Address("127.0.0.1", self.port if port is None else port), served)
        async with self.watching(certificate.wake):
            keeping = asyncio.create_task(certificate.run())
            try:
                await asyncio.wait_for(certificate.loaded.wait(), 30)
                hook = Webhook(self.stamp, listen, self.guard)
                self._hooks.append(hook)
                async with hook.serving():
                    certificate.answer()
                    yield certificate
            finally:
                keeping.cancel()
                await asyncio.wait({keeping})

    @contextlib.asynccontextmanager
    async def watching(self, wake: Callable[..., None]) -> AsyncIterator[None]:
        tasks = []
        secret = Selection(namespace=self.namespace, fields=f"metadata.name={certificates_shared.NAME}")
        ours = Selection(fields=f"metadata.name={self.wish.name}")
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
                await self.api.delete(kind, self.wish.name)


def plain(**resources: Any) -> dict[str, Any]:
    """A pod spec with one container and a nodeSelector that matches no node."""
    container = {"name": "main", "image": "any", **({"resources": resources} if resources else {})}
    return {"containers": [container], "nodeSelector": {"no": "node"}}


def gpu(resource: str = "nvidia.com/gpu", amount: str = "1") -> dict[str, Any]:
    return plain(requests={resource: amount}, limits={resource: amount})


def webhook_options(namespace: str, port: int, **options: Any) -> Wish:
    target = Url(f"https://127.0.0.1:{port}", "127.0.0.1")
    return Wish(
        target, namespaces={"kubernetes.io/metadata.name": namespace}, name=f"croupier-{namespace}", **options
    )


def free_ports(count: int) -> tuple[int, ...]:
    """Distinct ports; separate calls could return the same port."""
    return ports.free(count, chance=random.Random())  # noqa: S311  # ports, no secret


def free_port() -> int:
    return free_ports(1)[0]
