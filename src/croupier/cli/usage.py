"""`croupier usage`: how many card-hours each namespace, pool or model used."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, completion, rendering, tables, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.capacity.usage_data import RecordedUsage
    from croupier.core.usage.report import Dimension, UsageRow

OUTPUTS = ("table", "json", "csv")
HOUR = 3600


def usage(
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="Start: 7d, 24h, 2026-11-01 or 2026-11-01T10:00Z.")
    ] = "7d",
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="End, in the same formats; default the last record."),
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option("--by", metavar="FIELD", help="namespace, pool, model or mode. Repeatable."),
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option(
            "--namespace",
            "-n",
            metavar="NS",
            help="Only this namespace; default all.",
            autocompletion=completion.namespaces,
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="table|json|csv", help="Output format.")
    ] = "table",
    install_namespace: Annotated[
        str | None,
        typer.Option(
            "--install-namespace",
            metavar="NS",
            show_default=cluster.FOUND,
            help="Namespace of the installation.",
        ),
    ] = None,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show how many card-hours were used: a quarter of a card for 4 hours is 1 card-hour.

    Usage is recorded by the hour and once a minute, so --since and --until are rounded down to the hour.

    \b
    croupier usage
    croupier usage --since 30d --by namespace --by pool
    croupier usage -n team-a --since 24h --by model
    croupier usage --since 2026-10-01 --until 2026-11-01 -o csv
    """
    from croupier.core.usage import report

    terminal.check_output(output, OUTPUTS)
    dimensions = list(dict.fromkeys(by or ["namespace"]))
    for dimension in dimensions:
        terminal.check_choice("--by", dimension, report.DIMENSIONS)
    first = _hour("--since", since)
    last = None if until is None else _hour("--until", until)
    if last is not None and last <= first:
        terminal.usage_error(f"--until {until}: must be at least one full hour after --since {since}.")
    target = cluster.ClusterTarget(kubeconfig, context)
    home, recorded = cluster.run(target, lambda api: _read(api, install_namespace, first))
    if recorded is None:
        terminal.fail(
            f"no usage is recorded in namespace {home} yet: "
            "the first record is written a minute after a pod has received cards."
        )
    chosen: list[Dimension] = [name for name in report.DIMENSIONS if name in dimensions]
    end = recorded.until // HOUR + 1 if last is None else last
    rows = report.rows(recorded.hours, chosen, since=first, until=end, namespace=namespace)
    print_ = {"table": _print_table, "json": _print_json, "csv": _print_csv}[output]
    print_(chosen, rows, _period(recorded, first, end))


def _hour(option: str, text: str) -> int:
    from croupier.core.model.refusal import Refusal
    from croupier.core.usage import period

    moment = period.parse(text, cluster.now())
    if isinstance(moment, Refusal):
        terminal.usage_error(f"{option} {text}: {moment.reason}.")
    return int(moment.timestamp()) // HOUR


async def _read(api: Any, namespace: str | None, since: int) -> "tuple[str, RecordedUsage | None]":
    from croupier.capacity import usage_data
    from croupier.kube.client.errors import Forbidden
    from croupier.ops.installation import find_namespace

    home = namespace or await find_namespace(api)
    try:
        return home, await usage_data.read(api, home, since)
    except Forbidden:
        terminal.fail(
            f"you may not read the records of usage: they are ConfigMaps in namespace {home}. "
            "Ask for a RoleBinding to the Role croupier-usage-reader in that namespace."
        )


def _period(recorded: "RecordedUsage", first: int, end: int) -> "tuple[datetime, datetime]":
    """The time that the figures are about: what was asked for, as far as it is recorded."""
    from croupier.api import usage_records

    start, stop = max(first * HOUR, recorded.since), min(end * HOUR, recorded.until)
    return usage_records.time_of(start), usage_records.time_of(max(start, stop))


def _print_table(by: "list[Dimension]", rows: "list[UsageRow]", period: "tuple[datetime, datetime]") -> None:
    from croupier.core.usage import report

    typer.echo(f"From {rendering.timestamp(period[0])} to {rendering.timestamp(period[1])}")
    if not rows:
        typer.echo("No cards were held in this time.")
        return
    total = report.total(rows)
    table = [
        [*by, "card-hours", "holders"],
        *([*(cell or "-" for cell in row.group), _hours(row), f"{row.holders:,}"] for row in rows),
        ["total", *([""] * (len(by) - 1)), _hours(total), f"{total.holders:,}"],
    ]
    numbers = (len(by), len(by) + 1)
    for line in tables.lines(table[0], table[1:], numbers=numbers):
        typer.echo(line)


def _hours(row: "UsageRow") -> str:
    return f"{float(row.card_seconds / HOUR):,.2f}"


def _print_json(by: "list[Dimension]", rows: "list[UsageRow]", period: "tuple[datetime, datetime]") -> None:
    from croupier.core.usage import report

    data = {
        "since": period[0],
        "until": period[1],
        "by": by,
        "rows": [{**dict(zip(by, row.group, strict=True)), **_figures(row)} for row in rows],
        "total": _figures(report.total(rows)),
    }
    typer.echo(rendering.json(data))


def _figures(row: "UsageRow") -> dict[str, float | int]:
    return {
        "cardSeconds": _number(row.card_seconds),
        "cardHours": round(float(row.card_seconds / HOUR), 4),
        "holders": row.holders,
    }


def _number(amount: Any) -> float | int:
    """A whole number of seconds stays a whole number."""
    return int(amount) if amount.denominator == 1 else float(amount)


def _print_csv(by: "list[Dimension]", rows: "list[UsageRow]", period: "tuple[datetime, datetime]") -> None:
    import csv
    import sys

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["since", "until", *by, "card_seconds", "card_hours", "holders"])
    start, stop = (f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in period)
    for row in rows:
        writer.writerow([start, stop, *row.group, *_figures(row).values()])
