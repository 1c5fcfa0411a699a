"""`croupier scheduler-config`: the configuration with which kube-scheduler asks the extender."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from croupier.cli import terminal

if TYPE_CHECKING:
    from croupier.cli.scheduler_steps import Printed

URL = "http://127.0.0.1:9440"
Where = Literal["", "kubeadm", "k3s", "managed"]


def scheduler_config(
    *,
    where: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="kubeadm|k3s|managed",
            help="Whose scheduler; managed: a second one, where the control plane is not yours.",
        ),
    ] = "",
    url: Annotated[
        str, typer.Option(metavar="URL", help="Where the scheduler reaches `croupier extender`.")
    ] = URL,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write it there, as the scheduler will find it, and say what is next."
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="kubeadm: the static pod; a changed copy is written beside --write."
        ),
    ] = None,
    image: Annotated[
        str,
        typer.Option(metavar="IMAGE", help="managed: the upstream kube-scheduler, of the cluster's version."),
    ] = "",
    extender_image: Annotated[
        str, typer.Option(metavar="IMAGE", help="managed: Croupier, to run the extender in the same pod.")
    ] = "",
    tls_secret: Annotated[
        str, typer.Option(metavar="NAME", help="managed: the Secret to show an extender elsewhere (https).")
    ] = "",
    capacity_manager: Annotated[
        str, typer.Option(metavar="InMemory|CRD", help="managed: the book of the extender in the same pod.")
    ] = "InMemory",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="managed: where it runs.")
    ] = ("d8-gpu-operator"),
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
        str,
        typer.Option(metavar="NAME", help="For a scheduler beside the default one: its name."),
    ] = "",
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
    croupier scheduler-config --for kubeadm --write /etc/kubernetes/croupier/scheduler.yaml \\
      --manifest /etc/kubernetes/manifests/kube-scheduler.yaml --url https://10.96.0.40:9440 \\
      --ca /etc/kubernetes/croupier/ca.crt --cert /etc/kubernetes/croupier/tls.crt \\
      --key /etc/kubernetes/croupier/tls.key

    \b
    croupier scheduler-config --for k3s --write /var/lib/rancher/k3s/server/croupier-scheduler.yaml

    \b
    croupier scheduler-config --for managed --image kube-scheduler:v1.36.4 \\
      --extender-image croupier:1 | kubectl apply -f -

    \b
    croupier scheduler-config --scheduler-name gpu-scheduler    a second scheduler, for pods that name it
    """
    from croupier.cli import scheduler_steps
    from croupier.extender.configuration import BadWish, Wish
    from croupier.extender.schedulers import BadManifest, Second

    if where not in get_args(Where):
        terminal.refuse(f"--for {where}: it is kubeadm, k3s or managed.")
    files = _files(where, (ca, cert, key), tls_secret)
    managed = where == "managed"
    if managed and not image:
        terminal.refuse("--for managed needs --image: the upstream kube-scheduler, of the cluster's version.")
    if manifest is not None and (where != "kubeadm" or write is None):
        terminal.refuse("--manifest belongs to --for kubeadm with --write.")
    wish = Wish(
        url=url,
        kubeconfig=kubeconfig_path or _kubeconfig(where),
        files=files,
        scheduler_name=scheduler_name or ("croupier-scheduler" if managed else "default-scheduler"),
        leader_elect=leader_elect,
        lease_namespace=namespace if managed else "kube-system",
        qps=qps,
        timeout=timeout,
        resources=_known(kubeconfig),
    )
    second = Second(image, extender_image, tls_secret, namespace=namespace, book=capacity_manager)
    try:
        made = scheduler_steps.printed(where, wish, second, file=str(write or ""), manifest=manifest)
    except (BadWish, BadManifest) as bad:
        terminal.refuse(f"{bad}.")
    _tell(made, write)


def _files(where: str, named: tuple[str, str, str], secret: str) -> Any:
    from croupier.extender.configuration import Files
    from croupier.extender.schedulers import TLS_FOLDER

    if any(named) and not all(named):
        terminal.refuse("--ca, --cert and --key belong together.")
    if where == "managed" and secret and not any(named):
        named = (f"{TLS_FOLDER}/ca.crt", f"{TLS_FOLDER}/tls.crt", f"{TLS_FOLDER}/tls.key")
    return Files(*named) if all(named) else None


def _kubeconfig(where: str) -> str:
    """With a configuration file, the --kubeconfig of the command line is not read any more."""
    from croupier.extender.schedulers import K3S_KUBECONFIG, KUBEADM_KUBECONFIG

    return {"kubeadm": KUBEADM_KUBECONFIG, "k3s": K3S_KUBECONFIG}.get(where, "")


def _tell(made: "Printed", write: Path | None) -> None:
    from croupier.cli import scheduler_steps

    text = "---\n".join(scheduler_steps.as_yaml(one) for one in made.documents)
    if write is None:
        typer.echo(
            "".join(f"# {line}\n" for step in made.steps for line in step.splitlines()) + text, nl=False
        )
        return
    files = {
        write: text,
        **{write.parent / name: scheduler_steps.as_yaml(data) for name, data in made.beside.items()},
    }
    try:
        write.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_text(content)
    except OSError as error:
        terminal.refuse(f"--write {write}: {error}.")
    typer.echo("\n".join((f"Wrote {', '.join(map(str, files))}.", *made.steps)))


def _known(kubeconfig: Path | None) -> tuple[str, ...]:
    import asyncio

    from croupier.extender.configuration import Wish

    found = asyncio.run(_resources(kubeconfig)) if kubeconfig else set()
    return tuple({*Wish().resources, *found})


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
