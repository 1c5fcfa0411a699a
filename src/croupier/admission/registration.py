"""Keeps the API server's record of us right: that we exist, and which authorities to trust for it.

Several replicas do this at once. Each change names the version it was decided on, and touches the bundle
of our own webhooks only: whatever else people or tools wrote there stays.
"""

from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.admission import configurations
from croupier.admission.configurations import Wish
from croupier.api import kinds
from croupier.api.core_v1 import WebhookConfiguration
from croupier.kube.client import Client, PatchType
from croupier.kube.errors import Conflict, NotFound
from croupier.kube.resource import Raw, Resource

KINDS: Final = (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Registration:
    """With `installs` the configurations are ours to make; else they come by manifest or not at all."""

    api: Client
    wish: Wish
    installs: bool = True
    _installed: bool = field(init=False, default=False)

    async def carries(self, bundle: bytes) -> bool:
        """Whether every configuration there is trusts exactly these authorities."""
        for kind in KINDS:
            found = await self._find(kind)
            if found is not None and configurations.repair(found, bundle):
                return False
        return True

    async def publish(self, bundle: bytes) -> None:
        """Once written whole, as the settings of this process have it; from then on only what is wrong."""
        if self.installs and not self._installed:
            await self.install(bundle)
            self._installed = True
        for kind in KINDS:
            await self._repair(kind, bundle)

    async def install(self, bundle: bytes = b"") -> None:
        for kind, wanted in zip(KINDS, configurations.documents(self.wish, bundle), strict=True):
            await self._apply(kind, wanted)

    async def _repair(self, kind: Resource[WebhookConfiguration], bundle: bytes) -> None:
        while True:
            found = await self._find(kind)
            if found is None:
                if self.installs:
                    await self.install(bundle)
                return
            patch = configurations.repair(found, bundle)
            if not patch:
                return
            try:
                await self.api.patch(kind, self.wish.name, patch, patch_type=PatchType.STRATEGIC)
                log.info("put the authorities right", kind=kind.kind, name=self.wish.name)
            except Conflict:
                continue  # somebody wrote meanwhile: look again

    async def _apply(self, kind: Resource[WebhookConfiguration], wanted: Raw) -> None:
        await self.api.apply(kind, wanted, force=True)
        log.info("registered", kind=kind.kind, name=self.wish.name)

    async def _find(self, kind: Resource[WebhookConfiguration]) -> WebhookConfiguration | None:
        try:
            return await self.api.get(kind, self.wish.name)
        except NotFound:
            return None
