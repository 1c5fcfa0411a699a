"""`croupier doctor`: diagnose an installation and suggest remedies."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from croupier.core.installation.diagnosis import Complaints
    from croupier.kube.client import Client

SAYING = 2.0
"""Seconds before the running check is printed."""
HEADERS = ("check", "severity", "where", "what", "what to do")


def doctor(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CHECK", help="Run only this check. Repeatable."),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace of the installation.")
    ] = "d8-gpu-operator",
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Check an installation and print a remedy for each finding. Changes nothing.

    Checks: versions, crds, processes, settings, rbac, webhook, scheduler, agents, plugins, pools, ledger.
    Exit code 0 if no action is needed (notes do not count), 1 otherwise.

    \b
    croupier doctor
    croupier doctor --only webhook --only scheduler
    croupier doctor -o json
    """
    from croupier.core.installation import diagnosis
    from croupier.wiring.doctor import CHECKS

    terminal.check_output(output)
    if unknown := sorted(set(only or ()) - CHECKS.keys()):
        terminal.refuse(f"--only {', '.join(unknown)}: choose from {', '.join(CHECKS)}.")
    chosen = [name for name in CHECKS if not only or name in only]
    results = cluster.ask(cluster.Target(kubeconfig, context), lambda api: _examine(api, namespace, chosen))
    if output == "json":
        typer.echo(showing.json(as_data(results)))
    else:
        _print(results)
    raise typer.Exit(1 if any(diagnosis.sick(findings) for findings in results.values()) else 0)


async def _examine(api: "Client", namespace: str, chosen: Sequence[str]) -> "dict[str, Complaints]":
    import asyncio

    from croupier.wiring import doctor as wired

    installation = await wired.admitted(api, namespace, cluster.now())
    results: dict[str, Complaints] = {}
    begun = asyncio.get_running_loop().time()
    for number, name in enumerate(chosen, start=1):
        check = asyncio.ensure_future(wired.examine(installation, name))
        timeout = max(0.0, begun + SAYING - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait({check}, timeout=timeout)
        if not done:
            typer.echo(f"croupier: checking {name} ({number} of {len(chosen)})", err=True)
        results[name] = await check
    return results


def _print(results: "Mapping[str, Complaints]") -> None:
    rows = [
        (name, finding.severity, finding.where, finding.what, finding.remedy)
        for name, findings in results.items()
        for finding in findings
    ]
    if rows:
        tables.echo(HEADERS, rows)
    passed = [name for name, findings in results.items() if not findings]
    if passed:
        typer.echo(f"No findings: {', '.join(passed)}.")


def as_data(results: "Mapping[str, Complaints]") -> dict[str, Any]:
    from croupier.core.installation import diagnosis

    return {
        "healthy": not any(diagnosis.sick(findings) for findings in results.values()),
        "checks": list(results),
        "findings": [
            {
                "check": name,
                "severity": finding.severity,
                "where": finding.where,
                "what": finding.what,
                "whatToDo": finding.remedy,
            }
            for name, findings in results.items()
            for finding in findings
        ],
    }
