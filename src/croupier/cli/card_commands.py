"""`croupier assign`, `unassign`, `drain`, `retire`: administrative changes of one card.

Each verb applies one change of `card_changes` and waits until the controllers have carried it out.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from croupier.cli import card_preview, cards, cluster, completion, pools, terminal

if TYPE_CHECKING:
    from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool
    from croupier.api.gpu.card_changes import CardChange
    from croupier.core.explanation.card_outcomes import CardsAction
    from croupier.kube.client.api_client import Client
    from croupier.kube.client.resource import Resource

T = TypeVar("T")

POLL = 0.5
PROGRESS_AFTER = 2.0
"""Seconds before a progress message is printed."""

CardName = Annotated[
    str,
    typer.Argument(
        metavar="CARD", help="The card, by name or as NODE/INDEX.", autocompletion=completion.cards
    ),
]
Reason = Annotated[
    str,
    typer.Option(
        "--reason",
        metavar="TEXT",
        help="Reason, shown wherever the card is shown, and to pods that wait for cards.",
    ),
]
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the change; 0 does not wait.")
]

DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Print what would happen, and write nothing. Exit code 1 if declined."),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="text|json", help="Output format of --dry-run.")
]


@dataclass(frozen=True, slots=True)
class CommandRun:
    """The options that all commands share."""

    target: cluster.ClusterTarget
    wait: float
    dry_run: bool
    output: str


def assign(
    name: CardName,
    pool: Annotated[
        str,
        typer.Argument(
            metavar="POOL", help="The pool to assign the card to.", autocompletion=completion.pools
        ),
    ],
    *,
    wait: Wait = 30.0,
    dry_run: DryRun = False,
    output: Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Assign a card to a pool. Exit code 1 if it has not joined in time; the assignment stays.

    \b
    croupier assign node-1-0000-65-00-0 team-a
    croupier assign node-1/0 team-a --wait 0
    croupier assign node-1/0 team-a --dry-run
    """
    from croupier.core.explanation.card_outcomes import CardsAction

    run = CommandRun(cluster.ClusterTarget(kubeconfig, context), wait, dry_run, output)
    _apply(run, name, CardsAction("assign", (), pool))


