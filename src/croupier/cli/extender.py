"""`croupier extender`: the scheduler extender for pods that request cards."""

from pathlib import Path
from typing import Annotated

import typer

from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.process import (
    Book,
    HealthAddress,
    LeaseNamespace,
    LogLevel,
    SettingsFrom,
    StrategyName,
    Ttl,
)


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
    capacity_manager: Book = None,
    strategy: StrategyName = None,
    reservation_ttl: Ttl = None,
    lease_namespace: LeaseNamespace = "d8-gpu-operator",
    health: HealthAddress = ":8081",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Run the kube-scheduler extender: filter, prioritize, bind. Every bind is reserved in the ledger first.

    On loopback it serves plain HTTP; on any other address it requires TLS with client certificates.
    `croupier scheduler-config` prints the matching configuration of kube-scheduler.

    \b
    croupier extender
    croupier extender --capacity-manager CRD --strategy BinPack
    croupier extender --listen :9440 --tls-cert tls.crt --tls-key tls.key --client-ca ca.crt
    """
    from croupier.cli import process, terminal
    from croupier.kube import serving
    from croupier.kube.serving import TLS, Listen
    from croupier.wiring import extender as wired

    wanted = process.settings(
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
        address = serving.parse(listen)
    except ValueError as bad:
        terminal.refuse(f"--listen: {bad}.")
    tls = None
    if tls_cert and tls_key and client_ca:
        tls = TLS(tls_cert, tls_key, client_ca)
    elif tls_cert or tls_key or client_ca:
        terminal.refuse("--tls-cert, --tls-key and --client-ca must be set together.")
    where = Listen(address, tls)
    process.start(lambda: wired.work(wanted, where), log_level)
