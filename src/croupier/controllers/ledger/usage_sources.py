"""Where the changes of ledgers come from that usage is counted from.

With the CRD capacity manager they come from a watch that continues where the last record of usage ended, so
changes are counted that were made while no process counted. They have the time of their write, by the clock
of the API server. With the InMemory capacity manager they come from the process itself, with its own clock.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from croupier.api.gpu import GPUDevice
from croupier.api.kinds import LEDGER_REVISIONS
from croupier.api.mps import ledger_codec
from croupier.api.mps.ledger_revision import LedgerRevision
from croupier.capacity.cluster_view import ClusterView
from croupier.capacity.manager import CapacityManager
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import mig
from croupier.core.usage import holdings
from croupier.core.usage.account import NodeHoldings, UsageAccount
from croupier.core.usage.holdings import CardProduct, Holdings
from croupier.kube.cache import watch_state
from croupier.kube.cache.watch_state import (
    Listed,
    ReflectorOptions,
    WatchClosed,
    WatchFailed,
    WatchOutcome,
    WatchPosition,
)
from croupier.kube.client import watch_protocol
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import KubeError

PRODUCT: Final = "nvidia.com/gpu.product"
"""The node label with the model of cards that have no GPUDevice."""

log = structlog.get_logger(__name__)


class LedgerChanges(Protocol):
    def now(self) -> int:
        """The time in seconds."""
        ...

    async def follow(self, account: UsageAccount) -> None:
        """Count every change until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class HoldingsReader:
    """Adds the models of the cards, which the ledger does not contain."""

    view: ClusterView

    def read(self, ledger: Ledger) -> Holdings:
        known = {device.card_id: _model(device) for device in self.view.devices_of(ledger.node)}
        node = self.view.node(ledger.node)
        other = CardProduct("" if node is None else node.metadata.labels.get(PRODUCT, ""))
        models: Mapping[str, CardProduct] = {card.id: known.get(card.id, other) for card in ledger.cards}
        return holdings.holdings(ledger, models)


def _model(device: GPUDevice) -> CardProduct:
    hardware = device.status.hardware
    if hardware is None:
        return CardProduct()
    types = hardware.mig.types if hardware.mig is not None else ()
    slices = max((mig.compute_slices(mig_type.name) for mig_type in types), default=mig.COMPUTE_SLICES)
    return CardProduct(hardware.product, slices)


@dataclass(slots=True)
class StoredLedgerChanges:
    """Changes of NodeReservations."""

    reader: HoldingsReader
    api: Client
    options: ReflectorOptions = field(default_factory=ReflectorOptions)
    chance: Callable[[], float] = random.random

    def now(self) -> int:
        return int(self.api.clock.now().timestamp())

    async def follow(self, account: UsageAccount) -> None:
        await self.reader.view.complete()
        position = WatchPosition(account.version or None)
        while True:
            outcome = await self._step(account)
            position = watch_state.after(WatchPosition(account.version or None, position.failures), outcome)
            account.version = position.version or ""
            await asyncio.sleep(watch_state.delay(position, outcome, self.options, self.chance()))

    async def _step(self, account: UsageAccount) -> WatchOutcome:
        """List or watch once."""
        try:
            if not account.version:
                return await self._list(account)
            return WatchClosed(await self._watch(account))
        except KubeError as error:
            log.info(f"the watch of the ledgers failed and is repeated: {error}", error=str(error))
            return WatchFailed(error)

    async def _list(self, account: UsageAccount) -> Listed:
        listing = await self.api.list(LEDGER_REVISIONS)
        account.relist(
            {
                revision.metadata.name: (self._state(revision), self._written(revision))
                for revision in listing.items
            }
        )
        account.version = listing.resource_version
        return Listed(listing.resource_version)

    async def _watch(self, account: UsageAccount) -> bool:
        """True if there was any event. A watch that is closed continues at the version of the account."""
        alive = False
        batches = self.api.watch(
            LEDGER_REVISIONS,
            resource_version=account.version,
            seconds=self.options.seconds(self.chance()),
            idle_timeout=self.options.idle_timeout,
        )
        async with contextlib.aclosing(batches) as opened:
            async for batch in opened:
                for event in batch:
                    alive = True
                    self._count(account, event)
        return alive

    def _count(self, account: UsageAccount, event: watch_protocol.WatchEvent[LedgerRevision]) -> None:
        match event:
            case watch_protocol.ObjectEvent(type="DELETED", object=revision):
                account.remove(revision.metadata.name, self.now())
                account.version = revision.metadata.resource_version
            case watch_protocol.ObjectEvent(object=revision):
                account.observe(revision.metadata.name, self._state(revision), self._written(revision))
                account.version = revision.metadata.resource_version
            case watch_protocol.Bookmark(resource_version=version):
                account.version = version
            case watch_protocol.SkippedEvent(resource_version=version):
                account.version = version or account.version
            case watch_protocol.WatchError(error=error):
                raise error

    def _state(self, revision: LedgerRevision) -> NodeHoldings:
        meta = revision.metadata
        return NodeHoldings(meta.generation, self.reader.read(ledger_codec.decode(meta.name, revision.spec)))

    def _written(self, revision: LedgerRevision) -> int:
        written = revision.written_at
        return int(written.timestamp()) if written is not None else self.now()


@dataclass(slots=True)
class InMemoryLedgerChanges:
    """Changes of ledgers in the memory of this process."""

    reader: HoldingsReader
    manager: CapacityManager
    clock: Clock = field(default_factory=SystemClock)

    def now(self) -> int:
        return int(self.clock.now().timestamp())

    async def follow(self, account: UsageAccount) -> None:
        def changed(node: str) -> None:
            account.observe(node, self._state(node), self.now())

        await self.reader.view.complete()
        now = self.now()
        account.relist({node: (self._state(node), now) for node in self.manager.nodes()})
        account.version = ""
        unsubscribe = self.manager.subscribe(changed)
        try:
            await asyncio.Event().wait()
        finally:
            unsubscribe()

    def _state(self, node: str) -> NodeHoldings:
        ledger = self.manager.ledger(node)
        return NodeHoldings(0, self.reader.read(ledger) if ledger is not None else {})
