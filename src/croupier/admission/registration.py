"""Maintains the webhook configurations: creates them and keeps their CA bundles current.

Several replicas do this at once. Each change is guarded by the resourceVersion and sets only the bundle of
our own webhooks: all other fields stay.
"""

from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.admission import configurations
from croupier.admission.configurations import WebhookConfigurationOptions
from croupier.api import kinds
from croupier.api.core_v1 import WebhookConfiguration
from croupier.kube.client.api_client import Client, PatchType
from croupier.kube.client.errors import Conflict, NotFound
from croupier.kube.client.resource import Raw, Resource

KINDS: Final = (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Registration:
    """With `installs` the configurations are created here; otherwise they come from manifests."""

    api: Client
    options: WebhookConfigurationOptions
    installs: bool = True
    _installed: bool = field(init=False, default=False)

    async def carries(self, bundle: bytes) -> bool:
        """Whether every existing configuration has exactly this bundle."""
        for kind in KINDS:
            configuration = await self._find(kind)
            if configuration is not None and configurations.repair(configuration, bundle):
                return False
        return True

    async def publish(self, bundle: bytes) -> None:
        """Apply the whole configuration once per process; after that only repair wrong bundles."""
        if self.installs and not self._installed:
            await self.install(bundle)
            self._installed = True
        for kind in KINDS:
            await self._repair(kind, bundle)

    async def install(self, bundle: bytes = b"") -> None:
        for kind, wanted in zip(KINDS, configurations.documents(self.options, bundle), strict=True):
            await self._apply(kind, wanted)

    async def _repair(self, kind: Resource[WebhookConfiguration], bundle: bytes) -> None:
        while True:
            configuration = await self._find(kind)
            if configuration is None:
                if self.installs:
                    await self.install(bundle)
                return
            patch = configurations.repair(configuration, bundle)
            if not patch:
                return
            try:
                await self.api.patch(kind, self.options.name, patch, patch_type=PatchType.STRATEGIC)
                log.info(
                    f"the CA bundle of the {kind.kind} {self.options.name} was repaired",
                    kind=kind.kind,
                    name=self.options.name,
                )
            except Conflict:
                continue  # the object was changed: read it again

    async def _apply(self, kind: Resource[WebhookConfiguration], wanted: Raw) -> None:
        await self.api.apply(kind, wanted, force=True)
        log.info(f"the {kind.kind} {self.options.name} was applied", kind=kind.kind, name=self.options.name)

    async def _find(self, kind: Resource[WebhookConfiguration]) -> WebhookConfiguration | None:
        try:
            return await self.api.get(kind, self.options.name)
        except NotFound:
            return None
