"""The pool controller: capacity, conditions and changes of every GPUPool. One key is one pool.

A reconcile reads the cards of the pool and their ledgers, decides (core/pools/maintenance.py), and writes
what differs: the ConfigMap for the agents, the status, and annotations of cards. A pool of thousands of cards
changes many times a second while pods start and end, so the rate of reconciles is limited by the size of the
pool.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import structlog
from prometheus_client import CollectorRegistry

from croupier.api.core_v1 import ConfigMap, Namespace, Node, ServiceAccount
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_pool, pool_config
from croupier.api.gpu.device import DRAIN
from croupier.api.gpu.pool import CONFIRMED, POOL_FINALIZER, GPUPoolStatus
from croupier.api.kinds import GPU_POOLS
from croupier.capacity import index_keys
from croupier.capacity.read_only_ledgers import LedgerReader
from croupier.controllers.pools import node_controller as pool_nodes
from croupier.controllers.pools import node_matches as pool_claims
from croupier.controllers.pools import pool_snapshot
from croupier.controllers.pools import status as pool_status
from croupier.controllers.pools.access import AccessSubjects
from croupier.controllers.pools.booking import Bookings
from croupier.controllers.pools.condition_events import condition_events
from croupier.controllers.pools.metrics import PoolMetrics
from croupier.controllers.pools.node_matches import NodeMatches
from croupier.controllers.pools.pool_snapshot import PoolCardView, PoolSnapshot
from croupier.controllers.pools.status import LowCapacityAlert
from croupier.controllers.pools.writer import PoolWriter
from croupier.controllers.shared import apply
from croupier.core.cards import lifecycle
from croupier.core.model.condition import DesiredCondition
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.pools import assignment, maintenance, sharing_change
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools.assignment import ASSIGNMENT, MANUAL_APPROVAL, Approval
from croupier.core.pools.capacity import CountedCard
from croupier.core.pools.sharing_change import CONFIGURED, PoolDecision
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.event_series import EventType
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "pools"
REPORTER: Final = lifecycle.POOL
STRAYS: Final = ""
"""The key for cards that left their pool during a change of the pool."""
NAMESPACE_RETRY: Final = 30.0
"""Seconds until a missing namespace is checked again."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PoolInformers:
    pools: Informer[GPUPool]
    devices: Informer[GPUDevice]
    nodes: Informer[Node]
    inventories: Informer[GPUNodeInventory]
    config_maps: Informer[ConfigMap]
    """ConfigMaps in `namespace` with the label gpu.deckhouse.io/pool."""
    namespaces: Informer[Namespace]
    accounts: Informer[ServiceAccount]
    """Both only to see whether those in spec.access exist."""
    ledgers: LedgerReader
    bookings: Bookings


@dataclass(frozen=True, slots=True)
class PoolControllerOptions:
    namespace: str = DEFAULT_NAMESPACE
    deadline: timedelta = timedelta(hours=1)
    alarm: LowCapacityAlert = field(default_factory=LowCapacityAlert)
    approval: Approval = MANUAL_APPROVAL
    debounce: float = 1.0
    """Least seconds between two reconciles of one pool, for every thousand of its cards."""
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=4, resync=300.0))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    pool_metrics: PoolMetrics | None = None


