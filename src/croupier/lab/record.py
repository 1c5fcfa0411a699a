"""The record of a lab on disk, with which any later process can find and stop it."""

import os
from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import msgspec
import psutil

from croupier.lab import process
from croupier.lab.process import Process

FILE = "record.json"


class State(Enum):
    STARTING = "starting"
    RUNNING = "running"
    BROKEN = "broken"
    """Some components, or the owner, died while others still run."""
    STOPPED = "stopped"


class Record(msgspec.Struct, frozen=True, kw_only=True):
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
    owner: Process | None = None
    """The process that stops the lab; None for a detached one."""
    processes: tuple[Process, ...] = ()
    real_node: str | None = None


def myself() -> Process:
    """The current process, as an owner."""
    me = psutil.Process(os.getpid())
    return Process("croupier", me.pid, me.create_time(), "")


def save(record: Record) -> None:
    """Write the record atomically."""
    path = Path(record.folder) / FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(record)))
    draft.replace(path)


def load(folder: Path) -> Record | None:
    """The record in `folder`; None if there is none or it cannot be decoded."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def forget(record: Record) -> None:
    (Path(record.folder) / FILE).unlink(missing_ok=True)


def state(record: Record) -> State:
    owned = record.owner is None or process.alive(record.owner)
    running = [process.alive(part) for part in record.processes]
    if not record.ready:
        return State.STARTING if owned and record.owner is not None else _wreck(running)
    if owned and running and all(running):
        return State.RUNNING
    return _wreck(running)


def _wreck(running: list[bool]) -> State:
    return State.BROKEN if any(running) else State.STOPPED
