"""`croupier uninstall`: remove Croupier from a cluster without affecting running pods."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, rendering, tables, terminal

if TYPE_CHECKING:
    from croupier.core.installation.uninstall_plan import Remnant
    from croupier.kube.client.api_client import Client

HEADERS = ("where", "what", "blocks deletion")


def uninstall(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only list objects that would block a deletion.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be removed.")] = False,
    with_crds: Annotated[
        bool, typer.Option("--with-crds", help="Also remove the CRDs, with all their objects.")
    ] = False,
    yes: terminal.Yes = False,
    wait: Annotated[
        float,
        typer.Option("--wait", min=1, metavar="SECONDS", help="How long to wait for processes to stop."),
    ] = 60.0,
    namespace: cluster.InstallationNamespace = None,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Remove everything Croupier created in the cluster, in a safe order. Running pods are not affected.

    Removes webhook configurations, processes, finalizers, node labels and taints, and objects created at run
    time in its namespace. Accounts and the namespace remain (helm uninstall, kubectl delete -k); so do the
    CRDs unless --with-crds. Lists everything and asks first; without a terminal it needs --yes. Can be
    repeated. With --check, exit code 1 if an object would block a deletion.

    \b
    croupier uninstall --check
    croupier uninstall --dry-run
    croupier uninstall --with-crds
    croupier uninstall --yes                  without asking, for scripts
    """
    from croupier.core.installation import uninstall_plan
    from croupier.ops import uninstall as wired
    from croupier.ops.installation import Installation, find_namespace

    terminal.check_output(output)
    target = cluster.ClusterTarget(kubeconfig, context)

    async def look(api: "Client") -> "tuple[str, tuple[Remnant, ...]]":
        found = namespace or await find_namespace(api)
        return found, await wired.remnants(Installation(api, found, wait, api.clock))

    home, remnants = cluster.run(target, look)
    going = uninstall_plan.plan(remnants, with_kinds=with_crds)
    staying = uninstall_plan.remaining(remnants, with_kinds=with_crds)
    if check or dry_run:
        _show(going, staying, output)
        raise typer.Exit(1 if check and any(remnant.blocks for remnant in going) else 0)
    if not going:
        typer.echo("Nothing to remove" + (" except the CRDs and their objects." if staying else "."))
        return
    if not yes:
        _ask(going, cluster.server_name(target))

    async def work(api: "Client") -> None:
        installation = Installation(api, home, wait, api.clock)
        await wired.clear(installation, with_kinds=with_crds, told=lambda remnant: typer.echo(remnant.report))

    cluster.run(target, work)
    kept = f" {_kept(len(staying))}; --with-crds removes them." if staying else ""
    typer.echo(f"Done: no object of Croupier blocks a deletion.{kept}")


def _kept(crds: int) -> str:
    return "1 CRD and its objects remain" if crds == 1 else f"{crds} CRDs and their objects remain"


def _ask(going: "Sequence[Remnant]", server: str) -> None:
    """List what would happen and ask; exits if the answer is no, or if there is no terminal to ask at."""
    deleted = [remnant for remnant in going if not remnant.stays]
    changed = [remnant for remnant in going if remnant.stays]
    terminal.require_terminal(
        f"uninstall would delete {terminal.plural(len(deleted), 'object')} of {server} and change "
        f"{terminal.plural(len(changed), 'object')}",
        ", or --dry-run to list them",
    )
    typer.echo(f"Cluster: {server}")
    groups = {"Will be deleted:": deleted, "Stay, but lose a finalizer or marks:": changed}
    for title, listed in groups.items():
        if listed:
            typer.echo(title)
        for remnant in listed:
            detail = remnant.loss if remnant.stays else remnant.what
            typer.echo(f"  {remnant.where}: {detail}")
    typer.confirm("Continue?", abort=True)


def _show(going: "Sequence[Remnant]", staying: "Sequence[Remnant]", output: str) -> None:
    if output == "json":
        typer.echo(
            rendering.json(
                {
                    "goes": [_data(remnant) for remnant in going],
                    "stays": [_data(remnant) for remnant in staying],
                }
            )
        )
        return
    if going:
        rows = [(remnant.where, remnant.what, "yes" if remnant.blocks else "") for remnant in going]
        tables.echo(HEADERS, rows)
    else:
        typer.echo("Nothing would be removed.")
    if staying:
        names = ", ".join(f"{remnant.name} ({remnant.what})" for remnant in staying)
        typer.echo(f"Remains unless --with-crds: {names}.")


def _data(remnant: "Remnant") -> dict[str, Any]:
    return {
        "stage": remnant.stage,
        "kind": remnant.kind,
        "name": remnant.name,
        "what": remnant.what,
        "blocks": remnant.blocks,
    }
