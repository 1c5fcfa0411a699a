"""`croupier manager`: run the controllers."""

from collections.abc import Sequence
from typing import Annotated

import typer

from croupier.cli import terminal
from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.process_options import (
    CapacityManagerName,
    HealthAddress,
    LeaseNamespace,
    LogLevel,
    SettingsFrom,
    StrategyName,
    Ttl,
)
from croupier.cli.terminal import DEFAULT_NAMESPACE

Image = Annotated[
    str, typer.Option(metavar="IMAGE", help="Image to start on nodes where it is missing; empty: never.")
]


def manager(
    *,
    settings: SettingsFrom = None,
    controllers: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="Controllers to run: inventory, bootstrap, pools, ledger, limits, or all.",
        ),
    ] = "all",
    capacity_manager: CapacityManagerName = None,
    strategy: StrategyName = None,
    reservation_ttl: Ttl = None,
    gfd_image: Image = "",
    dcgm_exporter_image: Image = "",
    runtime_class: Annotated[
        str, typer.Option(metavar="NAME", help="RuntimeClass of these two images.")
    ] = "",
    lease_namespace: LeaseNamespace = DEFAULT_NAMESPACE,
    health: HealthAddress = ":8080",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Run the controllers: inventory, pools, the ledger, Reservations, CPU limits.

    Any number of replicas may run; the holder of the Lease is active. With --capacity-manager InMemory (the
    default) `croupier extender` runs the ledger and Reservation controllers instead.

    \b
    croupier manager --capacity-manager CRD
    croupier manager --controllers ledger --capacity-manager CRD
    croupier manager --settings configmap
    croupier manager --settings settings.yaml --kubeconfig ~/.kube/config --health 127.0.0.1:8080
    """
    from croupier.cli import process_options
    from croupier.core.nodes.bootstrap import DCGM, GFD
    from croupier.wiring import manager as wired
    from croupier.wiring.service_options import ServiceOptions

    wanted = process_options.parse(
        book=capacity_manager,
        strategy=strategy,
        ttl=reservation_ttl,
        namespace=lease_namespace,
        health=health,
        cluster=(kubeconfig, context),
        origin=settings,
        log_level=log_level,
    )
    chosen = _chosen(controllers, wired.CONTROLLERS)
    named = {GFD: gfd_image, DCGM: dcgm_exporter_image}
    starting = ServiceOptions({kind: image for kind, image in named.items() if image}, runtime_class)
    process_options.start(lambda: wired.work(wanted, chosen, starting), log_level)


def _chosen(written: str, known: Sequence[str]) -> frozenset[str]:
    names = frozenset(name.strip() for name in written.split(","))
    if names == {"all"}:
        return frozenset(known)
    if unknown := sorted(names - set(known)):
        terminal.usage_error(f"--controllers {', '.join(unknown)}: choose from {', '.join(known)}, or all.")
    return names
