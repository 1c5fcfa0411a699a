"""Croupier itself in a lab: its kinds, its processes, and a kube-scheduler that asks it.

The processes belong to the lab like any other part: recorded, shown by `status`, ended by `down`.
"""

import asyncio
import json
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from croupier.admission import policy
from croupier.api import crds
from croupier.book.manager import Book
from croupier.core.pods.request import GPU, MARK
from croupier.extender import configuration
from croupier.extender.configuration import Wish
from croupier.lab import borrowed, controlplane, kubeconfig, ports, process
from croupier.lab.controlplane import SCHEDULER
from croupier.lab.errors import LabError
from croupier.lab.lab import Lab
from croupier.lab.probe import Endpoint
from croupier.lab.process import Process, Program
from croupier.lab.progress import Progress

NAMESPACE: Final = "d8-gpu-operator"
EXTENDER: Final = "croupier-extender"
MANAGER: Final = "croupier-manager"
WEBHOOK: Final = "croupier-webhook"
ACCOUNT: Final = "croupier-lab"
LOOPBACK: Final = "127.0.0.1"
WITHIN: Final = 60.0
POLL: Final = 0.1
PROGRAM: Final = (sys.executable, "-m", "croupier.cli")


async def join(  # noqa: PLR0913  # what runs, and how: the choices a lab has
    lab: Lab,
    book: Book,
    show: Progress,
    *,
    strategy: str = "Spread",
    webhook: bool = False,
    cards: bool = False,
    kubeconfigs: Mapping[str, Path] | None = None,
) -> None:
    """Let Croupier deal the cards of this lab, with that book. Where it does already, nothing changes.

    With `webhook` new pods are repaired and marked, too, and those that nobody marked are refused.
    With `cards` there is somebody who keeps an inventory of them and puts them into pools.
    `kubeconfigs` says as whom each process speaks; an account that may do everything where it says nothing.
    """
    wanted = [EXTENDER, *([MANAGER] if book == "CRD" or cards else ()), *([WEBHOOK] if webhook else ())]
    if {one.name for one in _ours(lab) if process.alive(one)} == set(wanted):
        return
    await leave(lab)
    show.step(f"Starting {', '.join(name.replace('-', ' ') for name in wanted)}")
    await asyncio.to_thread(borrowed.install, lab.cluster, crds.definitions())
    speaker = await asyncio.to_thread(account, lab)
    placing, guarding, *health = ports.free(2 + len(wanted), chance=random.Random())  # noqa: S311 (ports, no secret)
    options = {
        EXTENDER: _keeping(book, strategy, f"--listen={LOOPBACK}:{placing}"),
        MANAGER: _keeping(book, strategy, f"--controllers={'all' if cards else 'ledger,limits'}"),
        WEBHOOK: (f"--listen={LOOPBACK}:{guarding}", f"--url=https://{LOOPBACK}:{guarding}", "--drain=0"),
    }
    checks = dict(zip(wanted, health, strict=True))
    for name, check in checks.items():
        speaking = f"--kubeconfig={(kubeconfigs or {}).get(name, speaker)}"
        start(lab, name, speaking, f"--health={LOOPBACK}:{check}", *options[name])
    lab.remember(ports={**lab.record.ports, EXTENDER: placing, WEBHOOK: guarding})
    await answer(lab, checks)
    await _ask(lab, f"http://{LOOPBACK}:{placing}")
    if webhook:
        await _guard(lab)


async def leave(lab: Lab) -> None:
    """Stop our processes. The scheduler goes on asking, so pods that want cards wait, or are refused."""
    await asyncio.gather(*(process.stop(one) for one in _ours(lab)))
    lab.remember(processes=tuple(one for one in lab.record.processes if one not in _ours(lab)))


def _ours(lab: Lab) -> list[Process]:
    return [one for one in lab.record.processes if one.name in (EXTENDER, MANAGER, WEBHOOK)]


def account(lab: Lab) -> Path:
    """A service account and its token: what pods have, and cheaper to check than a certificate."""
    lab.kubectl("create", "namespace", NAMESPACE, check=False)
    lab.kubectl("create", "serviceaccount", ACCOUNT, "-n", NAMESPACE, check=False)
    admin = ("--clusterrole=cluster-admin", f"--serviceaccount={NAMESPACE}:{ACCOUNT}")
    lab.kubectl("create", "clusterrolebinding", ACCOUNT, *admin, check=False)
    token = lab.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=8760h").stdout.strip()
    return kubeconfig.with_token(
        lab.folder / f"{ACCOUNT}.kubeconfig", lab.kubeconfig, user=ACCOUNT, token=token
    )


def _keeping(book: Book, strategy: str, *more: str) -> tuple[str, ...]:
    return (f"--capacity-manager={book}", f"--strategy={strategy}", *more)


def start(lab: Lab, name: str, *options: str) -> None:
    verb = name.removeprefix("croupier-")
    program = Program(name, (*PROGRAM, verb, *options))
    lab.adopt(process.start(program, lab.logs))


async def answer(lab: Lab, checks: Mapping[str, int]) -> None:
    deadline = time.monotonic() + WITHIN
    for name, check in checks.items():
        await lab.answers(name, Endpoint(f"http://{LOOPBACK}:{check}/readyz"), deadline, within=WITHIN)


async def _ask(lab: Lab, url: str) -> None:
    """From now on the scheduler asks us."""
    wanted = controlplane.scheduler_configuration(lab.site, configuration.configuration(Wish(url=url)))
    (lab.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(wanted))
    await lab.start(SCHEDULER)
    await lab.ready([SCHEDULER])


async def _guard(lab: Lab) -> None:
    """Let the API server hold the mark itself, and wait until it asks the webhook."""
    wanted = {"apiVersion": "v1", "kind": "List", "items": policy.documents()}
    await asyncio.to_thread(lab.kubectl, "apply", "-f", "-", stdin=json.dumps(wanted))
    deadline = time.monotonic() + WITHIN
    while not await asyncio.to_thread(_marks, lab):
        if time.monotonic() > deadline:
            raise LabError(f"the API server of lab {lab.name} does not ask croupier webhook.")
        await asyncio.sleep(POLL)


def _marks(lab: Lab) -> bool:
    container = {"name": "main", "image": "any", "resources": {"limits": {GPU: "1"}}}
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [container]},
    }
    answer = lab.kubectl(
        "create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(probe), check=False
    )
    return MARK in answer.stdout
