"""`croupier assign`, `unassign`, `drain`, `retire`: what a person decides about one card.

Each writes what a person would with kubectl, one annotation or label, and then stays to see what comes
of it: whoever looks after cards does not want to guess.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cards, cluster, pools, terminal

if TYPE_CHECKING:
    from croupier.api.gpu import GPUDevice
    from croupier.kube.client import Client

POLL = 0.5
SAYING = 2.0
"""Seconds after which to say what is waited for."""

CardName = Annotated[str, typer.Argument(metavar="CARD", help="The card; NODE/INDEX will do.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to watch what comes of it; 0 not at all.")
]


@dataclass(frozen=True, slots=True)
class Order:
    """What to write on a card, and when it has come about."""

    patch: dict[str, Any]
    done: "Callable[[GPUDevice], bool]"
    doing: str
    """What is waited for."""
    told: str
    """What to say once it is so."""
    counted_in: str = ""
    """The pool that must have counted the card as well."""


def assign(
    name: CardName,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool it shall serve.")],
    *,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Give a card to a pool. Exit code 1 if it does not serve it in time; the wish stays.

    \b
    croupier assign node-1-0000-65-00-0 team-a
    croupier assign node-1/0 team-a --wait 0
    """

    async def order(api: "Client", device: "GPUDevice") -> Order:
        from croupier.api.gpu.device import ASSIGNMENT

        await pools.one_pool(api, pool)
        now = device.metadata.annotations.get(ASSIGNMENT, "")
        if now not in ("", pool):
            terminal.refuse(
                f"card {device.metadata.name} is assigned to pool {now}: `croupier unassign` it first, "
                "and wait until it is Unassigned."
            )
        return Order(
            {"annotations": {ASSIGNMENT: pool}},
            lambda one: _serves(one) == pool and one.status.state in ("Assigned", "Reserved"),
            f"card {device.metadata.name} to join pool {pool}",
            f"card {device.metadata.name} serves pool {pool}.",
            counted_in=pool,
        )

    _carry_out(cluster.Target(kubeconfig, context), name, order, wait)


