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

from croupier.admission import annotation_policy, guard_policy, mark_policy
from croupier.api import crds
from croupier.capacity.manager import CapacityManagerKind
from croupier.core.model.namespaces import DEFAULT_NAMESPACE
from croupier.core.pods.request_parser import GPU, LEDGER
from croupier.ops import scheduler_config
from croupier.ops.scheduler_config import SchedulerConfigOptions
from croupier_lab import controlplane, kubeconfig, ports, process, shared_cluster
from croupier_lab.controlplane import SCHEDULER
from croupier_lab.errors import LabError
from croupier_lab.lab import Lab
from croupier_lab.probe import Endpoint
from croupier_lab.process import LabProcess, Program
from croupier_lab.progress import ProgressReporter

NAMESPACE: Final = DEFAULT_NAMESPACE
EXTENDER: Final = "croupier-extender"
MANAGER: Final = "croupier-manager"
WEBHOOK: Final = "croupier-webhook"
ACCOUNT: Final = "croupier-lab"
LOOPBACK: Final = "127.0.0.1"
TIMEOUT: Final = 60.0
POLL: Final = 0.1
PROGRAM: Final = (sys.executable, "-m", "croupier.cli")


async def start_croupier(  # noqa: PLR0913  # the options of a lab
    lab: Lab,
    book: CapacityManagerKind,
    show: ProgressReporter,
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
    if {running.name for running in _processes(lab) if process.alive(running)} == set(wanted):
        return
    await stop_croupier(lab)
    show.step(f"Starting {', '.join(name.replace('-', ' ') for name in wanted)}")
    await asyncio.to_thread(shared_cluster.install, lab.cluster, crds.definitions())
    default_kubeconfig = await asyncio.to_thread(create_account, lab)
    extender_port, webhook_port, *health = ports.free(2 + len(wanted), chance=random.Random())  # noqa: S311 (ports, no secret)
    options = {
        EXTENDER: _capacity_options(book, strategy, f"--listen={LOOPBACK}:{extender_port}"),
        MANAGER: _capacity_options(book, strategy, f"--controllers={'all' if cards else 'ledger,limits'}"),
        WEBHOOK: (
            f"--listen={LOOPBACK}:{webhook_port}",
            f"--url=https://{LOOPBACK}:{webhook_port}",
            "--drain=0",
        ),
    }
    checks = dict(zip(wanted, health, strict=True))
    for name, check in checks.items():
        config = f"--kubeconfig={(kubeconfigs or {}).get(name, default_kubeconfig)}"
        start_process(lab, name, config, f"--health={LOOPBACK}:{check}", *options[name])
    lab.remember(ports={**lab.record.ports, EXTENDER: extender_port, WEBHOOK: webhook_port})
    await wait_until_ready(lab, checks)
    await _configure_scheduler(lab, f"http://{LOOPBACK}:{extender_port}")
    if webhook:
        await _enable_webhook(lab)


async def stop_croupier(lab: Lab) -> None:
    """Stop Croupier. kube-scheduler keeps calling the extender, so pods that request cards stay pending."""
    stopping = _processes(lab)
    await asyncio.gather(*(process.stop(running) for running in stopping))
    lab.remember(processes=tuple(other for other in lab.record.processes if other not in stopping))


def _processes(lab: Lab) -> list[LabProcess]:
    names = (EXTENDER, MANAGER, WEBHOOK)
    return [running for running in lab.record.processes if running.name in names]


def create_account(lab: Lab) -> Path:
    """Create a service account with cluster-admin; returns a kubeconfig with its token."""
    lab.kubectl("create", "namespace", NAMESPACE, check=False)
    lab.kubectl("create", "serviceaccount", ACCOUNT, "-n", NAMESPACE, check=False)
    admin = ("--clusterrole=cluster-admin", f"--serviceaccount={NAMESPACE}:{ACCOUNT}")
    lab.kubectl("create", "clusterrolebinding", ACCOUNT, *admin, check=False)
    token = lab.kubectl("create", "token", ACCOUNT, "-n", NAMESPACE, "--duration=8760h").stdout.strip()
    return kubeconfig.with_token(
        lab.folder / f"{ACCOUNT}.kubeconfig", lab.kubeconfig, user=ACCOUNT, token=token
    )


def _capacity_options(book: CapacityManagerKind, strategy: str, *more: str) -> tuple[str, ...]:
    return (f"--capacity-manager={book}", f"--strategy={strategy}", *more)


def start_process(lab: Lab, name: str, *options: str) -> None:
    verb = name.removeprefix("croupier-")
    program = Program(name, (*PROGRAM, verb, *options))
    lab.adopt(process.start(program, lab.logs))


async def wait_until_ready(lab: Lab, checks: Mapping[str, int]) -> None:
    deadline = time.monotonic() + TIMEOUT
    for name, check in checks.items():
        await lab.answers(name, Endpoint(f"http://{LOOPBACK}:{check}/readyz"), deadline, within=TIMEOUT)


async def _configure_scheduler(lab: Lab, url: str) -> None:
    """Restart kube-scheduler with the extender configured."""
    wanted = controlplane.scheduler_configuration(
        lab.site, scheduler_config.configuration(SchedulerConfigOptions(url=url))
    )
    (lab.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(wanted))
    await lab.start(SCHEDULER)
    await lab.ready([SCHEDULER])


async def _enable_webhook(lab: Lab) -> None:
    """Create the policies about pods, and wait until the API server calls the webhook."""
    policies = (
        *mark_policy.documents(),
        *guard_policy.grant_documents(),
        *guard_policy.guard_documents("Warn"),
        *annotation_policy.documents(),
    )
    wanted = {"apiVersion": "v1", "kind": "List", "items": policies}
    await asyncio.to_thread(lab.kubectl, "apply", "-f", "-", stdin=json.dumps(wanted))
    deadline = time.monotonic() + TIMEOUT
    while not await asyncio.to_thread(_is_marked, lab):
        if time.monotonic() > deadline:
            raise LabError(f"the API server of lab {lab.name} does not call croupier webhook.")
        await asyncio.sleep(POLL)


def _is_marked(lab: Lab) -> bool:
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
    return LEDGER in created.stdout
