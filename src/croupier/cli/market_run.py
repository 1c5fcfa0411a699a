"""`croupier market run`: the CPU market agent of one node."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from croupier.cli import terminal
from croupier.cli.cluster import Context, Kubeconfig
from croupier.cli.process_options import HealthAddress, LeaseNamespace, LogLevel, SettingsFrom
from croupier.cli.terminal import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from croupier.core.market.policy import MarketPolicy


def run(
    *,
    node: Annotated[
        str, typer.Option(metavar="NODE", envvar="NODE_NAME", help="The node to manage; default $NODE_NAME.")
    ],
    cgroup_mount: Annotated[
        Path, typer.Option(metavar="DIR", help="Mount point of the node's cgroup file system.")
    ] = Path("/sys/fs/cgroup"),
    cgroup_root: Annotated[
        str | None, typer.Option(metavar="PATH", help="The kubelet's cgroupRoot; detected by default.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Compute limits but do not write them.")] = False,
    strict: Annotated[
        bool, typer.Option("--strict", help="Keep the sum of limits within the node's capacity.")
    ] = False,
    target: Annotated[int, typer.Option(metavar="PERCENT", help="Target CPU utilization of the node.")] = 90,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Interval between cgroup readings.")] = 1.0,
    heartbeat: Annotated[float, typer.Option(metavar="SECONDS", help="Interval between heartbeats.")] = 10.0,
    raise_after: Annotated[
        float, typer.Option(metavar="SECONDS", help="Minimum time between a change and the next increase.")
    ] = 10.0,
    lower_after: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            help="Minimum time between a change, throttling or a start and the next decrease.",
        ),
    ] = 60.0,
    keep_peaks: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the peak demand of an elastic pod counts.")
    ] = 120.0,
    keep_latency_peaks: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long the peak demand of a latency pod counts.")
    ] = 1800.0,
    settings: SettingsFrom = None,
    lease_namespace: LeaseNamespace = DEFAULT_NAMESPACE,
    health: HealthAddress = ":8083",
    log_level: LogLevel = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Adjust the CPU limits of this node's pods to their demand. Only pods labelled mbcas.io/managed: "true".

    The agent reads cgroups, so it runs on the node. It writes PodAllocations, which a controller applies.

    \b
    croupier market run --node worker-1 --dry-run
    croupier market run --node worker-1 --strict --target 80
    """
    from croupier.cli import process_options
    from croupier.node.market.cgroup import CgroupTree
    from croupier.node.market.market_agent import MarketAgentOptions
    from croupier.wiring import market as wired

    wanted = process_options.parse(
        namespace=lease_namespace,
        health=health,
        cluster=(kubeconfig, context),
        origin=settings,
        log_level=log_level,
    )
    times = {"every": every, "heartbeat": heartbeat, "raise-after": raise_after, "lower-after": lower_after}
    peaks = {"keep-peaks": keep_peaks, "keep-latency-peaks": keep_latency_peaks}
    terminal.check_seconds({**times, **peaks})
    if not 1 <= target <= 100:
        terminal.usage_error(f"--target {target}: must be 1 to 100 percent.")
    policy = _policy(
        strict=strict,
        target=target,
        churn=(raise_after, lower_after),
        peaks=(keep_peaks, keep_latency_peaks),
        ours=lease_namespace,
    )
    chosen = MarketAgentOptions(
        node, lease_namespace, policy, dry_run=dry_run, every=every, heartbeat=heartbeat
    )
    tree = CgroupTree(cgroup_mount, cgroup_root)
    process_options.start(lambda: wired.work(wanted, chosen, tree), log_level)


def _policy(
    *, strict: bool, target: int, churn: tuple[float, float], peaks: tuple[float, float], ours: str
) -> "MarketPolicy":
    from croupier.core.market.policy import PROTECTED_NAMESPACES, ChurnPolicy, MarketPolicy
    from croupier.core.market.units import SECOND

    up, down, elastic, latency = (int(seconds * SECOND) for seconds in (*churn, *peaks))
    return MarketPolicy(
        strict=strict,
        target=target * 10,
        elastic_peaks=elastic,
        latency_peaks=latency,
        churn=ChurnPolicy(up_after=up, down_after=down, quiet=down),
        protected=PROTECTED_NAMESPACES | {ours},
    )