def unassign(
    name: CardName,
    *,
    wait: Wait = 30.0,
    dry_run: DryRun = False,
    output: Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Remove a card from its pool as soon as no pod holds it. Running pods are not affected.

    \b
    croupier unassign node-1/0
    croupier unassign node-1/0 --dry-run -o json
    """
    from croupier.core.explanation.card_outcomes import CardsAction

    run = CommandRun(cluster.ClusterTarget(kubeconfig, context), wait, dry_run, output)
    _apply(run, name, CardsAction("unassign", ()))


def drain(
    name: CardName,
    *,
    reason: Reason = "",
    undo: Annotated[bool, typer.Option("--undo", help="Allow new allocations again.")] = False,
    wait: Wait = 30.0,
    dry_run: DryRun = False,
    output: Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Stop new allocations of a card and wait until its pods, which are named, have ended. None is evicted.

    \b
    croupier drain node-1/0 --reason "swap the fan"
    croupier drain node-1/0 --undo
    croupier drain node-1/0 --dry-run
    """
    from croupier.core.explanation.card_outcomes import CardsAction

    run = CommandRun(cluster.ClusterTarget(kubeconfig, context), wait, dry_run, output)
    _apply(run, name, CardsAction("undrain", ()) if undo else CardsAction("drain", (), reason=reason))


def retire(
    name: CardName,
    *,
    reason: Reason = "",
    undo: Annotated[bool, typer.Option("--undo", help="Use the card again.")] = False,
    wait: Wait = 30.0,
    dry_run: DryRun = False,
    output: Output = "text",
    kubeconfig: cluster.Kubeconfig = None,
    context: cluster.Context = None,
) -> None:
    """Take a card out of use permanently: it leaves its pool once it is free and counts as no capacity.

    \b
    croupier retire node-1/0 --reason "memory errors"
    croupier retire node-1/0 --undo
    croupier retire node-1/0 --dry-run
    """
    from croupier.core.explanation.card_outcomes import CardsAction

    run = CommandRun(cluster.ClusterTarget(kubeconfig, context), wait, dry_run, output)
    _apply(run, name, CardsAction("unretire", ()) if undo else CardsAction("retire", (), reason=reason))


def _apply(run: CommandRun, name: str, action: "CardsAction") -> None:
    if not 0 <= run.wait <= 86400:
        terminal.usage_error(f"--wait {run.wait:g}: must be 0 to 86400 seconds.")
    terminal.check_output(run.output)
    if run.output != "text" and not run.dry_run:
        terminal.usage_error("--output: only --dry-run has an output format.")

    async def apply(api: "Client") -> bool:
        from croupier.api import kinds, planned_write
        from croupier.core.model.refusal import Refusal

        device = cards.find((await api.list(kinds.GPU_DEVICES)).items, name)
        change = planned_write.change_of(action, device)
        if isinstance(change, Refusal):
            terminal.usage_error(f"{change}.")
        if change.counted_in:
            await pools.get_pool(api, change.counted_in)
        if run.dry_run:
            return await card_preview.show(api, action, device, run.output)
        await api.patch(kinds.GPU_DEVICES, device.metadata.name, {"metadata": change.patch})
        if run.wait == 0:
            pods = await _waits_for(api, device, change)
            typer.echo(f"card {device.metadata.name}: change written, {pods or 'not waiting for it'}.")
            return True
        return await _wait_until_done(api, device.metadata.name, change, run.wait)

    if not cluster.run(run.target, apply, needs=cluster.CARD_KINDS):
        raise typer.Exit(1)


async def _wait_until_done(api: "Client", name: str, change: "CardChange", wait: float) -> bool:
    import asyncio

    from croupier.api import kinds
    from croupier.api.gpu import card_changes

    loop = asyncio.get_running_loop()
    begun, announced = loop.time(), False
    while True:
        device = await api.get(kinds.GPU_DEVICES, name)
        pool, inventory = await _objects(api, device, change)
        if card_changes.is_complete(change, device, pool):
            typer.echo(change.done_message)
            return True
        elapsed = loop.time() - begun
        if elapsed > wait or (elapsed > PROGRESS_AFTER and not announced):
            pods = await _waits_for(api, device, change)
            why = pods or card_changes.pending_reason(device, pool, inventory)
            if elapsed > wait:
                typer.echo(f"croupier: card {name} is not done after {wait:g} s: {why}", err=True)
                return False
            announced = True
            typer.echo(f"Waiting up to {wait:g} s for {change.waiting_for}: {why}", err=True)
        await asyncio.sleep(POLL)


async def _waits_for(api: "Client", device: "GPUDevice", change: "CardChange") -> str:
    """`it waits for pods team-a/train-0 and 3 more`; empty if no pod is known to hold the card."""
    from croupier.capacity import snapshot
    from croupier.core.ledger import card_occupancy
    from croupier.kube.client.errors import Forbidden

    if not change.needs_free:
        return ""
    try:
        ledger = (await snapshot.take(api, cluster.now())).ledgers.get(device.status.node_name or "")
    except Forbidden:
        return ""  # the condition of the card names them
    pods = card_occupancy.waits_for(ledger.card(device.card_id) if ledger is not None else None)
    return f"it {pods}" if pods else ""


async def _objects(
    api: "Client", device: "GPUDevice", change: "CardChange"
) -> "tuple[GPUPool | None, GPUNodeInventory | None]":
    """The pool and the inventory that tell whether the change is complete; None if they do not exist."""
    from croupier.api import kinds
    from croupier.api.gpu import card_changes

    pool, node = change.counted_in or card_changes.pool_of(device), device.status.node_name
    counted = await _get(api, kinds.GPU_POOLS, pool)
    inventory = await _get(api, kinds.GPU_NODE_INVENTORIES, node)
    return counted, inventory


async def _get(api: "Client", resource: "Resource[T]", name: str | None) -> "T | None":
    from croupier.kube.client.errors import NotFound

    if not name:
        return None
    try:
        return await api.get(resource, name)
    except NotFound:
        return None
