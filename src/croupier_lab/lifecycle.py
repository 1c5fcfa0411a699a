"""Start and stop labs.

The record is written before the first component starts and after each one, so that the next `up`, `down` or
test run can clean up after a crash.
"""

import asyncio
import contextlib
import os
import random
import shutil
import signal
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from croupier_lab import (
    certificates,
    controlplane,
    kubeconfig,
    lock,
    pinned,
    ports,
    process,
    provisioning,
    record,
    user_dirs,
)
from croupier_lab.binaries import BinarySources
from croupier_lab.controlplane import API_COMPONENTS, API_SERVER, COMPONENTS, ETCD, SCHEDULER
from croupier_lab.errors import LabError
from croupier_lab.lab import Lab, PortClashError
from croupier_lab.progress import ProgressReporter
from croupier_lab.provisioning import ProvisionedBinaries
from croupier_lab.record import LabRecord, LabState

ATTEMPTS = 4
OWNER_GRACE = 60.0
# Without durable data there is no need to wait for the graceful shutdown of the API server.
API_SERVER_GRACE = 3.0


@dataclass(frozen=True, slots=True)
class LabPlan:
    """The requested lab."""

    name: str = user_dirs.DEFAULT_NAME
    folder: Path | None = None
    parts: tuple[str, ...] = COMPONENTS
    durable: bool = False
    pods_run: bool = True
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    """A KubeSchedulerConfiguration, for example with an extender."""
    sources: BinarySources = field(default_factory=BinarySources)
    timeout: float = 60.0

    @property
    def place(self) -> Path:
        return self.folder or user_dirs.labs(self.sources.env) / self.name


async def up(
    plan: LabPlan, show: ProgressReporter, *, chance: random.Random | None = None
) -> tuple[Lab, bool]:
    """The lab, and whether it was started now (False: it was already running)."""
    async with _locked(plan.place, show):
        if old := record.load(plan.place):
            if record.state(old) is LabState.RUNNING:
                return Lab(old), False
            show.say(f"Lab {old.name} was not stopped properly: cleaning up")
            await stop(Lab(old))
        shutil.rmtree(plan.place, ignore_errors=True)
        stock = await provisioning.ensure(_programs(plan.parts), plan.sources, show, pods_run=plan.pods_run)
        return await _start_with_retries(plan, stock, show, chance or random.Random()), True  # noqa: S311 (ports, no secret)


async def down(folder: Path, show: ProgressReporter) -> bool:
    """Stop the lab in `folder`, also if another process owns it. False if there is none. Keeps the logs."""
    await _stop_owner(folder, show)
    async with _locked(folder, show):
        old = record.load(folder)
        if old is None:
            return False
        await stop(Lab(old))
        return True


async def join_real_node(
    lab: Lab, sources: BinarySources, show: ProgressReporter, settings: Mapping[str, Any] | None = None
) -> str:
    """Join this machine as a node with these kubelet settings; returns the name of the node."""
    from croupier_lab import realnode  # noqa: PLC0415 (most labs have none)

    if reason := realnode.obstacle():
        raise LabError(reason)
    stock = await provisioning.ensure(pinned.REAL_NODE_PROGRAMS, sources, show)
    paths = {name: str(path) for name, path in stock.binaries.items()}
    # Recorded first, so that the mounts of an interrupted join are cleaned up later.
    lab.remember(real_node=realnode.NAME, binaries={**lab.record.binaries, **paths})
    show.step("Joining this machine as a real node")
    lab.adopt(*await realnode.join(lab, realnode.NAME, settings))
    return realnode.NAME


async def remove_real_node(lab: Lab) -> None:
    """Undo `join_real_node`; the lab keeps running and the node can join again."""
    from croupier_lab import realnode  # noqa: PLC0415 (most labs have none)

    await realnode.leave(lab)
    await asyncio.to_thread(lab.kubectl, "delete", "node", realnode.NAME, "--ignore-not-found")
    lab.remember(real_node=None)


def existing(env: Mapping[str, str]) -> list[LabRecord]:
    """The records of all named labs."""
    folder = user_dirs.labs(env)
    folders = sorted(folder.iterdir()) if folder.is_dir() else []
    return [stored for stored in map(record.load, folders) if stored is not None]


def detach(lab: Lab) -> None:
    """Remove the owner: the lab runs until `down`."""
    lab.remember(owner=None)


def _locked(folder: Path, show: ProgressReporter) -> AbstractAsyncContextManager[None]:
    waiting = f"Another process is using lab {folder.name}: waiting for it to finish"
    return lock.held(folder.parent / f".{folder.name}.lock", on_wait=lambda: show.say(waiting))


