"""Trouble for simulated cards, by a small file that anybody may write while the agent runs.

    cards:
      0: {xid: 79}                # by index, by PCI address (in quotes, or YAML makes it a number), or all
      "0000:11:00.0": {lost: true}
      all: {slow: 5}
    nodes:                        # for an agent that plays many nodes
      node-7: {cards: {2: {ecc: 1}}}

It is read at every look. One that is not understood changes nothing and is told once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
import structlog

log = structlog.get_logger(__name__)

_Ordinal: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is wrong with one card."""

    xid: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The driver reports this XID as long as it stands here."""
    ecc: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Uncorrected memory errors."""
    temperature: int | None = None
    """Degrees Celsius; from 92 the card is too hot."""
    hot: bool = False
    lost: bool = False
    """It does not answer."""
    gone: bool = False
    """It was taken out: later cards move up by one index."""
    replaced: int = 0
    """Another number is another board in the same place, with another UUID."""
    slow: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 0.0
    """Seconds that each step of a MIG change takes."""
    fail: _Ordinal | tuple[_Ordinal, ...] | Literal["all"] | None = None
    """Which MIG steps fail, counted from when this was written."""
    cut: str = ""
    """Somebody cuts the card so behind our back, once: `1g.10gb:2` or `whole`."""

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
    """All that is wrong on one node, or on several."""

    cards: dict[str | int, Fault] = {}
    driver: bool = True
    """False: there is no driver."""
    toolkit: bool = True
    """False: containers cannot reach the cards."""
    nodes: "Mapping[str, Faults]" = {}

    def of(self, index: int, address: str) -> Fault:
        """By address before index before all: the closest word counts."""
        by_name = {str(name): fault for name, fault in self.cards.items()}
        named = (by_name.get(name) for name in (address, str(index), "all"))
        return next((fault for fault in named if fault is not None), NONE)

    def on(self, node: str) -> "Faults":
        return self.nodes.get(node, self)


NONE = Fault()


class FaultsFile:
    """The file as it is now, or as it was when it last made sense."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._faults = Faults()

    @property
    def is_watched(self) -> bool:
        return self._path is not None

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes whenever the file does; None while there is none."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None

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
            log.warning("the file of faults is not understood", path=str(self._path), error=str(error))
        return self._faults
