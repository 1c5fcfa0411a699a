"""`croupier explain`: which cards a pod holds, or why it is pending."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, rendering, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from croupier.cli.explain_rejected import RejectedPod
    from croupier.core.explanation.explain import PlacementExplanation, PodHold, SchedulingInputs
    from croupier.core.ledger.ledger import Ledger
    from croupier.kube.client.api_client import Client

app = typer.Typer(
    help="Explain where a pod was placed, or why it is pending.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

SHOWN = 5
"""Nodes listed per reason without --all."""


@app.callback()
def explain_group() -> None:
    """Explain where a pod was placed, or why it is pending."""


@app.command("pod")
def pod(
    name: Annotated[str, typer.Argument(metavar="[NS/]NAME", help="The pod.")],
    *,
    namespace: cluster.Namespace = None,
    every: Annotated[bool, typer.Option("--all", help="List every node, not only the first few.")] = False,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show which cards a pod holds, or why it is pending: per node, and per card where it almost fits.

    If the pod does not exist, show why its owner could not create it: which ResourceQuota, pool or policy
    rejected it. NAME may be the pod, its Deployment or its Job.

    Exit code 1 if no node fits, the pod's request is invalid, or the pod does not exist.

    \b
    croupier explain pod team/trainer
    croupier explain pod trainer -n team --all
    croupier explain pod team/trainer -o json
    """
    terminal.check_output(output)
    key = _key(name, namespace)
    answer = cluster.run(cluster.ClusterTarget(kubeconfig, context), lambda api: _read(api, key))
    if not isinstance(answer, ExplainResult):
        typer.echo(rendering.json(_rejection_data(answer)) if output == "json" else _rejection_line(answer))
        raise typer.Exit(1)
    if output == "json":
        typer.echo(rendering.json(as_data(answer)))
    else:
        for line in lines(answer, shown=None if every else SHOWN):
            typer.echo(line)
    raise typer.Exit(1 if answer.found.state in ("Pending", "Unreadable") else 0)


@dataclass(frozen=True, slots=True)
class ExplainResult:
    """The explanation, with details from the pod's status."""

    found: "PlacementExplanation"
    world: "SchedulingInputs"
    scheduler: str = ""
    """The scheduler's last message about a pending pod."""
    since: "datetime | None" = None
    """When the pod was bound."""


def _key(name: str, namespace: str | None) -> tuple[str | None, str]:
    head, slash, tail = name.partition("/")
    if slash and (not head or not tail or "/" in tail):
        terminal.usage_error(f"{name}: name the pod as NAMESPACE/NAME, or as NAME with --namespace.")
    if slash and namespace not in (None, head):
        terminal.usage_error(f"{name} is not in namespace {namespace}: name the namespace once.")
    return (head, tail) if slash else (namespace, name)


async def _read(api: "Client", key: tuple[str | None, str]) -> "ExplainResult | RejectedPod":
    from croupier.cli import explain_rejected
    from croupier.kube.client.errors import NotFound

    namespace, name = key[0] or api.config.namespace, key[1]
    try:
        return await _read_pod(api, namespace, name)
    except NotFound:
        if absent := await explain_rejected.find(api, namespace, name):
            return absent
        raise


def _rejection_line(absent: "RejectedPod") -> str:
    return f"Pod {absent.key} does not exist: {absent.owner} could not create it: {absent.sentence}"


def _rejection_data(absent: "RejectedPod") -> dict[str, Any]:
    return {
        "pod": absent.key,
        "state": "Absent",
        "sentence": absent.sentence,
        "owner": absent.owner,
        "quota": absent.quota or None,
    }


async def _read_pod(api: "Client", namespace: str, name: str) -> ExplainResult:
    import asyncio

    from croupier.api import convert_affinity, convert_pod, kinds
    from croupier.capacity import snapshot
    from croupier.core.explanation import explain

    pod, taken = await asyncio.gather(
        api.get(kinds.PODS, name, namespace=namespace), snapshot.take(api, cluster.now())
    )
    view = convert_pod.view(pod)
    world = rendering.world(taken, rendering.strategy(taken, view.wants))
    conditions = pod.status.conditions
    scheduled = next((condition for condition in conditions if condition.type == "PodScheduled"), None)
    is_bound = scheduled is not None and scheduled.status == "True"
    return ExplainResult(
        explain.explain(view, convert_affinity.pod_needs(pod), world),
        world,
        scheduler="" if scheduled is None or is_bound else _unescaped(scheduled.message),
        since=scheduled.last_transition_time if scheduled is not None and is_bound else None,
    )


