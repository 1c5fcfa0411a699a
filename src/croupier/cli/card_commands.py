"""`croupier assign`, `unassign`, `drain`, `retire`: administrative changes of one card.

Each verb writes one annotation or label of the GPUDevice, as kubectl would, and waits until the controllers
have carried it out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from croupier.cli import cards, cluster, pools, terminal

if TYPE_CHECKING:
    from croupier.api.gpu import GPUDevice
    from croupier.kube.client.api_client import Client

POLL = 0.5
PROGRESS_AFTER = 2.0
"""Seconds before a progress message is printed."""

CardName = Annotated[str, typer.Argument(metavar="CARD", help="The card, by name or as NODE/INDEX.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the change; 0 does not wait.")
]


@dataclass(frozen=True, slots=True)
class CardChange:
    """A metadata patch of a card, and the condition under which it is complete."""

    patch: dict[str, Any]
    done: "Callable[[GPUDevice], bool]"
    waiting_for: str
    """Completes the sentence "Waiting for ..."."""
    done_message: str
    """Printed on completion."""
    counted_in: str = ""
    """The pool whose status must list the card as well."""


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

    async def order(api: "Client", device: "GPUDevice") -> CardChange:
        from croupier.api.gpu.device import ASSIGNMENT

        await pools.get_pool(api, pool)
        now = device.metadata.annotations.get(ASSIGNMENT, "")
        if now not in ("", pool):
            terminal.usage_error(
                f"card {device.metadata.name} is assigned to pool {now}: run `croupier unassign` first "
                "and wait until the card is Unassigned."
            )
        return CardChange(
            {"annotations": {ASSIGNMENT: pool}},
            lambda card: _pool_of(card) == pool and card.status.state in ("Assigned", "Reserved"),
            f"card {device.metadata.name} to join pool {pool}",
            f"card {device.metadata.name} is assigned to pool {pool}.",
            counted_in=pool,
        )

    _apply(cluster.ClusterTarget(kubeconfig, context), name, order, wait)


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

    async def order(_: "Client", device: "GPUDevice") -> CardChange:
        from croupier.api.gpu.device import ASSIGNMENT

        return CardChange(
            {"annotations": {ASSIGNMENT: None}},
            lambda card: not _pool_of(card) and card.status.state in ("Unassigned", "Faulted"),
            f"card {device.metadata.name} to leave its pool",
            f"card {device.metadata.name} is not assigned to a pool.",
        )

    _apply(cluster.ClusterTarget(kubeconfig, context), name, order, wait)


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

    async def order(_: "Client", device: "GPUDevice") -> CardChange:
        from croupier.api.gpu.device import DRAIN

        if undo:
            return CardChange(
                {"annotations": {DRAIN: None}},
                lambda card: DRAIN not in card.metadata.annotations,
                f"card {device.metadata.name} to become allocatable",
                f"card {device.metadata.name} is allocatable again.",
            )
        return CardChange(
            {"annotations": {DRAIN: reason or "by hand"}},
            _is_withdrawn,
            f"the pods that hold card {device.metadata.name}",
            f"card {device.metadata.name} is drained: no pod holds it, and it is not allocated.",
        )

    _apply(cluster.ClusterTarget(kubeconfig, context), name, order, wait)


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

    async def order(_: "Client", device: "GPUDevice") -> CardChange:
        from croupier.api.gpu.device import ASSIGNMENT, IGNORE

        return CardChange(
            {"labels": {IGNORE: "true"}, "annotations": {ASSIGNMENT: None}},
            lambda card: not _pool_of(card) and _is_true(card, "Ignored"),
            f"card {device.metadata.name} to leave its pool",
            f"card {device.metadata.name} is retired; remove the label {IGNORE} to use it again.",
        )

    _apply(cluster.ClusterTarget(kubeconfig, context), name, order, wait)


def _pool_of(device: "GPUDevice") -> str:
    return device.status.pool_ref.name if device.status.pool_ref is not None else ""


def _is_withdrawn(device: "GPUDevice") -> bool:
    from croupier.api.gpu.device import OCCUPIED

    occupied = cards.condition(device, OCCUPIED)
    return occupied is not None and occupied.reason == "Withdrawn"


def _is_true(device: "GPUDevice", kind: str) -> bool:
    condition = cards.condition(device, kind)
    return condition is not None and condition.status == "True"


def _apply(target: cluster.ClusterTarget, name: str, order: "Callable[..., Any]", wait: float) -> None:
    if not 0 <= wait <= 86400:
        terminal.usage_error(f"--wait {wait:g}: must be 0 to 86400 seconds.")

    async def apply(api: "Client") -> bool:
        from croupier.api import kinds

        device = cards.find((await api.list(kinds.GPU_DEVICES)).items, name)
        change: CardChange = await order(api, device)
        await api.patch(kinds.GPU_DEVICES, device.metadata.name, {"metadata": change.patch})
        if wait == 0:
            typer.echo(f"card {device.metadata.name}: change written, not waiting for it.")
            return True
        return await _wait_until_done(api, device.metadata.name, change, wait)

    if not cluster.run(target, apply):
        raise typer.Exit(1)


async def _wait_until_done(api: "Client", name: str, change: CardChange, wait: float) -> bool:
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

    if not pool:
        return True
    if _is_withdrawn(device):
        return False
    status = (await api.get(kinds.GPU_POOLS, pool)).status
    known = device.status.inventory_id in {member.inventory_id for member in status.devices}
    return known and status.capacity is not None and status.capacity.total > 0


async def _pending_reason(api: "Client", device: "GPUDevice") -> str:
    """Why the change is not complete, from the conditions of the card, its pool and its node."""
    from croupier.api import kinds
    from croupier.api.gpu.device import OCCUPIED
    from croupier.kube.client.errors import NotFound

    occupied = cards.condition(device, OCCUPIED)
    if occupied is not None and occupied.status == "True":
        return occupied.message or f"a pod holds it ({occupied.reason})"
    ready = cards.condition(device, "ReadyForPooling")
    if ready is not None and ready.status != "True":
        return ready.message or ready.reason
    if pool := _pool_of(device):
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
