"""`croupier fallback`: preview how admission would change a pod's request."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, fallback_options, fallback_shown, manifest, terminal
from croupier.cli.fallback_options import MinMemory, PreferAvailable, Quantities, WhenNothingFits

if TYPE_CHECKING:
    from croupier.core.availability import Availability
    from croupier.core.fallbacks.policy import Policy
    from croupier.core.pods.podspec import PodSpec
    from croupier.kube.client import Client

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
    if output not in OUTPUTS:
        terminal.refuse(f"--output {output}: must be {', '.join(OUTPUTS[:-1])} or {OUTPUTS[-1]}.")
    policy = fallback_options.policy(
        direction, min_memory, prefer=prefer_available, quantities=quantities, nothing=when_nothing_fits
    )
    pod = manifest.read(filename)
    spec = _spec(pod, filename)
    target = cluster.Target(kubeconfig, context)
    index = _file(nodes) if nodes is not None else _live(target, pods=prefer_available)
    raise typer.Exit(fallback_shown.show(_outcome(pod, spec, index, policy), output))


def _spec(pod: dict[str, Any], path: Path) -> "PodSpec":
    from croupier.core.ledgers.ledger import Refused
    from croupier.core.pods import podspec

    spec = podspec.read(pod)
    if isinstance(spec, Refused):
        terminal.refuse(f"-f {path}: not a valid pod: {spec}.")
    return spec


def _file(path: Path) -> "Availability":
    from croupier.core.fallbacks import offer as fallback_offer
    from croupier.core.ledgers.ledger import Refused

    index = fallback_offer.read(manifest.documents(path, "--nodes"))
    if isinstance(index, Refused):
        terminal.refuse(f"--nodes {path}: {index}.")
    return index


def _live(target: cluster.Target, *, pods: bool) -> "Availability":
    """Nodes of the cluster; pods are listed only if `pods` is set, because listing them can be slow."""
    from croupier.book import availability

    return cluster.ask(target, availability.take if pods else _nodes)


async def _nodes(api: "Client") -> "Availability":
    from croupier.api.occupancy import LEAN_NODES
    from croupier.book import availability
    from croupier.core.availability import Availability

    index = Availability()
    async for page in api.pages(LEAN_NODES):
        for node in page.items:
            availability.see_node(index, node)
    return index


def _outcome(
    pod: dict[str, Any], spec: "PodSpec", index: "Availability", policy: "Policy"
) -> fallback_shown.Outcome:
    from croupier.core.fallbacks import fallback as deciding

    decision = deciding.decide(spec, index, policy)
    return fallback_shown.Outcome(pod, spec, decision, index, policy)
