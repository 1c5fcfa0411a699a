"""`croupier scheduler-config`: the kube-scheduler configuration for the extender."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from croupier.cli import cluster, terminal
from croupier.cli import manifest as reading
from croupier.cli.terminal import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from croupier.ops.scheduler_steps import SchedulerFiles

URL = "http://127.0.0.1:9440"
ClusterKind = Literal["", "kubeadm", "k3s", "managed"]


def scheduler_config(
    *,
    where: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="kubeadm|k3s|managed",
            help="Kind of cluster; managed: a second scheduler, for control planes you cannot change.",
        ),
    ] = "",
    url: Annotated[
        str, typer.Option(metavar="URL", help="URL of `croupier extender`, as seen by the scheduler.")
    ] = URL,
    write: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the configuration to this path on the scheduler's host and print the next steps.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="kubeadm: the static pod; a modified copy is written next to --write."
        ),
    ] = None,
    image: Annotated[
        str,
        typer.Option(metavar="IMAGE", help="managed: kube-scheduler image with the cluster's version."),
    ] = "",
    extender_image: Annotated[
        str,
        typer.Option(metavar="IMAGE", help="managed: Croupier image, to run the extender in the same pod."),
    ] = "",
    tls_secret: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="managed: Secret with the client certificate for a remote extender (https)."
        ),
    ] = "",
    capacity_manager: Annotated[
        str,
        typer.Option(
            metavar="InMemory|CRD", help="managed: capacity manager of the extender in the same pod."
        ),
    ] = "InMemory",
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="managed: namespace of the scheduler.")
    ] = (DEFAULT_NAMESPACE),
    kubeconfig_path: Annotated[
        str,
        typer.Option(metavar="PATH", help="Path of the scheduler's own kubeconfig on its host."),
    ] = "",
    ca: Annotated[str, typer.Option(metavar="PATH", help="CA of the extender's certificate (https).")] = "",
    cert: Annotated[
        str, typer.Option(metavar="PATH", help="Client certificate of the scheduler (https).")
    ] = "",
    key: Annotated[str, typer.Option(metavar="PATH", help="Key of the client certificate (https).")] = "",
    scheduler_name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Name of an additional scheduler."),
    ] = "",
    leader_elect: Annotated[
        bool, typer.Option(help="Enable leader election; needed for several replicas.")
    ] = True,
    qps: Annotated[
        int, typer.Option(min=1, help="API requests per second of the scheduler; its default is 50.")
    ] = 500,
    timeout: Annotated[int, typer.Option(min=1, help="Timeout of extender calls in seconds.")] = 5,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also include the GPU resources of this cluster."),
    ] = None,
) -> None:
    """Print a KubeSchedulerConfiguration that makes kube-scheduler place GPU pods through the extender.

    Pods without GPU requests are scheduled as before, even if the extender is down. Run this again when the
    cluster gets a new MIG profile or pool: pods with unlisted resources use the extender only if marked.

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
    croupier scheduler-config --scheduler-name gpu-scheduler    a second scheduler
    """
    from croupier.ops import scheduler_steps
    from croupier.ops.scheduler_config import InvalidSchedulerOptions, SchedulerConfigOptions
    from croupier.ops.scheduler_manifests import (
        KUBECONFIGS,
        SECOND_SCHEDULER_NAME,
        InvalidManifest,
        SecondScheduler,
    )

    if where not in get_args(ClusterKind):
        terminal.usage_error(f"--for {where}: must be kubeadm, k3s or managed.")
    files = _files(where, (ca, cert, key), tls_secret)
    managed = where == "managed"
    if managed and not image:
        terminal.usage_error(
            "--for managed needs --image: the kube-scheduler image with the cluster's version."
        )
    if manifest is not None and (where != "kubeadm" or write is None):
        terminal.usage_error("--manifest requires --for kubeadm and --write.")
    wish = SchedulerConfigOptions(
        url=url,
        kubeconfig=kubeconfig_path or KUBECONFIGS.get(where, ""),
        files=files,
        scheduler_name=scheduler_name or (SECOND_SCHEDULER_NAME if managed else "default-scheduler"),
        leader_elect=leader_elect,
        lease_namespace=namespace if managed else "kube-system",
        qps=qps,
        timeout=timeout,
        resources=_managed_resources(kubeconfig),
    )
    second = SecondScheduler(
        image, extender_image, tls_secret, namespace=namespace, capacity_manager=capacity_manager
    )
    static_pod = (
        None if manifest is None else next(iter(reading.documents(manifest, "--manifest")), None) or {}
    )
    try:
        made = scheduler_steps.prepare(where, wish, second, file=str(write or ""), static_pod=static_pod)
    except (InvalidSchedulerOptions, InvalidManifest) as bad:
        terminal.usage_error(f"{bad}.")
    _output(made, write)


def _files(where: str, named: tuple[str, str, str], secret: str) -> Any:
    from croupier.ops.scheduler_config import SchedulerTLSFiles
    from croupier.ops.scheduler_manifests import TLS_FOLDER

    if any(named) and not all(named):
        terminal.usage_error("--ca, --cert and --key must be set together.")
    if where == "managed" and secret and not any(named):
        named = (f"{TLS_FOLDER}/ca.crt", f"{TLS_FOLDER}/tls.crt", f"{TLS_FOLDER}/tls.key")
    return SchedulerTLSFiles(*named) if all(named) else None


def _output(made: "SchedulerFiles", write: Path | None) -> None:
    from croupier.ops import scheduler_steps

    text = "---\n".join(scheduler_steps.as_yaml(document) for document in made.documents)
    if write is None:
        typer.echo(
            "".join(f"# {line}\n" for step in made.steps for line in step.splitlines()) + text, nl=False
        )
        return
    files = {
        write: text,
        **{write.parent / name: scheduler_steps.as_yaml(data) for name, data in made.extra_files.items()},
    }
    try:
        write.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            path.write_text(content)
    except OSError as error:
        terminal.usage_error(f"--write {write}: {error}.")
    typer.echo("\n".join((f"Wrote {', '.join(map(str, files))}.", *made.steps)))


def _managed_resources(kubeconfig: Path | None) -> tuple[str, ...]:
    from croupier.ops import scheduler_config
    from croupier.ops.scheduler_config import SchedulerConfigOptions

    target = cluster.ClusterTarget(kubeconfig)
    discovered = cluster.run(target, scheduler_config.card_resources) if kubeconfig else set()
    return tuple({*SchedulerConfigOptions().resources, *discovered})
