"""A certificate from a mounted folder, for example one that cert-manager issues.

The folder holds `tls.crt` and `tls.key`, as the kubelet mounts a Secret, and is polled for changes. The
issuer also maintains the CA bundle: cert-manager's injector follows an annotation of the webhook
configurations.
"""

import contextlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from croupier.admission.certificate_watcher import CertificateWatcher
from croupier.admission.certificates import CERTIFICATE, KEY
from croupier.admission.metrics import AdmissionMetrics
from croupier.admission.registration import Registration
from croupier.kube.serving import certificates
from croupier.kube.serving.http_server import BadCertificate, RotatingCertificate

POLL_INTERVAL: Final = 10.0
"""Seconds between two checks of the folder."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class MountedCertificate:
    folder: Path
    register: Registration | None
    served: RotatingCertificate
    metrics: AdmissionMetrics = field(default_factory=lambda: AdmissionMetrics(CollectorRegistry()))
    every: float = POLL_INTERVAL
    watcher: CertificateWatcher = field(init=False)
    _seen: tuple[int, ...] = field(init=False, default=())
    _registered: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.watcher = CertificateWatcher(self.every)

    async def run(self) -> None:
        """Until cancelled."""
        await self.watcher.run(self._sync_and_register)

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
        self.watcher.loaded.set()
        log.info(f"the webhook serves the certificate in {self.folder}", path=str(self.folder))

    async def _sync_and_register(self) -> None:
        self.sync()
        if self.register is not None and self.watcher.answering and not self._registered:
            await self.register.install()
            self._registered = True

    def _moments(self) -> tuple[int, ...]:
        """Modification times of the link targets: the kubelet replaces the folder by a symbolic link."""
        times = []
        for name in (CERTIFICATE, KEY):
            with contextlib.suppress(OSError):
                times.append((self.folder / name).stat().st_mtime_ns)
        return tuple(times) or (0,)
