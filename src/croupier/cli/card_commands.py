"""`croupier assign`, `unassign`, `drain`, `retire`: administrative changes of one card.

Each verb applies one change of `card_changes` and waits until the controllers have carried it out.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import cards, cluster, pools, terminal

if TYPE_CHECKING:
    from croupier.api.gpu import GPUDevice
    from croupier.api.gpu.card_changes import CardChange
    from croupier.core.model.refusal import Refusal
    from croupier.kube.client.api_client import Client

POLL = 0.5
PROGRESS_AFTER = 2.0
"""Seconds before a progress message is printed."""

CardName = Annotated[str, typer.Argument(metavar="CARD", help="The card, by name or as NODE/INDEX.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the change; 0 does not wait.")
]


def assign(
    name: CardName,
    pool: Annotated[str, typer.Argument(metavar="POOL", help="The pool to assign the card to.")],
    *,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Assign a card to a pool. Exit code 1 if it has not joined in time; the assignment stays.

    \b
    croupier assign node-1-0000-65-00-0 team-a
    croupier assign node-1/0 team-a --wait 0
    """
    from croupier.api.gpu import card_changes

    target = cluster.ClusterTarget(kubeconfig, context)
    _apply(target, name, lambda device: card_changes.assign(device, pool), wait)


def unassign(
    name: CardName,
    *,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Remove a card from its pool as soon as no pod holds it. Running pods are not affected.

    \b
    croupier unassign node-1/0
    """
    from croupier.api.gpu import card_changes

    _apply(cluster.ClusterTarget(kubeconfig, context), name, card_changes.unassign, wait)


def drain(
    name: CardName,
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason, shown in the card's status.")
    ] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Allow new allocations again.")] = False,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Stop new allocations of a card and wait until its pods have ended. No pod is evicted.

    \b
    croupier drain node-1/0 --reason "swap the fan"
    croupier drain node-1/0 --undo
    """
    from croupier.api.gpu import card_changes

    def change(device: "GPUDevice") -> "CardChange":
        return card_changes.undo_drain(device) if undo else card_changes.drain(device, reason)

    _apply(cluster.ClusterTarget(kubeconfig, context), name, change, wait)


def retire(
    name: CardName,
    *,
    wait: Wait = 30.0,
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Take a card out of use permanently: it leaves its pool once it is free and counts as no capacity.

    \b
    croupier retire node-1/0
    """
    from croupier.api.gpu import card_changes

    _apply(cluster.ClusterTarget(kubeconfig, context), name, card_changes.retire, wait)


def _apply(
    target: cluster.ClusterTarget,
    name: str,
    change_of: "Callable[[GPUDevice], CardChange | Refusal]",
    wait: float,
) -> None:
    from croupier.core.model.refusal import Refusal

    if not 0 <= wait <= 86400:
        terminal.usage_error(f"--wait {wait:g}: must be 0 to 86400 seconds.")

    async def apply(api: "Client") -> bool:
        from croupier.api import kinds

        device = cards.find((await api.list(kinds.GPU_DEVICES)).items, name)
        change = change_of(device)
        if isinstance(change, Refusal):
            terminal.usage_error(f"{change}.")
        if change.counted_in:
            await pools.get_pool(api, change.counted_in)
        await api.patch(kinds.GPU_DEVICES, device.metadata.name, {"metadata": change.patch})
        if wait == 0:
            typer.echo(f"card {device.metadata.name}: change written, not waiting for it.")
            return True
        return await _wait_until_done(api, device.metadata.name, change, wait)

    if not cluster.run(target, apply):
        raise typer.Exit(1)


async def _wait_until_done(api: "Client", name: str, change: "CardChange", wait: float) -> bool:
    import asyncio

    from croupier.api import kinds

    loop = asyncio.get_running_loop()
    begun, announced = loop.time(), False
    while True:
        device = await api.get(kinds.GPU_DEVICES, name)
        if change.done(device) and await _is_in_pool_status(api, device, change.counted_in):
            typer.echo(change.done_message)
            return True
        elapsed = loop.time() - begun
        if elapsed > wait:
            typer.echo(
                f"croupier: card {name} is not done after {wait:g} s: {await _pending_reason(api, device)}",
                err=True,
            )
            return False
        if elapsed > PROGRESS_AFTER and not announced:
            announced = True
            typer.echo(
                f"Waiting up to {wait:g} s for {change.waiting_for}: {await _pending_reason(api, device)}",
                err=True,
            )
        await asyncio.sleep(POLL)


async def _is_in_pool_status(api: "Client", device: "GPUDevice", pool: str) -> bool:
    """Whether the pool's status lists the card; until then a pod that requests the pool would be refused."""
    from croupier.api import kinds
    from croupier.api.gpu import card_changes

    if not pool:
        return True
    if card_changes.is_withdrawn(device):
        return False
    status = (await api.get(kinds.GPU_POOLS, pool)).status
    known = device.status.inventory_id in {member.inventory_id for member in status.devices}
    return known and status.capacity is not None and status.capacity.total > 0


async def _pending_reason(api: "Client", device: "GPUDevice") -> str:
    """Why the change is not complete, from the conditions of the card, its pool and its node."""
    from croupier.api import kinds, meta
    from croupier.api.gpu import card_changes
    from croupier.api.gpu.device import OCCUPIED
    from croupier.kube.client.errors import NotFound

    occupied = meta.condition(device.status.conditions, OCCUPIED)
    if occupied is not None and occupied.status == "True":
        return occupied.message or f"a pod holds it ({occupied.reason})"
    ready = meta.condition(device.status.conditions, "ReadyForPooling")
    if ready is not None and ready.status != "True":
        return ready.message or ready.reason
    if pool := card_changes.pool_of(device):
        conditions = (await api.get(kinds.GPU_POOLS, pool)).status.conditions
        problems = [
            condition
            for condition in conditions
            if condition.type in ("Maintenance", "Misconfigured") and condition.status == "True"
        ]
        return problems[0].message if problems else f"the status of pool {pool} does not list it yet"
    try:
        node = await api.get(kinds.GPU_NODE_INVENTORIES, device.status.node_name or "-")
    except NotFound:
        return "no controller has processed it yet; is `croupier manager` running?"
    pending = node.status.pools.pending
    reasons = "; ".join(f"{item.reason} {item.pool}".strip() for item in pending)
    return reasons or "no controller has processed it yet"
