"""`croupier node` in a lab: the agent of the real node, and one agent for all simulated nodes.

The processes belong to the lab: they are recorded, shown by `status` and stopped by `down`.
"""

import asyncio
import random
from pathlib import Path
from typing import Final

from croupier_lab import croupier_processes, ports, process, realnode
from croupier_lab.croupier_processes import LOOPBACK
from croupier_lab.errors import LabError
from croupier_lab.lab import Lab
from croupier_lab.process import Program
from croupier_lab.progress import ProgressReporter

NODE: Final = "croupier-node"
FLEET: Final = "croupier-fleet"
SIMULATED: Final = "nvidia.com/gpu.product,kubernetes.io/hostname!={real}"
FAULTS: Final = "faults.yaml"


def folder(lab: Lab) -> Path:
    """Folder with the partitions and the injected faults of simulated cards."""
    return lab.folder / "cards"


async def start_node_agent(lab: Lab, cards: str, show: ProgressReporter) -> None:
    """Start the agent of the real node with simulated cards, `MODEL:COUNT`."""
    if lab.record.real_node is None:
        raise LabError(f"Lab {lab.name} has no real node for the cards: add --real-node.")
    here = realnode.paths_of(lab)
    await _start(
        lab,
        NODE,
        show,
        f"--node={lab.record.real_node}",
        f"--cards=simulated={cards}",
        f"--kubelet={here.plugins}",
        f"--cdi={here.cdi}",
    )


async def start_fleet(lab: Lab, show: ProgressReporter, *, heartbeat: float) -> None:
    """Start one agent for all simulated nodes; their cards follow from the node labels."""
    selector, beat = SIMULATED.format(real=realnode.NAME), f"--heartbeat={heartbeat:g}"
    await _start(lab, FLEET, show, f"--fleet={selector}", "--cards=simulated=labels", beat)


async def _start(lab: Lab, name: str, show: ProgressReporter, *options: str) -> None:
    """Start the agent, or restart it; the state of its cards is kept on disk."""
    for old in (running for running in lab.record.processes if running.name == name):
        await process.stop(old)
    show.step(f"Starting {name.replace('-', ' ')}")
    kubeconfig = await asyncio.to_thread(croupier_processes.create_account, lab)
    (check,) = ports.free(1, chance=random.Random())  # noqa: S311 (ports, no secret)
    folder(lab).mkdir(parents=True, exist_ok=True)
    arguments = (
        f"--kubeconfig={kubeconfig}",
        f"--health={LOOPBACK}:{check}",
        f"--state={folder(lab)}",
        f"--faults={folder(lab) / FAULTS}",
    )
    lab.adopt(
        process.start(Program(name, (*croupier_processes.PROGRAM, "node", *arguments, *options)), lab.logs)
    )
    await croupier_processes.wait_until_ready(lab, {name: check})
