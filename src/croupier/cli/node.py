"""`croupier node`: the agent of a node with cards."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import terminal
from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.process import HealthAddress, LeaseNamespace, LogLevel, SettingsFrom

if TYPE_CHECKING:
    from croupier.wiring.node import Source, Wish

LONGEST = 3600.0


def node(
    *,
    cards: Annotated[
        str,
        typer.Option(
            metavar="nvml|simulated=CARDS",
            help="Where cards come from: the driver, or MODEL:COUNT or a YAML file of simulated ones.",
        ),
    ],
    node: Annotated[
        str | None, typer.Option(metavar="NODE", envvar="NODE_NAME", help="Whose cards; else $NODE_NAME.")
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(metavar="SELECTOR", help="Play the node side of all these simulated nodes, by label."),
    ] = None,
    kubelet: Annotated[
        Path, typer.Option(metavar="DIR", help="The kubelet's folder, with its sockets.")
    ] = Path("/var/lib/kubelet"),
    host: Annotated[
        Path, typer.Option(metavar="DIR", help="The node's root folder, for its device nodes and CDI files.")
    ] = Path("/"),
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="What must outlive the agent is kept there.")
    ] = None,
    faults: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Trouble for simulated cards; read while it runs.")
    ] = None,
    cdi: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Describe simulated cards for the node's container runtime there."),
    ] = None,
    nvml: Annotated[
        str | None, typer.Option(metavar="FILE", help="The driver's library, if not libnvidia-ml.so.1.")
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between looks at the cards.")] = 3.0,
    heartbeat: Annotated[float, typer.Option(metavar="SECONDS", help="Between signs of life.")] = 10.0,
    recut_deadline: Annotated[
        float, typer.Option(metavar="SECONDS", help="What a change of one card may take before it is undone.")
    ] = 120.0,
    settings: SettingsFrom = None,
    lease_namespace: LeaseNamespace = "d8-gpu-operator",
    health: HealthAddress = ":8084",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Serve the cards of this node: look after them, cut them as asked, offer them to the kubelet.

    What is asked stands in the node's annotation run.ai/mig.config, or in the pool of a card.

    \b
    croupier node --node worker-1 --cards nvml
    croupier node --node worker-1 --cards simulated=SIM-70GB:4
    croupier node --fleet nvidia.com/gpu.present=true --cards simulated=H100:8
    """
    from croupier.cli import process
    from croupier.wiring import node as wired

    for name, seconds in {"every": every, "heartbeat": heartbeat, "recut-deadline": recut_deadline}.items():
        if not 0 < seconds <= LONGEST:
            terminal.refuse(f"--{name} {seconds:g}: it is above 0 and up to {LONGEST:g} seconds.")
    if (node is None) == (fleet is None):
        terminal.refuse("say either which --node, or which --fleet of simulated nodes.")
    source, _, which = cards.partition("=")
    wish = wired.Wish(
        source=_source(source, which, fleet),
        cards=which,
        node=node or "",
        fleet=fleet,
        kubelet=kubelet,
        host=host,
        state=state,
        faults=faults,
        cdi=_described(cdi, source, fleet),
        library=nvml,
        every=every,
        beat=heartbeat,
        deadline=recut_deadline,
    )
    _check(wish)
    wanted = process.settings(
        namespace=lease_namespace,
        health=health,
        cluster=(kubeconfig, context),
        origin=settings,
        log_level=log_level,
    )
    process.start(lambda: wired.work(wanted, wish), log_level)


def _source(source: str, which: str, fleet: str | None) -> "Source":
    if source == "nvml" and not which and fleet is None:
        return "nvml"
    if source != "simulated" or not which:
        what = "simulated=MODEL:COUNT, such as simulated=H100:8"
        driven = "nvml, or " if fleet is None else "for a fleet "
        terminal.refuse(f"--cards {source}: it is {driven}{what}.")
    return "simulated"


def _described(folder: Path | None, source: str, fleet: str | None) -> Path | None:
    if folder is not None and (source == "nvml" or fleet is not None):
        terminal.refuse(
            "--cdi: it is for the simulated cards of one node. Real ones are described by NVIDIA's toolkit "
            "(nvidia-ctk cdi generate), and a fleet has no container runtime."
        )
    return folder


def _check(wish: "Wish") -> None:
    """What cannot be meant is said before anything starts."""
    from croupier.node.cards.cards import CardError
    from croupier.wiring import node as wired

    try:
        wired.check(wish)
    except CardError as error:
        terminal.refuse(f"--cards: {error}.")
