"""The card controller: phase, pool and pending assignments of every card.

One key is one node, because the cards of a node compete for the places of a pool. A reconcile decides about
all cards of the node, writes each card at most once, and records one Event for each changed card, whatever
the number of transitions.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from croupier.api.core_v1 import Lease, Node
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool, convert_pool
from croupier.api.kinds import GPU_DEVICES, GPU_NODE_INVENTORIES
from croupier.capacity import index_keys
from croupier.capacity.read_only_ledgers import LedgerReader
from croupier.controllers.cards import cards_snapshot
from croupier.controllers.cards import status as cards_status
from croupier.controllers.cards.cards_snapshot import CardsSnapshot
from croupier.controllers.shared import apply, conditions
from croupier.controllers.shared.agent_reports import AgentReports
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.cards import card_decision, lifecycle
from croupier.core.cards.card_decision import CardDecision
from croupier.core.cards.lifecycle import POOL
from croupier.core.pools import capacity as pool_capacity
from croupier.core.pools.assignment import ASSIGNMENT, MANUAL_APPROVAL, Approval
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "cards"
ACTION: Final = "Lifecycle"
UNITS_DEBOUNCE: Final = 15.0
"""Seconds by which changes of held units are debounced; placements come in large bursts."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CardInformers:
    devices: Informer[GPUDevice]
    inventories: Informer[GPUNodeInventory]
    pools: Informer[GPUPool]
    nodes: Informer[Node]
    leases: Informer[Lease]
    """The Leases of the agents."""


