"""The inventory controller, which maintains GPUDevices: `croupier manager --controllers inventory`."""

from dataclasses import replace

from croupier.api import kinds, nfd, settings
from croupier.api.gpu import agent_report
from croupier.api.settings import Configuration
from croupier.controllers.inventory import inventory
from croupier.controllers.inventory.desired_status import NodeManagement
from croupier.controllers.inventory.inventory import InventoryController
from croupier.controllers.inventory.inventory_snapshot import InventoryInformers
from croupier.controllers.inventory.metrics import InventoryMetrics
from croupier.core.cards.lifecycle import INVENTORY
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.controller.events import EventRecorder
from croupier.kube.serving.component_runner import Component
from croupier.wiring import elections
from croupier.wiring.controller_group import ControllerGroup
from croupier.wiring.process_context import Runnable


def components(group: ControllerGroup) -> list[Component]:
    context, follow = group.context, group.caches.follow
    agents = Selection(context.settings.namespace, labels=agent_report.LEASE_SELECTOR)
    sources = InventoryInformers(
        nodes=follow(kinds.NODES),
        leases=follow(kinds.LEASES, agents, name="leases of node agents"),
        features=follow(nfd.NODE_FEATURES),
        devices=follow(kinds.GPU_DEVICES),
        inventories=follow(kinds.GPU_NODE_INVENTORIES),
    )
    InventoryMetrics(
        context.leader_registry(elections.INVENTORY), sources.devices.store, sources.inventories.store
    )
    recorder = EventRecorder(context.api, INVENTORY, metrics=context.metrics.events)
    metrics = group.metrics(inventory.NAME)
    every = settings.seconds(context.settings.configuration.inventory.resync_period)
    options = replace(inventory.InventoryOptions().options, resync=float(every))

    def controllers(api: Client, configuration: Configuration) -> list[Runnable]:
        nodes = configuration.managed_nodes
        chosen = inventory.InventoryOptions(
            NodeManagement(nodes.label_key, nodes.enabled_by_default),
            options=options,
            clock=api.clock,
            metrics=metrics,
        )
        return [InventoryController(sources, api, recorder=recorder, settings=chosen)]

    working = group.elected(
        "inventory",
        elections.INVENTORY,
        controllers,
        depends_on=lambda configuration: configuration.managed_nodes,
    )
    return [Component("events of inventory", recorder.run), working]
