"""`croupier doctor`: diagnose an installation and suggest remedies."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import cluster, rendering, tables, terminal

if TYPE_CHECKING:
    from croupier.core.installation.diagnosis import InstallationProblems
    from croupier.kube.client.api_client import Client

PROGRESS_AFTER = 2.0
"""Seconds before the running check is printed."""
HEADERS = ("check", "severity", "where", "what", "what to do")


def doctor(
    *,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="CHECK", help="Run only this check. Repeatable."),
    ] = None,
    namespace: cluster.InstallationNamespace = None,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Check an installation and print a remedy for each finding. Changes nothing.

    Checks: versions, crds, processes, settings, rbac, webhook, scheduler, agents, plugins, guard,
    pools, ledger.
    Exit code 0 if no action is needed (notes do not count), 1 otherwise.

    \b
    croupier doctor
    croupier doctor --only webhook --only scheduler
    croupier doctor -o json
    """
    from croupier.core.installation import diagnosis
    from croupier.ops.doctor import CHECKS

    terminal.check_output(output)
    if unknown := sorted(set(only or ()) - CHECKS.keys()):
        terminal.usage_error(f"--only {', '.join(unknown)}: choose from {', '.join(CHECKS)}.")
    chosen = [name for name in CHECKS if not only or name in only]
    results = cluster.run(
        cluster.ClusterTarget(kubeconfig, context), lambda api: _run_checks(api, namespace, chosen)
    )
    if output == "json":
        typer.echo(rendering.json(diagnosis.as_data(results)))
    else:
        _print(results)
    raise typer.Exit(1 if any(diagnosis.needs_action(findings) for findings in results.values()) else 0)


async def _run_checks(
    api: "Client", namespace: str | None, chosen: Sequence[str]
) -> "dict[str, InstallationProblems]":
    import asyncio

    from croupier.ops import doctor as wired
    from croupier.ops import doctor_processes

    installation = await wired.connect_to(api, namespace)
    if "processes" in chosen and (absent := await doctor_processes.absent(installation)):
        return {"processes": absent}
    results: dict[str, InstallationProblems] = {}
    begun = asyncio.get_running_loop().time()
    for number, name in enumerate(chosen, start=1):
        check = asyncio.ensure_future(wired.run_check(installation, name))
        timeout = max(0.0, begun + PROGRESS_AFTER - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait({check}, timeout=timeout)
        if not done:
            typer.echo(f"croupier: checking {name} ({number} of {len(chosen)})", err=True)
        results[name] = await check
    return results


def _print(results: "Mapping[str, InstallationProblems]") -> None:
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
