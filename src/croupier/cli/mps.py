"""`croupier mps`: the MPS control daemons of a node."""

from pathlib import Path
from typing import Annotated

import typer

from croupier.cli import terminal
from croupier.cli.process_options import LogLevel


def mps(
    *,
    folder: Annotated[
        Path, typer.Option("--folder", metavar="DIR", help="Directory shared with the agent of the node.")
    ] = Path("/run/croupier/mps"),
    control: Annotated[
        str, typer.Option("--control", metavar="FILE", help="The driver's MPS control program.")
    ] = "nvidia-cuda-mps-control",
    log_level: LogLevel = None,
) -> None:
    """Start and reap the MPS control daemons that `croupier node` asks for on this node.

    The daemons end with the container of this process, and with them the CUDA programs of all pods that have
    shares of cards. Run it once per node, apart from the agent, and restart it only on a drained node.

    \b
    croupier mps --folder /run/croupier/mps
    """
    from croupier.kube.serving import logs
    from croupier.node.mps import mps_supervisor

    if not folder.is_absolute():
        terminal.usage_error(f"--folder {folder}: must be an absolute path, the same for the agent.")
    try:
        logs.setup(level=log_level or "info")
    except ValueError as bad:
        terminal.usage_error(f"--log-level: {bad}.")
    if not mps_supervisor.supervise(folder, control):
        terminal.fail(f"another `croupier mps` already uses {folder}")
