"""`croupier webhook`: the admission webhook for pods that request GPUs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import fallback_options
from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.fallback_options import MinMemory, PreferAvailable, Quantities, WhenNothingFits
from croupier.cli.process_options import NAMESPACE_VARIABLE, HealthAddress, LogLevel, SettingsFrom
from croupier.cli.terminal import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from croupier.admission.configurations import WebhookConfigurationOptions

Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NS",
        envvar=NAMESPACE_VARIABLE,
        help="Namespace of the Service and of the certificate's Secret.",
    ),
]
Url = Annotated[
    str,
    typer.Option(metavar="URL", help="URL of the webhook, if not its Service: https://127.0.0.1:9443."),
]
Failure = Annotated[
    str,
    typer.Option(
        "--failure-policy",
        metavar="Ignore|Fail",
        help="Failure policy for pods with our resources while the webhook is unavailable.",
    ),
]
Injected = Annotated[
    str,
    typer.Option(
        metavar="NS/NAME", help="cert-manager Certificate from which its injector takes the CA bundle."
    ),
]
Scheduler = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="Set this schedulerName on pods that request cards and name no scheduler; for clusters where "
        "only a second scheduler uses the extender.",
    ),
]
OnlyLabelled = Annotated[
    str, typer.Option(metavar="KEY=VALUE", help="Only for namespaces with this label; default all.")
]


def webhook(
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on for the API server.")
    ] = ":9443",
    url: Url = "",
    namespace: Namespace = DEFAULT_NAMESPACE,
    failure_policy: Failure = "Ignore",
    only_labelled: OnlyLabelled = "",
    register: Annotated[
        bool, typer.Option(help="Create the webhook configurations; otherwise a manifest must.")
    ] = True,
    tls_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Use tls.crt and tls.key from this directory instead of a self-signed certificate.",
        ),
    ] = None,
    inject_ca_from: Injected = "",
    client_ca: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Answer only clients with a certificate of this CA: the API server, if it is configured so.",
        ),
    ] = None,
    client_name: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Common or DNS name of an accepted client certificate; can be repeated. Default: all names.",
        ),
    ] = None,
    fallback: Annotated[
        str,
        typer.Option(
            metavar="nearest|down|up|off", help="Which profiles may replace one that no node offers."
        ),
    ] = "nearest",
    min_memory: MinMemory = "",
    prefer_available: PreferAvailable = False,
    quantities: Quantities = "keep",
    when_nothing_fits: WhenNothingFits = "Admit",
    scheduler: Scheduler = "",
    drain: Annotated[
        float, typer.Option(min=0, max=60, metavar="SECONDS", help="How long to keep serving after SIGTERM.")
    ] = 5.0,
    settings: SettingsFrom = None,
    health: HealthAddress = ":8082",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Run the admission webhook: mutate, mark or reject pods that request GPUs. Other pods do not match it.

    Any number of replicas may run; they share one certificate, which is renewed automatically. With
    --settings, the fallback policy comes from the settings, and changes apply to the next pod.

    \b
    croupier webhook
    croupier webhook --failure-policy Fail --fallback down --min-memory 10Gi
    croupier webhook --tls-dir /tls --inject-ca-from d8-gpu-operator/croupier-webhook
    croupier webhook --listen 127.0.0.1:9443 --url https://127.0.0.1:9443
    croupier webhook --client-ca ca.crt --client-name kube-apiserver
    """
    from croupier.cli import process_options, terminal
    from croupier.kube.serving import http_server
    from croupier.wiring import webhook as wired
    from croupier.wiring.webhook import WebhookOptions

    try:
        asked = http_server.parse(listen)
    except ValueError as bad:
        terminal.usage_error(f"--listen: {bad}.")
    policy = fallback_options.policy(
        fallback,
        min_memory,
        prefer=prefer_available,
        quantities=quantities,
        nothing=when_nothing_fits,
        option="--fallback",
    )
    if client_name and client_ca is None:
        terminal.usage_error("--client-name needs --client-ca.")
    admission = WebhookOptions(
        listen=asked,
        client_authority=client_ca,
        client_names=frozenset(client_name or ()),
        wish=webhook_options(
            url, namespace, failure=failure_policy, labelled=only_labelled, inject_from=inject_ca_from
        ),
        policy=policy if settings is None else None,
        installs=register,
        mounted=tls_dir,
        drain=drain,
        scheduler=scheduler,
    )
    wanted = process_options.parse(
        namespace=namespace,
        health=health,
        cluster=(kubeconfig, context),
        origin=settings,
        log_level=log_level,
    )
    process_options.start(lambda: wired.work(wanted, admission), log_level)


def webhook_options(
    url: str, namespace: str, *, failure: str, labelled: str, inject_from: str
) -> "WebhookConfigurationOptions":
    """Options of the webhook configurations; exits with code 2 if one is invalid."""
    from typing import Any, cast
    from urllib.parse import urlsplit

    from croupier.admission import configurations
    from croupier.admission.configurations import FAILURE_POLICIES, ServiceTarget, WebhookConfigurationOptions
    from croupier.cli import terminal

    terminal.check_choice("--failure-policy", failure, FAILURE_POLICIES)
    parts = urlsplit(url)
    if url and (parts.scheme != "https" or not parts.hostname):
        terminal.usage_error(f"--url {url}: must be https://HOST:PORT; the API server requires https.")
    label, equals, value = labelled.partition("=")
    if labelled and not equals:
        terminal.usage_error(f"--only-labelled {labelled}: must be KEY=VALUE.")
    return WebhookConfigurationOptions(
        configurations.UrlTarget(url, parts.hostname or "") if url else ServiceTarget(namespace),
        failure_policy=cast("Any", failure),
        excluded=tuple(dict.fromkeys((*configurations.EXCLUDED, namespace))),
        namespaces={label: value} if labelled else {},
        inject_from=inject_from,
    )
