"""`croupier available`: what every node has of everything, and what is left of it."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from croupier.cli import amounts, cluster, showing, terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from croupier.core.availability import Account, Availability, Three
    from croupier.kube.client import Client

OUTPUTS = ("table", "wide", "json")
NUMBERS = ("allocatable", "allocated", "available")
PATIENCE = 2.0
"""Seconds after which somebody who waits is told how far it is."""
EVERY = 10.0
"""Seconds between two lines in a log."""
CLEAR = "\r\x1b[K"


def available(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="This node alone.")] = None,
    *,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            "--resource",
            "-r",
            metavar="R",
            help="This resource alone; nvidia.com/ may be left out. Repeatable.",
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="|".join(OUTPUTS), help="How to print it.")
    ] = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show what nodes have of each resource: allocatable, allocated, available. Writes nothing.

    Allocated is what the pods bound to a node ask for, counted as the scheduler counts it.

    Shown are cpu, memory and every device there is; with -o wide all resources, capacity and reserved too.

    With --resource, nodes with most available come first.

    \b
    croupier available
    croupier available gpu-worker
    croupier available -r mig-2g.20gb
    croupier available -o json | jq '.totals["nvidia.com/gpu"].available'
    """
    if output not in OUTPUTS:
        terminal.refuse(f"--output {output}: it is {', '.join(OUTPUTS[:-1])} or {OUTPUTS[-1]}.")
    index = _ask(cluster.Target(kubeconfig, context), node)
    names = _named(index, resource, node) if resource else default(index, every=output != "table")
    if output == "json":
        typer.echo(showing.json(as_data(index, names)))
    else:
        typer.echo("\n".join(lines(index, names, node=node, wide=output == "wide", ranked=bool(resource))))


def _ask(target: cluster.Target, node: str | None) -> "Availability":
    from croupier.book import availability
    from croupier.kube.errors import NotFound

    if node is None:
        with _patiently() as heard:
            return cluster.ask(target, lambda api: availability.take(api, heard))
    try:
        return cluster.ask(target, lambda api: availability.take_node(api, node))
    except NotFound:
        _missing(f"there is no node {node}", node, cluster.ask(target, _node_names))


async def _node_names(api: "Client") -> list[str]:
    from croupier.api.occupancy import LEAN_NODES

    return [node.metadata.name for node in (await api.list(LEAN_NODES)).items]


def _named(index: "Availability", wanted: "Sequence[str]", node: str | None) -> list[str]:
    """In the order they were asked for; a name without its domain will do where only one has it."""
    there = index.resources()
    found = []
    for name in wanted:
        fit = [name] if name in there else [one for one in there if _short(one) == name]
        if len(fit) > 1:
            terminal.refuse(f"--resource {name}: write {_either(sorted(fit))}.")
        if not fit:
            _missing(
                f"node {node} does not have {name} and no pod there asks for it"
                if node is not None
                else f"no node has {name} and no pod asks for it",
                name,
                there,
            )
        found += fit
    return list(dict.fromkeys(found))


def _short(resource: str) -> str:
    """`gpu` of `nvidia.com/gpu`."""
    return resource.rpartition("/")[2]


def _missing(what: str, name: str, there: "Collection[str]") -> NoReturn:
    """Not there; and what somebody may have meant."""
    import difflib

    spelled = {_short(one): one for one in there} | {one: one for one in there}
    close = difflib.get_close_matches(name, spelled, n=3)
    near = sorted({spelled[one] for one in close}, key=amounts.natural)
    meant = f"; did you mean {_either(near)}?" if near else "."
    typer.echo(f"croupier: {what}{meant}", err=True)
    raise typer.Exit(1)


def _either(names: "Sequence[str]") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def default(index: "Availability", *, every: bool) -> list[str]:
    """cpu, memory, and devices that are anywhere; or really every resource."""
    from croupier.core.pods.request import MARK

    names = sorted(index.resources(), key=amounts.rank)
    if every:
        return names
    devices = [name for name in names if amounts.is_device(name) and name != MARK]
    return [name for name in names if name in amounts.FIRST] + [
        name for name in devices if any(index.total(name))
    ]


