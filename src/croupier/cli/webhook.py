"""`croupier webhook`: what the API server asks about new pods."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import fallback_options
from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.fallback_options import MinMemory, PreferAvailable, Quantities, WhenNothingFits
from croupier.cli.process import HealthAddress, LogLevel, SettingsFrom

if TYPE_CHECKING:
    from croupier.admission.configurations import Wish

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", metavar="NS", help="Where the Service and the certificate's Secret are."
    ),
]
Url = Annotated[
    str,
    typer.Option(
        metavar="URL", help="Where the API server reaches it, if not by its Service: https://127.0.0.1:9443."
    ),
]
Failure = Annotated[
    str,
    typer.Option(
        "--failure-policy",
        metavar="Ignore|Fail",
        help="What becomes of a pod that names our resources while we do not answer.",
    ),
]
Injected = Annotated[
    str,
    typer.Option(
        metavar="NS/NAME", help="cert-manager's Certificate; its injector then keeps the CA bundle."
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Give pods that ask for cards to this scheduler, if their owner chose none: where a second "
        "scheduler asks the extender, and the default one does not.",
    ),
]
OnlyLabelled = Annotated[
    str, typer.Option(metavar="KEY=VALUE", help="Only for namespaces with this label; else for all.")
]


def webhook(
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the API server reaches it.")
    ] = ":9443",
    url: Url = "",
    namespace: Namespace = "d8-gpu-operator",
    failure_policy: Failure = "Ignore",
    only_labelled: OnlyLabelled = "",
    register: Annotated[
        bool, typer.Option(help="Write the webhook configurations itself; else they come by manifest.")
    ] = True,
    tls_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Use tls.crt and tls.key from there, instead of making our own."),
    ] = None,
    inject_ca_from: Injected = "",
    fallback: Annotated[
        str, typer.Option(metavar="nearest|down|up|off", help="Where to look for what no node offers.")
    ] = "nearest",
    min_memory: MinMemory = "",
    prefer_available: PreferAvailable = False,
    quantities: Quantities = "keep",
    when_nothing_fits: WhenNothingFits = "Admit",
    scheduler: Scheduler = "",
    drain: Annotated[
        float, typer.Option(min=0, max=60, metavar="SECONDS", help="How long to answer on when stopped.")
    ] = 5.0,
    settings: SettingsFrom = None,
    health: HealthAddress = ":8082",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Repair, mark or refuse new pods that ask for GPUs; all other pods never come here.

    Any number may run; they share a certificate, made by the first and renewed before it ends. With
    --settings the fallback is as they say, and a change counts for the next pod.

    \b
    croupier webhook
    croupier webhook --failure-policy Fail --fallback down --min-memory 10Gi
    croupier webhook --tls-dir /tls --inject-ca-from d8-gpu-operator/croupier-webhook
    croupier webhook --listen 127.0.0.1:9443 --url https://127.0.0.1:9443
    """
    from croupier.cli import process, terminal
    from croupier.kube import serving
    from croupier.wiring import webhook as wired
    from croupier.wiring.webhook import Admission

    try:
        asked = serving.parse(listen)
    except ValueError as bad:
        terminal.refuse(f"--listen: {bad}.")
    policy = fallback_options.policy(
        fallback,
        min_memory,
        prefer=prefer_available,
        quantities=quantities,
        nothing=when_nothing_fits,
        option="--fallback",
    )
    admission = Admission(
        listen=asked,
        wish=wish(url, namespace, failure=failure_policy, labelled=only_labelled, inject_from=inject_ca_from),
        policy=policy if settings is None else None,
        installs=register,
        mounted=tls_dir,
        drain=drain,
        scheduler=scheduler,
    )
    wanted = process.settings(
        namespace=namespace,
        health=health,
        cluster=(kubeconfig, context),
        origin=settings,
        log_level=log_level,
    )
    process.start(lambda: wired.work(wanted, admission), log_level)


def wish(url: str, namespace: str, *, failure: str, labelled: str, inject_from: str) -> "Wish":
    """How the API server is told of us, or the sentence what is wrong with it."""
    from typing import Any, cast
    from urllib.parse import urlsplit

    from croupier.admission import configurations
    from croupier.admission.configurations import FAILURE_POLICIES, Service, Wish
    from croupier.cli import terminal

    if failure not in FAILURE_POLICIES:
        terminal.refuse(f"--failure-policy {failure}: it is Ignore or Fail.")
    parts = urlsplit(url)
    if url and (parts.scheme != "https" or not parts.hostname):
        terminal.refuse(f"--url {url}: it is https://HOST:PORT, because the API server speaks nothing else.")
    label, equals, value = labelled.partition("=")
    if labelled and not equals:
        terminal.refuse(f"--only-labelled {labelled}: it is KEY=VALUE.")
    return Wish(
        configurations.Url(url, parts.hostname or "") if url else Service(namespace),
        failure_policy=cast("Any", failure),
        excluded=tuple(dict.fromkeys((*configurations.EXCLUDED, namespace))),
        namespaces={label: value} if labelled else {},
        inject_from=inject_from,
    )