class PoolController:
    """With leader election, `api` must be fenced by the caller."""

    def __init__(
        self,
        sources: PoolInformers,
        api: Client,
        *,
        recorder: EventRecorder,
        settings: PoolControllerOptions | None = None,
    ) -> None:
        self._sources = sources
        self._api = api.with_field_manager(REPORTER)
        self._recorder = recorder
        self._settings = settings or PoolControllerOptions()
        self._metrics = self._settings.pool_metrics or PoolMetrics(CollectorRegistry(), sources.pools.store)
        self._not_before: dict[str, float] = {}
        self._on_node = sources.devices.store.index(index_keys.node_of_device)
        self._of_pool = sources.devices.store.index(index_keys.pool_of_device)
        self._stray = sources.devices.store.index(_strays)
        self._labelled = sources.nodes.store.index(lambda node: pool_nodes.node_marks(node).pools)
        follows = pool_claims.NodeMatchInformers(
            sources.pools, sources.devices, sources.nodes, sources.inventories
        )
        self._access = AccessSubjects(sources.pools, sources.namespaces, sources.accounts)
        self._claims = NodeMatches(follows, self._settings.approval)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        self._watch()

    def _watch(self) -> None:
        watch, sources = self.controller.watch, self._sources
        watch(sources.pools.store, sources.pools.cache, lambda pool: (pool.metadata.name,))
        watch(sources.devices.store, sources.devices.cache, _keys)
        watch(sources.config_maps.store, sources.config_maps.cache, _pool_of_config)
        watch(sources.inventories.store, sources.inventories.cache, lambda _: ())
        watch(sources.nodes.store, sources.nodes.cache, lambda node: pool_nodes.node_marks(node).pools)
        # Only created and deleted ones matter (see AccessSubjects), but all must be synced before.
        watch(sources.namespaces.store, sources.namespaces.cache, lambda _: ())
        watch(sources.accounts.store, sources.accounts.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        self._not_before.clear()
        mine = (self._on_node, self._of_pool, self._stray, self._labelled)
        with store.open_indexes(*mine, *self._claims.indexes):
            await self._run(stop, leader_check)

    async def _run(self, stop: asyncio.Event, leader_check: LeaderCheck) -> None:
        calm = self._settings.debounce
        endings = (
            self._claims.follow(self.controller.add),
            self._sources.bookings.subscribe(lambda pool: self.controller.add(pool, within=calm)),
            self._sources.ledgers.subscribe(self._ledger_changed),
            self._access.follow(lambda pool: self.controller.add(pool, within=calm)),
        )
        refreshing = asyncio.create_task(self._refresh())
        try:
            await self.controller.run(stop, leader_check)
        finally:
            refreshing.cancel()
            for end in endings:
                end()

    async def _refresh(self) -> None:
        """Recompute matches regularly: a pool without cards of a node gets no event about that node."""
        while True:
            await asyncio.sleep(self._settings.debounce)
            try:
                self._claims.refresh()
            except Exception:  # an unreadable node must not block the others
                log.exception("the pool controller failed to compute which cards match which pool")

    def _ledger_changed(self, node: str) -> None:
        for pool in {
            name for device in self._on_node.get(node) for name in index_keys.pool_of_device(device)
        }:
            self.controller.add(pool, within=self._settings.debounce)

    async def reconcile(self, name: str) -> Result:
        if (early := self._delay(name)) > 0:
            return Result(requeue_after=early)
        writer = PoolWriter(
            self._api, self._settings.namespace, lambda kind, found: self.controller.wrote(name, kind, found)
        )
        if name == STRAYS:
            await writer.tidy(self._stray.get(True))
            return DONE
        pool = self._sources.pools.store.named(name)
        if pool is None:
            self._metrics.forget(name)
            self._not_before.pop(name, None)
            return DONE
        if pool.metadata.deletion_timestamp is None and POOL_FINALIZER not in pool.metadata.finalizers:
            await writer.finalizers(pool, (*pool.metadata.finalizers, POOL_FINALIZER))
            return DONE  # the watch event triggers the next reconcile
        return await self._keep(self._snapshot(pool), writer)

    def _delay(self, name: str) -> float:
        """Seconds until the pool may be reconciled again."""
        now = self._settings.clock.monotonic()
        left = self._not_before.get(name, now) - now
        if left <= 0:
            thousands = len(self._of_pool.keys(name)) / 1000
            self._not_before[name] = now + self._settings.debounce * max(1.0, thousands)
        return left

    def _snapshot(self, pool: GPUPool) -> PoolSnapshot:
        name = pool.metadata.name
        this = convert_pool.pool(pool)
        pools = (convert_pool.pool(other) for other in self._sources.pools.store)
        return PoolSnapshot(
            pool,
            cards=tuple(self._seen(device) for device in self._of_pool.get(name)),
            claims=self._claims.of(name),
            config=self._sources.config_maps.store.named(pool_config.name(name), self._settings.namespace),
            booked=self._sources.bookings.booked(name),
            older_duplicate=assignment.older_duplicate(this, pools) or "",
            access=self._access.condition(pool),
        )

    def _seen(self, device: GPUDevice) -> PoolCardView:
        node = device.status.node_name or ""
        ledger = self._sources.ledgers.ledger(node)
        card = ledger.card(device.card_id) if ledger is not None else None
        return PoolCardView(device, self._sources.inventories.store.named(node), card)

    async def _keep(self, snapshot: PoolSnapshot, writer: PoolWriter) -> Result:
        now = self._settings.clock.now()
        outcome = maintenance.decide(pool_snapshot.facts(snapshot, now, self._settings.deadline))
        if snapshot.pool.metadata.deletion_timestamp is not None and not snapshot.cards:
            return await self._finish_deletion(snapshot, writer)
        outcome = await self._configure(snapshot, outcome, writer)
        lines = pool_snapshot.counted_cards(snapshot)
        capacity = pool_capacity.count(lines, outcome.sharing.mode, snapshot.booked)
        status = pool_status.status(snapshot, outcome, capacity, self._settings.alarm, now)
        counted = pool_capacity.in_unit_of(lines, outcome.sharing.mode)
        self._metrics.update(snapshot.name, len(snapshot.cards), _slots(snapshot, counted))
        await self._write(snapshot, status)
        await writer.steps(snapshot, outcome.steps)
        if outcome.release:
            await writer.release(snapshot)
        await self._confirm(snapshot, outcome, writer)
        return self._next(status, now)

    async def _configure(
        self, snapshot: PoolSnapshot, outcome: PoolDecision, writer: PoolWriter
    ) -> PoolDecision:
        """Without its ConfigMap a pool changes nothing, because the agents would not learn of it."""
        try:
            await writer.config(snapshot, outcome)
        except NotFound:
            why = f"namespace {self._settings.namespace} for the pool's ConfigMap does not exist; create it"
            kept = snapshot.pool.status.allocation
            sharing = convert_pool.sharing(kept) if kept is not None else outcome.sharing
            missing = DesiredCondition(CONFIGURED, "False", "NamespaceMissing", why)
            self.controller.add(snapshot.name, within=NAMESPACE_RETRY)
            return replace(outcome, sharing=sharing, configured=missing, steps=(), release=False)
        return outcome

    async def _write(self, snapshot: PoolSnapshot, status: GPUPoolStatus) -> None:
        pool = snapshot.pool
        if status == pool.status:
            return
        body = apply.apply_body(pool, status)
        try:
            written = await self._api.apply(GPU_POOLS, body, force=True, subresource="status")
        except NotFound:
            return
        self.controller.wrote(snapshot.name, GPU_POOLS, written)
        for event in condition_events(pool.status.conditions, status.conditions):
            self._record_event(pool, event.reason, event.sentence, event.type)

    async def _confirm(self, snapshot: PoolSnapshot, outcome: PoolDecision, writer: PoolWriter) -> None:
        """Remove the confirmation of a user, whether it had an effect or not."""
        pool = snapshot.pool
        if CONFIRMED not in pool.metadata.annotations:
            return
        await writer.unconfirm(pool, CONFIRMED)
        if not pool_snapshot.confirmed(pool):
            why = f"the pool now has generation {pool.metadata.generation}; check it, and confirm again"
            self._record_event(pool, "NotConfirmed", why, "Warning")
        elif outcome.misconfigured.holds:
            self._record_event(pool, "NotConfirmed", outcome.misconfigured.message, "Warning")
        else:
            self._record_event(pool, "Confirmed", "the pool was confirmed", "Normal")

    async def _finish_deletion(self, snapshot: PoolSnapshot, writer: PoolWriter) -> Result:
        """Clean up after a pool that has no cards any more."""
        if self._labelled.keys(snapshot.name):
            return DONE  # the labels of nodes are removed first; each removal triggers a reconcile
        if snapshot.config is not None:
            await writer.drop_config(snapshot.config)
        kept = [name for name in snapshot.pool.metadata.finalizers if name != POOL_FINALIZER]
        if len(kept) < len(snapshot.pool.metadata.finalizers):
            await writer.finalizers(snapshot.pool, kept)
            log.info(f"pool {snapshot.name} was deleted", pool=snapshot.name)
        return DONE

    def _next(self, status: GPUPoolStatus, now: datetime) -> Result:
        """Requeue when the passing of time changes a condition."""
        terms = {"Maintenance": self._settings.deadline, "CapacityLow": self._settings.alarm.lasts}
        terms_of_false = {"Configured": self._settings.deadline}
        due = [
            condition.last_transition_time + term - now
            for condition in status.conditions
            for term in [(terms if condition.status == "True" else terms_of_false).get(condition.type)]
            if term is not None
        ]
        left = [delay.total_seconds() for delay in due if delay > timedelta()]
        return Result(requeue_after=min(left) + self._settings.debounce) if left else DONE

    def _record_event(self, pool: GPUPool, reason: str, sentence: str, kind: EventType) -> None:
        (log.warning if kind == "Warning" else log.info)(sentence, pool=pool.metadata.name, reason=reason)
        about = events.reference_to(GPU_POOLS, pool)
        self._recorder.record(about, reason, sentence, action="Pool", type=kind)


def _slots(snapshot: PoolSnapshot, lines: Iterable[CountedCard]) -> Mapping[str, int]:
    units = {line.card.id: pool_capacity.units(line.card) for line in lines}
    slots: Counter[str] = Counter()
    for seen in snapshot.cards:
        slots[seen.node] += units.get(seen.id, 0)
    return slots


def _strays(device: GPUDevice) -> Iterable[bool]:
    annotations = device.metadata.annotations
    drained = sharing_change.is_drain_reason(annotations.get(DRAIN, ""))
    marked = convert_pool.CARD_ALLOCATION in annotations or drained
    return (True,) if marked and device.status.pool_ref is None else ()


def _keys(device: GPUDevice) -> set[str]:
    """The keys that a change of the card affects."""
    assigned = device.metadata.annotations.get(ASSIGNMENT)
    strays = (STRAYS,) if any(_strays(device)) else ()
    return {*index_keys.pool_of_device(device), *((assigned,) if assigned else ()), *strays}


def _pool_of_config(config: ConfigMap) -> Iterable[str]:
    name = config.metadata.labels.get(pool_config.POOL_LABEL, "")
    return (name,) if name else ()
