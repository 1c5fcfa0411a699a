"""The card and pool controllers: `croupier manager --controllers pools`."""

from datetime import timedelta

from croupier.api import kinds, settings
from croupier.api.gpu import agent_report, convert_pool, pool_config
from croupier.api.settings import Configuration
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.read_only_ledgers import ReadOnlyLedgers
from croupier.controllers.cards import cards, idle
from croupier.controllers.cards.cards import CardController
from croupier.controllers.cards.idle import IdleCardController
from croupier.controllers.cards.metrics import DeviceMetrics
from croupier.controllers.pools import booking, pool
from croupier.controllers.pools import node_controller as pool_nodes
from croupier.controllers.pools.booking import BookingMetrics, Bookings
from croupier.controllers.pools.metrics import PoolMetrics
from croupier.controllers.pools.node_controller import PoolNodeController
from croupier.controllers.pools.pool import PoolController
from croupier.controllers.pools.status import LowCapacityAlert
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.cards.lifecycle import POOL
from croupier.core.pools.assignment import Approval
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.controller import events
from croupier.kube.controller.events import EventRecorder
from croupier.kube.serving.component_runner import Component
from croupier.wiring import elections
from croupier.wiring.controller_group import ControllerGroup
from croupier.wiring.process_context import BOUND_PODS, DECIDED_RESERVATIONS, Runnable


def components(group: ControllerGroup) -> list[Component]:
    pool_group = _PoolGroup(group)
    return [
        Component("events of cards", pool_group.recorders.run),
        Component("events of bookings", pool_group.booked.run),
        group.elected("pools", elections.POOLS, pool_group.controllers, depends_on=_depends_on),
    ]


def _depends_on(configuration: Configuration) -> object:
    return configuration.device_approval, configuration.maintenance, configuration.alerts.capacity_low


class _PoolGroup:
    def __init__(self, group: ControllerGroup) -> None:
        context, follow = group.context, group.caches.follow
        self._group = group
        self._settings = context.settings
        self._informers = LedgerInformers(
            nodes=follow(kinds.NODES),
            devices=follow(kinds.GPU_DEVICES),
            pools=follow(kinds.GPU_POOLS),
            pods=follow(kinds.PODS, BOUND_PODS),
            reservations=follow(kinds.RESERVATIONS, DECIDED_RESERVATIONS),
            inventories=follow(kinds.GPU_NODE_INVENTORIES),
        )
        records = follow(kinds.NODE_RESERVATIONS)
        self._clock = context.api.clock
        self._ledgers = ReadOnlyLedgers(ClusterView(self._informers), records, self._clock)
        agents = Selection(self._settings.namespace, labels=agent_report.LEASE_SELECTOR)
        self._leases = follow(kinds.LEASES, agents, name="leases of node agents")
        ours = Selection(self._settings.namespace, labels=pool_config.POOL_LABEL)
        self._config_maps = follow(kinds.CONFIG_MAPS, ours)
        self._namespaces = follow(kinds.NAMESPACES)
        self._accounts = follow(kinds.SERVICE_ACCOUNTS)
        self._waiting = follow(kinds.PODS, booking.WAITING_PODS, name="pods that wait for a pool")
        self.recorders = CardEventRecorders(context.api, context.metrics.events)
        self.booked = EventRecorder(
            context.api, booking.REPORTER, metrics=context.metrics.events, naming=events.stable_name
        )
        registry = context.leader_registry(elections.POOLS)
        DeviceMetrics(registry, self._informers.devices.store, self._clock)
        self._figures = PoolMetrics(registry, self._informers.pools.store)
        self._expired = BookingMetrics(registry)

    def controllers(self, api: Client, configuration: Configuration) -> list[Runnable]:
        bookings, approval = self._bookings(), _approval(configuration)
        options = self._wanted(configuration, approval)
        pools = PoolController(self._pools(bookings), api, recorder=self.recorders.of(POOL), settings=options)
        return [bookings, self._cards(api, approval), pools, self._nodes(api), self._idle(api)]

    def _bookings(self) -> Bookings:
        metrics = self._group.metrics(booking.NAME)
        options = booking.BookingOptions(
            ttl=self._settings.ttl, clock=self._clock, metrics=metrics, expiry_metrics=self._expired
        )
        return Bookings(self._waiting, self._informers.pools, self.booked, options)

    def _cards(self, api: Client, approval: Approval) -> CardController:
        seen = self._informers
        sources = cards.CardInformers(seen.devices, seen.inventories, seen.pools, seen.nodes, self._leases)
        metrics = self._group.metrics(cards.NAME)
        options = cards.CardControllerOptions(approval=approval, clock=self._clock, metrics=metrics)
        return CardController(sources, api, recorders=self.recorders, ledgers=self._ledgers, settings=options)

    def _idle(self, api: Client) -> IdleCardController:
        seen = self._informers
        sources = idle.IdleCardInformers(seen.devices, seen.pools, seen.pods, self._ledgers)
        options = idle.IdleCardOptions(clock=self._clock, metrics=self._group.metrics(idle.NAME))
        return IdleCardController(sources, api, recorder=self.recorders.of(POOL), options=options)

    def _pools(self, bookings: Bookings) -> pool.PoolInformers:
        seen = self._informers
        return pool.PoolInformers(
            pools=seen.pools,
            devices=seen.devices,
            nodes=seen.nodes,
            inventories=seen.inventories,
            config_maps=self._config_maps,
            namespaces=self._namespaces,
            accounts=self._accounts,
            ledgers=self._ledgers,
            bookings=bookings,
        )

    def _wanted(self, configuration: Configuration, approval: Approval) -> pool.PoolControllerOptions:
        low = configuration.alerts.capacity_low
        return pool.PoolControllerOptions(
            namespace=self._settings.namespace,
            deadline=timedelta(seconds=settings.seconds(configuration.maintenance.deadline)),
            alarm=LowCapacityAlert(low.percent, timedelta(seconds=settings.seconds(low.for_))),
            approval=approval,
            clock=self._clock,
            pool_metrics=self._figures,
            metrics=self._group.metrics(pool.NAME),
        )

    def _nodes(self, api: Client) -> PoolNodeController:
        seen = self._informers
        sources = pool_nodes.PoolNodeInformers(seen.nodes, seen.devices, seen.pools)
        return PoolNodeController(
            sources, api, pool_nodes.PoolNodeOptions(metrics=self._group.metrics(pool_nodes.NAME))
        )


def _approval(configuration: Configuration) -> Approval:
    approval = configuration.device_approval
    return Approval(approval.mode, convert_pool.label_selector(approval.selector))
