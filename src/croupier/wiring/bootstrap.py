"""The bootstrap controller, which decides whether nodes are ready: `--controllers bootstrap`."""

from croupier.api import kinds
from croupier.api.gpu import agent_report
from croupier.api.settings import Configuration
from croupier.controllers.bootstrap import bootstrap
from croupier.controllers.bootstrap.bootstrap import BootstrapController, BootstrapInformers
from croupier.controllers.bootstrap.metrics import BootstrapMetrics
from croupier.controllers.bootstrap.service_manifests import ServiceImages
from croupier.controllers.bootstrap.service_pods import ServicePodOptions
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.serving.component_runner import Component
from croupier.wiring import elections
from croupier.wiring.controller_group import ControllerGroup
from croupier.wiring.process_context import BOUND_PODS, Runnable
from croupier.wiring.service_options import ServiceOptions


def components(group: ControllerGroup, starting: ServiceOptions) -> list[Component]:
    context, follow = group.context, group.caches.follow
    namespace = context.settings.namespace
    agents = Selection(namespace, labels=agent_report.LEASE_SELECTOR)
    sources = BootstrapInformers(
        inventories=follow(kinds.GPU_NODE_INVENTORIES),
        devices=follow(kinds.GPU_DEVICES),
        nodes=follow(kinds.NODES),
        leases=follow(kinds.LEASES, agents, name="leases of node agents"),
        pods=follow(kinds.PODS, BOUND_PODS),
    )
    BootstrapMetrics(context.leader_registry(elections.BOOTSTRAP), sources.inventories.store)
    reporters = CardEventRecorders(context.api, context.metrics.events)
    places = ServicePodOptions(ServiceImages(starting.images, starting.runtime_class), namespace)
    metrics = group.metrics(bootstrap.NAME)
    options = bootstrap.BootstrapOptions(places, clock=context.api.clock, metrics=metrics)

    def controllers(api: Client, _: Configuration) -> list[Runnable]:
        return [BootstrapController(sources, api, recorders=reporters, settings=options)]

    return [
        Component("events of bootstrap", reporters.run),
        group.elected("bootstrap", elections.BOOTSTRAP, controllers),
    ]
