"""Croupier itself in a lab: its kinds, its processes, and a kube-scheduler that asks it.

The processes belong to the lab like any other part: recorded, shown by `status`, ended by `down`.
"""

import asyncio
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from croupier.api import crds
from croupier.book.manager import Book
from croupier.extender import configuration
from croupier.extender.configuration import Wish
from croupier.lab import borrowed, controlplane, ports, process
from croupier.lab.controlplane import SCHEDULER
from croupier.lab.lab import Lab
from croupier.lab.probe import Endpoint
from croupier.lab.process import Process, Program
from croupier.lab.progress import Progress

NAMESPACE: Final = "d8-gpu-operator"
EXTENDER: Final = "croupier-extender"
MANAGER: Final = "croupier-manager"
WITHIN: Final = 60.0


async def join(
    lab: Lab,
    book: Book,
    show: Progress,
    *,
    strategy: str = "Spread",
    kubeconfigs: Mapping[str, Path] | None = None,
) -> None:
    """Let Croupier deal the cards of this lab, with that book. Where it does already, nothing changes.

    `kubeconfigs` says as whom each process speaks; the lab's own person where it says nothing.
    """
    wanted = {EXTENDER, MANAGER} if book == "CRD" else {EXTENDER}
    if {one.name for one in _ours(lab) if process.alive(one)} == wanted:
        return
    await leave(lab)
    show.step("Starting croupier extender" + (" and croupier manager" if book == "CRD" else ""))
    await asyncio.to_thread(borrowed.install, lab.cluster, crds.definitions())
    await asyncio.to_thread(lab.kubectl, "create", "namespace", NAMESPACE, check=False)
    port, *health = ports.free(3, chance=random.Random())  # noqa: S311 (ports, no secret)
    checks = dict(zip(sorted(wanted), health, strict=False))
    for name, check in checks.items():
        options = [f"--capacity-manager={book}", f"--strategy={strategy}", f"--health=127.0.0.1:{check}"]
        if name == EXTENDER:
            options.append(f"--listen=127.0.0.1:{port}")
        _start(lab, name, f"--kubeconfig={(kubeconfigs or {}).get(name, lab.kubeconfig)}", *options)
    lab.remember(ports={**lab.record.ports, EXTENDER: port})
    deadline = time.monotonic() + WITHIN
    for name, check in checks.items():
        endpoint = Endpoint(f"http://127.0.0.1:{check}/readyz")
        await lab.answers(name, endpoint, deadline, within=WITHIN)
    await _ask(lab, f"http://127.0.0.1:{port}")


async def leave(lab: Lab) -> None:
    """Stop our processes. The scheduler goes on asking, so pods that want cards wait."""
    await asyncio.gather(*(process.stop(one) for one in _ours(lab)))
    lab.remember(processes=tuple(one for one in lab.record.processes if one not in _ours(lab)))


def _ours(lab: Lab) -> list[Process]:
    return [one for one in lab.record.processes if one.name in (EXTENDER, MANAGER)]


def _start(lab: Lab, name: str, *options: str) -> None:
    verb = name.removeprefix("croupier-")
    program = Program(name, (sys.executable, "-m", "croupier.cli", verb, *options))
    lab.adopt(process.start(program, lab.logs))


async def _ask(lab: Lab, url: str) -> None:
    """From now on the scheduler asks us."""
    wanted = controlplane.scheduler_configuration(lab.site, configuration.configuration(Wish(url=url)))
    (lab.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(wanted))
    await lab.start(SCHEDULER)
    await lab.ready([SCHEDULER])
