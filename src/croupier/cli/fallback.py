"""`croupier fallback`: preview how admission would change a pod's request."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, fallback_options, fallback_output, manifest, terminal
from croupier.cli.fallback_options import MinMemory, PreferAvailable, Quantities, WhenNothingFits

if TYPE_CHECKING:
    from croupier.core.availability import Availability
    from croupier.core.fallbacks.policy import FallbackPolicy
    from croupier.core.pods.podspec_view import PodSpecView
    from croupier.kube.client.api_client import Client

OUTPUTS = ("table", "json", "yaml")


def fallback(
    *,
    filename: Annotated[
        Path, typer.Option("--filename", "-f", metavar="FILE", help="A Pod, Job, Deployment ...; - is stdin.")
    ],
    nodes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Read nodes from a file, not the cluster: Nodes, or NAME: {RESOURCE: COUNT}.",
        ),
    ] = None,
    direction: Annotated[
        str,
        typer.Option(
            metavar="nearest|down|up|off", help="Which profiles may replace one that no node offers."
        ),
    ] = "nearest",
    min_memory: MinMemory = "",
    prefer_available: PreferAvailable = False,
    quantities: Quantities = "keep",
    when_nothing_fits: WhenNothingFits = "Admit",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="|".join(OUTPUTS), help="Output format.")
    ] = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show how admission would change a pod that requests MIG profiles, and why. Writes nothing.

    Uses the webhook's own decision; annotations of the pod override the options.

    Pods are listed only with --prefer-available.

    \b
    Exit code 0: the pod is admitted unchanged.
              3: the pod would be changed.
              4: nothing fits and the pod would be pending, or it would be rejected.
              2: a file or option is invalid.

    \b
    croupier fallback -f pod.yaml
    croupier fallback -f job.yaml --direction down --min-memory 10Gi
    croupier fallback -f pod.yaml --nodes nodes.yaml -o json
    kubectl get nodes,pods -A -o json | croupier fallback -f pod.yaml --nodes - --prefer-available
    """
    terminal.check_output(output, OUTPUTS)
    policy = fallback_options.policy(
        direction, min_memory, prefer=prefer_available, quantities=quantities, nothing=when_nothing_fits
    )
    pod = manifest.read(filename)
    spec = _spec(pod, filename)
    target = cluster.ClusterTarget(kubeconfig, context)
    index = _from_file(nodes) if nodes is not None else _from_cluster(target, pods=prefer_available)
    raise typer.Exit(fallback_output.show(_preview(pod, spec, index, policy), output))


def _spec(pod: dict[str, Any], path: Path) -> "PodSpecView":
    from croupier.core.model.refusal import Refusal
    from croupier.core.pods import podspec_view

    spec = podspec_view.read(pod)
    if isinstance(spec, Refusal):
        terminal.usage_error(f"-f {path}: not a valid pod: {spec}.")
    return spec


def _from_file(path: Path) -> "Availability":
    from croupier.core.fallbacks import availability_file as fallback_offer
    from croupier.core.model.refusal import Refusal

    index = fallback_offer.read(manifest.documents(path, "--nodes"))
    if isinstance(index, Refusal):
        terminal.usage_error(f"--nodes {path}: {index}.")
    return index


def _from_cluster(target: cluster.ClusterTarget, *, pods: bool) -> "Availability":
    """Nodes of the cluster; pods are listed only if `pods` is set, because listing them can be slow."""
    from croupier.capacity import availability

    return cluster.run(target, availability.count_cluster if pods else _nodes)


async def _nodes(api: "Client") -> "Availability":
    from croupier.api.pod_requests import LEAN_NODES
    from croupier.capacity import availability
    from croupier.core.availability import Availability

    index = Availability()
    async for page in api.pages(LEAN_NODES):
        for node in page.items:
            availability.update_node(index, node)
    return index


def _preview(
    pod: dict[str, Any], spec: "PodSpecView", index: "Availability", policy: "FallbackPolicy"
) -> fallback_output.FallbackPreview:
    from croupier.core.fallbacks import fallback as deciding

    decision = deciding.decide(spec, index, policy)
    return fallback_output.FallbackPreview(pod, spec, decision, index, policy)
