"""Real cards, through NVML.

NVML calls block and may hang, so one thread makes them one by one, with a timeout for the caller. Another
thread waits for XIDs. If the driver is missing, for example during an update, every inspection tries again.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import pynvml  # type: ignore[import-untyped]  # it has no types

from croupier.core.cards import card_health
from croupier.core.cards.card_health import XID_HOLD_SECONDS, HealthReadings, is_critical
from croupier.core.model.gpu_card import GpuCard
from croupier.core.model.mig import MigPlacement, MigProfile
from croupier.core.nodes.mps_daemon import ComputeMode
from croupier.kube.client.clock import Clock
from croupier.node.cards import nvml_card, nvml_edits, nvml_mig, nvml_processes, nvml_runtime
from croupier.node.cards import nvml_driver as driver
from croupier.node.cards.call_thread import CallThread, CallTimeout
from croupier.node.cards.card_driver import (
    CardError,
    ContainerEdits,
    DriverSnapshot,
    HeldDevice,
)
from croupier.node.cards.nvml_card import Board
from croupier.node.cards.nvml_driver import Handle
from croupier.node.cards.nvml_events import XidWatcher
from croupier.node.cards.process_owner import owner

CALL_TIMEOUT: Final = 60.0
"""The timeout of one NVML call in seconds."""

COMPUTE_MODES: Final[tuple[ComputeMode, ...]] = (
    "Default",
    "ExclusiveThread",
    "Prohibited",
    "ExclusiveProcess",
)
"""By NVML's number."""
_ROOT: Final = Path("/")
_POLL_INTERVAL: Final = 0.5

T = TypeVar("T")


