"""`croupier available`: allocatable, allocated and available amounts of every resource on every node."""

import contextlib
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from croupier.cli import amounts, cluster, completion, listing, tables, terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from croupier.capacity.card_availability import ClusterAmounts
    from croupier.core.availability import Availability, NodeAmounts, ResourceAmounts
    from croupier.core.ledger.ledger import Ledger
    from croupier.core.ledger.overview import LedgerSummary
    from croupier.kube.client.api_client import Client

NUMBERS = ("allocatable", "allocated", "available")
PROGRESS_AFTER = 2.0
"""Seconds before progress is printed."""
PROGRESS_INTERVAL = 10.0
"""Seconds between progress lines when stderr is not a terminal."""
CLEAR_LINE = "\r\x1b[K"


def available(
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE]", help="Show only this node.", autocompletion=completion.nodes),
    ] = None,
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
    output: listing.Format = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Show how much of each resource is allocatable, allocated and available on every node. Writes nothing.

    Allocated is the sum of the requests of the pods bound to a node, computed as kube-scheduler does.

    Of cards in the ledger, available is what the ledger has free. A free card can be requested whole or by
    percent; the list of free cards below counts it once.

    Shows cpu, memory and all devices; -o wide shows all resources, and also capacity and reserved.

    With --resource, the nodes with the most available come first.

    \b
    croupier available
    croupier available gpu-worker
    croupier available -r mig-2g.20gb
    croupier available -o json | jq '.totals["nvidia.com/gpu"].available'
    """
    listing.check(output)
    index = _read(cluster.ClusterTarget(kubeconfig, context), node)
    names = (
        _resolve_names(index, resource, node)
        if resource
        else default_resources(index, snapshot=output != "table")
    )
    if listing.is_data(output):
        listing.echo_data(output, as_data(index, names))
    elif output == "name":
        typer.echo("\n".join(f"node/{name}" for name in index.nodes if node in (None, name)))
    else:
        typer.echo("\n".join(lines(index, names, node=node, wide=output == "wide", ranked=bool(resource))))


def _read(target: cluster.ClusterTarget, node: str | None) -> "ClusterAmounts":
    from croupier.capacity import card_availability

    index = _count(target, node)
    return card_availability.combine(index, cluster.run(target, _ledgers))


async def _ledgers(api: "Client") -> "Mapping[str, Ledger]":
    """Empty, with a warning, for a user who may not read the ledger."""
    from croupier.capacity import card_availability
    from croupier.kube.client.errors import Forbidden

    try:
        return await card_availability.ledgers(api, cluster.now())
    except Forbidden as refusal:
        typer.echo(
            f"croupier: cannot read the ledger, so available does not consider it: {refusal}", err=True
        )
        return {}


def _count(target: cluster.ClusterTarget, node: str | None) -> "Availability":
    from croupier.capacity import availability
    from croupier.kube.client.errors import NotFound

    if node is None:
        with _show_progress() as progress:
            return cluster.run(target, lambda api: availability.count_cluster(api, progress))
    try:
        return cluster.run(target, lambda api: availability.count_node(api, node))
    except NotFound:
        _fail_not_found(f"there is no node {node}", node, cluster.run(target, _node_names))


async def _node_names(api: "Client") -> list[str]:
    from croupier.api.pod_requests import LEAN_NODES

    return [node.metadata.name for node in (await api.list(LEAN_NODES)).items]


def _resolve_names(index: "ClusterAmounts", wanted: "Sequence[str]", node: str | None) -> list[str]:
    """Full resource names in the requested order; the domain may be omitted if the name stays unique."""
    known = index.resources()
    resolved = []
    for name in wanted:
        matches = [name] if name in known else [resource for resource in known if _short(resource) == name]
        if len(matches) > 1:
            terminal.usage_error(f"--resource {name}: ambiguous; use {terminal.any_of(sorted(matches))}.")
        if not matches:
            _fail_not_found(
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


def _fail_not_found(what: str, name: str, there: "Collection[str]") -> NoReturn:
    """Exit with an error that suggests similar names."""
    import difflib

    spellings = {_short(known): known for known in there} | {known: known for known in there}
    matches = difflib.get_close_matches(name, spellings, n=3)
    similar = sorted({spellings[match] for match in matches}, key=amounts.natural)
    suggestion = f"; did you mean {terminal.any_of(similar)}?" if similar else "."
    terminal.fail(f"{what}{suggestion}")


def default_resources(index: "ClusterAmounts", *, snapshot: bool) -> list[str]:
    """cpu, memory and all devices that exist in the cluster; with `snapshot`, all resources.

    The ledger resource is left out: pods request it and no node has it, so it has no amounts.
    """
    from croupier.core.pods.request_parser import LEDGER

    names = sorted((name for name in index.resources() if name != LEDGER), key=amounts.rank)
    if snapshot:
        return names
    devices = [name for name in names if amounts.is_device(name)]
    return [name for name in names if name in amounts.FIRST] + [
        name for name in devices if any(index.total(name))
    ]


def lines(
    index: "ClusterAmounts", names: "Sequence[str]", *, node: str | None, wide: bool, ranked: bool
) -> "list[str]":
    if not index.nodes:
        return ["The cluster has no nodes."]
    nodes = [(_label(index, name), account) for name, account in _sorted(index, names[0] if ranked else None)]
    if wide:
        table = _wide(index, nodes, names, alone=node is not None)
    elif node is not None:
        table = [_title(index, node), *_resource_rows(names, index.nodes[node])]
    elif ranked and len(names) == 1:
        table = _single_resource(index, nodes, names[0])
    else:
        table = [
            "Allocatable / allocated / available of each node:",
            *amounts.matrix(nodes, names, terminal.width()),
            "",
            f"{_total_label(index)}:",
            *_resource_rows(names, {name: index.total(name) for name in names}),
        ]
    return [*table, *_card_lines(index, names)]


def _card_lines(index: "ClusterAmounts", names: "Sequence[str]") -> list[str]:
    """The free cards of every node, each counted once, and what its available amounts therefore mean."""
    shown = [name for name in names if name in index.by_ledger]
    if not shown or not index.cards:
        return []
    nodes = sorted(index.cards, key=amounts.natural)
    return [
        "",
        f"Free cards, by the ledger, which decides what is available of {', '.join(shown)}:",
        *tables.aligned([(f"  {node}", _free_cards(index.cards[node])) for node in nodes]),
        *(
            ["One card can be free for several resources, and is granted for one of them."]
            if len(shown) > 1
            else []
        ),
    ]


def _free_cards(sums: "LedgerSummary") -> str:
    """`6 of 8 cards`, and how many accept no pods, by the reason. Retired cards are not among the 8."""
    from croupier.core.ledger import overview

    cards = f"{sums.cards.free} of {terminal.plural(sums.cards.total, 'card')}"
    count, words = sum(sums.withheld.values()), overview.withheld_words(sums)
    if not count:
        return cards
    return f"{cards}; {count} {'accepts' if count == 1 else 'accept'} no new pods: {words}"


def _sorted(index: "ClusterAmounts", by: str | None) -> "list[tuple[str, NodeAmounts]]":
    """Sorted by name, or by available amount of the resource `by`, descending."""
    nodes = sorted(index.nodes.items(), key=lambda item: amounts.natural(item[0]))
    if by is None:
        return nodes
    matching = [item for item in nodes if by in item[1]]
    return sorted(matching, key=lambda item: item[1][by].available, reverse=True)


def _label(index: "ClusterAmounts", node: str) -> str:
    return f"{node} (cordoned)" if node in index.cordoned else node


def _title(index: "ClusterAmounts", node: str) -> str:
    from croupier.core.availability import NOTHING

    pods = index.nodes[node].get("pods", NOTHING)
    return f"Node {_label(index, node)}, with {pods.allocated} of {pods.allocatable} pods:"


def _total_label(index: "ClusterAmounts") -> str:
    count = len(index.nodes)
    return f"All {count:,} nodes" if count > 1 else "The only node"


def _resource_rows(names: "Sequence[str]", account: "NodeAmounts") -> list[str]:
    """One line per resource."""
    cells = [
        (name, *amounts.short_cells(name, account[name]), amounts.usage(account[name]))
        for name in names
        if name in account
    ]
    return tables.lines(("resource", *NUMBERS, "taken"), cells, numbers=range(1, 4))


def _single_resource(
    index: "ClusterAmounts", nodes: "Sequence[tuple[str, NodeAmounts]]", name: str
) -> list[str]:
    """One line per node for a single resource."""
    cells = [
        (node, *amounts.short_cells(name, account[name]), amounts.usage(account[name]))
        for node, account in nodes
    ]
    total = index.total(name)
    cells.append((_total_label(index), *amounts.short_cells(name, total), amounts.usage(total)))
    return [f"{name}:", *tables.lines(("node", *NUMBERS, "taken"), cells, numbers=range(1, 4))]


def _wide(
    index: "ClusterAmounts",
    nodes: "Sequence[tuple[str, NodeAmounts]]",
    names: "Sequence[str]",
    *,
    alone: bool,
) -> list[str]:
    """One line per node and resource."""
    cells = [
        (node, name, *amounts.wide_cells(name, account[name]), amounts.usage(account[name]))
        for node, account in nodes
        for name in names
        if name in account
    ]
    for name in () if alone else names:
        total = index.total(name)
        cells.append((_total_label(index), name, *amounts.wide_cells(name, total), amounts.usage(total)))
    headers = ("node", "resource", "capacity", "reserved", *NUMBERS, "taken")
    return tables.lines(headers, cells, numbers=range(2, 7))


def as_data(index: "ClusterAmounts", names: "Sequence[str]") -> dict[str, Any]:
    nodes = [
        {
            "node": node,
            "cordoned": node in index.cordoned,
            **_cards_data(index.cards.get(node)),
            "resources": {name: _data(account[name]) for name in names if name in account},
        }
        for node, account in _sorted(index, None)
    ]
    return {"nodes": nodes, "totals": {name: _data(index.total(name)) for name in names}}


def _cards_data(sums: "LedgerSummary | None") -> dict[str, Any]:
    """The free cards of a node whose cards are in the ledger."""
    if sums is None:
        return {}
    unhealthy, withheld = sums.withheld.get("Unhealthy", 0), dict(sums.withheld)
    amounts_ = {"free": sums.cards.free, "total": sums.cards.total}
    return {"cards": {**amounts_, "unhealthy": unhealthy, "withheld": withheld}}


def _data(numbers: "ResourceAmounts") -> dict[str, str]:
    """Exact quantities in Kubernetes notation."""
    return {
        "capacity": str(numbers.capacity),
        "reserved": str(numbers.reserved),
        "allocatable": str(numbers.allocatable),
        "allocated": str(numbers.allocated),
        "available": str(numbers.available),
    }


@contextlib.contextmanager
def _show_progress() -> "Iterator[Callable[[int], None]]":
    """Print on stderr how many pods were read, if reading is slow."""
    import sys
    import time

    interactive = sys.stderr.isatty() and not terminal.forbids_styles()
    read, printed, next_at = 0, False, time.monotonic() + PROGRESS_AFTER

    def progress(more: int) -> None:
        nonlocal read, printed, next_at
        read += more
        if time.monotonic() >= next_at:
            printed, next_at = True, time.monotonic() + (0.1 if interactive else PROGRESS_INTERVAL)
            line = f"{CLEAR_LINE if interactive else ''}Reading pods: {read:,} so far"
            typer.echo(line, err=True, nl=not interactive)

    try:
        yield progress
    finally:
        if interactive and printed:
            typer.echo(CLEAR_LINE, err=True, nl=False)
