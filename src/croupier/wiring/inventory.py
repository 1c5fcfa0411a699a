"""The inventory controller, which maintains GPUDevices: `croupier manager --controllers inventory`."""

from dataclasses import replace
from typing import Final

from croupier.api import kinds, nfd, settings
from croupier.api.gpu import agent_report
from croupier.api.settings import Configuration
from croupier.controllers.inventory import inventory
from croupier.controllers.inventory.inventory import InventoryController
from croupier.controllers.inventory.metrics import InventoryMetrics
from croupier.controllers.inventory.reading import Sources
from croupier.controllers.inventory.writing import Management
from croupier.core.cards.lifecycle import INVENTORY
from croupier.kube.client import Client, Selection
from croupier.kube.events import Recorder
from croupier.kube.run import Part
from croupier.wiring.office import Office
from croupier.wiring.surface import Keeper

LEASE: Final = "croupier-inventory"


def parts(office: Office) -> list[Part]:
    surface, follow = office.surface, office.caches.follow
    agents = Selection(surface.settings.namespace, labels=agent_report.LEASES)
    sources = Sources(
        nodes=follow(kinds.NODES),
        leases=follow(kinds.LEASES, agents, name="leases of node agents"),
        features=follow(nfd.NODE_FEATURES),
        devices=follow(kinds.GPU_DEVICES),
        inventories=follow(kinds.GPU_NODE_INVENTORIES),
    )
    InventoryMetrics(surface.metrics.registry, sources.devices.store, sources.inventories.store)
    recorder = Recorder(surface.api, INVENTORY, gauge=surface.metrics)
    gauge = office.gauge(inventory.NAME)
    every = settings.seconds(surface.settings.configuration.inventory.resync_period)
    options = replace(inventory.Settings().options, resync=float(every))

    def controllers(api: Client, configuration: Configuration) -> list[Keeper]:
        nodes = configuration.managed_nodes
        chosen = inventory.Settings(
            Management(nodes.label_key, nodes.enabled_by_default), options=options, gauge=gauge
        )
        return [InventoryController(sources, api, recorder=recorder, settings=chosen)]

    working = office.elected(
        "inventory", LEASE, controllers, minds=lambda configuration: configuration.managed_nodes
    )
    return [Part("events of inventory", recorder.run), working]
