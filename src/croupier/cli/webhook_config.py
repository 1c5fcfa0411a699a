"""`croupier webhook-config`: print the webhook configurations, for installation by manifest."""

import typer

from croupier.cli.terminal import DEFAULT_NAMESPACE
from croupier.cli.webhook import Failure, Injected, Namespace, OnlyLabelled, Url


def webhook_config(
    *,
    url: Url = "",
    namespace: Namespace = DEFAULT_NAMESPACE,
    failure_policy: Failure = "Ignore",
    only_labelled: OnlyLabelled = "",
    inject_ca_from: Injected = "",
) -> None:
    """Print the webhook configurations. `croupier webhook` or cert-manager sets their CA bundle.

    \b
    croupier webhook-config | kubectl apply -f -
    croupier webhook --no-register
    """
    import yaml

    from croupier.admission import configurations
    from croupier.cli import webhook

    options = webhook.webhook_options(
        url, namespace, failure=failure_policy, labelled=only_labelled, inject_from=inject_ca_from
    )
    typer.echo(yaml.safe_dump_all(configurations.documents(options), sort_keys=False), nl=False)
