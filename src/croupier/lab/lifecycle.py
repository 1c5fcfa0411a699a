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

from croupier.lab import (
    certificates,
    controlplane,
    kubeconfig,
    lock,
    pinned,
    places,
    ports,
    process,
    record,
    supplies,
)
from croupier.lab.binaries import Sources
from croupier.lab.controlplane import API_SERVER, ETCD, FOUNDATION, PARTS, SCHEDULER
from croupier.lab.errors import LabError
from croupier.lab.lab import Lab, PortClashError
from croupier.lab.progress import Progress
from croupier.lab.record import Record, State
from croupier.lab.supplies import Supplies

ATTEMPTS = 4
OWNER_GRACE = 60.0
# Without durable data there is no need to wait for the graceful shutdown of the API server.
API_SERVER_GRACE = 3.0


@dataclass(frozen=True, slots=True)
class Plan:
    """The requested lab."""

    name: str = places.DEFAULT_NAME
    folder: Path | None = None
    parts: tuple[str, ...] = PARTS
    durable: bool = False
    pods_run: bool = True
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    scheduler: Mapping[str, Any] = field(default_factory=dict)
    """A KubeSchedulerConfiguration, for example with an extender."""
    sources: Sources = field(default_factory=Sources)
    timeout: float = 60.0

    @property
    def place(self) -> Path:
        return self.folder or places.labs(self.sources.env) / self.name


async def up(plan: Plan, show: Progress, *, chance: random.Random | None = None) -> tuple[Lab, bool]:
    """The lab, and whether it was started now (False: it was already running)."""
    async with _locked(plan.place, show):
        if old := record.load(plan.place):
            if record.state(old) is State.RUNNING:
                return Lab(old), False
            show.say(f"Lab {old.name} was not stopped properly: cleaning up")
            await end(Lab(old))
        shutil.rmtree(plan.place, ignore_errors=True)
        stock = await supplies.ensure(_programs(plan.parts), plan.sources, show, pods_run=plan.pods_run)
        return await _raise(plan, stock, show, chance or random.Random()), True  # noqa: S311 (ports, no secret)


async def down(folder: Path, show: Progress) -> bool:
    """Stop the lab in `folder`, also if another process owns it. False if there is none. Keeps the logs."""
    await _ask_owner(folder, show)
    async with _locked(folder, show):
        old = record.load(folder)
        if old is None:
            return False
        await end(Lab(old))
        return True


async def join_real_node(
    lab: Lab, sources: Sources, show: Progress, settings: Mapping[str, Any] | None = None
) -> str:
    """Join this machine as a node with these kubelet settings; returns the name of the node."""
    from croupier.lab import realnode  # noqa: PLC0415 (most labs have none)

    if reason := realnode.obstacle():
        raise LabError(reason)
    stock = await supplies.ensure(pinned.REAL_NODE, sources, show)
    paths = {name: str(path) for name, path in stock.binaries.items()}
    # Recorded first, so that the mounts of an interrupted join are cleaned up later.
    lab.remember(real_node=realnode.NAME, binaries={**lab.record.binaries, **paths})
    show.step("Joining this machine as a real node")
    lab.adopt(*await realnode.join(lab, realnode.NAME, settings))
    return realnode.NAME


async def part_with_real_node(lab: Lab) -> None:
    """Undo `join_real_node`; the lab keeps running and the node can join again."""
    from croupier.lab import realnode  # noqa: PLC0415 (most labs have none)

    await realnode.leave(lab)
    await asyncio.to_thread(lab.kubectl, "delete", "node", realnode.NAME, "--ignore-not-found")
    lab.remember(real_node=None)


def existing(env: Mapping[str, str]) -> list[Record]:
    """The records of all named labs."""
    folder = places.labs(env)
    folders = sorted(folder.iterdir()) if folder.is_dir() else []
    return [stored for stored in map(record.load, folders) if stored is not None]


def detach(lab: Lab) -> None:
    """Remove the owner: the lab runs until `down`."""
    lab.remember(owner=None)


def _locked(folder: Path, show: Progress) -> AbstractAsyncContextManager[None]:
    waiting = f"Another process is using lab {folder.name}: waiting for it to finish"
    return lock.held(folder.parent / f".{folder.name}.lock", on_wait=lambda: show.say(waiting))