def lines(
    index: "Availability", names: "Sequence[str]", *, node: str | None, wide: bool, ranked: bool
) -> "list[str]":
    if not index.nodes():
        return ["The cluster has no nodes."]
    nodes = [(_label(index, name), account) for name, account in _sorted(index, names[0] if ranked else None)]
    if wide:
        return _wide(index, nodes, names, alone=node is not None)
    if node is not None:
        return [_title(index, node), *_each(names, index.node(node))]
    if ranked and len(names) == 1:
        return _of_one(index, nodes, names[0])
    totals = {name: index.total(name) for name in names}
    return [
        "Allocatable / allocated / available of each node:",
        *amounts.matrix(nodes, names),
        "",
        f"{_all(index)}:",
        *_each(names, totals),
    ]


def _sorted(index: "Availability", by: str | None) -> "list[tuple[str, Account]]":
    """By name; or most available first."""
    every = sorted(index.every().items(), key=lambda one: amounts.natural(one[0]))
    if by is None:
        return every
    having = [one for one in every if by in one[1]]
    return sorted(having, key=lambda one: one[1][by].available, reverse=True)


def _label(index: "Availability", node: str) -> str:
    return f"{node} (cordoned)" if index.cordoned(node) else node


def _title(index: "Availability", node: str) -> str:
    pods = index.three(node, "pods")
    return f"Node {_label(index, node)}, with {pods.allocated} of {pods.allocatable} pods:"


def _all(index: "Availability") -> str:
    count = len(index.nodes())
    return f"All {count:,} nodes" if count > 1 else "The only node"


def _each(names: "Sequence[str]", account: "Account") -> list[str]:
    """A line a resource."""
    cells = [
        (name, *amounts.three(name, account[name]), amounts.taken(account[name]))
        for name in names
        if name in account
    ]
    return amounts.rows(("resource", *NUMBERS, "taken"), cells)


def _of_one(index: "Availability", nodes: "Sequence[tuple[str, Account]]", name: str) -> list[str]:
    """A line a node, of one resource."""
    cells = [
        (node, *amounts.three(name, account[name]), amounts.taken(account[name])) for node, account in nodes
    ]
    total = index.total(name)
    cells.append((_all(index), *amounts.three(name, total), amounts.taken(total)))
    return [f"{name}:", *amounts.rows(("node", *NUMBERS, "taken"), cells)]


def _wide(
    index: "Availability", nodes: "Sequence[tuple[str, Account]]", names: "Sequence[str]", *, alone: bool
) -> list[str]:
    """A line for each resource of each node."""
    cells = [
        (node, name, *amounts.five(name, account[name]), amounts.taken(account[name]))
        for node, account in nodes
        for name in names
        if name in account
    ]
    for name in () if alone else names:
        total = index.total(name)
        cells.append((_all(index), name, *amounts.five(name, total), amounts.taken(total)))
    return amounts.rows(("node", "resource", "capacity", "reserved", *NUMBERS, "taken"), cells, left=2)


def as_data(index: "Availability", names: "Sequence[str]") -> dict[str, Any]:
    nodes = [
        {
            "node": node,
            "cordoned": index.cordoned(node),
            "resources": {name: _data(account[name]) for name in names if name in account},
        }
        for node, account in _sorted(index, None)
    ]
    return {"nodes": nodes, "totals": {name: _data(index.total(name)) for name in names}}


def _data(numbers: "Three") -> dict[str, str]:
    """Quantities as Kubernetes writes them, exact."""
    return {
        "capacity": str(numbers.capacity),
        "reserved": str(numbers.reserved),
        "allocatable": str(numbers.allocatable),
        "allocated": str(numbers.allocated),
        "available": str(numbers.available),
    }


@contextlib.contextmanager
def _patiently() -> "Iterator[Callable[[int], None]]":
    """Tells on stderr how many pods were read, if that takes its time."""
    import sys
    import time

    watched = sys.stderr.isatty()
    read, said, next_at = 0, False, time.monotonic() + PATIENCE

    def heard(more: int) -> None:
        nonlocal read, said, next_at
        read += more
        if time.monotonic() >= next_at:
            said, next_at = True, time.monotonic() + (0.1 if watched else EVERY)
            typer.echo(f"{CLEAR if watched else ''}Reading pods: {read:,} so far", err=True, nl=not watched)

    try:
        yield heard
    finally:
        if watched and said:
            typer.echo(CLEAR, err=True, nl=False)
