"""`croupier demo`: a guided tour of Croupier on a local cluster with simulated GPU nodes."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from croupier_lab.lab import Lab

NAME = "demo"
COMMON, COMMON_CARDS = 2, "H100:8"
NAMED = ("gpu-worker=SIM-70GB:4", "gpu-worker2=A100-80GB:4")
LEDGER = "gpu-worker"
POOL_NODE = "gpu-worker2"
AGENT_CARDS = tuple(f"gpudevice/{POOL_NODE}-0000-1{index}-00-0" for index in range(4))
LABEL_CARDS = tuple(f"gpudevice/{POOL_NODE}-gpu-{index}" for index in range(4))
"""They are known from the labels of the node, until its agent reports the addresses of the cards."""
TIMEOUT = "60s"
HEARTBEAT = 2.0

POOL = """\
apiVersion: gpu.deckhouse.io/v1alpha1
kind: GPUPool
metadata: {name: training}
spec: {allocation: {mode: MPS}}
"""

RESERVATION = """\
apiVersion: mps.nvidia.com/v1
kind: Reservation
metadata: {name: example-reservation, namespace: default}
spec: {podKey: default/my-pod, nodeName: node-1, numCards: 2, percentPerCard: 50}
"""

JOB = """\
apiVersion: v1
kind: Pod
metadata: {name: training-job}
spec:
  containers:
  - name: trainer
    image: any
    resources: {limits: {nvidia.com/mig-2g.20gb: 1}}