async def _raise(plan: Plan, stock: Supplies, show: Progress, chance: random.Random) -> Lab:
    for _ in range(ATTEMPTS - 1):
        try:
            return await _attempt(plan, stock, show, chance)
        except PortClashError:
            show.say("Another program took one of the chosen ports: trying other ports")
    return await _attempt(plan, stock, show, chance)


async def _attempt(plan: Plan, stock: Supplies, show: Progress, chance: random.Random) -> Lab:
    lab = Lab(_first_record(plan, stock, chance))
    lab.remember(owner=record.myself())
    try:
        _prepare(lab, plan)
        await _start(lab, plan, show)
    except BaseException:
        await asyncio.shield(end(lab))
        raise
    lab.remember(ready=True)
    return lab


def _first_record(plan: Plan, stock: Supplies, chance: random.Random) -> Record:
    return Record(
        name=plan.name,
        folder=str(plan.place),
        parts=plan.parts,
        ports=dict(zip(controlplane.PORTS, ports.free(len(controlplane.PORTS), chance=chance), strict=True)),
        binaries={name: str(path) for name, path in stock.binaries.items()},
        stages=tuple(map(str, stock.stages)),
        durable=plan.durable,
        extra=plan.extra,
    )


def _prepare(lab: Lab, plan: Plan) -> None:
    site = lab.site
    site.folder.chmod(0o700)
    certificates.create(site.pki, now=datetime.now(UTC))
    for part in ("admin", *(part for part in lab.record.parts if part not in FOUNDATION)):
        kubeconfig.write(
            site.kubeconfig(part),
            server=site.server,
            name=f"croupier-{lab.name}",
            authority=site.authority,
            pair=site.pair(part),
        )
    configuration = controlplane.scheduler_configuration(site, plan.scheduler)
    (site.folder / f"{SCHEDULER}.yaml").write_text(yaml.safe_dump(configuration))


async def _start(lab: Lab, plan: Plan, show: Progress) -> None:
    show.step(f"Starting {' and '.join(FOUNDATION)}")
    for part in FOUNDATION:
        await lab.start(part)
    await lab.ready(within=plan.timeout)
    rest = [part for part in plan.parts if part not in FOUNDATION]
    if not rest:
        return
    show.step(f"Starting {', '.join(rest)}")
    manifest = {"apiVersion": "v1", "kind": "List", "items": controlplane.rights()}
    await asyncio.to_thread(lab.kubectl, "create", "-f", "-", stdin=msgspec.json.encode(manifest).decode())
    for part in rest:
        await lab.start(part)
    await lab.ready(rest, within=plan.timeout)


async def _ask_owner(folder: Path, show: Progress) -> None:
    old = record.load(folder)
    if old is None or old.owner is None or old.owner == record.myself() or not process.alive(old.owner):
        return
    show.say(f"Asking the owner of lab {old.name} (pid {old.owner.pid}) to stop it")
    with contextlib.suppress(ProcessLookupError):
        os.kill(old.owner.pid, signal.SIGTERM)
    await process.gone(old.owner, within=OWNER_GRACE)


async def end(lab: Lab) -> None:
    """Stop all components in reverse order and remove everything but the logs. Idempotent."""
    if lab.record.real_node is not None:
        from croupier.lab import realnode  # noqa: PLC0415 (most labs have none)

        try:
            await realnode.leave(lab)
        finally:
            await _stop_parts(lab)
    else:
        await _stop_parts(lab)
    record.forget(lab.record)
    for leftover in lab.folder.iterdir() if lab.folder.is_dir() else ():
        if leftover.is_dir() and leftover != lab.logs:
            shutil.rmtree(leftover, ignore_errors=True)
        elif leftover.is_file():
            leftover.unlink(missing_ok=True)


async def _stop_parts(lab: Lab) -> None:
    foundation = [running for running in lab.record.processes if running.name in FOUNDATION]
    others = [running for running in lab.record.processes if running.name not in FOUNDATION]
    await asyncio.gather(*(process.stop(running) for running in others))
    for part in (API_SERVER, ETCD):
        for running in (running for running in foundation if running.name == part):
            await process.stop(running, grace=process.STOP_GRACE if lab.record.durable else API_SERVER_GRACE)


def _programs(parts: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [part for part in parts if part not in PARTS]
    missing = [part for part in FOUNDATION if part not in parts]
    if unknown or missing:
        raise LabError(
            f"A lab needs {' and '.join(FOUNDATION)}; allowed components are {', '.join(PARTS)}; got {parts}."
        )
    return (*(part for part in PARTS if part in parts), "kubectl")