def unassign(
    name: CardName,
    *,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Take a card out of its pool, once nobody holds it. Running pods go on.

    \b
    croupier unassign node-1/0
    """

    async def order(_: "Client", device: "GPUDevice") -> Order:
        from croupier.api.gpu.device import ASSIGNMENT

        return Order(
            {"annotations": {ASSIGNMENT: None}},
            lambda one: not _serves(one) and one.status.state in ("Unassigned", "Faulted"),
            f"card {device.metadata.name} to leave its pool",
            f"card {device.metadata.name} serves no pool.",
        )

    _carry_out(cluster.Target(kubeconfig, context), name, order, wait)


def drain(
    name: CardName,
    *,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Shown to whoever asks why.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Let it be used again.")] = False,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Give a card to nobody new, and wait until those who hold it are done. No pod is ended.

    \b
    croupier drain node-1/0 --reason "swap the fan"
    croupier drain node-1/0 --undo
    """

    async def order(_: "Client", device: "GPUDevice") -> Order:
        from croupier.api.gpu.device import DRAIN

        if undo:
            return Order(
                {"annotations": {DRAIN: None}},
                lambda one: DRAIN not in one.metadata.annotations,
                f"card {device.metadata.name} to be used again",
                f"card {device.metadata.name} is given out again.",
            )
        return Order(
            {"annotations": {DRAIN: reason or "by hand"}},
            _is_withdrawn,
            f"those who hold card {device.metadata.name}",
            f"card {device.metadata.name} is drained: nobody holds it, and nobody gets it.",
        )

    _carry_out(cluster.Target(kubeconfig, context), name, order, wait)


def retire(
    name: CardName,
    *,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Take a card out of use for good: out of its pool once it is free, and out of every count.

    \b
    croupier retire node-1/0
    """

    async def order(_: "Client", device: "GPUDevice") -> Order:
        from croupier.api.gpu.device import ASSIGNMENT, IGNORE

        return Order(
            {"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None}},
            lambda one: not _serves(one) and _is_true(one, "Ignored"),
            f"card {device.metadata.name} to leave its pool",
            f"card {device.metadata.name} is retired; take the label {IGNORE} away to use it again.",
        )

    _carry_out(cluster.Target(kubeconfig, context), name, order, wait)


def _serves(device: "GPUDevice") -> str:
    return device.status.pool_ref.name if device.status.pool_ref is not None else ""


def _is_withdrawn(device: "GPUDevice") -> bool:
    from croupier.api.gpu.device import OCCUPIED

    found = cards.condition(device, OCCUPIED)
    return found is not None and found.reason == "Withdrawn"


def _is_true(device: "GPUDevice", kind: str) -> bool:
    found = cards.condition(device, kind)
    return found is not None and found.status == "True"


def _carry_out(target: cluster.Target, name: str, order: "Callable[..., Any]", wait: float) -> None:
    if not 0 <= wait <= 86400:
        terminal.refuse(f"--wait {wait:g}: it is 0 to 86400 seconds.")

    async def doing(api: "Client") -> bool:
        from croupier.api import kinds

        device = cards.pick((await api.list(kinds.GPU_DEVICES)).items, name)
        wanted: Order = await order(api, device)
        await api.patch(kinds.GPU_DEVICES, device.metadata.name, {"metadata": wanted.patch})
        if wait == 0:
            typer.echo(f"card {device.metadata.name}: written down. Not waited for.")
            return True
        return await _watch(api, device.metadata.name, wanted, wait)

    if not cluster.ask(target, doing):
        raise typer.Exit(1)


async def _watch(api: "Client", name: str, wanted: Order, wait: float) -> bool:
    from croupier.api import kinds

    loop = asyncio.get_running_loop()
    begun, said = loop.time(), False
    while True:
        device = await api.get(kinds.GPU_DEVICES, name)
        if wanted.done(device) and await _is_counted(api, device, wanted.counted_in):
            typer.echo(wanted.told)
            return True
        passed = loop.time() - begun
        if passed > wait:
            typer.echo(f"croupier: {name} waits still: {await _why(api, device)}", err=True)
            return False
        if passed > SAYING and not said:
            said = True
            typer.echo(f"Waiting up to {wait:g} s for {wanted.doing}: {await _why(api, device)}", err=True)
        await asyncio.sleep(POLL)


async def _is_counted(api: "Client", device: "GPUDevice", pool: str) -> bool:
    """Until then a pod that asks for the pool would be refused, and whoever typed `assign` would wonder."""
    from croupier.api import kinds

    if not pool:
        return True
    if _is_withdrawn(device):
        return False
    status = (await api.get(kinds.GPU_POOLS, pool)).status
    known = device.status.inventory_id in {one.inventory_id for one in status.devices}
    return known and status.capacity is not None and status.capacity.total > 0


async def _why(api: "Client", device: "GPUDevice") -> str:
    """What the cluster says about it: who holds it, what the node waits for, what its conditions say."""
    from croupier.api import kinds
    from croupier.api.gpu.device import OCCUPIED
    from croupier.kube.errors import NotFound

    occupied = cards.condition(device, OCCUPIED)
    if occupied is not None and occupied.status == "True":
        return occupied.message or f"somebody holds it ({occupied.reason})"
    ready = cards.condition(device, "ReadyForPooling")
    if ready is not None and ready.status != "True":
        return ready.message or ready.reason
    if pool := _serves(device):
        told = (await api.get(kinds.GPU_POOLS, pool)).status.conditions
        stopped = [
            one for one in told if one.type in ("Maintenance", "Misconfigured") and one.status == "True"
        ]
        return stopped[0].message if stopped else f"pool {pool} has not counted it yet"
    try:
        node = await api.get(kinds.GPU_NODE_INVENTORIES, device.status.node_name or "-")
    except NotFound:
        return "nobody answered yet; is `croupier manager` running?"
    waits = node.status.pools.pending
    return "; ".join(f"{one.reason} {one.pool}".strip() for one in waits) or "nobody answered yet"
