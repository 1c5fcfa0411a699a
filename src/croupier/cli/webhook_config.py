"""`croupier webhook-config`: what `croupier webhook` registers, for those who keep it in their manifests."""

import typer

from croupier.cli.webhook import Failure, Injected, Namespace, OnlyLabelled, Url


def webhook_config(
    *,
    url: Url = "",
    namespace: Namespace = "d8-gpu-operator",
    failure_policy: Failure = "Ignore",
    only_labelled: OnlyLabelled = "",
    inject_ca_from: Injected = "",
) -> None:
    """Print the webhook configurations; `croupier webhook`, or cert-manager, fills in their CA bundle.

    \b
    croupier webhook-config | kubectl apply -f -
    croupier webhook --no-register
    """
    import yaml

    from croupier.admission import configurations
    from croupier.cli import webhook

    wanted = webhook.wish(
        url, namespace, failure=failure_policy, labelled=only_labelled, inject_from=inject_ca_from
    )
    typer.echo(yaml.safe_dump_all(configurations.documents(wanted), sort_keys=False), nl=False)
