"""`croupier manager`: the controllers."""

from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.process import Book, HealthAddress, LeaseNamespace, LogLevel, StrategyName, Ttl


def manager(
    *,
    capacity_manager: Book = "InMemory",
    strategy: StrategyName = "Spread",
    reservation_ttl: Ttl = 120,
    lease_namespace: LeaseNamespace = "d8-gpu-operator",
    health: HealthAddress = ":8080",
    log_level: LogLevel = "info",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Run the controllers: they keep the ledger true, decide Reservations and move CPU limits.

    Any number may run; one works, the others wait for its Lease. With --capacity-manager InMemory (the
    default) `croupier extender` keeps the ledger and decides Reservations; CPU limits are moved here.

    \b
    croupier manager --capacity-manager CRD
    croupier manager --capacity-manager CRD --kubeconfig ~/.kube/config --health 127.0.0.1:8080
    """
    from croupier.cli import process
    from croupier.wiring import manager as wired

    wanted = process.settings(
        book=capacity_manager,
        strategy=strategy,
        ttl=reservation_ttl,
        namespace=lease_namespace,
        health=health,
        cluster=(kubeconfig, context),
    )
    process.start(lambda: wired.work(wanted), log_level)
