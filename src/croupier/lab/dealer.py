"""Run Croupier in a lab: its CRDs, its processes, and a kube-scheduler that calls the extender.

The processes belong to the lab: they are recorded, shown by `status` and stopped by `down`.
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


async def join(  # noqa: PLR0913  # the options of a lab
    lab: Lab,
    book: Book,
    show: Progress,
    *,
    strategy: str = "Spread",
    webhook: bool = False,
    cards: bool = False,
    kubeconfigs: Mapping[str, Path] | None = None,
) -> None:
    """Start Croupier with this capacity manager. Does nothing if the same processes already run.

    `webhook` also starts the admission webhook and the policy that rejects unmarked pods. `cards` also
    starts the inventory and pool controllers. `kubeconfigs` sets the kubeconfig per process; the default is
    an account with cluster-admin.
    """
    wanted = [EXTENDER, *([MANAGER] if book == "CRD" or cards else ()), *([WEBHOOK] if webhook else ())]
    if {running.name for running in _ours(lab) if process.alive(running)} == set(wanted):
        return
    await leave(lab)
    show.step(f"Starting {', '.join(name.replace('-', ' ') for name in wanted)}")
    await asyncio.to_thread(borrowed.install, lab.cluster, crds.definitions())
    default_kubeconfig = await asyncio.to_thread(account, lab)
    extender_port, webhook_port, *health = ports.free(2 + len(wanted), chance=random.Random())  # noqa: S311 (ports, no secret)
    options = {
        EXTENDER: _keeping(book, strategy, f"--listen={LOOPBACK}:{extender_port}"),
        MANAGER: _keeping(book, strategy, f"--controllers={'all' if cards else 'ledger,limits'}"),
        WEBHOOK: (
            f"--listen={LOOPBACK}:{webhook_port}",
            f"--url=https://{LOOPBACK}:{webhook_port}",
            "--drain=0",
        ),
    }
    checks = dict(zip(wanted, health, strict=True))
    for name, check in checks.items():
        config = f"--kubeconfig={(kubeconfigs or {}).get(name, default_kubeconfig)}"
        start(lab, name, config, f"--health={LOOPBACK}:{check}", *options[name])
    lab.remember(ports={**lab.record.ports, EXTENDER: extender_port, WEBHOOK: webhook_port})
    await answer(lab, checks)
    await _ask(lab, f"http://{LOOPBACK}:{extender_port}")
    if webhook:
        await _guard(lab)


async def leave(lab: Lab) -> None:
    """Stop Croupier. kube-scheduler keeps calling the extender, so pods that request cards stay pending."""
    stopping = _ours(lab)
    await asyncio.gather(*(process.stop(running) for running in stopping))
    lab.remember(processes=tuple(other for other in lab.record.processes if other not in stopping))


def _ours(lab: Lab) -> list[Process]:
    names = (EXTENDER, MANAGER, WEBHOOK)
    return [running for running in lab.record.processes if running.name in names]


def account(lab: Lab) -> Path:
    """Create a service account with cluster-admin; returns a kubeconfig with its token."""
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
    """Restart kube-scheduler with the extender configured."""
    wanted = controlplane.scheduler_configuration(lab.site, configuration.configuration(Wish(url=url)))
    (lab.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(wanted))
    await lab.start(SCHEDULER)
    await lab.ready([SCHEDULER])


async def _guard(lab: Lab) -> None:
    """Create the policy that requires the mark, and wait until the API server calls the webhook."""
    wanted = {"apiVersion": "v1", "kind": "List", "items": policy.documents()}
    await asyncio.to_thread(lab.kubectl, "apply", "-f", "-", stdin=json.dumps(wanted))
    deadline = time.monotonic() + WITHIN
    while not await asyncio.to_thread(_marks, lab):
        if time.monotonic() > deadline:
            raise LabError(f"the API server of lab {lab.name} does not call croupier webhook.")
        await asyncio.sleep(POLL)


def _marks(lab: Lab) -> bool:
    container = {"name": "main", "image": "any", "resources": {"limits": {GPU: "1"}}}
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [container]},
    }
    created = lab.kubectl(
        "create", "--dry-run=server", "-o", "json", "-f", "-", stdin=json.dumps(probe), check=False
    )
    return MARK in created.stdout
