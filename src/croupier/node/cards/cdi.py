"""A CDI specification of simulated cards, so that a container runtime puts them in as it does real ones.

Real cards are described by NVIDIA's toolkit, simulated ones by nobody: the way from Allocate through
the kubelet and the runtime's CDI folder into a container would be untried wherever there is no GPU. What a
device adds is harmless and can be seen: a variable of its own, and a device node that is /dev/null.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from croupier.node.agent import state_file
from croupier.node.cards.cards import CardError, Held, Seen

KIND: Final = "croupier.io/card"
FILE: Final = "croupier.io-card.json"
VERSION: Final = "0.6.0"
VARIABLE: Final = "CROUPIER_CDI"
"""`CROUPIER_CDI_0`, `CROUPIER_CDI_0_1G_10GB_0` ...: one for each device, since one of a name would win."""
NODES: Final = "/dev/croupier"
NOTHING: Final = "/dev/null"

log = structlog.get_logger(__name__)


class CdiFile:
    """Only what stands in the file is named: a runtime starts no container with a name it does not know."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._shown: Mapping[str, Any] | None = None
        """None: there is no file of ours."""
        self._trouble = ""

    def show(self, cards: Iterable[Seen]) -> None:
        """Describe these cards and what they are cut into, instead of those before."""
        wanted = specification(cards)
        if wanted == self._shown and self._path.exists():
            return
        try:
            state_file.replace(self._path, wanted)
        except OSError as error:
            self._shown = None
            self._complain(f"{error.strerror or error}")
        else:
            self._shown, self._trouble = wanted, ""

    def names(self, held: Sequence[Held]) -> tuple[str, ...]:
        """How CDI calls them; nothing where nothing can be written. Raises CardError for what is gone."""
        if self._shown is None:
            return ()
        known = {one["name"] for one in self._shown["devices"]}
        if gone := [one.uuid for one in held if one.uuid not in known]:
            raise CardError(f"{', '.join(gone)} is not there any more")
        return tuple(dict.fromkeys(f"{KIND}={one.uuid}" for one in held))

    def remove(self) -> None:
        self._shown = None
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._complain(f"{error.strerror or error}")

    def _complain(self, why: str) -> None:
        if why != self._trouble:
            log.warning("the CDI file cannot be changed", path=str(self._path), error=why)
        self._trouble = why


def specification(cards: Iterable[Seen]) -> Mapping[str, Any]:
    """One device a card, and one for each MIG device."""
    devices = [_device(held) for card in cards for held in _parts(card)]
    return {"cdiVersion": VERSION, "kind": KIND, "devices": devices}


def variable(held: Held) -> str:
    """By what the container knows it was put in through CDI."""
    return re.sub(r"[^A-Z0-9]", "_", f"{VARIABLE}_{_place(held, '_')}".upper())


def node(held: Held) -> str:
    return f"{NODES}/{_place(held, '-')}"


def _parts(card: Seen) -> Iterator[Held]:
    yield Held(card)
    yield from (Held(card, slot) for slot in card.slots)


def _device(held: Held) -> Mapping[str, Any]:
    edits = {
        "env": [f"{variable(held)}={held.uuid}"],
        "deviceNodes": [{"path": node(held), "hostPath": NOTHING, "permissions": "rw"}],
    }
    return {"name": held.uuid, "containerEdits": edits}


def _place(held: Held, between: str) -> str:
    """`0`, or `0-1g.10gb-3` for a MIG device of that card."""
    index = str(held.card.index)
    return index if held.slot is None else f"{index}{between}{held.slot.id}"
