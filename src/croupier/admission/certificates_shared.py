"""The certificate that all replicas share: any replica creates or renews it when it is due.

The Secret is the only state. It is written by compare-and-swap, so of several replicas that take the same
step one wins and the others use its result. Every replica loads the Secret without a restart. If the Secret
is deleted, a replica that still serves its content writes it again: a new CA would fail the webhook calls of
GPU pods for a while.
"""

import contextlib
from dataclasses import dataclass, field
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from croupier.admission import certificate_rotation, certificates
from croupier.admission.certificate_rotation import ROTATION_RULES, RotationRules, RotationStep
from croupier.admission.certificate_watcher import CertificateWatcher
from croupier.admission.certificates import Keyring
from croupier.admission.metrics import AdmissionMetrics
from croupier.admission.registration import Registration
from croupier.api import kinds
from croupier.api.core_v1 import Secret
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import Conflict, NotFound
from croupier.kube.client.resource import Raw
from croupier.kube.serving.http_server import RotatingCertificate

NAME: Final = "croupier-webhook-tls"
RECHECK: Final = 60.0
"""Seconds between checks of certificate ages and of missed changes."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SharedCertificateOptions:
    namespace: str
    hosts: tuple[str, ...]
    rules: RotationRules = ROTATION_RULES
    recheck: float = RECHECK
    name: str = NAME


@dataclass(slots=True)
class SharedCertificate:
    """Keeps `served` in sync with the Secret. Publishes the bundle only after the server listens."""

    api: Client
    register: Registration
    served: RotatingCertificate
    settings: SharedCertificateOptions
    clock: Clock = field(default_factory=SystemClock)
    metrics: AdmissionMetrics = field(default_factory=lambda: AdmissionMetrics(CollectorRegistry()))
    watcher: CertificateWatcher = field(init=False)
    _ring: Keyring | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.watcher = CertificateWatcher(self.settings.recheck)

    async def run(self) -> None:
        """Until cancelled."""
        await self.watcher.run(self.sync)

    async def sync(self) -> None:
        """Take the steps that are due, serve the result, and publish the bundle."""
        ring = await self._settled()
        if self._ring is None or ring.certificate != self._ring.certificate:
            self.served.replace(ring.certificate, ring.key)
            self.metrics.serving_until(ring.ring.serving.span.end)
            expires = ring.ring.serving.span.end.isoformat()
            log.info(f"the webhook serves a certificate that is valid until {expires}", expires=expires)
        self._ring = ring
        self.watcher.loaded.set()
        if self.watcher.answering:
            await self.register.publish(ring.bundle)

    async def _settled(self) -> Keyring:
        rules, hosts = self.settings.rules, self.settings.hosts
        while True:
            secret = await self._secret()
            ring = certificates.read(secret.data) if secret is not None else self._ring
            published = ring is not None and await self.register.carries(ring.bundle)
            now = self.clock.now()
            known = ring.ring if ring is not None else None
            step = certificate_rotation.decide(known, now, published=published, hosts=hosts, rules=rules)
            if step is RotationStep.NOTHING and ring is not None and secret is not None:
                return ring
            with contextlib.suppress(Conflict):  # another replica was first: read its result
                await self._write(secret, certificates.after_step(step, ring, now, hosts=hosts, rules=rules))
                log.info(f"the webhook rotated its certificate: step {step.value} is done", step=step.value)

    async def _secret(self) -> Secret | None:
        try:
            return await self.api.get(kinds.SECRETS, self.settings.name, namespace=self.settings.namespace)
        except NotFound:
            return None

    async def _write(self, secret: Secret | None, ring: Keyring) -> None:
        name, namespace = self.settings.name, self.settings.namespace
        if secret is None:
            body: Raw = {
                "metadata": {"name": name, "namespace": namespace},
                "type": "Opaque",
                "data": ring.data(),
            }
            await self.api.create(kinds.SECRETS, body)
            return
        guard = {"resourceVersion": secret.metadata.resource_version, "uid": secret.metadata.uid}
        await self.api.patch(
            kinds.SECRETS, name, {"metadata": guard, "data": ring.data()}, namespace=namespace
        )
