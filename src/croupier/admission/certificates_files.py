"""A certificate from a mounted folder, for example one that cert-manager issues.

The folder holds `tls.crt` and `tls.key`, as the kubelet mounts a Secret, and is polled for changes. The
issuer also maintains the CA bundle: cert-manager's injector follows an annotation of the webhook
configurations.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry

from croupier.admission.certificates import CERTIFICATE, KEY
from croupier.admission.metrics import AdmissionMetrics
from croupier.kube.client.errors import KubeError
from croupier.kube.serving import certificates
from croupier.kube.serving.http_server import BadCertificate, RotatingCertificate

POLL_INTERVAL: Final = 10.0
"""Seconds between two checks of the folder."""

log = structlog.get_logger(__name__)


class WebhookInstaller(Protocol):
    async def install(self) -> None: ...


@dataclass(slots=True)
class MountedCertificate:
    folder: Path
    register: WebhookInstaller | None
    served: RotatingCertificate
    metrics: AdmissionMetrics = field(default_factory=lambda: AdmissionMetrics(CollectorRegistry()))
    every: float = POLL_INTERVAL
    loaded: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    last_error: str = field(init=False, default="")
    _seen: tuple[int, ...] = field(init=False, default=())
    _registered: bool = field(init=False, default=False)
    _answering: asyncio.Event = field(init=False, default_factory=asyncio.Event)

    def answer(self) -> None:
        """The server listens: from now on the webhook may be registered."""
        self._answering.set()

    def missing(self) -> str | None:
        """For a readiness check."""
        return None if self.loaded.is_set() else f"no certificate yet: {self.last_error}"

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                self.sync()
                await self._register()
                self.last_error = ""
            except KubeError as error:  # partly written or missing: keep the current certificate
                if str(error) != self.last_error:
                    log.warning(str(error))
                self.last_error = str(error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.every):
                    await self._until_answering()

    def sync(self) -> None:
        moments = self._moments()
        if moments == self._seen:
            return
        try:
            certificate, key = (self.folder / name for name in (CERTIFICATE, KEY))
            chain = certificate.read_bytes()
            self.served.replace(chain, key.read_bytes())
            self.metrics.serving_until(certificates.expiry(chain))
        except (OSError, ValueError) as bad:
            raise BadCertificate(f"{self.folder} has no certificate that can be served: {bad}") from bad
        self._seen = moments
        self.loaded.set()
        log.info("serving a certificate", folder=str(self.folder))

    async def _register(self) -> None:
        if self.register is not None and self._answering.is_set() and not self._registered:
            await self.register.install()
            self._registered = True

    async def _until_answering(self) -> None:
        if self._registered or self._answering.is_set():
            await asyncio.Event().wait()  # wait for the timeout
        await self._answering.wait()

    def _moments(self) -> tuple[int, ...]:
        """Modification times of the link targets: the kubelet replaces the folder by a symbolic link."""
        times = []
        for name in (CERTIFICATE, KEY):
            with contextlib.suppress(OSError):
                times.append((self.folder / name).stat().st_mtime_ns)
        return tuple(times) or (0,)