"""
COLUMNS = "NAME:.metadata.name,GETS:.spec.containers[0].resources.limits,NODE:.spec.nodeName"
FALLBACK = r"FALLBACK:.metadata.annotations.gpu-webhook\.k8s\.io/fallback"


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the cluster running afterwards.")] = False,
) -> None:
    """Start a cluster with simulated GPU nodes, run Croupier in it, and show what it does.

    It ends with the web page of that cluster, until Ctrl-C; without a display, with a picture of the page.

    \b
    croupier demo          delete the cluster at the end
    croupier demo --keep   keep the cluster running
    """
    import asyncio

    asyncio.run(_run(keep=keep))


async def _run(*, keep: bool) -> None:
    from croupier_lab import demo_page, foreground, lifecycle, nodes, progress
    from croupier_lab.foreground import LabSpec
    from croupier_lab.lifecycle import LabPlan

    show = progress.to_stderr()
    simulated = nodes.fleet(COMMON, cards=COMMON_CARDS, named=NAMED)
    spec = LabSpec(
        LabPlan(name=NAME), nodes=simulated, capacity_manager="CRD", agents=True, heartbeat=HEARTBEAT
    )
    lab, raised_now = await lifecycle.up(spec.plan, show)
    try:
        await foreground.populate(lab, spec, show)
        _present(lab, [node.name for node in simulated])
        if keep:
            lifecycle.detach(lab)
        _heading("The same cluster as a web page, with croupier ui")
        await demo_page.show(lab, typer.echo)
    finally:
        if raised_now and not keep:
            show.step("\nDeleting the cluster. To keep it: croupier demo --keep")
            await lifecycle.stop(lab)
    if keep:
        typer.echo(f"\nTo use it:    export KUBECONFIG={lab.kubeconfig}")
        typer.echo(f"To see it:    croupier ui --kubeconfig {lab.kubeconfig}")
        typer.echo(f"To delete it: croupier lab down --name {NAME}")


def _present(lab: "Lab", nodes: "Sequence[str]") -> None:
    _heading("A real Kubernetes control plane with simulated cards, and a ledger for every node")
    _kubectl(lab, "get", "nodes", "-L", "nvidia.com/gpu.product,nvidia.com/gpu.count")
    _wait(lab, *(f"nodereservation/{node}" for node in nodes), until="jsonpath={.spec.summary.free}")
    _kubectl(lab, "get", "nodereservations")

    _heading("The agents of the nodes found these cards; an administrator puts one of them into a pool")
    _wait(lab, *AGENT_CARDS, until="condition=ReadyForPooling")
    lab.kubectl("wait", *LABEL_CARDS, "--for=delete", f"--timeout={TIMEOUT}")
    _croupier(lab, "cards", "--node", POOL_NODE)
    _kubectl(lab, "apply", "-f", "-", stdin=POOL)
    _croupier(lab, "assign", f"{POOL_NODE}/0", "training")
    _croupier(lab, "pools")

    _heading("A user reserves half of two cards")
    _kubectl(lab, "apply", "-f", "-", stdin=RESERVATION)
    _wait(lab, "reservation/example-reservation", until="jsonpath={.status.phase}=Reserved")
    _kubectl(lab, "get", "reservation", "example-reservation", "-o", "wide")

    _heading(
        "The stock kube-scheduler places pods through the ledger: shares, whole cards, and the reserved pod"
    )
    pods = [
        _pod("my-pod", cards=2, ratio=50),
        _pod("quarter", cards=1, ratio=25),
        _pod("trainer", gpus=2),
        _pod("greedy", cards=12, ratio=80),
    ]
    lab.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": pods}))
    _wait(lab, "pod/my-pod", "pod/quarter", "pod/trainer", until="condition=Ready")
    _kubectl(lab, "get", "pods", "--output", "wide")
    _croupier(lab, "ledger")
    _croupier(lab, "ledger", "node-1")

    _heading("Why is a pod pending? What would fit?")
    _croupier(lab, "explain", "pod", "greedy")
    _croupier(lab, "what-if", "-f", "-", "--count", "3", stdin=json.dumps(_pod("next", gpus=4)))

    _heading("A pod requests a MIG profile that no node offers: it gets the nearest one, with a warning")
    _kubectl(lab, "apply", "-f", "-", stdin=JOB)
    _wait(lab, "pod/training-job", until="condition=Ready")
    _kubectl(lab, "get", "pod", "training-job", "-o", f"custom-columns={COLUMNS},{FALLBACK}")

    _heading("60 % of a card plus 50 % more: the API server rejects the write")
    _kubectl(lab, *_set_holders_command({"team-a/first": 60, "team-b/second": 50}))
    _croupier(lab, "audit")


def _pod(name: str, *, gpus: int = 0, cards: int = 0, ratio: int = 0) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    annotations = {"gpu.mps.io/cards": str(cards), "gpu.mps.io/ratio": str(ratio)} if cards else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}]},
    }


def _set_holders_command(holders: dict[str, int]) -> tuple[str, ...]:
    """kubectl arguments that overwrite the holders of card 0 of a node."""
    change = [{"op": "add", "path": "/spec/cards/0/holders", "value": holders}]
    return ("patch", "nodereservation", LEDGER, "--type=json", f"--patch={json.dumps(change)}")


def _wait(lab: "Lab", *objects: str, until: str) -> None:
    """Wait until the objects exist, and for the condition, as `kubectl wait --for` takes it."""
    for condition in ("create", until):
        lab.kubectl("wait", *objects, f"--for={condition}", f"--timeout={TIMEOUT}")


def _heading(text: str) -> None:
    typer.secho(f"\n{text}", bold=True)


def _kubectl(lab: "Lab", *args: str, stdin: str | None = None) -> None:
    """Run kubectl, and print the command with its output."""
    ended = lab.kubectl(*args, stdin=stdin, check=False)
    _print_command("kubectl", args, stdin, ended.stdout + ended.stderr)


def _croupier(lab: "Lab", *args: str, stdin: str | None = None) -> None:
    import os
    import subprocess
    import sys

    env = {**os.environ, "KUBECONFIG": str(lab.kubeconfig)}
    command = (sys.executable, "-m", "croupier.cli", *args)
    ended = subprocess.run(command, input=stdin, env=env, capture_output=True, text=True, check=False)
    _print_command("croupier", args, stdin, ended.stdout + ended.stderr)


def _print_command(program: str, args: tuple[str, ...], stdin: str | None, printed: str) -> None:
    import shlex

    heredoc = f" <<EOF\n{stdin.rstrip()}\nEOF" if stdin else ""
    typer.secho(f"\n$ {program} {shlex.join(args)}{heredoc}", fg=typer.colors.CYAN)
    typer.echo(printed.rstrip())
