"""`croupier pools`: what every pool can give, and what it waits for."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from croupier.api.gpu import GPUPool
    from croupier.api.meta import Condition
    from croupier.kube.client import Client

HEADERS = ("pool", "mode", "unit", "cards", "nodes", "total", "used", "booked", "free", "full", "state")
TROUBLES = ("Misconfigured", "Maintenance", "CapacityLow")
"""The conditions that are bad news when they are True, worst first."""
SHOWN = 20
"""Cards and candidates named by `show`, unless all are asked for."""

app = typer.Typer(rich_markup_mode="rich")

Name = Annotated[str, typer.Argument(metavar="POOL", help="The pool.")]


@app.callback(invoke_without_command=True)
def pools(
    running: typer.Context,
    *,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """List the pools: what they can give, what is taken, and whether they serve.

    \b
    croupier pools
    croupier pools -o json
    croupier pools show team-a
    croupier pools confirm team-a
    """
    if running.invoked_subcommand is not None:
        return
    terminal.check_output(output)
    found = sorted(cluster.ask(cluster.Target(kubeconfig, context), _all), key=lambda one: one.metadata.name)
    if output == "json":
        typer.echo(showing.json([_data(one) for one in found]))
    elif found:
        tables.echo(HEADERS, [_cells(one) for one in found])
    else:
        typer.echo("There is no GPUPool.")


@app.command()
def show(
    name: Name,
    *,
    every: Annotated[bool, typer.Option("--all", help="Name every card, not only the first few.")] = False,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Say everything about one pool: conditions, nodes, its cards, and those that could join.

    \b
    croupier pools show team-a
    """
    terminal.check_output(output)
    found = cluster.ask(cluster.Target(kubeconfig, context), lambda api: one_pool(api, name))
    if output == "json":
        typer.echo(showing.json(_data(found)))
        return
    for line in _story(found, None if every else SHOWN):
        typer.echo(line)


@app.command()
def confirm(name: Name, *, kubeconfig: cluster.Kubeconfig = None, context: cluster.Context = None) -> None:
    """Say that a pool which drifted is in order again, so that it serves.

    \b
    croupier pools confirm team-a
    """
    typer.echo(cluster.ask(cluster.Target(kubeconfig, context), lambda api: _confirm(api, name)))


async def _all(api: "Client") -> "list[GPUPool]":
    from croupier.api import kinds

    return list((await api.list(kinds.GPU_POOLS)).items)


async def one_pool(api: "Client", name: str) -> "GPUPool":
    from croupier.api import kinds
    from croupier.kube.errors import NotFound

    try:
        return await api.get(kinds.GPU_POOLS, name)
    except NotFound:
        terminal.refuse(f"there is no pool {name}; `croupier pools` lists those there are.")


async def _confirm(api: "Client", name: str) -> str:
    from croupier.api import kinds
    from croupier.api.gpu.pool import CONFIRMED

    found = await one_pool(api, name)
    trouble = condition(found, "Misconfigured")
    if trouble is None or trouble.status != "True":
        return f"pool {name} is not misconfigured: there is nothing to confirm."
    said = {CONFIRMED: str(found.metadata.generation)}
    await api.patch(kinds.GPU_POOLS, name, {"metadata": {"annotations": said}})
    return f"pool {name} confirmed; it serves again once its cards are as it says. It said: {trouble.message}"


def condition(pool: "GPUPool", kind: str) -> "Condition | None":
    return next((one for one in pool.status.conditions if one.type == kind), None)


def _state(pool: "GPUPool") -> str:
    """The worst that is true of it, with its sentence."""
    for kind in TROUBLES:
        found = condition(pool, kind)
        if found is not None and found.status == "True":
            return f"{kind}: {found.message or found.reason}"
    ready = condition(pool, "Available")
    if ready is None:
        return "nobody looked at it yet"
    return "Available" if ready.status == "True" else f"not available: {ready.message or ready.reason}"


def _cells(pool: "GPUPool") -> tuple[str, ...]:
    status, capacity = pool.status, pool.status.capacity
    mode = (status.allocation or pool.spec.allocation).mode
    counts = (str(len(status.devices)), str(sum(1 for one in status.nodes if one.assigned_devices)))
    if capacity is None:
        return (pool.metadata.name, mode, "", *counts, "", "", "", "", "", _state(pool))
    amounts = (capacity.total, capacity.used, capacity.booked, capacity.available)
    full = tables.bar(capacity.used + capacity.booked, capacity.total, width=10)
    return (
        pool.metadata.name,
        mode,
        capacity.unit or "",
        *counts,
        *map(str, amounts),
        full,
        _state(pool),
    )


def _story(pool: "GPUPool", shown: int | None) -> list[str]:
    status, capacity = pool.status, pool.status.capacity
    lines = [f"{pool.metadata.name}: {_state(pool)}"]
    if capacity is not None:
        lines.append(
            f"  {capacity.available} of {capacity.total} {capacity.unit or 'units'} free,"
            f" {capacity.used} used, {capacity.booked} booked"
        )
    lines += [
        f"  {one.type:<14} {one.status:<8} {one.reason}{f': {one.message}' if one.message else ''}"
        for one in status.conditions
    ]
    lines += [
        f"  node {one.name}: {one.assigned_devices} of {one.total_devices} cards"
        f"{f', {one.health}' if one.health else ''}"
        for one in status.nodes[:shown]
    ]
    lines += [f"  card {one.inventory_id}: {one.state or '?'}" for one in status.devices[:shown]]
    lines += [f"  could join: {one.inventory_id}: {one.reason}" for one in status.candidates[:shown]]
    longest = max(len(status.devices), len(status.nodes), len(status.candidates))
    return lines if shown is None or longest <= shown else [*lines, "  … --all names every one"]


def _data(pool: "GPUPool") -> dict[str, Any]:
    import msgspec

    return {
        "pool": pool.metadata.name,
        "spec": msgspec.to_builtins(pool.spec),
        "status": msgspec.to_builtins(pool.status),
    }
