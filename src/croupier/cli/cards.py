"""`croupier cards`: list the GPU cards with their state, health and holders."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import cluster, completion, listing, tables, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.api.gpu import GPUDevice
    from croupier.capacity.card_data import CardRow
    from croupier.capacity.snapshot import ClusterSnapshot
    from croupier.core.model.card import LedgerCard
    from croupier.kube.client.api_client import Client

HEADERS = (
    "card",
    "node",
    "index",
    "state",
    "phase",
    "pool",
    "product",
    "partitions",
    "enforced by",
    "used",
    "health",
    "scheduling",
    "reason",
    "idle",
    "strangers",
    "age",
)
WIDE = ("phase", "enforced by", "idle", "strangers", "age")
OPTIONAL = ("product", "partitions", "index", "node", "reason", "pool", "used")
MAX_FAULT_LENGTH = 60
"""Characters of a fault message or a reason in the table; `croupier cards NAME` prints all of it."""

State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only cards in this state: Unassigned, Reserved, Assigned or Faulted.",
    ),
]


def cards(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[CARD]", help="One card, by name or as NODE/INDEX.", autocompletion=completion.cards
        ),
    ] = None,
    *,
    node: Annotated[
        str | None,
        typer.Option(
            "--node", metavar="NODE", help="Only cards of this node.", autocompletion=completion.nodes
        ),
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            "--pool", metavar="POOL", help="Only cards of this pool.", autocompletion=completion.pools
        ),
    ] = None,
    state: State = None,
    output: listing.Format = "table",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """List the cards of the cluster, or show all details of one.

    \b
    croupier cards
    croupier cards --pool team-a --state Faulted
    croupier cards node-1/0
    croupier cards -o wide
    croupier cards node-1-0000-65-00-0 -o yaml
    """
    from croupier.capacity import card_data

    listing.check(output)
    _check_state(state)
    snapshot = cluster.run(cluster.ClusterTarget(kubeconfig, context), _read, needs=cluster.CARD_KINDS)
    rows = [row for row in card_data.rows(snapshot) if _matches(row, node, pool, state)]
    if name is not None:
        chosen = find([row.device for row in rows], name)
        rows = [row for row in rows if row.device is chosen]
    if name is not None and output == "table":
        typer.echo("\n".join(_details(rows[0])))
    else:
        listing.echo(output, _listing(rows, "No card matches." if snapshot.devices else _NO_CARDS))


_NO_CARDS = "The cluster has no GPUDevice: is `croupier node` running on the nodes, and `croupier manager`?"


def _check_state(state: str | None) -> None:
    from typing import get_args

    from croupier.core.cards.lifecycle import CardState

    terminal.check_choice("--state", state, get_args(CardState))


def find(devices: "Iterable[GPUDevice]", name: str) -> "GPUDevice":
    """The card with this name or at this `NODE/INDEX`; exits with code 1 if there is none."""
    from croupier.api.gpu.device import INDEX_LABEL

    node, _, index = name.rpartition("/")

    def matches(device: "GPUDevice") -> bool:
        place = (device.status.node_name, device.metadata.labels.get(INDEX_LABEL))
        return device.metadata.name == name or place == (node, index)

    chosen = next(filter(matches, devices), None)
    if chosen is None:
        terminal.fail(f"there is no card {name}; `croupier cards` lists all cards.")
    return chosen


async def _read(api: "Client") -> "ClusterSnapshot":
    from croupier.capacity import snapshot

    return await snapshot.take(api, cluster.now())


def _matches(row: "CardRow", node: str | None, pool: str | None, state: str | None) -> bool:
    status = row.device.status
    return (
        (node is None or status.node_name == node)
        and (pool is None or row.pool == pool)
        and (state is None or status.state == state)
    )


def _listing(rows: "list[CardRow]", empty: str) -> listing.Listing:
    from croupier.capacity import card_data

    now = cluster.now()
    return listing.Listing(
        headers=HEADERS,
        wide=WIDE,
        optional=OPTIONAL,
        text="health",
        rows=[_cells(row, now) for row in rows],
        names=[f"gpudevice.gpu.deckhouse.io/{row.device.metadata.name}" for row in rows],
        data=[card_data.as_data(row) for row in rows],
        empty=empty,
    )


def _cells(row: "CardRow", now: "datetime") -> tuple[str, ...]:
    status, meta, withheld = row.device.status, row.device.metadata, row.withheld
    return (
        meta.name,
        status.node_name or "",
        row.index,
        status.state or "",
        status.phase or "",
        row.pool,
        status.hardware.product if status.hardware is not None else "",
        _partitions(row.device),
        _enforced_by(row.device),
        _used(row.held),
        _health(row.device),
        withheld.state if withheld is not None else "",
        _shortened(withheld.reason) if withheld is not None else "",
        tables.age(now - status.idle_since) if status.idle_since is not None else "",
        str(len(status.strangers) or ""),
        tables.age(now - meta.creation_timestamp) if meta.creation_timestamp is not None else "",
    )


def _partitions(device: "GPUDevice") -> str:
    """The current partitions, such as `2 × 2g.20gb, 1 × 3g.30gb`, and the target while repartitioning."""
    current = device.status.cut
    if current is None:
        return ""
    profiles = [slot.profile for slot in current.slots]
    counts = [f"{profiles.count(profile)} × {profile}" for profile in dict.fromkeys(profiles)]
    layout = ", ".join(counts) or "whole"
    return layout if current.state == "Applied" else f"{layout} ({current.state} {current.target})"


def _enforced_by(device: "GPUDevice") -> str:
    """What enforces shares of the card. Empty if it is not shared."""
    state = device.status.enforcement
    return "" if state is None else state.by if state.ready else f"{state.by} (not ready)"


def _used(card: "LedgerCard | None") -> str:
    if card is None:
        return ""
    if card.mode == "MIG":
        return f"{sum(bool(slot.holder) for slot in card.slots)}/{len(card.slots)} slots"
    if card.mode == "TimeSlice":
        return f"{card.used}/{card.capacity} slices"
    return f"{card.used} %"


def _health(device: "GPUDevice") -> str:
    from croupier.api import meta

    fault = meta.condition(device.status.conditions, "Faulted")
    if fault is not None and fault.status == "True":
        text = fault.message or fault.reason
        return _shortened(text)
    return "ok" if device.status.phase else ""


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_FAULT_LENGTH else f"{text[:MAX_FAULT_LENGTH]}…"


def _details(row: "CardRow") -> list[str]:
    status = row.device.status
    hardware, health = status.hardware, status.health
    lines = [
        f"{row.device.metadata.name}: card {row.index or '?'} of node {status.node_name}",
        f"  state      {status.state or 'not known yet'} ({status.phase or 'not checked yet'})",
        f"  pool       {row.pool or 'none'}",
    ]
    if row.withheld is not None:
        lines.append(f"  scheduling {row.withheld}; it takes no new pods")
    if hardware is not None:
        where = f" at {hardware.pci.address}" if hardware.pci is not None else ""
        lines.append(
            f"  hardware   {hardware.product}, {hardware.memory_mib or 0} MiB{where}, {hardware.uuid}"
        )
    if status.cut is not None:
        lines.append(
            f"  partitions {_partitions(row.device)}{f': {status.cut.message}' if status.cut.message else ''}"
        )
    if status.enforcement is not None:
        lines.append(f"  shares     {_enforced_by(row.device)}: {status.enforcement.message}")
    if health is not None:
        heat = f"{health.temperature_c} °C" if health.temperature_c is not None else "temperature not known"
        ecc = f", {health.ecc_errors_total} ECC errors" if health.ecc_errors_total is not None else ""
        lines.append(f"  health     {heat}{ecc}{f', XID {health.xid}' if health.xid else ''}")
    if status.idle_since is not None:
        lines.append(f"  idle       no holder has used the card since {status.idle_since:%Y-%m-%dT%H:%M:%SZ}")
    lines += [f"  used by    {user}, which does not hold it" for user in status.strangers]
    lines += [
        f"  {item.type:<18} {item.status:<8} {item.reason}{f': {item.message}' if item.message else ''}"
        for item in status.conditions
    ]
    return lines + _holders(row.held)


def _holders(card: "LedgerCard | None") -> list[str]:
    if card is None:
        return ["  not in the ledger"]
    from croupier.core.ledger import holder

    shares = [f"{holder.pod_key(key)}: {amount}" for key, amount in card.holders.items()]
    slots = [f"{holder.pod_key(slot.holder)}: {slot.id}" for slot in card.slots if slot.holder]
    return [f"  held by    {holding}" for holding in (*shares, *slots)] or ["  held by    none"]
