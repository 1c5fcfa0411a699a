"""`croupier available`: allocatable, allocated and available amounts of every resource on every node."""

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
"""Seconds before progress is printed."""
EVERY = 10.0
"""Seconds between progress lines when stderr is not a terminal."""
CLEAR = "\r\x1b[K"


def available(
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="Show only this node.")] = None,
    *,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            "--resource",
            "-r",
            metavar="R",
            help="Show only this resource; the domain may be omitted. Repeatable.",
        ),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="|".join(OUTPUTS), help="Output format.")
    ] = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show how much of each resource is allocatable, allocated and available on every node. Writes nothing.

    Allocated is the sum of the requests of the pods bound to a node, computed as kube-scheduler does.

    Shows cpu, memory and all devices; -o wide shows all resources, and also capacity and reserved.

    With --resource, the nodes with the most available come first.

    \b
    croupier available
    croupier available gpu-worker
    croupier available -r mig-2g.20gb
    croupier available -o json | jq '.totals["nvidia.com/gpu"].available'
    """
    if output not in OUTPUTS:
        terminal.refuse(f"--output {output}: must be {', '.join(OUTPUTS[:-1])} or {OUTPUTS[-1]}.")
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
        with _patiently() as progress:
            return cluster.ask(target, lambda api: availability.take(api, progress))
    try:
        return cluster.ask(target, lambda api: availability.take_node(api, node))
    except NotFound:
        _missing(f"there is no node {node}", node, cluster.ask(target, _node_names))


async def _node_names(api: "Client") -> list[str]:
    from croupier.api.occupancy import LEAN_NODES

    return [node.metadata.name for node in (await api.list(LEAN_NODES)).items]


def _named(index: "Availability", wanted: "Sequence[str]", node: str | None) -> list[str]:
    """Full resource names in the requested order; the domain may be omitted if the name stays unique."""
    known = index.resources()
    resolved = []
    for name in wanted:
        matches = [name] if name in known else [resource for resource in known if _short(resource) == name]
        if len(matches) > 1:
            terminal.refuse(f"--resource {name}: ambiguous; use {_either(sorted(matches))}.")
        if not matches:
            _missing(
                f"node {node} does not have {name} and no pod there requests it"
                if node is not None
                else f"no node has {name} and no pod requests it",
                name,
                known,
            )
        resolved += matches
    return list(dict.fromkeys(resolved))


def _short(resource: str) -> str:
    """`gpu` of `nvidia.com/gpu`."""
    return resource.rpartition("/")[2]


def _missing(what: str, name: str, there: "Collection[str]") -> NoReturn:
    """Exit with an error that suggests similar names."""
    import difflib

    spellings = {_short(known): known for known in there} | {known: known for known in there}
    matches = difflib.get_close_matches(name, spellings, n=3)
    similar = sorted({spellings[match] for match in matches}, key=amounts.natural)
    suggestion = f"; did you mean {_either(similar)}?" if similar else "."
    typer.echo(f"croupier: {what}{suggestion}", err=True)
    raise typer.Exit(1)


def _either(names: "Sequence[str]") -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def default(index: "Availability", *, every: bool) -> list[str]:
    """cpu, memory and all devices that exist in the cluster; with `every`, all resources."""
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
    """Sorted by name, or by available amount of the resource `by`, descending."""
    nodes = sorted(index.every().items(), key=lambda item: amounts.natural(item[0]))
    if by is None:
        return nodes
    matching = [item for item in nodes if by in item[1]]
    return sorted(matching, key=lambda item: item[1][by].available, reverse=True)


def _label(index: "Availability", node: str) -> str:
    return f"{node} (cordoned)" if index.cordoned(node) else node


def _title(index: "Availability", node: str) -> str:
    pods = index.three(node, "pods")
    return f"Node {_label(index, node)}, with {pods.allocated} of {pods.allocatable} pods:"


def _all(index: "Availability") -> str:
    count = len(index.nodes())
    return f"All {count:,} nodes" if count > 1 else "The only node"


def _each(names: "Sequence[str]", account: "Account") -> list[str]:
    """One line per resource."""
    cells = [
        (name, *amounts.three(name, account[name]), amounts.taken(account[name]))
        for name in names
        if name in account
    ]
    return amounts.rows(("resource", *NUMBERS, "taken"), cells)


def _of_one(index: "Availability", nodes: "Sequence[tuple[str, Account]]", name: str) -> list[str]:
    """One line per node for a single resource."""
    cells = [
        (node, *amounts.three(name, account[name]), amounts.taken(account[name])) for node, account in nodes
    ]
    total = index.total(name)
    cells.append((_all(index), *amounts.three(name, total), amounts.taken(total)))
    return [f"{name}:", *amounts.rows(("node", *NUMBERS, "taken"), cells)]


def _wide(
    index: "Availability", nodes: "Sequence[tuple[str, Account]]", names: "Sequence[str]", *, alone: bool
) -> list[str]:
    """One line per node and resource."""
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
    """Exact quantities in Kubernetes notation."""
    return {
        "capacity": str(numbers.capacity),
        "reserved": str(numbers.reserved),
        "allocatable": str(numbers.allocatable),
        "allocated": str(numbers.allocated),
        "available": str(numbers.available),
    }


@contextlib.contextmanager
def _patiently() -> "Iterator[Callable[[int], None]]":
    """Print on stderr how many pods were read, if reading is slow."""
    import sys
    import time

    interactive = sys.stderr.isatty()
    read, printed, next_at = 0, False, time.monotonic() + PATIENCE

    def progress(more: int) -> None:
        nonlocal read, printed, next_at
        read += more
        if time.monotonic() >= next_at:
            printed, next_at = True, time.monotonic() + (0.1 if interactive else EVERY)
            line = f"{CLEAR if interactive else ''}Reading pods: {read:,} so far"
            typer.echo(line, err=True, nl=not interactive)

    try:
        yield progress
    finally:
        if interactive and printed:
            typer.echo(CLEAR, err=True, nl=False)
