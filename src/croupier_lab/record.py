"""The record of a lab on disk, with which any later process can find and stop it."""

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import msgspec
import psutil

from croupier_lab import process
from croupier_lab.process import LabProcess

FILE = "record.json"


class LabState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    BROKEN = "broken"
    """Some components, or the owner, died while others still run."""
    STOPPED = "stopped"


class LabRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a lab and its processes."""

    name: str
    folder: str
    parts: tuple[str, ...]
    ports: Mapping[str, int]
    binaries: Mapping[str, str]
    stages: tuple[str, ...] = ()
    durable: bool = False
    extra: Mapping[str, tuple[str, ...]] = {}
    ready: bool = False
    owner: LabProcess | None = None
    """The process that stops the lab; None for a detached one."""
    processes: tuple[LabProcess, ...] = ()
    real_node: str | None = None


def current_process() -> LabProcess:
    """The current process, as an owner."""
    me = psutil.Process(os.getpid())
    return LabProcess("croupier", me.pid, me.create_time(), "")


def save(record: LabRecord) -> None:
    """Write the record atomically."""
    path = Path(record.folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    draft.replace(path)


def load(folder: Path) -> LabRecord | None:
    """The record in `folder`; None if there is none or it cannot be decoded."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=LabRecord)
    except (OSError, msgspec.MsgspecError):
        return None


def delete(record: LabRecord) -> None:
    (Path(record.folder) / FILE).unlink(missing_ok=True)


def state(record: LabRecord) -> LabState:
    owned = record.owner is None or process.alive(record.owner)
    running = [process.alive(part) for part in record.processes]
    if not record.ready:
        return LabState.STARTING if owned and record.owner is not None else _broken_or_stopped(running)
    if owned and running and all(running):
        return LabState.RUNNING
    return _broken_or_stopped(running)


def _broken_or_stopped(running: list[bool]) -> LabState:
    return LabState.BROKEN if any(running) else LabState.STOPPED
