"""`croupier uninstall`: leave a cluster so that nothing waits for us, and running pods go on."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from croupier.core.installation.leaving import Remnant
    from croupier.kube.client import Client

HEADERS = ("where", "what", "keeps others waiting")


def uninstall(
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Only list what would keep a deletion from finishing.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")] = False,
    with_crds: Annotated[
        bool, typer.Option("--with-crds", help="Also our kinds, with every object of them.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=1, metavar="SECONDS", help="How long processes may take to end.")
    ] = 60.0,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="Where it is installed.")
    ] = "d8-gpu-operator",
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Take away what we left in the cluster, in an order that harms nobody. Running pods go on.

    Registrations, processes, finalizers, marks on nodes, and what processes made in our namespace. Accounts
    and the namespace go as they came (helm uninstall, kubectl delete -k). Our kinds and their objects stay
    unless --with-crds. It can be repeated. With --check, exit code 1 if something would wait for us.

    \b
    croupier uninstall --check
    croupier uninstall --dry-run
    croupier uninstall --with-crds --yes
    """
    from croupier.core.installation import leaving
    from croupier.wiring import uninstall as wired

    terminal.check_output(output)
    target = cluster.Target(kubeconfig, context)

    async def look(api: "Client") -> "tuple[Remnant, ...]":
        return await wired.remnants(wired.House(api, namespace, wait))

    found = cluster.ask(target, look)
    going = leaving.plan(found, with_kinds=with_crds)
    staying = leaving.staying(found, with_kinds=with_crds)
    if check or dry_run:
        _show(going, staying, output)
        raise typer.Exit(1 if check and any(one.blocks for one in going) else 0)
    if not going:
        typer.echo("Nothing of ours is left" + (", except kinds and their objects." if staying else "."))
        return
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Take away {len(going)} things of ours? (--dry-run lists them)", abort=True)

    async def work(api: "Client") -> None:
        house = wired.House(api, namespace, wait)
        await wired.clear(house, with_kinds=with_crds, told=lambda one: typer.echo(f"took away {one.where}"))

    cluster.ask(target, work)
    kept = f" {len(staying)} kinds and their objects stay; --with-crds takes them, too." if staying else ""
    typer.echo(f"Done: nothing waits for us any more.{kept}")


def _show(going: "Sequence[Remnant]", staying: "Sequence[Remnant]", output: str) -> None:
    if output == "json":
        typer.echo(
            showing.json({"goes": [_data(one) for one in going], "stays": [_data(one) for one in staying]})
        )
        return
    if going:
        tables.echo(HEADERS, [(one.where, one.what, "yes" if one.blocks else "") for one in going])
    else:
        typer.echo("Nothing of ours would be taken away.")
    if staying:
        told = ", ".join(f"{one.name} ({one.what})" for one in staying)
        typer.echo(f"Stays unless --with-crds: {told}.")


def _data(one: "Remnant") -> dict[str, Any]:
    return {"stage": one.stage, "kind": one.kind, "name": one.name, "what": one.what, "blocks": one.blocks}
