"""The Reservation controller: holds cards in the ledger, writes the status, and releases on deletion.

The key is the node: its Reservations are decided together, so that priorities count, and committed in one
write of the ledger. The order of writes makes every crash harmless: the finalizer before the hold (a holder
cannot be deleted unnoticed), the hold before the status (the status reports only existing holds), the release
before the removal of the finalizer. Every step is idempotent.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry

from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.api.kinds import PODS, RESERVATIONS
from croupier.api.mps import Reservation
from croupier.api.quotas import ResourceQuota
from croupier.api.scheduling_v1 import PriorityClass
from croupier.capacity import index_keys
from croupier.capacity.cluster_view import ClusterView
from croupier.capacity.manager import STRATEGY, CapacityManager, UnknownNode
from croupier.controllers.ledger import reservation_convert as wire
from croupier.controllers.ledger.reservation_budget import ReservationBudgets
from croupier.controllers.ledger.reservation_convert import ReservationRules
from croupier.controllers.ledger.reservation_metrics import ReservationMetrics
from croupier.core.claims import reservation, reservation_status
from croupier.core.claims.budget import UNLIMITED, ReservationLimits
from croupier.core.claims.reservation_inputs import (
    ReservationInputs,
    ReservationOutcome,
    ReservationReason,
    ReservationRequest,
)
from croupier.core.claims.reservation_status import ReservationDecisions
from croupier.core.claims.rival_hold import RivalHold
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger import reported_cards, sync_cards
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.pod_view import PodView
from croupier.core.placement.placement import Strategy
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.client import concurrency
from croupier.kube.client.api_client import Client
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.identity import Key
from croupier.kube.controller import events
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import (
    ALWAYS_LEADER,
    LeaderCheck,
)
from croupier.kube.controller.event_series import EventType
from croupier.kube.controller.events import EventRecorder
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "reservation"

_EventKind: TypeAlias = tuple[str, EventType]
_EVENTS: Final[Mapping[str, _EventKind]] = {
    "Reserved": ("Reserved", "Normal"),
    "Failed": ("ReservationFailed", "Warning"),
    "Released": ("Released", "Normal"),
}
_EXPIRED_EVENT: Final[_EventKind] = ("GPUReservationExpired", "Warning")


@dataclass(frozen=True, slots=True)
class ReservationInformers:
    view: ClusterView
    pending: Informer[Pod]
    """Pods without a node: they are charged to quotas as well."""
    quotas: Informer[ResourceQuota]
    priorities: Informer[PriorityClass]


@dataclass(frozen=True, slots=True)
class ReservationOptions:
    strategy: Strategy = STRATEGY
    options: ControllerOptions = field(default_factory=ControllerOptions)
    clock: Clock = field(default_factory=SystemClock)
    limits: Callable[[], ReservationLimits] = lambda: UNLIMITED
    """The current settings `reservations`."""
    outcomes: ReservationMetrics | None = None
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)
    card_loss_delay: float = 60.0
    """Seconds that a card must be missing before a Reservation without a pod loses it. A device plugin that
    restarts reports no cards for some seconds."""


class ReservationController:
    """The caller fences `api` if there is leader election."""

    def __init__(
        self,
        sources: ReservationInformers,
        api: Client,
        *,
        manager: CapacityManager,
        recorder: EventRecorder,
        settings: ReservationOptions,
    ) -> None:
        self._view = sources.view
        self._pending = sources.pending
        self._priorities = sources.priorities
        self._sources = seen = sources.view.sources
        self._api = api
        self._manager = manager
        self._recorder = recorder
        self._settings = settings
        self._outcomes = settings.outcomes or ReservationMetrics(CollectorRegistry(), seen.reservations.store)
        self._missing_since: dict[str, dict[str, float]] = {}
        """By node: cards of Reservations without a pod that the node does not report, and since when."""
        self._by_node = seen.reservations.store.index(lambda item: (item.spec.node_name,))
        self._by_pod = seen.reservations.store.index(lambda item: (item.spec.pod_key,))
        self._by_namespace = seen.reservations.store.index(lambda item: (item.metadata.namespace,))
        self._budgets = ReservationBudgets(sources.quotas, self._cached_pod, api, manager, settings.limits)
        self._granting = asyncio.Lock()
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, settings.options, metrics=settings.metrics, group=self._node_exists
        )
        self.controller.watch(seen.reservations.store, seen.reservations.cache, self._nodes_of)
        self.controller.watch(seen.pods.store, seen.pods.cache, self._nodes_of_pod)
        self.controller.watch(
            seen.nodes.store, seen.nodes.cache, lambda node: self._if_concerned((node.metadata.name,))
        )
        self.controller.watch(
            seen.devices.store,
            seen.devices.cache,
            lambda device: self._if_concerned(index_keys.node_of_device(device)),
        )
        # They are part of a node's report: their caches must have synced, but their changes enqueue no key.
        self.controller.watch(seen.pools.store, seen.pools.cache, lambda _: ())
        self.controller.watch(seen.inventories.store, seen.inventories.cache, lambda _: ())
        self.controller.watch(sources.pending.store, sources.pending.cache, self._nodes_of_pod)
        self.controller.watch(sources.quotas.store, sources.quotas.cache, self._nodes_of_quota)
        self.controller.watch(sources.priorities.store, sources.priorities.cache, self._nodes_of_priority)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        unsubscribe = self._manager.subscribe(self._ledger_changed)
        try:
            with store.open_indexes(self._by_node, self._by_pod, self._by_namespace):
                await self.controller.run(stop, leader_check)
        finally:
            unsubscribe()

    async def reconcile(self, node: str) -> Result:
        if not self._concerns(node):
            return DONE
        by_key = {item.metadata.key: item for item in self._by_node.get(node)}
        ledger = self._manager.ledger(node)
        lost, recheck = self._lost_cards(node, ledger)
        scene = replace(await self._scene(node, ledger, by_key), lost=lost)
        ledger, scene = await self._granted(ledger, scene, by_key)
        judgement = reservation_status.decide(
            ledger, scene, self._elsewhere(ledger, scene), self._settings.strategy
        )
        ends = {asked.key: asked.until for asked in scene.reservations}
        await self._write_all(_StatusWrites(node, ledger, by_key, ends), judgement)
        times = [time for time in (judgement.requeue_after, recheck) if time is not None]
        return Result(min(times, default=None))

    def _lost_cards(self, node: str, ledger: Ledger | None) -> tuple[frozenset[str], float | None]:
        """Cards that have been missing long enough, and the seconds until the next one has."""
        missing = reservation.cards_without_pod(ledger)
        if ledger is not None and missing:
            missing -= reported_cards.present_cards(self._view.report(node), sync_cards.in_use(ledger))
        now, before = self._settings.clock.monotonic(), self._missing_since.pop(node, {})
        if not missing:
            return frozenset(), None
        since = self._missing_since[node] = {card: before.get(card, now) for card in missing}
        left = {card: moment + self._settings.card_loss_delay - now for card, moment in since.items()}
        recheck = min((seconds for seconds in left.values() if seconds > 0), default=None)
        return frozenset(card for card, seconds in left.items() if seconds <= 0), recheck

    async def _granted(
        self, ledger: Ledger | None, scene: ReservationInputs, by_key: dict[str, Reservation]
    ) -> tuple[Ledger | None, ReservationInputs]:
        """Grant what fits. Budgets are shared by all nodes, so grants are made one node after the other."""
        if not reservation.pending(ledger, scene):
            scene = await self._guarded(ledger, scene, by_key)
            return await self._settled(scene.node, ledger, scene), scene
        async with self._granting:
            scene = await self._budgets.limit(ledger, scene, self._settings.strategy)
            scene = await self._guarded(ledger, scene, by_key)
            return await self._settled(scene.node, ledger, scene), scene

    async def _scene(
        self, node: str, ledger: Ledger | None, by_key: Mapping[str, Reservation]
    ) -> ReservationInputs:
        rules = self._rules()
        now = rules.now
        asked = tuple(wire.read(item, rules) for item in by_key.values())
        refusals = {key: wire.refusal(item, rules) for key, item in by_key.items()}
        names = {request.pod for request in asked}
        if ledger is not None:
            names |= set(map(holder_names.pod_key, ledger.reservations))
        scene = ReservationInputs(
            node,
            now,
            asked,
            pods={name: view for name in names if (view := self._pod(name)) is not None},
            exists=self._node_exists(node),
            expected=not (ledger and ledger.cards) and reported_cards.are_expected(self._view.report(node)),
            rivals=self._rivals(node, asked),
            refused={key: refused for key, refused in refusals.items() if refused is not None},
        )
        over, unseen = reservation.ended_holders(ledger, scene.pods)
        over |= await self._verified(unseen, self._pod_is_over)
        strangers = reservation.unknown_reservations(ledger, asked)
        orphans = await self._verified(strangers, lambda holder: self._is_orphan(node, ledger, holder))
        departed = reservation.reservations_of_ended_pods(ledger, over, scene)
        return replace(scene, over=over, orphans=orphans, departed=departed)

    def _rules(self) -> ReservationRules:
        classes = tuple(self._priorities.store)
        return ReservationRules(
            self._settings.clock.now(),
            self._settings.limits(),
            {each.metadata.name: each.value for each in classes},
            next((each.value for each in classes if each.global_default), 0),
        )

    async def _verified(
        self, holders: Iterable[str], certain: Callable[[str], Awaitable[bool]]
    ) -> frozenset[str]:
        """The holders for which the API server confirms it, because a cache may be stale."""
        return frozenset([holder for holder in holders if await certain(holder)])

    async def _pod_is_over(self, holder: str) -> bool:
        namespace, name, uid = holder.split("/")
        try:
            pod = await self._api.get(PODS, name, namespace=namespace)
        except NotFound:
            return True
        return pod.metadata.uid != uid or pod.is_finished

    async def _is_orphan(self, node: str, ledger: Ledger | None, holder: str) -> bool:
        if ledger is None:
            return False
        try:
            current = await self._api.get(
                RESERVATIONS, ledger.reservations[holder], namespace=holder.partition("/")[0]
            )
        except NotFound:
            return True
        return current.spec.node_name != node

    async def _guarded(
        self, ledger: Ledger | None, scene: ReservationInputs, by_key: dict[str, Reservation]
    ) -> ReservationInputs:
        """Add the finalizer to all Reservations that are about to hold cards."""
        keys = reservation.without_finalizer(ledger, scene, self._settings.strategy)
        if not keys:
            return scene
        await concurrency.gather_limited(self._put_finalizer(scene.node, key, by_key) for key in keys)
        left = (request for request in scene.reservations if request.key in by_key)
        return replace(scene, reservations=tuple(_with_metadata(asked, by_key[asked.key]) for asked in left))

    async def _put_finalizer(self, node: str, key: str, by_key: dict[str, Reservation]) -> None:
        try:
            by_key[key] = await self._patch(node, by_key[key], wire.finalizers(by_key[key], ours=True))
        except NotFound:
            del by_key[key]

    async def _settled(self, node: str, ledger: Ledger | None, scene: ReservationInputs) -> Ledger | None:
        def change(newest: Ledger) -> Ledger:
            # Holds of the other nodes as they are now, because the finalizer was written since.
            current = replace(scene, rivals=self._rivals(node, scene.reservations))
            return reservation.apply(newest, current, self._settings.strategy)

        if ledger is None or change(ledger) == ledger:
            return ledger
        try:
            return await self._manager.amend(node, change)
        except UnknownNode:
            return None  # the ledger was just closed, so it had no holders

    async def _write_all(self, writes: "_StatusWrites", judgement: ReservationDecisions) -> None:
        outcomes = [self._write(writes, key, outcome) for key, outcome in judgement.outcomes.items()]
        releases = [self._remove_finalizer(writes.node, writes.by_key[key]) for key in judgement.free]
        await concurrency.gather_limited([*outcomes, *releases])

    async def _write(self, writes: "_StatusWrites", key: str, outcome: ReservationOutcome) -> None:
        found = writes.by_key[key]
        holder = f"{found.spec.pod_key}/{outcome.pod_uid}" if outcome.pod_uid else found.spec.pod_key
        charged = self._budgets.charged(writes.ledger, found.metadata.namespace, holder)
        status = wire.next_status(
            found, outcome, self._settings.clock.now(), ends=writes.ends.get(key), charged=charged
        )
        if status == found.status:
            return
        try:
            await self._patch(writes.node, found, wire.patch(found, status), subresource="status")
        except NotFound:
            return
        before = wire.read(found, self._rules())
        decided = (outcome.phase, outcome.reason) != (before.last_status.phase, before.last_status.reason)
        if decided or status.cards != found.status.cards:
            self._announce(found, outcome, before, moved=status.cards != found.status.cards)

    def _announce(
        self, found: Reservation, outcome: ReservationOutcome, before: ReservationRequest, *, moved: bool
    ) -> None:
        if outcome.phase == "Pending":
            return  # nothing was decided
        kept = outcome.phase == before.last_status.phase == "Reserved"
        if kept and not moved:
            return  # only the pod was bound
        if outcome.phase == "Reserved" and not kept:
            self._outcomes.granted()
        if outcome.phase == "Failed":
            self._outcomes.failed(outcome.reason)
        self._record(found, outcome.reason, outcome.phase, outcome.message)

    def _record(self, found: Reservation, reason: ReservationReason | None, phase: str, note: str) -> None:
        name, kind = _EXPIRED_EVENT if reason == "Expired" else _EVENTS[phase]
        about = events.reference_to(RESERVATIONS, found)
        self._recorder.record(about, name, note, action="Reserve", type=kind)

    async def _remove_finalizer(self, node: str, found: Reservation) -> None:
        """Remove the finalizer, after its cards were released."""
        without = wire.finalizers(found, ours=False)
        if list(found.metadata.finalizers) == without["metadata"]["finalizers"]:
            return
        try:
            await self._patch(node, found, without)
        except NotFound:
            return
        if not without["metadata"]["finalizers"]:
            self.controller.deleted(node, RESERVATIONS, found)
        if found.status.phase == "Reserved":
            self._record(found, None, "Released", "released because the Reservation was deleted")

    async def _patch(
        self, node: str, found: Reservation, patch: dict[str, object], subresource: str | None = None
    ) -> Reservation:
        meta = found.metadata
        written = await self._api.patch(
            RESERVATIONS, meta.name, patch, namespace=meta.namespace, subresource=subresource
        )
        self.controller.wrote(node, RESERVATIONS, written)
        return written

    def _elsewhere(self, ledger: Ledger | None, scene: ReservationInputs) -> Mapping[str, Ledger]:
        """The ledgers of the other nodes, if a Reservation without cards needs them for its message."""
        holding = reservation.by_reservation(ledger)
        if all(item.key in holding or item.last_status.phase == "Released" for item in scene.reservations):
            return {}
        others = {
            node: self._manager.ledger(node) for node in tuple(self._manager.nodes()) if node != scene.node
        }
        return {node: other for node, other in others.items() if other is not None}

    def _rivals(self, node: str, asked: Iterable[ReservationRequest]) -> dict[str, tuple[RivalHold, ...]]:
        """The holds of other Reservations for the same pods on other nodes, by pod."""
        rivals: dict[str, tuple[RivalHold, ...]] = {}
        for pod in {request.pod for request in asked}:
            others = (item for item in self._by_pod.get(pod) if item.spec.node_name != node)
            found = tuple(hold for item in others if (hold := self._rival_hold(item)) is not None)
            if found:
                rivals[pod] = found
        return rivals

    def _rival_hold(self, item: Reservation) -> RivalHold | None:
        meta, node = item.metadata, item.spec.node_name
        holder = reservation.by_reservation(self._manager.ledger(node)).get(meta.key)
        if holder is None:
            return None
        created = wire.read(item, self._rules()).created
        return RivalHold(meta.key, node, created, has_pod=bool(holder_names.uid(holder)))

    def _pod(self, name: str) -> PodView | None:
        cached = self._cached_pod(name)
        return None if cached is None else convert_pod.view(cached)

    def _cached_pod(self, name: str) -> Pod | None:
        namespace, _, pod = name.partition("/")
        key = Key(namespace, pod)
        return self._sources.pods.store.get(key) or self._pending.store.get(key)

    def _concerns(self, node: str) -> bool:
        ledger = self._manager.ledger(node)
        return bool(self._by_node.keys(node)) or (ledger is not None and bool(ledger.reservations))

    def _node_exists(self, node: str) -> bool:
        """A Reservation may name any node: names without a node do not delay the others."""
        return self._sources.nodes.store.named(node) is not None

    def _nodes_of(self, changed: Reservation) -> set[str]:
        """Its node, and the nodes of other Reservations for the same pod."""
        return {changed.spec.node_name, *self._nodes_reserved_for(changed.spec.pod_key)}

    def _nodes_of_pod(self, pod: Pod) -> set[str]:
        return self._nodes_reserved_for(pod.metadata.key)

    def _nodes_reserved_for(self, pod: str) -> set[str]:
        return {item.spec.node_name for item in self._by_pod.get(pod)}

    def _if_concerned(self, nodes: Iterable[str]) -> tuple[str, ...]:
        return tuple(node for node in nodes if self._concerns(node))

    def _nodes_of_quota(self, quota: ResourceQuota) -> set[str]:
        return {item.spec.node_name for item in self._by_namespace.get(quota.metadata.namespace)}

    def _nodes_of_priority(self, _: PriorityClass) -> set[str]:
        named = (item for item in self._sources.reservations.store if item.spec.priority_class_name)
        return {item.spec.node_name for item in named}

    def _ledger_changed(self, node: str) -> None:
        if self._concerns(node):
            self.controller.add(node)


@dataclass(frozen=True, slots=True)
class _StatusWrites:
    """What the status of the Reservations of a node is made of."""

    node: str
    ledger: Ledger | None
    by_key: Mapping[str, Reservation]
    ends: Mapping[str, datetime | None]


def _with_metadata(asked: ReservationRequest, found: Reservation) -> ReservationRequest:
    """The request after its object was written."""
    meta = found.metadata
    return replace(
        asked, deleted=meta.deletion_timestamp is not None, has_finalizer=wire.has_finalizer(found)
    )
