"""`croupier what-if`: simulate the placement of a pod."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from croupier.cli import cluster, completion, manifest, rendering, tables, terminal
from croupier.cli import explain as explaining
from croupier.cli.terminal import STRATEGIES

if TYPE_CHECKING:
    from croupier.capacity.snapshot import ClusterSnapshot
    from croupier.core.explanation.explain import SchedulingInputs
    from croupier.core.explanation.what_if import WhatIfResult
    from croupier.core.model.pod_view import PodView

MAX_COPIES = 100_000


def what_if(
    *,
    filename: Annotated[
        Path, typer.Option("--filename", "-f", metavar="FILE", help="A Pod, Job, Deployment ...; - is stdin.")
    ],
    count: Annotated[int, typer.Option(metavar="N", help="Number of copies.")] = 1,
    strategy: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(STRATEGIES),
            help="Overrides the strategy of the pool; default Spread.",
            autocompletion=completion.strategies,
        ),
    ] = None,
    namespace: cluster.Namespace = None,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show where a pod, or N copies of it, would be placed now, or what is missing. Writes nothing.

    Considers cards, cordons, taints, node selectors and node affinity; not CPU, memory or topology spread.

    The placement needs the right to read nodes and ledgers of the cluster. Without it the command prints what
    the requested pool has left, if pools can be read, and names what could not be read.

    Exit code 0 if all copies fit, 1 if not or unknown, 2 if the file cannot be read as a pod.

    \b
    croupier what-if -f pod.yaml
    croupier what-if -f job.yaml --count 16 --strategy BinPack
    kubectl get deployment trainer -o yaml | croupier what-if -f -
    """
    from croupier.api import pod_manifest
    from croupier.capacity import pod_explanation, snapshot
    from croupier.core.model.refusal import Refusal

    terminal.check_output(output)
    if not 1 <= count <= MAX_COPIES:
        terminal.usage_error(f"--count {count}: must be 1 to {MAX_COPIES}.")
    terminal.check_choice("--strategy", strategy, STRATEGIES)
    pod = manifest.pod(filename, namespace)
    view = pod_manifest.schedulable(pod)
    if isinstance(view, Refusal):
        manifest.refuse(filename, view)
    target = cluster.ClusterTarget(kubeconfig, context)
    member_of = pod.metadata.namespace or None
    seen = cluster.run(
        target,
        lambda api: snapshot.take(api, cluster.now(), member_of=member_of or api.config.namespace),
        needs=cluster.LEDGER_KINDS,
    )
    if seen.incomplete:
        _unknown(view, seen, count, output)
    chosen: Any = strategy
    played, world = pod_explanation.what_if(pod, count, chosen, seen)
    if output == "json":
        data = pod_explanation.what_if_data(view, played, world, count)
        typer.echo(rendering.json(data | {"unreadable": list(seen.unreadable)}))
    else:
        print_text(view, played, world, count)
    raise typer.Exit(0 if played.stopped is None else 1)


def _unknown(view: "PodView", seen: "ClusterSnapshot", count: int, output: str) -> NoReturn:
    """Tell a user who may not read the ledgers what is known, and what could not be read."""
    from croupier.capacity import pod_explanation
    from croupier.core.model import card_request

    data = pod_explanation.unknown_placement_data(view, seen, count)
    if output == "json":
        typer.echo(rendering.json(data | {"unreadable": list(seen.unreadable)}))
    else:
        asks = f" ({card_request.describe(view.wants)})" if view.wants else ""
        typer.echo(
            f"Cannot tell where the pod would be placed{asks}: the rights of your account are missing."
        )
        for note in data["notes"]:
            typer.echo(f"  note       {note}")
        for sentence in seen.unreadable:
            typer.echo(f"  not read   {sentence}")
    raise typer.Exit(1)


def print_text(view: "PodView", played: "WhatIfResult", world: "SchedulingInputs", count: int) -> None:
    """Print the placements, then the reason why no more copies fit."""
    from croupier.capacity.pod_explanation import ExplainResult
    from croupier.core.model import card_request

    placed = len(played.places)
    copies = (
        "It" if count == 1 else f"All {count} copies" if placed == count else f"{placed} of {count} copies"
    )
    asks = f" ({card_request.describe(view.wants)})" if view.wants else ""
    if placed:
        typer.echo(f"{copies} would fit now{asks}, by {world.strategy}:")
        tables.echo(("node", "copies", "cards"), rows(played, world))
    if played.stopped is not None:
        typer.echo(f"{'' if placed == 0 else chr(10)}{count - placed} of {count} would stay pending{asks}.")
        for line in explaining.lines(ExplainResult(played.stopped, played.after)):
            typer.echo(line)


def rows(played: "WhatIfResult", world: "SchedulingInputs") -> list[tuple[str, str, str]]:
    """One row per node in the order of placement: the number of copies and their cards."""
    from croupier.core.explanation import explain

    nodes: dict[str, list[str]] = {}
    for place in played.places:
        nodes.setdefault(place.node, []).append(
            explain.describe_grant(world.ledgers[place.node], place.grant)
        )
    return [(node, str(len(each)), _counted(each)) for node, each in nodes.items()]


def _counted(each: list[str]) -> str:
    counts = {cards: each.count(cards) for cards in dict.fromkeys(each)}
    return "; ".join(cards if times == 1 else f"{times} × ({cards})" for cards, times in counts.items())