async def _start_with_retries(
    plan: LabPlan, stock: ProvisionedBinaries, show: ProgressReporter, chance: random.Random
) -> Lab:
    for _ in range(ATTEMPTS - 1):
        try:
            return await _attempt(plan, stock, show, chance)
        except PortClashError:
            show.say("Another program took one of the chosen ports: trying other ports")
    return await _attempt(plan, stock, show, chance)


async def _attempt(
    plan: LabPlan, stock: ProvisionedBinaries, show: ProgressReporter, chance: random.Random
) -> Lab:
    lab = Lab(_first_record(plan, stock, chance))
    lab.remember(owner=record.current_process())
    try:
        _prepare(lab, plan)
        await _start(lab, plan, show)
    except BaseException:
        await asyncio.shield(stop(lab))
        raise
    lab.remember(ready=True)
    return lab


def _first_record(plan: LabPlan, stock: ProvisionedBinaries, chance: random.Random) -> LabRecord:
    return LabRecord(
        name=plan.name,
        folder=str(plan.place),
        parts=plan.parts,
        ports=dict(zip(controlplane.PORTS, ports.free(len(controlplane.PORTS), chance=chance), strict=True)),
        binaries={name: str(path) for name, path in stock.binaries.items()},
        stages=tuple(map(str, stock.stages)),
        durable=plan.durable,
        extra=plan.extra,
    )


def _prepare(lab: Lab, plan: LabPlan) -> None:
    site = lab.site
    site.folder.chmod(0o700)
    certificates.create(site.pki, now=datetime.now(UTC))
    for part in ("admin", *(part for part in lab.record.parts if part not in API_COMPONENTS)):
        kubeconfig.write(
            site.kubeconfig(part),
            server=site.server,
            name=f"croupier-{lab.name}",
            authority=site.authority,
            pair=site.pair(part),
        )
    configuration = controlplane.scheduler_configuration(site, plan.scheduler)
    (site.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(configuration))


async def _start(lab: Lab, plan: LabPlan, show: ProgressReporter) -> None:
    show.step(f"Starting {' and '.join(API_COMPONENTS)}")
    for part in API_COMPONENTS:
        await lab.start(part)
    await lab.ready(within=plan.timeout)
    rest = [part for part in plan.parts if part not in API_COMPONENTS]
    if not rest:
        return
    show.step(f"Starting {', '.join(rest)}")
    manifest = {"apiVersion": "v1", "kind": "List", "items": controlplane.rbac()}
    await asyncio.to_thread(lab.kubectl, "create", "-f", "-", stdin=msgspec.json.encode(manifest).decode())
    for part in rest:
        await lab.start(part)
    await lab.ready(rest, within=plan.timeout)


async def _stop_owner(folder: Path, show: ProgressReporter) -> None:
    old = record.load(folder)
    if (
        old is None
        or old.owner is None
        or old.owner == record.current_process()
        or not process.alive(old.owner)
    ):
        return
    show.say(f"Asking the owner of lab {old.name} (pid {old.owner.pid}) to stop it")
    with contextlib.suppress(ProcessLookupError):
        os.kill(old.owner.pid, signal.SIGTERM)
    await process.gone(old.owner, within=OWNER_GRACE)


async def stop(lab: Lab) -> None:
    """Stop all components in reverse order and remove everything but the logs. Idempotent."""
    if lab.record.real_node is not None:
        from croupier_lab import realnode  # noqa: PLC0415 (most labs have none)

        try:
            await realnode.leave(lab)
        finally:
            await _stop_parts(lab)
    else:
        await _stop_parts(lab)
    record.delete(lab.record)
    for leftover in lab.folder.iterdir() if lab.folder.is_dir() else ():
        if leftover.is_dir() and leftover != lab.logs:
            shutil.rmtree(leftover, ignore_errors=True)
        elif leftover.is_file():
            leftover.unlink(missing_ok=True)


async def _stop_parts(lab: Lab) -> None:
    foundation = [running for running in lab.record.processes if running.name in API_COMPONENTS]
    others = [running for running in lab.record.processes if running.name not in API_COMPONENTS]
    await asyncio.gather(*(process.stop(running) for running in others))
    for part in (API_SERVER, ETCD):
        for running in (running for running in foundation if running.name == part):
            await process.stop(running, grace=process.STOP_GRACE if lab.record.durable else API_SERVER_GRACE)


def _programs(parts: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [part for part in parts if part not in COMPONENTS]
    missing = [part for part in API_COMPONENTS if part not in parts]
    if unknown or missing:
        raise LabError(
            f"A lab needs {' and '.join(API_COMPONENTS)}; "
            f"allowed components are {', '.join(COMPONENTS)}; got {parts}."
        )
    return (*(part for part in COMPONENTS if part in parts), "kubectl")
