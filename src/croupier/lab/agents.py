"""The node side of a lab's cards: `croupier node` on the real node, and for the simulated ones.

Like the dealer's, these processes belong to the lab: recorded, shown by `status`, ended by `down`.
"""

import asyncio
import random
from pathlib import Path
from typing import Final

from croupier.lab import dealer, ports, process, realnode
from croupier.lab.dealer import LOOPBACK
from croupier.lab.errors import LabError
from croupier.lab.lab import Lab
from croupier.lab.process import Program
from croupier.lab.progress import Progress

NODE: Final = "croupier-node"
FLEET: Final = "croupier-fleet"
SIMULATED: Final = "nvidia.com/gpu.product,kubernetes.io/hostname!={real}"
FAULTS: Final = "faults.yaml"


def folder(lab: Lab) -> Path:
    """Where simulated cards keep how they are cut, and where trouble for them is written."""
    return lab.folder / "cards"


async def serve(lab: Lab, cards: str, show: Progress) -> None:
    """Give the real node simulated cards, `MODEL:COUNT`, and an agent that looks after them."""
    if lab.record.real_node is None:
        raise LabError(f"Lab {lab.name} has no real node to have cards: add --real-node.")
    here = realnode.ground(lab)
    await _start(
        lab,
        NODE,
        show,
        f"--node={lab.record.real_node}",
        f"--cards=simulated={cards}",
        f"--kubelet={here.plugins}",
        f"--cdi={here.cdi}",
    )


async def play(lab: Lab, show: Progress, *, heartbeat: float = 10.0) -> None:
    """Let every simulated node with cards live as if an agent were there: as its labels say it has them."""
    selector, beat = SIMULATED.format(real=realnode.NAME), f"--heartbeat={heartbeat:g}"
    await _start(lab, FLEET, show, f"--fleet={selector}", "--cards=simulated=labels", beat)


async def _start(lab: Lab, name: str, show: Progress, *options: str) -> None:
    """Anew if it runs: it finds its cards as they were."""
    for old in (one for one in lab.record.processes if one.name == name):
        await process.stop(old)
    show.step(f"Starting {name.replace('-', ' ')}")
    speaker = await asyncio.to_thread(dealer.account, lab)
    (check,) = ports.free(1, chance=random.Random())  # noqa: S311 (ports, no secret)
    folder(lab).mkdir(parents=True, exist_ok=True)
    words = (
        f"--kubeconfig={speaker}",
        f"--health={LOOPBACK}:{check}",
        f"--state={folder(lab)}",
        f"--faults={folder(lab) / FAULTS}",
    )
    lab.adopt(process.start(Program(name, (*dealer.PROGRAM, "node", *words, *options)), lab.logs))
    await dealer.answer(lab, {name: check})
