"""`croupier mps`: starts and reaps the MPS control daemons that the agent of the node asks for.

The daemons live in this process's container, so that a restart of the agent does not end the pods that use
them. Therefore it does nothing else and decides nothing: it starts one daemon per generation of a request,
records how it is, and ends it when the request says so. It adopts daemons of an earlier supervisor only if
the recorded process still runs: same process id, same start time.
"""

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import structlog

from croupier.core.nodes.mps_daemon import DaemonRecord, DaemonRequest
from croupier.kube.serving import build_info
from croupier.node.mps.mps_control import PROGRAM
from croupier.node.mps.mps_folder import PIPE_VARIABLE, CardFolder, MpsFolder

EVERY: Final = 0.3
"""Seconds between two looks at the requests."""
KILL_AFTER: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""
_PROC: Final = Path("/proc")
_SERVER: Final = "nvidia-cuda-mps-server"
"""The daemon starts it with its first client. It has the connections of all clients."""
_FOREGROUND: Final = "-f"
_STARTED: Final = "started"
_MESSAGE_BYTES: Final = 300
_CLONE_NEWNS: Final = 0x20000
_MS_BIND: Final = 0x1000
_MS_PRIVATE: Final = 0x40000 | 0x4000
"""Private and recursive: mounts of the daemon stay in its namespace."""
_PR_SET_CHILD_SUBREAPER: Final = 36

log = structlog.get_logger(__name__)


class MpsSupervisor:
    """`enter` prepares the namespace of a new daemon, after the fork."""

    def __init__(
        self,
        folder: MpsFolder,
        program: str = PROGRAM,
        enter: Callable[[CardFolder], None] | None = None,
    ) -> None:
        self._folder = folder
        self._program = program
        self._enter = enter or private_shm
        self._ended: dict[int, int] = {}
        self._terminated: dict[str, float] = {}

    def run(self, stop: threading.Event) -> bool:
        """Supervise until stopped; daemons go on. False if another supervisor runs."""
        lock = self._folder.lock()
        if lock is None:
            return False
        try:
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            while not stop.is_set():
                self.look()
                stop.wait(EVERY)
        finally:
            os.close(lock)
        return True

    def look(self) -> None:
        self._reap()
        for card in self._folder.cards():
            request = card.request()
            if request is not None:
                with suppress(FileNotFoundError):  # the agent removed the folder of the card
                    self._serve(card, request)

    def _reap(self) -> None:
        """Collect ended children: daemons, and servers whose daemon ended before them."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._ended[ended[0]] = os.waitstatus_to_exitcode(ended[1])

    def _serve(self, card: CardFolder, request: DaemonRequest) -> None:
        before = card.record()
        now = self._current(card, before) if before is not None else None
        if now is not None and now != before:
            self._write(card, now)
        if request.run and (now is None or (now.generation < request.generation and not now.alive)):
            self._write(card, self._start(card, request))
        elif not request.run and now is not None and (now.alive or now.servers):
            self._end(card, now)
        else:
            self._terminated.pop(card.uuid, None)

    def _current(self, card: CardFolder, record: DaemonRecord) -> DaemonRecord:
        """The record with the present state of the processes."""
        servers = len(_processes(card, _SERVER))
        alive = record.alive and start_time(record.pid) == card.private().get(_STARTED)
        message = record.message
        if record.alive and not alive:
            code = self._ended.pop(record.pid, None)
            message = _last_words(card) or _exit_sentence(code)
            log.warning(
                f"the MPS daemon of card {card.uuid} ended", card=card.uuid, pid=record.pid, reason=message
            )
        return DaemonRecord(record.generation, record.pid, alive, servers, message)

    def _write(self, card: CardFolder, record: DaemonRecord) -> None:
        started = start_time(record.pid) if record.alive else None
        card.write_record(record, **{_STARTED: started})

    def _start(self, card: CardFolder, request: DaemonRequest) -> DaemonRecord:
        card.prepare()
        options = [_FOREGROUND, "-multiuser-server", *(["-S"] if request.static else [])]
        environment = {**os.environ, **card.environment, "CUDA_VISIBLE_DEVICES": card.uuid}
        # A supervisor that was killed before it wrote the record may have left its daemon.
        left = _processes(card, PROGRAM, _FOREGROUND.encode())
        pid = left[0] if left else os.fork()
        if pid == 0:
            self._become_daemon(card, [self._program, *options], environment)
        log.info(
            f"the MPS daemon of card {card.uuid} was started",
            card=card.uuid,
            pid=pid,
            generation=request.generation,
        )
        return DaemonRecord(request.generation, pid, alive=True)

    def _become_daemon(self, card: CardFolder, command: list[str], environment: dict[str, str]) -> None:
        """Runs in the new process and never returns."""
        try:
            os.setsid()
            output = os.open(card.path / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            self._enter(card)
            os.execvpe(command[0], command, environment)  # noqa: S606  # the driver's program, no shell
        except OSError as error:
            print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201  # its output is the record
        finally:
            os._exit(127)

    def _end(self, card: CardFolder, record: DaemonRecord) -> None:
        """Signal the processes of the card. Those of other programs are never touched."""
        since = self._terminated.setdefault(card.uuid, time.monotonic())
        sign = signal.SIGKILL if time.monotonic() - since > KILL_AFTER else signal.SIGTERM
        ours = {*_processes(card, _SERVER), *((record.pid,) if record.alive else ())}
        for pid in ours:
            with suppress(ProcessLookupError):
                os.kill(pid, sign)


def private_shm(card: CardFolder) -> None:
    """Mount the card's shm directory at /dev/shm, for this process only; its clients get the same one."""
    libc = ctypes.CDLL(None, use_errno=True)
    _check(libc.unshare(_CLONE_NEWNS))
    _check(libc.mount(None, b"/", None, _MS_PRIVATE, None))
    _check(libc.mount(os.fsencode(card.shm), b"/dev/shm", None, _MS_BIND, None))


def _check(code: int) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, f"{os.strerror(number)} (mounting /dev/shm needs a privileged container)")


def start_time(pid: int) -> int | None:
    """When the process started, in clock ticks since boot. None if it has ended, also as a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _processes(card: CardFolder, program: str, option: bytes | None = None) -> list[int]:
    """The running processes of this program (with this option) that have the card's pipe directory."""
    marked = f"{PIPE_VARIABLE}={card.pipe}".encode()
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            named = any(Path(os.fsdecode(word)).name == program for word in words[:2])
            chosen = named and (option is None or option in words)
            if chosen and marked in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return [pid for pid in found if start_time(pid) is not None]


def _last_words(card: CardFolder) -> str:
    """The last line that the daemon printed."""
    with suppress(OSError):
        text = (card.path / "output").read_bytes()[-_MESSAGE_BYTES:].decode(errors="replace").strip()
        return text.splitlines()[-1] if text else ""
    return ""


def _exit_sentence(code: int | None) -> str:
    if code is None:
        return "its process is gone"
    return f"it was ended by signal {-code}" if code < 0 else f"it exited with code {code}"


def supervise(folder: Path, program: str, **chosen: Any) -> bool:
    """Run until SIGTERM or SIGINT. False if another supervisor has the folder."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    version, revision = build_info.version(), build_info.revision() or "unknown"
    log.info(
        f"croupier mps {version} starts and waits for requests in {folder}",
        process="croupier mps",
        version=version,
        revision=revision,
        path=str(folder),
    )
    return MpsSupervisor(MpsFolder(folder), program, **chosen).run(stop)