@dataclass(frozen=True, slots=True)
class CardControllerOptions:
    approval: Approval = MANUAL_APPROVAL
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=8, resync=300.0))
    clock: Clock = field(default_factory=SystemClock)
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class CardController:
    """With leader election, `api` must be fenced by the caller."""

    def __init__(
        self,
        sources: CardInformers,
        api: Client,
        *,
        recorders: CardEventRecorders,
        ledgers: LedgerReader,
        settings: CardControllerOptions | None = None,
    ) -> None:
        self._sources = sources
        self._api = api.with_field_manager(POOL)
        self._recorders = recorders
        self._ledgers = ledgers
        self._settings = settings or CardControllerOptions()
        self._reports = AgentReports(sources.leases)
        self._devices = sources.devices.store.index(index_keys.node_of_device)
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, self._settings.options, metrics=self._settings.metrics
        )
        watch = self.controller.watch
        watch(sources.devices.store, sources.devices.cache, index_keys.node_of_device)
        watch(sources.inventories.store, sources.inventories.cache, lambda found: (found.metadata.name,))
        # Only some of these changes trigger a reconcile (see `run`), but all must be synced before.
        watch(sources.pools.store, sources.pools.cache, lambda _: ())
        watch(sources.nodes.store, sources.nodes.cache, lambda _: ())
        watch(sources.leases.store, sources.leases.cache, lambda _: ())

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        endings = (
            self._sources.pools.store.subscribe(self._pool_changed),
            self._sources.nodes.store.subscribe(self._node_changed),
            self._reports.subscribe(self.controller.add, cards_snapshot.relevant_fields),
            self._ledgers.subscribe(lambda node: self.controller.add(node, within=UNITS_DEBOUNCE)),
        )
        try:
            with store.open_indexes(self._devices, *self._reports.indexes):
                await self.controller.run(stop, leader_check)
        finally:
            for end in endings:
                end()

    async def reconcile(self, node: str) -> Result:
        devices = {device.card_id: device for device in self._devices.get(node)}
        inventory = self._sources.inventories.store.named(node)
        snapshot = CardsSnapshot(
            node, tuple(devices.values()), inventory, self._reports.of(node), self._held_pools(node)
        )
        decisions = card_decision.decide(
            cards_snapshot.current_cards(snapshot),
            self._labels(node),
            [convert_pool.pool(pool) for pool in self._sources.pools.store],
            self._settings.approval,
        )
        await concurrency.gather_limited(
            self._apply(node, devices[name], decision) for name, decision in decisions.items()
        )
        if inventory is not None:
            await self._write_node(inventory, decisions)
        return DONE

    async def _apply(self, node: str, device: GPUDevice, decision: CardDecision) -> None:
        await self._annotate(node, device, decision)
        await self._write(node, device, decision)

    async def _annotate(self, node: str, device: GPUDevice, decision: CardDecision) -> None:
        """Write only to the version that was read: a user may have changed the annotation since."""
        answer = decision.assignment
        if answer.annotation is None:
            return
        meta = device.metadata
        body = {
            "resourceVersion": meta.resource_version,
            "annotations": {ASSIGNMENT: answer.annotation or None},
        }
        try:
            written = await self._api.patch(GPU_DEVICES, meta.name, {"metadata": body})
        except NotFound:
            return
        self.controller.wrote(node, GPU_DEVICES, written)
        if answer.mismatch:
            self._record_mismatch(device, answer.mismatch)

    async def _write(self, node: str, device: GPUDevice, decision: CardDecision) -> None:
        status = cards_status.desired_device(device, decision, self._settings.clock.now())
        if status == cards_status.current_device(device):
            return
        try:
            written = await self._api.apply(
                GPU_DEVICES, apply.apply_body(device, status), force=True, subresource="status"
            )
        except NotFound:
            return
        self.controller.wrote(node, GPU_DEVICES, written)
        self._record_event(device, decision)

    async def _write_node(self, inventory: GPUNodeInventory, decisions: Mapping[str, CardDecision]) -> None:
        node, now = inventory.metadata.name, self._settings.clock.now()
        status = cards_status.desired_node(inventory, decisions, self._held(node), now)
        if status == cards_status.current_node(inventory):
            return
        body = apply.apply_body(inventory, status)
        try:
            written = await self._api.apply(GPU_NODE_INVENTORIES, body, force=True, subresource="status")
        except NotFound:
            return
        self.controller.wrote(node, GPU_NODE_INVENTORIES, written)
        for condition in conditions.became_true(inventory.status.conditions, status.conditions):
            reason = "GPUUnassignedDevice" if status.pools.assigned else "GPUNodeWithoutPool"
            log.info(condition.message, reason=reason, node=node)
            about = events.reference_to(GPU_NODE_INVENTORIES, inventory)
            self._recorders.of(POOL).record(about, reason, condition.message, action=ACTION)

    def _record_event(self, device: GPUDevice, decision: CardDecision) -> None:
        if not decision.steps:
            return
        last, note = decision.steps[-1], lifecycle.event_note(decision.steps)
        (log.warning if last.row.is_warning else log.info)(
            note, card=device.metadata.name, reason=last.reason
        )
        about, recorder = events.reference_to(GPU_DEVICES, device), self._recorders.of(last.owner)
        recorder.record(
            about, last.reason, note, action=ACTION, type="Warning" if last.row.is_warning else "Normal"
        )

    def _record_mismatch(self, device: GPUDevice, sentence: str) -> None:
        log.warning(sentence, card=device.metadata.name, reason="GPUAnnotationMismatch")
        about = events.reference_to(GPU_DEVICES, device)
        self._recorders.of(POOL).record(
            about, "GPUAnnotationMismatch", sentence, action=ACTION, type="Warning"
        )

    def _held(self, node: str) -> Mapping[str, int]:
        ledger = self._ledgers.ledger(node)
        held: Counter[str] = Counter()
        for card in ledger.cards if ledger is not None else ():
            held[card.pool] += pool_capacity.used_units(card)
        return held

    def _held_pools(self, node: str) -> Mapping[str, str]:
        ledger, pools = self._ledgers.ledger(node), self._sources.pools.store
        held = (card for card in (ledger.cards if ledger is not None else ()) if not card.is_free)
        return {card.id: card.pool for card in held if card.pool and pools.named(card.pool) is not None}

    def _labels(self, node: str) -> Mapping[str, str]:
        found = self._sources.nodes.store.named(node)
        return found.metadata.labels if found is not None else {}

    def _pool_changed(self, change: ObjectChange[GPUPool]) -> None:
        """A changed pool spec can affect all cards; a changed pool status affects none."""
        if _spec_version(change.old) != _spec_version(change.new):
            for node in tuple(self._devices.values()):
                self.controller.add(node)

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        old = change.old.metadata.labels if change.old is not None else None
        new = change.new.metadata.labels if change.new is not None else None
        if old != new:
            self.controller.add(change.key.name)


def _spec_version(pool: GPUPool | None) -> tuple[str, int, bool] | None:
    if pool is None:
        return None
    meta = pool.metadata
    return meta.uid, meta.generation, meta.deletion_timestamp is not None
