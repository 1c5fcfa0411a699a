"""The card and pool controllers: `croupier manager --controllers pools`."""

from datetime import timedelta
from typing import Final

from croupier.api import kinds, settings
from croupier.api.gpu import agent_report, pooling
from croupier.api.settings import Configuration
from croupier.controllers.cards import cards
from croupier.controllers.cards.cards import CardController
from croupier.controllers.cards.metrics import DeviceMetrics
from croupier.controllers.cards.reporters import Reporters
from croupier.controllers.ledger.ledgers import Ledgers
from croupier.controllers.ledger.sight import Sight, Sources
from croupier.controllers.pools import booking, pool
from croupier.controllers.pools import nodes as pool_nodes
from croupier.controllers.pools import writing as pool_writing
from croupier.controllers.pools.booking import BookingMetrics, Bookings
from croupier.controllers.pools.metrics import PoolMetrics
from croupier.controllers.pools.nodes import PoolNodes
from croupier.controllers.pools.pool import PoolController
from croupier.controllers.pools.status import Alarm
from croupier.core.cards.lifecycle import POOL
from croupier.core.pools.assignment import Approval
from croupier.kube.client import Client, Selection
from croupier.kube.events import Recorder
from croupier.kube.run import Part
from croupier.wiring.office import Office
from croupier.wiring.surface import BOUND_PODS, Keeper

LEASE: Final = "croupier-pools"


def parts(office: Office) -> list[Part]:
    pool_group = _Pools(office)
    return [
        Part("events of cards", pool_group.reporters.run),
        Part("events of bookings", pool_group.booked.run),
        office.elected("pools", LEASE, pool_group.keepers, minds=_minds),
    ]


def _minds(configuration: Configuration) -> object:
    return configuration.device_approval, configuration.maintenance, configuration.alerts.capacity_low


class _Pools:
    def __init__(self, office: Office) -> None:
        surface, follow = office.surface, office.caches.follow
        self._office = office
        self._settings = surface.settings
        self._seen = Sources(
            nodes=follow(kinds.NODES),
            devices=follow(kinds.GPU_DEVICES),
            pools=follow(kinds.GPU_POOLS),
            pods=follow(kinds.PODS, BOUND_PODS),
            reservations=follow(kinds.RESERVATIONS),
            inventories=follow(kinds.GPU_NODE_INVENTORIES),
        )
        self._ledgers = Ledgers(Sight(self._seen), follow(kinds.NODE_RESERVATIONS))
        agents = Selection(self._settings.namespace, labels=agent_report.LEASES)
        self._leases = follow(kinds.LEASES, agents, name="leases of node agents")
        ours = Selection(self._settings.namespace, labels=pool_writing.LABEL)
        self._config_maps = follow(kinds.CONFIG_MAPS, ours)
        self._waiting = follow(kinds.PODS, booking.WAITING, name="pods that wait for a pool")
        self.reporters = Reporters(surface.api, surface.metrics)
        self.booked = Recorder(surface.api, booking.REPORTER, gauge=surface.metrics, naming=booking.naming)
        registry = surface.metrics.registry
        DeviceMetrics(registry, self._seen.devices.store)
        self._figures = PoolMetrics(registry, self._seen.pools.store)
        self._expired = BookingMetrics(registry)

    def keepers(self, api: Client, configuration: Configuration) -> list[Keeper]:
        bookings, approval = self._bookings(), _approval(configuration)
        options = self._wanted(configuration, approval)
        pools = PoolController(self._pools(bookings), api, recorder=self.reporters.of(POOL), settings=options)
        return [bookings, self._cards(api, approval), pools, self._nodes(api)]

    def _bookings(self) -> Bookings:
        gauge = self._office.gauge(booking.NAME)
        options = booking.Settings(ttl=self._settings.ttl, gauge=gauge, figures=self._expired)
        return Bookings(self._waiting, self._seen.pools, self.booked, options)

    def _cards(self, api: Client, approval: Approval) -> CardController:
        seen = self._seen
        sources = cards.Sources(seen.devices, seen.inventories, seen.pools, seen.nodes, self._leases)
        options = cards.Settings(approval=approval, gauge=self._office.gauge(cards.NAME))
        return CardController(sources, api, reporters=self.reporters, ledgers=self._ledgers, settings=options)

    def _pools(self, bookings: Bookings) -> pool.Sources:
        seen = self._seen
        return pool.Sources(
            pools=seen.pools,
            devices=seen.devices,
            nodes=seen.nodes,
            inventories=seen.inventories,
            config_maps=self._config_maps,
            ledgers=self._ledgers,
            bookings=bookings,
        )

    def _wanted(self, configuration: Configuration, approval: Approval) -> pool.Settings:
        low = configuration.alerts.capacity_low
        return pool.Settings(
            namespace=self._settings.namespace,
            deadline=timedelta(seconds=settings.seconds(configuration.maintenance.deadline)),
            alarm=Alarm(low.percent, timedelta(seconds=settings.seconds(low.for_))),
            approval=approval,
            figures=self._figures,
            gauge=self._office.gauge(pool.NAME),
        )

    def _nodes(self, api: Client) -> PoolNodes:
        seen = self._seen
        sources = pool_nodes.Sources(seen.nodes, seen.devices, seen.pools)
        return PoolNodes(sources, api, pool_nodes.Settings(gauge=self._office.gauge(pool_nodes.NAME)))


def _approval(configuration: Configuration) -> Approval:
    approval = configuration.device_approval
    return Approval(approval.mode, pooling.labelled(approval.selector))