class NvmlCards:
    """`library` is the path of libnvidia-ml.so.1, by default the system's; `host` is the node's root."""

    source = "nvml"

    def __init__(
        self, *, clock: Clock, library: str | None = None, host: Path = _ROOT, timeout: float = CALL_TIMEOUT
    ) -> None:
        self._clock = clock
        self._library = library
        self._host = host
        self._timeout = timeout
        self._calls = CallThread("nvml")
        self._waits = CallThread("nvml events")
        self._xids = XidWatcher()
        self._started = False
        self._boards: dict[str, Board] = {}
        self._kinds: dict[str, tuple[MigProfile, ...]] = {}
        self._cut: dict[str, dict[str, tuple[int, int]]] = {}
        self._last: dict[int, GpuCard] = {}

    async def open(self) -> None:
        """Does nothing: the driver may be installed later."""

    async def close(self) -> None:
        if self._started:
            await self._call(self._stop)
        self._calls.stop()
        self._waits.stop()

    async def inspect(self) -> DriverSnapshot:
        return await self._call(self._inspect)

    async def users(self) -> Mapping[str, frozenset[str]]:
        return await self._call(self._users)

    async def changed(self, seconds: float) -> None:
        until = self._clock.monotonic() + seconds
        while (left := until - self._clock.monotonic()) > 0:
            if await self._wait_for_xid(min(left, _POLL_INTERVAL)):
                return

    async def _wait_for_xid(self, seconds: float) -> bool:
        """Whether an XID was reported within `seconds`."""
        if self._started and self._xids.is_watching:
            wait = partial(self._xids.wait, seconds, self._clock.monotonic())
            with suppress(pynvml.NVMLError, CallTimeout):  # the next inspection reports the error
                return await self._waits.run(wait, self._timeout)
        await self._clock.sleep(seconds)
        return False

    async def enable_mig(self, address: str, on: bool) -> None:
        await self._call(partial(self._enable, address, on))

    async def create(self, address: str, placement: MigPlacement) -> str:
        return await self._call(partial(self._do, nvml_mig.create, address, placement))

    async def destroy(self, address: str, uuid: str) -> None:
        await self._call(partial(self._do, nvml_mig.destroy, address, uuid))

    async def compute_mode(self, address: str) -> ComputeMode:
        return await self._call(partial(self._compute_mode, address))

    async def set_compute_mode(self, address: str, mode: ComputeMode) -> None:
        await self._call(partial(self._set_compute_mode, address, mode))

    def container_edits(self, held: Sequence[HeldDevice]) -> ContainerEdits:
        cards = {device.card.address for device in held}
        instances = {uuid: ids for card in cards for uuid, ids in self._cut.get(card, {}).items()}
        return nvml_edits.container_edits(self._host, held, instances)

    async def _call(self, call: Callable[[], T]) -> T:
        try:
            return await self._calls.run(call, self._timeout)
        except pynvml.NVMLError as error:
            if driver.needs_restart(error):
                self._started = False
            raise CardError(driver.describe(error)) from error
        except CallTimeout as late:
            raise CardError(f"the NVIDIA driver has not answered for {self._timeout:g} s") from late

    # The following methods run in the thread of NVML calls.

    def _start(self) -> None:
        if not self._started:
            driver.start(self._library)
            self._started = True

    def _stop(self) -> None:
        self._started = False
        self._xids.stop_watching()
        driver.stop()

    def _inspect(self) -> DriverSnapshot:
        self._start()
        handles: dict[str, Handle] = {}
        cards = [self._card(index, handles) for index in range(pynvml.nvmlDeviceGetCount())]
        seen = tuple(card for card in cards if card is not None)
        self._last = {card.index: card for card in seen}
        self._xids.watch(handles)
        return DriverSnapshot(
            driver.driver_version(),
            driver.cuda_version(),
            nvml_edits.has_toolkit(self._host),
            seen,
            nvml_runtime.nvidia_is_default(self._host),
            nvml_runtime.accepts_variable(self._host),
        )

    def _users(self) -> dict[str, frozenset[str]]:
        self._start()
        proc, users = self._host / "proc", {}
        for card in self._last.values():
            try:
                pids = nvml_processes.pids(pynvml.nvmlDeviceGetHandleByPciBusId(card.address))
            except pynvml.NVMLError as error:
                if driver.needs_restart(error):
                    raise
                continue  # the inspection reports the error
            if pids is not None:
                users[card.address] = frozenset(filter(None, (owner(proc, pid) for pid in pids)))
        return users

    def _card(self, index: int, handles: dict[str, Handle]) -> GpuCard | None:
        """The card. If it does not answer, its last state as unhealthy, or None if it never answered."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            board = self._board(handle)
            card = self._seen(index, handle, board)
        except pynvml.NVMLError as error:
            if driver.needs_restart(error):
                raise
            before = self._last.get(index)
            if before is None:
                return None
            lost = HealthReadings(lost=driver.describe(error), xid=before.health.xid)
            return replace(before, health=card_health.diagnose(lost))
        handles[board.card.address] = handle
        return card

    def _board(self, handle: Handle) -> Board:
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        if uuid not in self._boards:
            self._boards[uuid] = nvml_card.read_board(handle, uuid, self._host / "sys/bus/pci/devices")
        return self._boards[uuid]

    def _kinds_of(self, handle: Handle, board: Board) -> tuple[MigProfile, ...]:
        uuid = board.card.uuid
        if uuid not in self._kinds:
            kinds = nvml_mig.kinds(handle, board.memory_bytes)
            if not kinds:
                return ()
            self._kinds[uuid] = kinds
        return self._kinds[uuid]

    def _seen(self, index: int, handle: Handle, board: Board) -> GpuCard:
        mode = nvml_mig.mode(handle)
        kinds = () if mode is None else self._kinds_of(handle, board)
        instances = nvml_mig.instances(handle, kinds) if mode else ()
        self._cut[board.card.address] = {
            instance.device.uuid: (instance.gpu_instance, instance.compute_instance) for instance in instances
        }
        xid = self._xids.last(board.card.address)
        counts = (
            xid is not None
            and is_critical(xid.number)
            and self._clock.monotonic() - xid.at < XID_HOLD_SECONDS
        )
        number = xid.number if xid is not None else None
        return replace(
            board.card,
            index=index,
            mig_capable=mode is not None,
            mig_enabled=bool(mode),
            kinds=kinds,
            slots=tuple(instance.device for instance in instances),
            health=nvml_card.observe_health(handle, board, number, number if counts else None),
        )

    def _do(
        self, step: Callable[[Handle, tuple[MigProfile, ...], T], str | None], address: str, what: T
    ) -> str:
        self._start()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
        return step(handle, self._kinds_of(handle, self._board(handle)), what) or ""

    def _enable(self, address: str, on: bool) -> None:
        self._xids.stop_watching()
        self._do(lambda handle, kinds, wanted: nvml_mig.set_mode(handle, kinds, on=wanted), address, on)

    def _compute_mode(self, address: str) -> ComputeMode:
        self._start()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
        number = driver.query(pynvml.nvmlDeviceGetComputeMode, handle)
        return COMPUTE_MODES[number] if number is not None else ""

    def _set_compute_mode(self, address: str, mode: ComputeMode) -> None:
        self._start()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(address)
        pynvml.nvmlDeviceSetComputeMode(handle, COMPUTE_MODES.index(mode))
