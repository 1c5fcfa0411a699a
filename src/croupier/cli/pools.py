"""`croupier pools`: capacity, usage and conditions of the pools."""

from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import cluster, completion, listing, tables, terminal

if TYPE_CHECKING:
    from croupier.api.gpu import GPUPool
    from croupier.kube.client.api_client import Client

HEADERS = ("pool", "mode", "unit", "cards", "nodes", "total", "used", "booked", "free", "full", "state")
OPTIONAL = ("full", "unit", "booked", "nodes", "cards", "mode")
SHOWN = 20
"""Cards and candidates listed by `show` without --all."""

app = typer.Typer(rich_markup_mode="rich")

Name = Annotated[str, typer.Argument(metavar="POOL", help="The pool.", autocompletion=completion.pools)]


@app.callback(invoke_without_command=True)
def pools(
    running: typer.Context,
    *,
    output: listing.Format = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """List the pools with their capacity, usage and state.

    \b
    croupier pools
    croupier pools -o json
    croupier pools show team-a
    croupier pools confirm team-a
    """
    if running.invoked_subcommand is not None:
        return
    from croupier.capacity import pool_data

    listing.check(output)
    target = cluster.ClusterTarget(kubeconfig, context)
    listed = cluster.run(target, _list_pools, needs=cluster.CARD_KINDS)
    listed.sort(key=lambda pool: pool.metadata.name)
    pools_listing = listing.Listing(
        headers=HEADERS,
        optional=OPTIONAL,
        text="state",
        rows=[_cells(pool) for pool in listed],
        names=[f"gpupool.gpu.deckhouse.io/{pool.metadata.name}" for pool in listed],
        data=[pool_data.as_data(pool) for pool in listed],
        empty="There is no GPUPool.",
    )
    listing.echo(output, pools_listing)


@app.command()
def show(
    name: Name,
    *,
    every: Annotated[bool, typer.Option("--all", help="List every card, not only the first few.")] = False,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="text|json|yaml", help="Output format.")
    ] = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show one pool in detail: conditions, nodes, cards, and candidates.

    \b
    croupier pools show team-a
    """
    from croupier.capacity import pool_data

    terminal.check_output(output, ("text", "json", "yaml"))
    target = cluster.ClusterTarget(kubeconfig, context)
    pool = cluster.run(target, lambda api: get_pool(api, name), needs=cluster.CARD_KINDS)
    if listing.is_data(output):
        listing.echo_data(output, pool_data.as_data(pool))
        return
    for line in _details(pool, None if every else SHOWN):
        typer.echo(line)


@app.command()
def confirm(name: Name, *, kubeconfig: cluster.Kubeconfig = None, context: cluster.Context = None) -> None:
    """Confirm a misconfigured pool after its drift was fixed, so that it is used again.

    \b
    croupier pools confirm team-a
    """
    target = cluster.ClusterTarget(kubeconfig, context)
    typer.echo(cluster.run(target, lambda api: _confirm(api, name), needs=cluster.CARD_KINDS))


async def _list_pools(api: "Client") -> "list[GPUPool]":
    from croupier.api import kinds

    return list((await api.list(kinds.GPU_POOLS)).items)


async def get_pool(api: "Client", name: str) -> "GPUPool":
    from croupier.api import kinds
    from croupier.kube.client.errors import NotFound

    try:
        return await api.get(kinds.GPU_POOLS, name)
    except NotFound:
        terminal.fail(f"there is no pool {name}; `croupier pools` lists all pools.")


async def _confirm(api: "Client", name: str) -> str:
    from croupier.api import kinds, meta
    from croupier.api.gpu.pool import CONFIRMED

    pool = await get_pool(api, name)
    misconfigured = meta.condition(pool.status.conditions, "Misconfigured")
    if misconfigured is None or misconfigured.status != "True":
        return f"pool {name} is not misconfigured: there is nothing to confirm."
    annotations = {CONFIRMED: str(pool.metadata.generation)}
    await api.patch(kinds.GPU_POOLS, name, {"metadata": {"annotations": annotations}})
    return (
        f"pool {name} is confirmed; it is used again once its cards match its spec. "
        f"The condition was: {misconfigured.message}"
    )


def _cells(pool: "GPUPool") -> tuple[str, ...]:
    from croupier.capacity import pool_data

    status, capacity = pool.status, pool.status.capacity
    mode = (status.allocation or pool.spec.allocation).mode
    counts = (str(len(status.devices)), str(sum(1 for node in status.nodes if node.assigned_devices)))
    if capacity is None:
        return (pool.metadata.name, mode, "", *counts, "", "", "", "", "", pool_data.state(pool))
    amounts = (capacity.total, capacity.used, capacity.booked, capacity.available)
    full = tables.bar(capacity.used + capacity.booked, capacity.total, width=10)
    return (
        pool.metadata.name,
        mode,
        capacity.unit or "",
        *counts,
        *map(str, amounts),
        full,
        pool_data.state(pool),
    )


def _details(pool: "GPUPool", shown: int | None) -> list[str]:
    from croupier.capacity import pool_data
    from croupier.core.model import name_list

    status, capacity = pool.status, pool.status.capacity
    lines = [f"{pool.metadata.name}: {pool_data.state(pool)}"]
    if capacity is not None:
        lines.append(
            f"  {capacity.available} of {capacity.total} {capacity.unit or 'units'} free,"
            f" {capacity.used} used, {capacity.booked} booked"
        )
    lines += [
        f"  {item.type:<14} {item.status:<8} {item.reason}{f': {item.message}' if item.message else ''}"
        for item in status.conditions
    ]
    lines += [
        f"  node {node.name}: {name_list.part_of(node.assigned_devices, node.total_devices, 'card')}"
        f"{f', {node.health}' if node.health else ''}"
        for node in status.nodes[:shown]
    ]
    lines += [f"  card {card.inventory_id}: {card.state or '?'}" for card in status.devices[:shown]]
    lines += [f"  candidate {card.inventory_id}: {card.reason}" for card in status.candidates[:shown]]
    longest = max(len(status.devices), len(status.nodes), len(status.candidates))
    return lines if shown is None or longest <= shown else [*lines, "  … use --all to list all"]
