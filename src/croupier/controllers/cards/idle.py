"""The idle card controller: carries out `spec.idle` of pools.

One key is one card. Only cards that are idle, or that carry the mark of an earlier idle time, are looked at.
A write names the version that was read, because a user may have set or removed the drain annotation since.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import structlog

from croupier.api import settings
from croupier.api.core_v1 import Pod
from croupier.api.gpu import GPUDevice, GPUPool
from croupier.api.gpu.device import DRAIN, IDLE_MARK
from croupier.api.kinds import GPU_DEVICES, GPU_POOLS, PODS
from croupier.capacity import index_keys
from croupier.capacity.read_only_ledgers import LedgerReader
from croupier.core.cards.lifecycle import POOL
from croupier.core.ledger import holder as holder_names
from croupier.core.pools import idle
from croupier.core.pools.idle import IdleCard, IdleDecision, IdlePolicy
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.identity import Key
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "idle cards"
REASON: Final = "GPUCardIdle"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class IdleCardInformers:
    devices: Informer[GPUDevice]
    pools: Informer[GPUPool]
    pods: Informer[Pod]
    ledgers: LedgerReader


@dataclass(frozen=True, slots=True)
class IdleCardOptions:
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class IdleCardController:
    """With leader election, `api` must be fenced by the caller."""

    def __init__(
        self,
        sources: IdleCardInformers,
        api: Client,
        *,
        recorder: EventRecorder,
        options: IdleCardOptions | None = None,
    ) -> None:
        self._sources = sources
        self._api = api.with_field_manager(POOL)
        self._recorder = recorder
        options = options or IdleCardOptions()
        self._clock = options.clock
        self._by_pool = sources.devices.store.index(index_keys.pool_of_device)
        self.controller: Controller[str] = Controller(NAME, self.reconcile, metrics=options.metrics)
        self.controller.watch(sources.devices.store, sources.devices.cache, _concerned)
        self.controller.watch(sources.pools.store, sources.pools.cache, self._cards_of)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        with store.open_indexes(self._by_pool):
            await self.controller.run(stop, leader_check)

    async def reconcile(self, name: str) -> Result:
        device = self._sources.devices.store.named(name)
        if device is None:
            return DONE
        pool = self._sources.pools.store.named(device.pool_name) if device.pool_name else None
        decision = idle.decide(_card(device), _policy(pool), self._clock.now())
        if decision.mark is not None or decision.drain is not None:
            await self._write(device, decision)
        if decision.notice and pool is not None:
            self._notify(device, pool, decision.notice)
        return Result(requeue_after=decision.again.total_seconds()) if decision.again is not None else DONE

    async def _write(self, device: GPUDevice, decision: IdleDecision) -> None:
        wanted = {IDLE_MARK: decision.mark, DRAIN: decision.drain}
        annotations = {key: value or None for key, value in wanted.items() if value is not None}
        body = {"resourceVersion": device.metadata.resource_version, "annotations": annotations}
        try:
            written = await self._api.patch(GPU_DEVICES, device.metadata.name, {"metadata": body})
        except NotFound:
            return
        self.controller.wrote(device.metadata.name, GPU_DEVICES, written)
        log.info(
            f"the idle marks of card {device.metadata.name} were changed",
            card=device.metadata.name,
            annotations=annotations,
        )

    def _notify(self, device: GPUDevice, pool: GPUPool, notice: str) -> None:
        about = events.reference_to(GPU_DEVICES, device)
        self._recorder.record(
            events.reference_to(GPU_POOLS, pool), REASON, notice, action="Idle", related=about
        )
        for pod in self._holders(device):
            self._recorder.record(
                events.reference_to(PODS, pod), REASON, notice, action="Idle", related=about
            )

    def _holders(self, device: GPUDevice) -> Iterator[Pod]:
        ledger = self._sources.ledgers.ledger(device.status.node_name or "")
        if ledger is None:
            return
        for holder in sorted(ledger.holders()):
            namespace, _, name = holder_names.pod_key(holder).partition("/")
            pod = self._sources.pods.store.get(Key(namespace, name))
            if pod is not None and any(part.card == device.card_id for part in ledger.grant(holder)):
                yield pod

    def _cards_of(self, pool: GPUPool) -> Iterable[str]:
        """The cards of a pool that has, or had, an idle policy."""
        devices = self._by_pool.get(pool.metadata.name) if pool.spec.idle is not None else ()
        return [name for device in devices for name in _concerned(device)]


def _concerned(device: GPUDevice) -> tuple[str, ...]:
    idle_now = device.status.idle_since is not None
    return (device.metadata.name,) if idle_now or IDLE_MARK in device.metadata.annotations else ()


def _card(device: GPUDevice) -> IdleCard:
    annotations = device.metadata.annotations
    return IdleCard(
        device.card_id,
        device.pool_name,
        device.status.idle_since,
        mark=annotations.get(IDLE_MARK, ""),
        drain=annotations.get(DRAIN),
    )


def _policy(pool: GPUPool | None) -> IdlePolicy | None:
    written = pool.spec.idle if pool is not None else None
    if written is None:
        return None
    return IdlePolicy(timedelta(seconds=settings.seconds(written.after)), written.action)
