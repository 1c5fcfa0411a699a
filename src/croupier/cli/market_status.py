"""`croupier market status`: supply, prices and CPU limits of every node."""

from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import cluster, completion, listing, tables, terminal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from croupier.api.core_v1 import Lease
    from croupier.api.market_report import MarketPodLine, MarketReport
    from croupier.kube.client.api_client import Client

HEADERS = ("pod", "class", "usage", "demand", "throttled", "limit", "", "target", "original", "reason")
"""Seconds without a heartbeat after which the pods get back their original limits."""


def status(
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="Show only this node.", autocompletion=completion.nodes),
    ] = None,
    *,
    output: listing.Format = "table",
    lease_namespace: Annotated[
        str | None,
        typer.Option(metavar="NS", show_default=cluster.FOUND, help="Namespace of the installation."),
    ] = None,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show supply, prices and limits of the CPU market, with reasons. Writes nothing.

    Reads the reports in the agents' heartbeat Leases, which are a few seconds old.

    \b
    croupier market status
    croupier market status worker-1
    croupier market status -o json | jq '.nodes[].books'
    """
    from croupier.capacity import market_data

    listing.check(output)
    leases = cluster.run(
        cluster.ClusterTarget(kubeconfig, context), lambda api: _leases(api, lease_namespace)
    )
    if node is not None:
        leases = [lease for lease in leases if _node(lease) == node]
        if not leases:
            terminal.fail(f"no market agent has run on node {node}: start `croupier market run` there.")
    now = cluster.now()
    if listing.is_data(output):
        listing.echo_data(output, {"nodes": [market_data.as_data(lease, now) for lease in leases]})
        return
    if output == "name":
        for lease in leases:
            typer.echo(f"node/{_node(lease)}")
        return
    if not leases:
        typer.echo("No market agent is running: install deployments/cpu, or start `croupier market run`.")
    for index, lease in enumerate(leases):
        if index:
            typer.echo()
        print_node(lease, now)


async def _leases(api: "Client", namespace: str | None) -> "list[Lease]":
    from croupier.api import market_report
    from croupier.api.kinds import LEASES
    from croupier.kube.client.api_client import Selection
    from croupier.ops.installation import find_namespace

    home = namespace or await find_namespace(api)
    leases = await api.list(LEASES, Selection(home, labels=market_report.LEASE_SELECTOR))
    return sorted(leases.items, key=_node)


def _node(lease: "Lease") -> str:
    from croupier.api import market_report

    return market_report.LEASE.node_of(lease)


def print_node(lease: "Lease", now: "datetime") -> None:
    from croupier.api import market_report
    from croupier.capacity import market_data

    silent, report = market_data.seconds_since_heartbeat(lease, now), market_report.LEASE.decode(lease)
    typer.echo(_title(_node(lease), silent, report))
    if report is None:
        typer.echo("  Its Lease contains no report that this version can read.")
        return
    for line in class_lines(report):
        typer.echo(f"  {line}")
    if not report.pods:
        typer.echo('  No managed pods: label pods with mbcas.io/managed: "true".')
        return
    typer.echo()
    tables.echo(HEADERS, [_row(pod, _widest(report.pods)) for pod in report.pods])


def _title(node: str, silent: float, report: "MarketReport | None") -> str:
    from datetime import timedelta

    from croupier.core.model.agent_liveness import MARKET_AGENT_TIMEOUT

    about = [] if report is None else [f"{report.capacity} CPU", f"{report.outside} used by unmanaged pods"]
    if report is not None and report.strict:
        about.append("strict")
    if report is not None and report.dry_run:
        about.append("dry run: limits are not written")
    if silent > MARKET_AGENT_TIMEOUT:
        age = "" if silent == float("inf") else f" for {tables.age(timedelta(seconds=silent))}"
        about.append(f"no heartbeat{age}: pods get back their original limits")
    return f"Node {node}: {', '.join(about)}" if about else f"Node {node}"


def class_lines(report: "MarketReport") -> list[str]:
    lines = []
    for book in report.books:
        price = f"price {book.price:g}" if book.price else "price 0: all demand is met"
        overcommit = f" ({report.factor:g} × the node)" if book.name == "latency" else ""
        short = f", {book.short} short of the minimum limits" if book.short != "0" else ""
        bar = tables.bar(_millis(book.given), _millis(book.supply))
        lines.append(
            f"{book.name:<8} {bar} {book.given} of {book.supply} CPU allocated{overcommit}, {price}{short}"
        )
    return lines


def _widest(pods: "Sequence[MarketPodLine]") -> int:
    return max(max(_millis(pod.limit), _millis(pod.target)) for pod in pods)


def _row(pod: "MarketPodLine", widest: int) -> tuple[str, ...]:
    limit = pod.limit if pod.applied in ("", pod.limit) else f"{pod.applied} → {pod.limit}"
    return (
        pod.pod,
        pod.book or "-",
        pod.usage,
        pod.demand,
        f"{pod.throttled_percent:g} %" if pod.throttled_percent else "-",
        limit,
        tables.bar(_millis(pod.limit), widest, 12),
        pod.target,
        pod.original,
        pod.why,
    )


def _millis(written: str) -> int:
    from croupier.core import quantity

    return quantity.parse(written).millis
