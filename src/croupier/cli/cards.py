"""`croupier cards`: every card, what it is, how it fares, and who holds it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cluster, showing, tables, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.api.gpu import GPUDevice
    from croupier.api.meta import Condition
    from croupier.book.snapshot import Snapshot
    from croupier.core.ledgers.ledger import Card
    from croupier.kube.client import Client

HEADERS = ("card", "node", "index", "state", "phase", "pool", "product", "cut", "used", "health", "age")
MOST_SAID = 60
"""Characters of a fault in the table; `croupier cards NAME` says it all."""

State = Annotated[
    str | None, typer.Option("--state", metavar="STATE", help="Only Unassigned, Reserved, Assigned, Faulted.")
]


@dataclass(frozen=True, slots=True)
class Shown:
    """A card as inventory and ledger know it."""

    device: "GPUDevice"
    held: "Card | None" = None

    @property
    def index(self) -> str:
        from croupier.api.gpu.device import INDEX_LABEL

        return self.device.metadata.labels.get(INDEX_LABEL, "")


def cards(
    name: Annotated[
        str | None, typer.Argument(metavar="[CARD]", help="One card; NODE/INDEX will do.")
    ] = None,
    *,
    node: Annotated[str | None, typer.Option("--node", metavar="NODE", help="Only the cards of it.")] = None,
    pool: Annotated[str | None, typer.Option("--pool", metavar="POOL", help="Only its cards.")] = None,
    state: State = None,
    output: terminal.Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """List the cards of the cluster, or say everything about one.

    \b
    croupier cards
    croupier cards --pool team-a --state Faulted
    croupier cards node-1/0
    croupier cards node-1-0000-65-00-0 -o json
    """
    terminal.check_output(output)
    _check_state(state)
    seen = cluster.ask(cluster.Target(kubeconfig, context), _look)
    found = [one for one in _shown(seen) if _wanted(one.device, node, pool, state)]
    if name is not None:
        chosen = pick([one.device for one in found], name)
        found = [one for one in found if one.device is chosen]
    if output == "json":
        typer.echo(showing.json([_data(one) for one in found]))
    elif name is not None:
        for line in _story(found[0]):
            typer.echo(line)
    elif found:
        now = cluster.now()
        tables.echo(HEADERS, [_cells(one, now) for one in found])
    else:
        typer.echo("No card matches." if seen.devices else _NOTHING)


_NOTHING = "No card is known: does `croupier node` run on the nodes, and `croupier manager` in the cluster?"


def _check_state(state: str | None) -> None:
    from typing import get_args

    from croupier.api.gpu.device import DeviceState

    if state is not None and state not in get_args(DeviceState):
        terminal.refuse(f"--state {state}: it is {', '.join(get_args(DeviceState))}.")


async def _look(api: "Client") -> "Snapshot":
    from croupier.book import snapshot

    return await snapshot.take(api, cluster.now())


def pick(devices: "Iterable[GPUDevice]", name: str) -> "GPUDevice":
    """The card of that name, or `NODE/INDEX`."""
    from croupier.api.gpu.device import INDEX_LABEL

    node, _, index = name.rpartition("/")

    def is_meant(one: "GPUDevice") -> bool:
        place = (one.status.node_name, one.metadata.labels.get(INDEX_LABEL))
        return one.metadata.name == name or place == (node, index)

    chosen = next(filter(is_meant, devices), None)
    if chosen is None:
        terminal.refuse(f"there is no card {name}; `croupier cards` lists those there are.")
    return chosen


def _shown(seen: "Snapshot") -> list[Shown]:
    ledgers = {card.id: card for ledger in seen.ledgers.values() for card in ledger.cards}
    found = [Shown(one, ledgers.get(one.metadata.name)) for one in seen.devices]
    return sorted(found, key=lambda one: (one.device.status.node_name or "", _number(one.index)))


def _number(index: str) -> int:
    return int(index) if index.isascii() and index.isdigit() else -1


def _wanted(device: "GPUDevice", node: str | None, pool: str | None, state: str | None) -> bool:
    status = device.status
    serves = status.pool_ref.name if status.pool_ref is not None else ""
    return (
        (node is None or status.node_name == node)
        and (pool is None or serves == pool)
        and (state is None or status.state == state)
    )


def _cells(one: Shown, now: "datetime") -> tuple[str, ...]:
    status, meta = one.device.status, one.device.metadata
    return (
        meta.name,
        status.node_name or "",
        one.index,
        status.state or "",
        status.phase or "",
        status.pool_ref.name if status.pool_ref is not None else "",
        status.hardware.product if status.hardware is not None else "",
        cut(one.device),
        _used(one.held),
        _health(one.device),
        tables.age(now - meta.creation_timestamp) if meta.creation_timestamp is not None else "",
    )


def cut(device: "GPUDevice") -> str:
    """`2 × 2g.20gb, 1 × 3g.30gb`, and what keeps it from being otherwise."""
    now = device.status.cut
    if now is None:
        return ""
    profiles = [slot.profile for slot in now.slots]
    shape = ", ".join(f"{profiles.count(one)} × {one}" for one in dict.fromkeys(profiles)) or "whole"
    return shape if now.state == "Applied" else f"{shape} ({now.state} {now.target})"


def _used(card: "Card | None") -> str:
    if card is None:
        return ""
    if card.mode == "MIG":
        return f"{sum(bool(slot.holder) for slot in card.slots)}/{len(card.slots)} slots"
    if card.mode == "TimeSlice":
        return f"{card.used}/{card.capacity} slices"
    return f"{card.used} %"


def _health(device: "GPUDevice") -> str:
    fault = condition(device, "Faulted")
    if fault is not None and fault.status == "True":
        said = fault.message or fault.reason
        return said if len(said) <= MOST_SAID else f"{said[:MOST_SAID]}…"
    return "ok" if device.status.phase else ""


def condition(device: "GPUDevice", kind: str) -> "Condition | None":
    return next((one for one in device.status.conditions if one.type == kind), None)


def _story(one: Shown) -> list[str]:
    status = one.device.status
    hardware, health = status.hardware, status.health
    lines = [
        f"{one.device.metadata.name}: card {one.index or '?'} of node {status.node_name}",
        f"  state      {status.state or 'not known yet'} ({status.phase or 'nobody looked at it yet'})",
        f"  pool       {status.pool_ref.name if status.pool_ref is not None else 'none'}",
    ]
    if hardware is not None:
        where = f" at {hardware.pci.address}" if hardware.pci is not None else ""
        lines.append(
            f"  hardware   {hardware.product}, {hardware.memory_mib or 0} MiB{where}, {hardware.uuid}"
        )
    if status.cut is not None:
        lines.append(
            f"  cut        {cut(one.device)}{f': {status.cut.message}' if status.cut.message else ''}"
        )
    if health is not None:
        heat = f"{health.temperature_c} °C" if health.temperature_c is not None else "temperature not known"
        ecc = f", {health.ecc_errors_total} ECC errors" if health.ecc_errors_total is not None else ""
        lines.append(f"  health     {heat}{ecc}{f', XID {health.xid}' if health.xid else ''}")
    lines += [
        f"  {one.type:<18} {one.status:<8} {one.reason}{f': {one.message}' if one.message else ''}"
        for one in status.conditions
    ]
    return lines + _holders(one.held)


def _holders(card: "Card | None") -> list[str]:
    if card is None:
        return ["  the ledger does not have it"]
    from croupier.api.mps import holder

    shares = [f"{holder.split(key)[0]}: {amount}" for key, amount in card.holders.items()]
    slots = [f"{holder.split(slot.holder)[0]}: {slot.id}" for slot in card.slots if slot.holder]
    return [f"  held by    {one}" for one in (*shares, *slots)] or ["  held by    nobody"]


def _data(one: Shown) -> dict[str, Any]:
    import msgspec

    status = one.device.status
    return {
        "card": one.device.metadata.name,
        "index": int(one.index) if one.index.isdigit() else None,
        **msgspec.to_builtins(status),
        "ledger": showing.card(one.held) if one.held is not None else None,
    }
