"""`croupier doctor`: what is wrong with an installation, and what to do about it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from croupier.core.installation.diagnosis import Complaints
    from croupier.kube.client import Client

SAYING = 2.0
"""Seconds after which to say what is looked at."""
HEADERS = ("check", "severity", "where", "what", "what to do")


def doctor(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CHECK", help="This check only; may be given several times."),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="Where it is installed.")
    ] = "d8-gpu-operator",
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Check an installation from outside, and say for each finding what to do. Changes nothing.

    Checks: versions, crds, processes, settings, rbac, webhook, scheduler, agents, plugins, pools, ledger.
    Exit code 0 if nothing has to be done (notes do not count), 1 if something has.

    \b
    croupier doctor
    croupier doctor --only webhook --only scheduler
    croupier doctor -o json
    """
    from croupier.core.installation import diagnosis
    from croupier.wiring.doctor import CHECKS

    terminal.check_output(output)
    if strangers := sorted(set(only or ()) - CHECKS.keys()):
        terminal.refuse(f"--only {', '.join(strangers)}: choose from {', '.join(CHECKS)}.")
    chosen = [name for name in CHECKS if not only or name in only]
    found = cluster.ask(cluster.Target(kubeconfig, context), lambda api: _examine(api, namespace, chosen))
    if output == "json":
        typer.echo(showing.json(as_data(found)))
    else:
        _print(found)
    raise typer.Exit(1 if any(diagnosis.sick(one) for one in found.values()) else 0)


async def _examine(api: "Client", namespace: str, chosen: Sequence[str]) -> "dict[str, Complaints]":
    import asyncio

    from croupier.wiring import doctor as wired

    patient = await wired.admitted(api, namespace, cluster.now())
    found: dict[str, Complaints] = {}
    begun = asyncio.get_running_loop().time()
    for place, name in enumerate(chosen, start=1):
        looking = asyncio.ensure_future(wired.examine(patient, name))
        patience = max(0.0, begun + SAYING - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait({looking}, timeout=patience)
        if not done:
            typer.echo(f"croupier: looking at {name} ({place} of {len(chosen)})", err=True)
        found[name] = await looking
    return found


def _print(found: "Mapping[str, Complaints]") -> None:
    rows = [
        (name, one.severity, one.where, one.what, one.remedy)
        for name, complaints in found.items()
        for one in complaints
    ]
    if rows:
        tables.echo(HEADERS, rows)
    well = [name for name, complaints in found.items() if not complaints]
    if well:
        typer.echo(f"Nothing to complain of: {', '.join(well)}.")


def as_data(found: "Mapping[str, Complaints]") -> dict[str, Any]:
    from croupier.core.installation import diagnosis

    return {
        "healthy": not any(diagnosis.sick(one) for one in found.values()),
        "checks": list(found),
        "findings": [
            {
                "check": name,
                "severity": one.severity,
                "where": one.where,
                "what": one.what,
                "whatToDo": one.remedy,
            }
            for name, complaints in found.items()
            for one in complaints
        ],
    }