def _unescaped(message: str) -> str:
    """Undo the doubled percent signs that kube-scheduler writes into the pod's status."""
    return message.replace("%%", "%")


def lines(answer: ExplainResult, *, shown: int | None = SHOWN) -> list[str]:
    return [*_head(answer), *_placement_lines(answer), *_refusals(answer.found, shown), *_nearest(answer)]


def _head(answer: ExplainResult) -> "Iterator[str]":
    from croupier.core.model import card_request

    found = answer.found
    yield f"Pod {found.pod.key}: {found.sentence}"
    if found.pod.wants:
        yield f"  requests   {card_request.describe(found.pod.wants)}"
    for note in found.notes:
        yield f"  note       {note}"
    if answer.scheduler and answer.scheduler != found.sentence:
        yield f"  scheduler  {answer.scheduler}"
    if found.fits:
        yield f"  fits on    {_named(found.fits, SHOWN)}"


def _placement_lines(answer: ExplainResult) -> "Iterator[str]":
    seat = answer.found.seat
    if seat is None:
        return
    until = f" until {rendering.timestamp(seat.until)}" if seat.until else ""
    yield f"  state      {f'Held{until}' if seat.held else 'Bound'} on {seat.node}"
    if answer.since is not None:
        yield f"  since      {rendering.timestamp(answer.since)}"
    if seat.reservation:
        yield f"  by         Reservation {seat.reservation}"
    ledger = answer.world.ledgers.get(seat.node)
    for part in seat.grant:
        card = ledger.card(part.card) if ledger is not None else None
        yield f"  card       {card.index if card else '?'} ({part.card}): {rendering.share(card, part)}"


def _refusals(found: "PlacementExplanation", shown: int | None) -> "Iterator[str]":
    if found.refusals:
        yield ""
        yield "Node by node:"
    for group in found.refusals:
        yield f"  {terminal.plural(len(group.nodes), 'node')}: {group.reason}"
        yield f"      {_named(group.nodes, shown)}"


def _nearest(answer: ExplainResult) -> "Iterator[str]":
    from croupier.core.model import card_request

    found = answer.found
    if found.nearest:
        yield ""
        yield "Nearest:"
    for miss in found.nearest:
        yield f"  {miss.node}: {miss.detail}"
        yield from (f"      {line}" for line in rendering.card_lines(answer.world.ledgers[miss.node]))
    if found.instead:
        yield ""
        yield "Would fit now:"
    for alternative in found.instead:
        yield f"  {card_request.describe(alternative.wants)} on {alternative.node}"


def _named(nodes: tuple[str, ...], shown: int | None) -> str:
    if shown is None or len(nodes) <= shown:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:shown])} and {len(nodes) - shown} more (use --all)"


def as_data(answer: ExplainResult) -> dict[str, Any]:
    """The answer as JSON data; docs/commands.md describes its fields."""
    found, world = answer.found, answer.world
    pod = found.pod
    return {
        "pod": pod.key,
        "uid": pod.uid,
        "state": found.state,
        "sentence": found.sentence,
        "asks": [str(want) for want in pod.wants],
        "node": pod.node or None,
        "since": answer.since,
        "scheduler": answer.scheduler or None,
        "notes": list(found.notes),
        "holds": _holds(found.seat, world),
        "fits": list(found.fits),
        "refusals": [
            {"reason": group.reason, "count": len(group.nodes), "nodes": list(group.nodes)}
            for group in found.refusals
        ],
        "nearest": [
            {"node": miss.node, "detail": miss.detail, "cards": rendering.cards(_ledger(world, miss.node))}
            for miss in found.nearest
        ],
        "instead": [
            {"asks": [str(want) for want in alternative.wants], "node": alternative.node}
            for alternative in found.instead
        ],
    }


def _holds(seat: "PodHold | None", world: "SchedulingInputs") -> dict[str, Any] | None:
    if seat is None:
        return None
    return {
        "node": seat.node,
        "state": "Held" if seat.held else "Bound",
        "until": seat.until,
        "reservation": seat.reservation or None,
        "cards": rendering.parts(_ledger(world, seat.node), seat.grant),
    }


def _ledger(world: "SchedulingInputs", node: str) -> "Ledger":
    from croupier.core.ledger.ledger import Ledger

    return world.ledgers.get(node) or Ledger(node)
