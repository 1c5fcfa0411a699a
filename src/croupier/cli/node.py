"""`croupier node`: the GPU agent of a node."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import terminal
from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.process_options import HealthAddress, LeaseNamespace, LogLevel, SettingsFrom
from croupier.cli.terminal import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from croupier.wiring.node import CardSource, NodeProcessOptions


def node(
    *,
    cards: Annotated[
        str,
        typer.Option(
            metavar="nvml|simulated=CARDS",
            help="The cards: from the driver, or simulated (MODEL:COUNT or a YAML file).",
        ),
    ],
    node: Annotated[
        str | None,
        typer.Option(metavar="NODE", envvar="NODE_NAME", help="The node of this agent; default $NODE_NAME."),
    ] = None,
    fleet: Annotated[
        str | None,
        typer.Option(
            metavar="SELECTOR", help="Act as the agent of all simulated nodes that match this label selector."
        ),
    ] = None,
    kubelet: Annotated[Path, typer.Option(metavar="DIR", help="The kubelet's root directory.")] = Path(
        "/var/lib/kubelet"
    ),
    host: Annotated[
        Path, typer.Option(metavar="DIR", help="The node's root directory, for device nodes and CDI files.")
    ] = Path("/"),
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory for state that survives restarts.")
    ] = None,
    faults: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Faults of simulated cards; re-read while running.")
    ] = None,
    cdi: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write CDI files of simulated cards to this directory."),
    ] = None,
    nvml: Annotated[
        str | None, typer.Option(metavar="FILE", help="The driver's library; default libnvidia-ml.so.1.")
    ] = None,
    mps: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Directory of MPS daemons, shared with `croupier mps` on the node."),
    ] = Path("/run/croupier/mps"),
    mps_control: Annotated[
        str, typer.Option(metavar="FILE", help="The driver's program for MPS commands.")
    ] = "nvidia-cuda-mps-control",
    static_partitions: Annotated[
        bool,
        typer.Option(
            "--static-partitions/--no-static-partitions",
            help="Use static partitions of MPS where the driver has them (CUDA 13.1 and later).",
        ),
    ] = True,
    hami_core: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The node's directory with libvgpu.so and ld.so.preload of HAMi-core."
        ),
    ] = None,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Interval between card checks.")] = 3.0,
    heartbeat: Annotated[float, typer.Option(metavar="SECONDS", help="Interval between heartbeats.")] = 10.0,
    recut_deadline: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Timeout after which the repartitioning of a card is rolled back."
        ),
    ] = 120.0,
    settings: SettingsFrom = None,
    lease_namespace: LeaseNamespace = DEFAULT_NAMESPACE,
    health: HealthAddress = ":8084",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Run the GPU agent of this node: report card health, partition cards, and serve the device plugin.

    The partition layout comes from the node's annotation run.ai/mig.config or from the pool of a card.

    \b
    croupier node --node worker-1 --cards nvml
    croupier node --node worker-1 --cards simulated=SIM-70GB:4
    croupier node --fleet nvidia.com/gpu.present=true --cards simulated=H100:8
    """
    from croupier.cli import process_options
    from croupier.wiring import node as wired

    terminal.check_seconds({"every": every, "heartbeat": heartbeat, "recut-deadline": recut_deadline})
    if (node is None) == (fleet is None):
        terminal.usage_error("set either --node or --fleet.")
    source, _, which = cards.partition("=")
    wish = wired.NodeProcessOptions(
        source=_source(source, which, fleet),
        cards=which,
        node=node or "",
        fleet=fleet,
        kubelet=kubelet,
        host=host,
        state=state,
        faults=faults,
        cdi=_cdi_folder(cdi, source, fleet),
        library=nvml,
        mps=mps,
        mps_program=mps_control,
        static_partitions=static_partitions,
        hami_core=_absolute("--hami-core", hami_core),
        every=every,
        beat=heartbeat,
        deadline=recut_deadline,
    )
    _check(wish)
    wanted = process_options.parse(
        namespace=lease_namespace,
        health=health,
        cluster=(kubeconfig, context),
        origin=settings,
        log_level=log_level,
    )
    process_options.start(lambda: wired.work(wanted, wish), log_level)


def _source(source: str, which: str, fleet: str | None) -> "CardSource":
    if source == "nvml" and not which and fleet is None:
        return "nvml"
    if source != "simulated" or not which:
        allowed = "simulated=MODEL:COUNT, such as simulated=H100:8"
        prefix = "must be nvml or " if fleet is None else "with --fleet it must be "
        terminal.usage_error(f"--cards {source}: {prefix}{allowed}.")
    return "simulated"


def _cdi_folder(folder: Path | None, source: str, fleet: str | None) -> Path | None:
    if folder is not None and (source == "nvml" or fleet is not None):
        terminal.usage_error(
            "--cdi: only for the simulated cards of one node. NVIDIA's toolkit writes the CDI files of real "
            "cards (nvidia-ctk cdi generate), and a fleet has no container runtime."
        )
    return folder


def _absolute(option: str, path: Path | None) -> Path | None:
    if path is not None and not path.is_absolute():
        terminal.usage_error(f"{option} {path}: must be an absolute path on the node.")
    return path


def _check(wish: "NodeProcessOptions") -> None:
    """Exit with code 2 if the cards are invalid."""
    from croupier.node.cards.card_driver import CardError
    from croupier.wiring import node as wired

    try:
        wired.check(wish)
    except CardError as error:
        terminal.usage_error(f"--cards: {error}.")
