"""`croupier demo`: a cluster with simulated GPU nodes, shown to a newcomer in one go.

Each part of Croupier joins this story when it is built.
"""

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from croupier.lab.lab import Lab
    from croupier.lab.nodes import SimulatedNode

NAME = "demo"
NAMESPACE = "default"
COMMON, COMMON_CARDS = 2, "H100:8"
NAMED = ("gpu-worker=SIM-70GB:4", "gpu-worker2=A100-80GB:4")
LEDGER = "gpu-worker"

TRAINER = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "trainer"},
    "spec": {
        "containers": [{"name": "trainer", "image": "any", "resources": {"limits": {"nvidia.com/gpu": "2"}}}],
    },
}


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the cluster running afterwards.")] = False,
) -> None:
    """Raise a cluster with simulated GPU nodes and show it.

    \b
    croupier demo          show it, then take it down
    croupier demo --keep   leave it running
    """
    import asyncio

    asyncio.run(_run(keep=keep))


async def _run(*, keep: bool) -> None:
    from croupier.cli import terminal
    from croupier.lab import fleet, lifecycle, nodes
    from croupier.lab.lifecycle import Plan

    show = terminal.progress()
    wanted = nodes.fleet(COMMON, cards=COMMON_CARDS, named=NAMED)
    lab, raised_now = await lifecycle.up(Plan(name=NAME), show)
    try:
        await fleet.create(lab, wanted, show)
        await _tell(lab, wanted)
        if keep:
            lifecycle.detach(lab)
    finally:
        if raised_now and not keep:
            show.step("\nTaking the cluster down. To keep it: croupier demo --keep")
            await lifecycle.end(lab)
    if keep:
        typer.echo(f"\nIt is yours:  export KUBECONFIG={lab.kubeconfig}")
        typer.echo(f"When done:    croupier lab down --name {NAME}")


async def _tell(lab: "Lab", wanted: "list[SimulatedNode]") -> None:
    _heading("A real Kubernetes with simulated cards")
    _shell(lab, "get", "nodes", "-L", "nvidia.com/gpu.product,nvidia.com/gpu.count")

    _heading("Our kinds (no controller runs yet: the demo wrote what the node side will report)")
    await _exhibit(lab, wanted)
    for kind in ("gpunodeinventories", "nodereservations", "gpupools", "reservations", "podallocations"):
        _shell(lab, "get", kind)
    _shell(lab, "get", "gpudevices", "--selector", f"gpu.deckhouse.io/node={LEDGER}")

    _heading("The real scheduler places a pod that asks for two cards")
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(TRAINER))
    lab.kubectl("wait", "pod/trainer", "--for=condition=Ready", "--timeout=60s")
    _shell(lab, "get", "pod", "trainer", "--output", "wide")

    _heading("60 % of a card for one pod; 50 % more is refused by the API server itself")
    _shell(lab, *_give({"team-a/first": 60}))
    _shell(lab, *_give({"team-a/first": 60, "team-b/second": 50}))


async def _exhibit(lab: "Lab", wanted: "list[SimulatedNode]") -> None:
    """Make our kinds known and write objects of each."""
    from croupier.api import crds
    from croupier.kube import client, config
    from croupier.kube.clock import SystemClock
    from croupier.lab import borrowed, showcase

    borrowed.install(lab.cluster, crds.definitions())
    now = SystemClock().now()
    async with client.connect(config.load(lab.kubeconfig)) as api:
        for node in wanted:
            if node.cards is not None:
                await showcase.show(api, showcase.of_node(node.name, node.cards, now))
        await showcase.show(api, showcase.of_people(LEDGER, NAMESPACE))


def _give(holders: dict[str, int]) -> tuple[str, ...]:
    """Write the holders of card 0, as any writer with the right to could try."""
    change = [{"op": "add", "path": "/spec/cards/0/holders", "value": holders}]
    return ("patch", "nodereservation", LEDGER, "--type=json", f"--patch={json.dumps(change)}")


def _heading(text: str) -> None:
    typer.secho(f"\n{text}", bold=True)


def _shell(lab: "Lab", *args: str) -> None:
    """Show the command as a person would type it, then what it printed."""
    import shlex

    typer.secho(f"\n$ kubectl {shlex.join(args)}", fg=typer.colors.CYAN)
    ended = lab.kubectl(*args, check=False)
    typer.echo((ended.stdout + ended.stderr).rstrip())
