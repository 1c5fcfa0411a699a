"""The bootstrap controller, which decides whether nodes are ready: `--controllers bootstrap`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from croupier.api import kinds
from croupier.api.gpu import agent_report
from croupier.api.settings import Configuration
from croupier.controllers.bootstrap import bootstrap
from croupier.controllers.bootstrap.bootstrap import BootstrapController, Sources
from croupier.controllers.bootstrap.metrics import BootstrapMetrics
from croupier.controllers.bootstrap.pods import Images
from croupier.controllers.bootstrap.services import Places
from croupier.controllers.cards.reporters import Reporters
from croupier.core.nodes.bootstrap import Kind
from croupier.kube.client import Client, Selection
from croupier.kube.run import Part
from croupier.wiring.office import Office
from croupier.wiring.surface import BOUND_PODS, Keeper

LEASE: Final = "croupier-bootstrap"


@dataclass(frozen=True, slots=True)
class Starting:
    """Services to start on nodes without them; a service without an image is not started."""

    images: Mapping[Kind, str] = field(default_factory=dict)
    runtime_class: str = ""


def parts(office: Office, starting: Starting) -> list[Part]:
    surface, follow = office.surface, office.caches.follow
    namespace = surface.settings.namespace
    agents = Selection(namespace, labels=agent_report.LEASES)
    sources = Sources(
        inventories=follow(kinds.GPU_NODE_INVENTORIES),
        devices=follow(kinds.GPU_DEVICES),
        nodes=follow(kinds.NODES),
        leases=follow(kinds.LEASES, agents, name="leases of node agents"),
        pods=follow(kinds.PODS, BOUND_PODS),
    )
    BootstrapMetrics(surface.metrics.registry, sources.inventories.store)
    reporters = Reporters(surface.api, surface.metrics)
    places = Places(Images(starting.images, starting.runtime_class), namespace)
    options = bootstrap.Settings(places, gauge=office.gauge(bootstrap.NAME))

    def controllers(api: Client, _: Configuration) -> list[Keeper]:
        return [BootstrapController(sources, api, reporters=reporters, settings=options)]

    return [Part("events of bootstrap", reporters.run), office.elected("bootstrap", LEASE, controllers)]
