"""Who looks after cards, nodes and pools in a manager: under an election of its own, whatever the book."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from croupier.api import kinds, nfd, settings
from croupier.api.gpu import agent_report, pooling
from croupier.api.settings import Configuration
from croupier.controllers import (
    booking,
    bootstrap,
    cards,
    inventory,
    inventory_reading,
    pool,
    pool_nodes,
    pool_writing,
)
from croupier.controllers.booking import BookingMetrics, Bookings
from croupier.controllers.bootstrap import BootstrapController
from croupier.controllers.bootstrap_metrics import BootstrapMetrics
from croupier.controllers.bootstrap_pods import Images
from croupier.controllers.bootstrap_services import Places
from croupier.controllers.cards import CardController
from croupier.controllers.cards_metrics import DeviceMetrics
from croupier.controllers.handler_metrics import HandlerErrors
from croupier.controllers.inventory import InventoryController
from croupier.controllers.inventory_metrics import InventoryMetrics
from croupier.controllers.inventory_writing import Management
from croupier.controllers.ledgers import Ledgers
from croupier.controllers.pool import PoolController
from croupier.controllers.pool_metrics import PoolMetrics
from croupier.controllers.pool_nodes import PoolNodes
from croupier.controllers.pool_status import Alarm
from croupier.controllers.reporters import Reporters
from croupier.controllers.sight import Sight, Sources
from croupier.core.assignment import Approval
from croupier.core.bootstrap import Kind
from croupier.core.lifecycle import INVENTORY, POOL
from croupier.kube.client import Client, Selection
from croupier.kube.elector import Leadership
from croupier.kube.events import Recorder
from croupier.kube.run import Part
from croupier.kube.shift import Gauge
from croupier.wiring.surface import BOUND_PODS, Caches, Keeper, Surface, all_of, election

CARDS_LEASE: Final = "croupier-cards"


@dataclass(frozen=True, slots=True)
class Starting:
    """What may be started on a node that lacks it; a kind without an image is not."""

    images: Mapping[Kind, str] = field(default_factory=dict)
    runtime_class: str = ""


def parts(surface: Surface, caches: Caches, starting: Starting) -> list[Part]:
    """What is followed for cards is followed from the start, so that a change of office costs nothing."""
    keepers = CardKeepers(surface, caches, starting)
    elector = election(surface, CARDS_LEASE)

    async def lead(stop: asyncio.Event) -> None:
        await elector.run(lambda term: all_of(keepers.of(term), term, stop), stop)

    return [
        Part("events of cards", keepers.reporters.run),
        Part("events of bookings", keepers.booked.run),
        Part("cards", lead),
    ]


class CardKeepers:
    def __init__(self, surface: Surface, caches: Caches, starting: Starting) -> None:
        self._surface = surface
        self._starting = starting
        self._follow(caches)
        metrics = surface.metrics
        self._errors = HandlerErrors(metrics.registry)
        self.reporters = Reporters(surface.api, metrics)
        self.booked = Recorder(surface.api, booking.REPORTER, gauge=metrics, naming=booking.naming)
        self._figures = PoolMetrics(metrics.registry, self._seen.pools.store)
        InventoryMetrics(metrics.registry, self._seen.devices.store, self._seen.inventories.store)
        BootstrapMetrics(metrics.registry, self._seen.inventories.store)
        DeviceMetrics(metrics.registry, self._seen.devices.store)
        self._expired = BookingMetrics(metrics.registry)

    def _follow(self, caches: Caches) -> None:
        namespace = self._surface.settings.namespace
        self._seen = Sources(
            nodes=caches.follow(kinds.NODES),
            devices=caches.follow(kinds.GPU_DEVICES),
            pools=caches.follow(kinds.GPU_POOLS),
            pods=caches.follow(kinds.PODS, BOUND_PODS),
            reservations=caches.follow(kinds.RESERVATIONS),
            inventories=caches.follow(kinds.GPU_NODE_INVENTORIES),
        )
        self._ledgers = Ledgers(Sight(self._seen), caches.follow(kinds.NODE_RESERVATIONS))
        agents = Selection(namespace, labels=agent_report.LEASES)
        self._leases = caches.follow(kinds.LEASES, agents, name="leases of node agents")
        self._features = caches.follow(nfd.NODE_FEATURES)
        ours = Selection(namespace, labels=pool_writing.LABEL)
        self._config_maps = caches.follow(kinds.CONFIG_MAPS, ours)
        self._waiting = caches.follow(kinds.PODS, booking.WAITING, name="pods that wait for a pool")

    def of(self, term: Leadership) -> list[Keeper]:
        """What works on cards in a term of office."""
        api = self._surface.api.fenced(term.require)
        bookings = self._bookings()
        return [
            self._inventory(api),
            self._bootstrap(api),
            self._cards(api),
            bookings,
            self._pools(api, bookings),
            self._pool_nodes(api),
        ]

    def _bookings(self) -> Bookings:
        ttl, gauge = self._surface.settings.ttl, self._gauge(booking.NAME)
        wanted = booking.Settings(ttl=ttl, gauge=gauge, figures=self._expired)
        return Bookings(self._waiting, self._seen.pools, self.booked, wanted)

    def _inventory(self, api: Client) -> InventoryController:
        seen, nodes = self._seen, self._configuration.managed_nodes
        sources = inventory_reading.Sources(
            seen.nodes, self._leases, self._features, seen.devices, seen.inventories
        )
        wanted = inventory.Settings(
            management=Management(nodes.label_key, nodes.enabled_by_default),
            gauge=self._gauge(inventory.NAME),
        )
        return InventoryController(sources, api, recorder=self.reporters.of(INVENTORY), settings=wanted)

    def _bootstrap(self, api: Client) -> BootstrapController:
        seen = self._seen
        sources = bootstrap.Sources(seen.inventories, seen.devices, seen.nodes, self._leases, seen.pods)
        images = Images(self._starting.images, self._starting.runtime_class)
        places = Places(images, self._surface.settings.namespace)
        wanted = bootstrap.Settings(places, gauge=self._gauge(bootstrap.NAME))
        return BootstrapController(sources, api, reporters=self.reporters, settings=wanted)

    def _cards(self, api: Client) -> CardController:
        seen = self._seen
        sources = cards.Sources(seen.devices, seen.inventories, seen.pools, seen.nodes, self._leases)
        wanted = cards.Settings(approval=self._approval(), gauge=self._gauge(cards.NAME))
        return CardController(sources, api, reporters=self.reporters, ledgers=self._ledgers, settings=wanted)

    def _pools(self, api: Client, bookings: Bookings) -> PoolController:
        seen = self._seen
        sources = pool.Sources(
            pools=seen.pools,
            devices=seen.devices,
            nodes=seen.nodes,
            inventories=seen.inventories,
            config_maps=self._config_maps,
            ledgers=self._ledgers,
            bookings=bookings,
        )
        return PoolController(sources, api, recorder=self.reporters.of(POOL), settings=self._of_pools())

    def _of_pools(self) -> pool.Settings:
        low = self._configuration.alerts.capacity_low
        return pool.Settings(
            namespace=self._surface.settings.namespace,
            deadline=timedelta(seconds=settings.seconds(self._configuration.maintenance.deadline)),
            alarm=Alarm(low.percent, timedelta(seconds=settings.seconds(low.for_))),
            approval=self._approval(),
            figures=self._figures,
            gauge=self._gauge(pool.NAME),
        )

    def _pool_nodes(self, api: Client) -> PoolNodes:
        seen = self._seen
        sources = pool_nodes.Sources(seen.nodes, seen.devices, seen.pools)
        return PoolNodes(sources, api, pool_nodes.Settings(gauge=self._gauge(pool_nodes.NAME)))

    @property
    def _configuration(self) -> Configuration:
        return self._surface.settings.configuration

    def _approval(self) -> Approval:
        approval = self._configuration.device_approval
        return Approval(approval.mode, pooling.labelled(approval.selector))

    def _gauge(self, name: str) -> Gauge:
        return self._errors.of(name, self._surface.metrics.controller(name))
