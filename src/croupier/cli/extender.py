"""`croupier extender`: the scheduler extender for pods that request cards."""

from pathlib import Path
from typing import Annotated

import typer

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


def extender(
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on for kube-scheduler.")
    ] = "127.0.0.1:9440",
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="Serving certificate.")] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Key of the serving certificate.")
    ] = None,
    client_ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CA of the client certificates.")
    ] = None,
    settings: SettingsFrom = None,
    capacity_manager: CapacityManagerName = None,
    strategy: StrategyName = None,
    reservation_ttl: Ttl = None,
    lease_namespace: LeaseNamespace = DEFAULT_NAMESPACE,
    health: HealthAddress = ":8081",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Run the kube-scheduler extender: filter and bind. Every bind is reserved in the ledger first.

    On loopback it serves plain HTTP; on any other address it requires TLS with client certificates.
    `croupier scheduler-config` prints the matching configuration of kube-scheduler.

    \b
    croupier extender
    croupier extender --capacity-manager CRD --strategy BinPack
    croupier extender --listen :9440 --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt
    """
    from croupier.cli import process_options, terminal
    from croupier.kube.serving import http_server
    from croupier.kube.serving.http_server import TLS, ListenOptions
    from croupier.wiring import extender as wired

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
    try:
        address = http_server.parse(listen)
    except ValueError as bad:
        terminal.usage_error(f"--listen: {bad}.")
    tls = None
    if tls_cert and tls_key and client_ca:
        tls = TLS(tls_cert, tls_key, client_ca)
    elif tls_cert or tls_key or client_ca:
        terminal.usage_error("--tls-cert, --tls-key and --client-ca must be set together.")
    where = ListenOptions(address, tls)
    process_options.start(lambda: wired.work(wanted, where), log_level)
