"""`croupier market status`: what is for sale on each node, at what price, who gets what and why."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal
from croupier.cli.process import LeaseNamespace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from croupier.api.core_v1 import Lease
    from croupier.api.market_report import PodLine, Report
    from croupier.kube.client import Client

HEADERS = ("pod", "book", "uses", "wants", "throttled", "limit", "", "should have", "came with", "why")
SILENT = 120
"""Seconds; then its pods get back what they came with."""


def status(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="This node alone.")] = None,
    *,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="table|json", help="How to print it.")
    ] = "table",
    lease_namespace: LeaseNamespace = "d8-gpu-operator",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show the CPU market: supply, price, who gets what and why. Writes nothing.

    It reads what the agents left in their heartbeat Leases, some seconds old at most.

    \b
    croupier market status
    croupier market status worker-1
    croupier market status -o json | jq '.nodes[].books'
    """
    if output not in ("table", "json"):
        terminal.refuse(f"--output {output}: it is table or json.")
    leases = cluster.ask(cluster.Target(kubeconfig, context), lambda api: _leases(api, lease_namespace))
    if node is not None:
        leases = [one for one in leases if _node(one) == node]
        if not leases:
            typer.echo(
                f"croupier: no market agent has run on node {node}: start `croupier market run` there.",
                err=True,
            )
            raise typer.Exit(1)
    now = cluster.now()
    if output == "json":
        typer.echo(showing.json({"nodes": [as_data(one, now) for one in leases]}))
        return
    if not leases:
        typer.echo("No market agent runs: kubectl apply -k deployments/cpu, or `croupier market run`.")
    for index, one in enumerate(leases):
        if index:
            typer.echo()
        tell(one, now)


async def _leases(api: "Client", namespace: str) -> "list[Lease]":
    from croupier.api import market_report
    from croupier.api.kinds import LEASES
    from croupier.kube.client import Selection

    found = await api.list(LEASES, Selection(namespace, labels=market_report.LEASES))
    return sorted(found.items, key=_node)


def _node(lease: "Lease") -> str:
    from croupier.api import market_report

    return market_report.node_of(lease)


def _silent_for(lease: "Lease", now: "datetime") -> float:
    from datetime import datetime

    try:
        return max(0.0, (now - datetime.fromisoformat(lease.spec.renew_time)).total_seconds())
    except ValueError:
        return float("inf")


def as_data(lease: "Lease", now: "datetime") -> dict[str, Any]:
    import msgspec

    from croupier.api import market_report

    silent = _silent_for(lease, now)
    found = market_report.read(lease)
    told = {} if found is None else {name: getattr(found, name) for name in found.__struct_fields__}
    data: dict[str, Any] = {
        "node": _node(lease),
        "alive": silent <= SILENT,
        "lastSeen": lease.spec.renew_time or None,
    }
    if not told:
        return data
    names = {"dry_run": "dryRun"}
    plain = msgspec.to_builtins({names.get(name, name): value for name, value in told.items()})
    return {**data, **plain, "node": data["node"]}


def tell(lease: "Lease", now: "datetime") -> None:
    from croupier.api import market_report

    silent, found = _silent_for(lease, now), market_report.read(lease)
    typer.echo(_title(_node(lease), silent, found))
    if found is None:
        typer.echo("  Its Lease carries no books that this version can read.")
        return
    for line in book_lines(found):
        typer.echo(f"  {line}")
    if not found.pods:
        typer.echo('  No pod takes part: label one mbcas.io/managed: "true".')
        return
    typer.echo()
    tables.echo(HEADERS, [_row(one, _widest(found.pods)) for one in found.pods])


def _title(node: str, silent: float, found: "Report | None") -> str:
    from datetime import timedelta

    about = [] if found is None else [f"{found.capacity} CPU", f"{found.outside} used outside the market"]
    if found is not None and found.strict:
        about.append("strict")
    if found is not None and found.dry_run:
        about.append("dry run: nothing is moved")
    if silent > SILENT:
        age = "ever" if silent == float("inf") else tables.age(timedelta(seconds=silent))
        about.append(f"agent SILENT for {age}: limits go back to what pods came with")
    return f"Node {node}: {', '.join(about)}" if about else f"Node {node}"


def book_lines(found: "Report") -> list[str]:
    lines = []
    for book in found.books:
        price = f"price {book.price:g}" if book.price else "price 0: everybody has what he asks for"
        overcommit = f" ({found.factor:g} × the node)" if book.name == "latency" else ""
        short = f", short of {book.short} for the least that pods may have" if book.short != "0" else ""
        bar = tables.bar(_millis(book.given), _millis(book.supply))
        lines.append(
            f"{book.name:<8} {bar} {book.given} given of {book.supply} for sale{overcommit}, {price}{short}"
        )
    return lines


def _widest(pods: "Sequence[PodLine]") -> int:
    return max(max(_millis(one.limit), _millis(one.target)) for one in pods)


def _row(one: "PodLine", widest: int) -> tuple[str, ...]:
    landed = one.limit if one.applied in ("", one.limit) else f"{one.applied} → {one.limit}"
    return (
        one.pod,
        one.book or "-",
        one.usage,
        one.demand,
        f"{one.throttled_percent:g} %" if one.throttled_percent else "-",
        landed,
        tables.bar(_millis(one.limit), widest, 12),
        one.target,
        one.original,
        one.why,
    )


def _millis(written: str) -> int:
    from croupier.core import quantity

    return quantity.parse(written).millis
