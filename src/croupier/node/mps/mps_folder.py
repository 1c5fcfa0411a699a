"""The folder through which the agent and the MPS supervisor of a node work together.

It has one folder per card with the directories of its daemon (pipe, log, shm) and three files: the agent's
request, the supervisor's record of the process, and the agent's list of static partitions. Its path is the
same in both processes, on the host and in containers with a share. It is on a tmpfs (/run): after a reboot
no daemon runs, and no file says otherwise.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from croupier.core.nodes.mps_daemon import DaemonRecord, DaemonRequest
from croupier.node.cards import state_file

DEFAULT_FOLDER: Final = Path("/run/croupier/mps")
PIPE_VARIABLE: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOG_VARIABLE: Final = "CUDA_MPS_LOG_DIRECTORY"

_LOCK: Final = "supervisor.lock"
_REQUEST: Final = "request.json"
_RECORD: Final = "daemon.json"
_PARTITIONS: Final = "partitions.json"
_PID_FILE: Final = "nvidia-cuda-mps-control.pid"
"""The control daemon writes it into its pipe directory."""
_OPEN_TO_ALL: Final = 0o1777
"""Clients that are not root connect through these directories, like through /tmp."""

T = TypeVar("T")


class CardFolder:
    """The folder of one card, named by its UUID."""

    def __init__(self, root: Path, uuid: str) -> None:
        self.uuid = uuid
        self.path = root / uuid

    @property
    def pipe(self) -> Path:
        return self.path / "pipe"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def shm(self) -> Path:
        return self.path / "shm"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that daemon, control command and clients have in common."""
        return {PIPE_VARIABLE: str(self.pipe), LOG_VARIABLE: str(self.log)}

    def prepare(self) -> None:
        """Create the directories, writable for clients of every user."""
        for directory in (self.pipe, self.log, self.shm):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(_OPEN_TO_ALL)

    def request(self) -> DaemonRequest | None:
        return _read(self.path / _REQUEST, DaemonRequest)

    def write_request(self, request: DaemonRequest) -> None:
        state_file.replace(self.path / _REQUEST, msgspec.to_builtins(request))

    def record(self) -> DaemonRecord | None:
        return _read(self.path / _RECORD, DaemonRecord)

    def write_record(self, record: DaemonRecord, **private: Any) -> None:
        """`private` is for the supervisor's own use after a restart."""
        state_file.replace(self.path / _RECORD, {**msgspec.to_builtins(record), **private})

    def private(self) -> Mapping[str, Any]:
        """The supervisor's own values in the record."""
        return _read(self.path / _RECORD, dict[str, Any]) or {}

    def partitions(self) -> dict[str, dict[str, Any]]:
        return _read(self.path / _PARTITIONS, dict[str, dict[str, Any]]) or {}

    def write_partitions(self, partitions: Mapping[str, object]) -> None:
        state_file.replace(self.path / _PARTITIONS, partitions)

    def answering_pid(self) -> int | None:
        """The process id of the daemon that owns the pipe directory, as the daemon wrote it."""
        with suppress(OSError, ValueError):
            return int((self.pipe / _PID_FILE).read_text())
        return None

    def remove(self) -> None:
        """Remove the request first: without it the supervisor leaves the folder alone."""
        (self.path / _REQUEST).unlink(missing_ok=True)
        shutil.rmtree(self.path, ignore_errors=True)


class MpsFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def card(self, uuid: str) -> CardFolder:
        return CardFolder(self.path, uuid)

    def cards(self) -> list[CardFolder]:
        """The cards with a request."""
        return [self.card(file.parent.name) for file in sorted(self.path.glob(f"*/{_REQUEST}"))]

    def lock(self) -> int | None:
        """Become the supervisor. The lock ends with the process. None if another process has it."""
        self.path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def is_supervised(self) -> bool:
        """Whether a supervisor runs."""
        if not (self.path / _LOCK).exists():
            return False
        descriptor = os.open(self.path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False


def _read(path: Path, kind: type[T]) -> T | None:
    """None if there is no such file, or it is not valid."""
    try:
        return msgspec.convert(json.loads(path.read_text()), kind)
    except (OSError, ValueError):
        return None
