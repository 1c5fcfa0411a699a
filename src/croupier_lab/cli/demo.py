"""`croupier demo`: a guided tour of Croupier on a local cluster with simulated GPU nodes."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from croupier_lab.lab import Lab
    from croupier_lab.nodes import SimulatedNode

NAME = "demo"
NAMESPACE = "default"
COMMON, COMMON_CARDS = 2, "H100:8"
NAMED = ("gpu-worker=SIM-70GB:4", "gpu-worker2=A100-80GB:4")
LEDGER = "gpu-worker"
TIMEOUT = 60.0

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

    \b
    croupier demo          delete the cluster at the end
    croupier demo --keep   keep the cluster running
    """
    import asyncio

    asyncio.run(_run(keep=keep))


async def _run(*, keep: bool) -> None:
    from croupier_lab import croupier_processes, fleet, lifecycle, nodes, progress
    from croupier_lab.lifecycle import LabPlan

    show = progress.to_stderr()
    simulated = nodes.fleet(COMMON, cards=COMMON_CARDS, named=NAMED)
    lab, raised_now = await lifecycle.up(LabPlan(name=NAME), show)
    try:
        await fleet.create(lab, simulated, show)
        await _create_sample_objects(lab, simulated)
        await croupier_processes.start_croupier(lab, "CRD", show, webhook=True)
        _present(lab)
        if keep:
            lifecycle.detach(lab)
    finally:
        if raised_now and not keep:
            show.step("\nDeleting the cluster. To keep it: croupier demo --keep")
            await lifecycle.stop(lab)
    if keep:
        typer.echo(f"\nTo use it:    export KUBECONFIG={lab.kubeconfig}")
        typer.echo(f"To delete it: croupier lab down --name {NAME}")


def _present(lab: "Lab") -> None:
    _heading("A real Kubernetes control plane with simulated cards, and a ledger for every node")
    _kubectl(lab, "get", "nodes", "-L", "nvidia.com/gpu.product,nvidia.com/gpu.count")
    _kubectl(lab, "get", "nodereservations", until=lambda: _have_status(lab))

    _heading("A user reserves half of two cards")
    _kubectl(lab, "apply", "-f", "-", stdin=RESERVATION)
    _kubectl(lab, "get", "reservation", "example-reservation", "-o", "wide", until=lambda: _is_reserved(lab))

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
    for name in ("my-pod", "quarter", "trainer"):
        lab.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
    _kubectl(lab, "get", "pods", "--output", "wide")
    _croupier(lab, "ledger")
    _croupier(lab, "ledger", "node-1")

    _heading("Why is a pod pending? What would fit?")
    _croupier(lab, "explain", "pod", "greedy")
    _croupier(lab, "what-if", "-f", "-", "--count", "3", stdin=json.dumps(_pod("next", gpus=4)))

    _heading("A pod requests a MIG profile that no node offers: it gets the nearest one, with a warning")
    _kubectl(lab, "apply", "-f", "-", stdin=JOB)
    lab.kubectl("wait", "pod/training-job", "--for=condition=Ready", "--timeout=60s")
    _kubectl(lab, "get", "pod", "training-job", "-o", f"custom-columns={COLUMNS},{FALLBACK}")

    _heading("60 % of a card plus 50 % more: the API server rejects the write")
    _kubectl(lab, *_set_holders_command({"team-a/first": 60, "team-b/second": 50}))
    _croupier(lab, "audit")


async def _create_sample_objects(lab: "Lab", simulated: "list[SimulatedNode]") -> None:
    """Install the CRDs and create sample objects that no process writes in this demo."""
    from croupier.api import crds
    from croupier.kube.client import api_client, config
    from croupier.kube.client.clock import SystemClock
    from croupier_lab import sample_objects, shared_cluster

    shared_cluster.install(lab.cluster, crds.definitions())
    now = SystemClock().now()
    async with api_client.connect(config.load(lab.kubeconfig)) as api:
        for node in simulated:
            if node.cards is not None:
                await sample_objects.apply(api, sample_objects.node_objects(node.name, node.cards, now))
        await sample_objects.apply(api, sample_objects.user_objects(NAMESPACE))


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


def _have_status(lab: "Lab") -> bool:
    """Whether every NodeReservation exists and reports its free capacity."""
    items = json.loads(lab.kubectl("get", "nodereservations", "-o", "json").stdout)["items"]
    return len(items) == COMMON + len(NAMED) and all(item.get("status", {}).get("free") for item in items)


def _is_reserved(lab: "Lab") -> bool:
    phase = "jsonpath={.status.phase}"
    return lab.kubectl("get", "reservation", "example-reservation", "-o", phase).stdout == "Reserved"


def _heading(text: str) -> None:
    typer.secho(f"\n{text}", bold=True)


def _kubectl(
    lab: "Lab", *args: str, stdin: str | None = None, until: "Callable[[], bool] | None" = None
) -> None:
    """Wait for `until`, run kubectl, and print the command with its output."""
    _wait_for(until)
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


def _wait_for(until: "Callable[[], bool] | None") -> None:
    import time

    deadline = time.monotonic() + TIMEOUT
    while until is not None and not until() and time.monotonic() < deadline:
        time.sleep(0.2)
