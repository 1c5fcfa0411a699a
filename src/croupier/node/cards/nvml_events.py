"""XID errors, as the driver reports them.

The driver reports an XID once, so the last one of every card is kept. A critical XID is kept as long as it
counts, even if others follow.
"""

import threading
from dataclasses import dataclass

import pynvml  # type: ignore[import-untyped]  # it has no types
import structlog

from croupier.core.cards import card_health
from croupier.node.cards import nvml_card
from croupier.node.cards import nvml_driver as driver
from croupier.node.cards.nvml_driver import Handle

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class XidEvent:
    number: int
    at: float


class XidWatcher:
    """Written by one thread and read by another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set: Handle | None = None
        self._watched: frozenset[str] = frozenset()
        self._last: dict[str, XidEvent] = {}

    @property
    def is_watching(self) -> bool:
        return self._set is not None

    def last(self, address: str) -> XidEvent | None:
        return self._last.get(address)

    def watch(self, cards: dict[str, Handle]) -> None:
        """Watch these cards, by address. Does nothing if they are already watched."""
        if frozenset(cards) == self._watched:
            return
        with self._lock:
            self._free()
            self._set = driver.query(pynvml.nvmlEventSetCreate)
            for handle in cards.values() if self._set is not None else ():
                _register(handle, self._set)
            self._watched = frozenset(cards)

    def stop_watching(self) -> None:
        """Stop watching: the driver cannot change the MIG mode of a watched card."""
        with self._lock:
            self._free()

    def wait(self, seconds: float, now: float) -> bool:
        """Whether an XID was reported within `seconds`. It is recorded with the time `now`."""
        with self._lock:
            if self._set is None:
                return False
            try:
                data = pynvml.nvmlEventSetWait_v2(self._set, round(seconds * 1000))
            except pynvml.NVMLError_Timeout:
                return False
            address = nvml_card.pci_address(str(pynvml.nvmlDeviceGetPciInfo(data.device).busId))
            before = self._last.get(address)
            if before is None or card_health.supersedes(data.eventData, before.number, now - before.at):
                self._last[address] = XidEvent(data.eventData, now)
        log.warning(f"card {address} reported XID {data.eventData}", address=address, xid=data.eventData)
        return True

    def _free(self) -> None:
        if self._set is not None:
            driver.query(pynvml.nvmlEventSetFree, self._set)
        self._set, self._watched = None, frozenset()


def _register(handle: Handle, events: Handle) -> None:
    supported = driver.query(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0
    if supported & pynvml.nvmlEventTypeXidCriticalError:
        driver.query(pynvml.nvmlDeviceRegisterEvents, handle, pynvml.nvmlEventTypeXidCriticalError, events)
