"""`croupier explain`: which cards a pod holds, or why it is pending."""

from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import cluster, completion, rendering, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from croupier.capacity.pod_explanation import ExplainResult
    from croupier.capacity.rejected_pod import RejectedPod
    from croupier.core.explanation.explain import PlacementExplanation

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
    name: Annotated[
        str, typer.Argument(metavar="[NS/]NAME", help="The pod.", autocompletion=completion.pods)
    ],
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

    With rights in the pod's namespace only, the answer comes from the pod and the scheduler's message, and
    names what could not be read.

    Exit code 1 if no node fits, the pod's request is invalid, or the pod does not exist.

    \b
    croupier explain pod team/trainer
    croupier explain pod trainer -n team --all
    croupier explain pod team/trainer -o json
    """
    from croupier.capacity import pod_explanation
    from croupier.capacity.rejected_pod import RejectedPod

    terminal.check_output(output)
    where, pod_name = _key(name, namespace)
    answer = cluster.run(
        cluster.ClusterTarget(kubeconfig, context),
        lambda api: pod_explanation.read(api, where or api.config.namespace, pod_name, cluster.now()),
        needs=cluster.LEDGER_KINDS,
    )
    if output == "json":
        unreadable = {} if isinstance(answer, RejectedPod) else {"unreadable": list(answer.unreadable)}
        typer.echo(rendering.json(pod_explanation.as_data(answer) | unreadable))
    elif isinstance(answer, RejectedPod):
        typer.echo(_rejection_line(answer))
    else:
        for line in lines(answer, shown=None if every else SHOWN):
            typer.echo(line)
    failed = isinstance(answer, RejectedPod) or answer.found.state in ("Pending", "Unreadable")
    raise typer.Exit(1 if failed else 0)


def _key(name: str, namespace: str | None) -> tuple[str | None, str]:
    head, slash, tail = name.partition("/")
    if slash and (not head or not tail or "/" in tail):
        terminal.usage_error(f"{name}: name the pod as NAMESPACE/NAME, or as NAME with --namespace.")
    if slash and namespace not in (None, head):
        terminal.usage_error(f"{name} is not in namespace {namespace}: name the namespace once.")
    return (head, tail) if slash else (namespace, name)


def _rejection_line(absent: "RejectedPod") -> str:
    return f"Pod {absent.key} does not exist: {absent.owner} could not create it: {absent.sentence}"


def lines(answer: "ExplainResult", *, shown: int | None = SHOWN) -> list[str]:
    return [*_head(answer), *_placement_lines(answer), *_refusals(answer.found, shown), *_nearest(answer)]


def _head(answer: "ExplainResult") -> "Iterator[str]":
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
    for sentence in answer.unreadable:
        yield f"  not read   {sentence}"


def _placement_lines(answer: "ExplainResult") -> "Iterator[str]":
    from croupier.capacity import ledger_data

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
        yield f"  card       {card.index if card else '?'} ({part.card}): {ledger_data.share(card, part)}"


def _refusals(found: "PlacementExplanation", shown: int | None) -> "Iterator[str]":
    if found.refusals:
        yield ""
        yield "Node by node:"
    for group in found.refusals:
        yield f"  {terminal.plural(len(group.nodes), 'node')}: {group.reason}"
        yield f"      {_named(group.nodes, shown)}"


def _nearest(answer: "ExplainResult") -> "Iterator[str]":
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
