"""Faults of simulated cards, from a YAML file that can be changed while the agent runs.

    cards:
      0: {xid: 79}                # by index, by PCI address (quoted, else YAML reads a number), or all
      "0000:11:00.0": {lost: true}
      all: {slow: 5}
    nodes:                        # for an agent that simulates many nodes
      node-7: {cards: {2: {ecc: 1}}}

It is read at every inspection. An invalid file changes nothing and is logged once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import structlog

log = structlog.get_logger(__name__)

_Ordinal: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The faults of one card."""

    xid: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The driver reports this XID while it is set."""
    ecc: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Uncorrected memory errors."""
    temperature: int | None = None
    """The temperature in degrees Celsius. From 92 on the card is too hot."""
    hot: bool = False
    lost: bool = False
    """The card does not answer."""
    gone: bool = False
    """The card was removed. The indexes of later cards decrease by one."""
    replaced: int = 0
    """A changed number simulates another card at the same address, with another UUID."""
    slow: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """The duration of each MIG step in seconds."""
    fail: _Ordinal | tuple[_Ordinal, ...] | Literal["all"] | None = None
    """The MIG steps that fail, counted from the time at which this was written."""
    users: tuple[str, ...] | None = None
    """Who runs processes on the card: namespace/name or UID of pods, or names of processes of the node."""
    cut: str = ""
    """Simulates one repartitioning from outside, for example to `1g.10gb:2` or `whole`."""

    def fails(self, step: int) -> bool:
        match self.fail:
            case None:
                return False
            case "all":
                return True
            case int() as only:
                return step == only
            case steps:
                return step in steps


class Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The faults of one node or of several."""

    cards: dict[str | int, Fault] = {}
    driver: bool = True
    """False simulates a missing driver."""
    toolkit: bool = True
    """False simulates a missing container toolkit."""
    nvidia_default: bool = False
    """True simulates a node whose default container runtime is NVIDIA's, with the toolkit's defaults."""
    nodes: "Mapping[str, Faults]" = {}

    def of(self, index: int, address: str) -> Fault:
        """The fault of a card: by address, else by index, else of all cards."""
        by_name = {str(name): fault for name, fault in self.cards.items()}
        named = (by_name.get(name) for name in (address, str(index), "all"))
        return next((fault for fault in named if fault is not None), NO_FAULT)

    def on(self, node: str) -> "Faults":
        return self.nodes.get(node, self)


NO_FAULT = Fault()


class FaultsFile:
    """The last valid content of the file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._faults = Faults()

    @property
    def is_watched(self) -> bool:
        return self._path is not None

    def stamp(self) -> tuple[int, int, int] | None:
        """A value that changes whenever the file does. None if there is no file."""
        try:
            status = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino) if status is not None else None

    def read(self) -> Faults:
        stamp = self.stamp()
        if stamp == self._stamp:
            return self._faults
        self._stamp = stamp
        if self._path is None or stamp is None:
            self._faults = Faults()
            return self._faults
        try:
            text = self._path.read_bytes()
            self._faults = msgspec.yaml.decode(text, type=Faults) if text.strip() else Faults()
        except (OSError, msgspec.MsgspecError, ValueError) as error:
            log.warning(
                f"the faults file {self._path} is invalid: {error}", path=str(self._path), error=str(error)
            )
        return self._faults
