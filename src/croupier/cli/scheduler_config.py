"""`croupier scheduler-config`: the configuration with which kube-scheduler asks the extender."""

from pathlib import Path
from typing import Annotated

import typer

from croupier.cli import terminal

URL = "http://127.0.0.1:9440"


def scheduler_config(
    *,
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where the scheduler reaches `croupier extender`.")
    ] = URL,
    kubeconfig_path: Annotated[
        str,
        typer.Option(metavar="PATH", help="The kubeconfig of the scheduler itself, as it will find it."),
    ] = "",
    ca: Annotated[
        str, typer.Option(metavar="PATH", help="The authority of the extender's certificate (https).")
    ] = "",
    cert: Annotated[
        str, typer.Option(metavar="PATH", help="The certificate the scheduler shows (https).")
    ] = "",
    key: Annotated[str, typer.Option(metavar="PATH", help="Its key (https).")] = "",
    scheduler_name: Annotated[
        str, typer.Option(metavar="NAME", help="For a scheduler beside the default one: its name.")
    ] = "default-scheduler",
    leader_elect: Annotated[
        bool, typer.Option(help="Whether the scheduler runs in several replicas.")
    ] = True,
    qps: Annotated[
        int, typer.Option(min=1, help="Requests a second the scheduler may make; 50 is its own limit.")
    ] = 500,
    timeout: Annotated[int, typer.Option(min=1, help="Seconds the scheduler waits for an answer.")] = 5,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also list the GPU resources that this cluster has now."),
    ] = None,
) -> None:
    """Print a KubeSchedulerConfiguration that lets kube-scheduler place GPU pods through the ledger.

    Pods that ask for no cards are placed as ever, whether the extender runs or not. Run it again when a
    new MIG profile or pool comes into the cluster: what is not listed reaches the ledger by its mark only.

    \b
    croupier scheduler-config > scheduler.yaml
    kube-scheduler --config scheduler.yaml

    \b
    croupier scheduler-config --kubeconfig ~/.kube/config \\
      --url https://croupier-extender.d8-gpu-operator.svc:9440 \\
      --ca /pki/ca.crt --cert /pki/tls.crt --key /pki/tls.key \\
      --kubeconfig-path /etc/kubernetes/scheduler.conf

    \b
    croupier scheduler-config --scheduler-name gpu-scheduler    a second scheduler, for pods that name it
    """
    import asyncio

    import yaml

    from croupier.extender import configuration
    from croupier.extender.configuration import BadWish, Files, Wish

    if any((ca, cert, key)) and not all((ca, cert, key)):
        terminal.refuse("--ca, --cert and --key belong together.")
    found = asyncio.run(_resources(kubeconfig)) if kubeconfig else set()
    wish = Wish(
        url=url,
        kubeconfig=kubeconfig_path,
        files=Files(ca, cert, key) if ca else None,
        scheduler_name=scheduler_name,
        leader_elect=leader_elect,
        qps=qps,
        timeout=timeout,
        resources=tuple({*Wish().resources, *found}),
    )
    try:
        wanted = configuration.configuration(wish)
    except BadWish as bad:
        terminal.refuse(f"{bad}.")
    typer.echo(yaml.safe_dump(wanted, sort_keys=False), nl=False)


async def _resources(kubeconfig: Path) -> set[str]:
    """What nodes and pools of the cluster offer."""
    from croupier.api import kinds
    from croupier.extender import configuration
    from croupier.kube import client, config
    from croupier.kube.errors import NotFound

    names: set[str] = set()
    async with client.connect(config.load(kubeconfig)) as api:
        for node in (await api.list(kinds.NODES)).items:
            names |= node.status.allocatable.keys()
        try:
            pools = (await api.list(kinds.GPU_POOLS)).items
        except NotFound:  # the kind is not installed
            pools = []
    names |= {pool.spec.resource.name or f"gpu.deckhouse.io/{pool.metadata.name}" for pool in pools}
    return configuration.concerning(names)
