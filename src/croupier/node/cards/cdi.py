"""The CDI specification of simulated cards.

NVIDIA's toolkit writes the specification of real cards. This one makes it possible to test the path from
Allocate through the kubelet and the container runtime into a container without a GPU. Each device adds an
environment variable and a device node that is /dev/null.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import structlog

from croupier.core.model.gpu_card import GpuCard
from croupier.node.cards import state_file
from croupier.node.cards.card_driver import CardError, HeldDevice

KIND: Final = "croupier.io/card"
FILE: Final = "croupier.io-card.json"
VERSION: Final = "0.6.0"
VARIABLE: Final = "CROUPIER_CDI"
"""The prefix of `CROUPIER_CDI_0`, `CROUPIER_CDI_0_1G_10GB_0` ... Every device has its own variable."""
NODE_FOLDER: Final = "/dev/croupier"
NULL_DEVICE: Final = "/dev/null"

log = structlog.get_logger(__name__)


class CdiFile:
    """The specification file. Only devices in it are named: a runtime refuses unknown CDI names."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._shown: Mapping[str, Any] | None = None
        """The content of the file. None if there is none."""
        self._trouble = ""

    def show(self, cards: Iterable[GpuCard]) -> None:
        """Write the specification of these cards and their MIG devices."""
        wanted = specification(cards)
        if wanted == self._shown and self._path.exists():
            return
        try:
            state_file.replace(self._path, wanted)
        except OSError as error:
            self._shown = None
            self._log_once(f"{error.strerror or error}")
        else:
            self._shown, self._trouble = wanted, ""

    def names(self, held: Sequence[HeldDevice]) -> tuple[str, ...]:
        """The CDI names, empty if the file cannot be written. CardError if a device no longer exists."""
        if self._shown is None:
            return ()
        known = {device["name"] for device in self._shown["devices"]}
        if missing := [device.uuid for device in held if device.uuid not in known]:
            raise CardError(f"{', '.join(missing)} no longer exists")
        return tuple(dict.fromkeys(f"{KIND}={device.uuid}" for device in held))

    def remove(self) -> None:
        self._shown = None
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            self._log_once(f"{error.strerror or error}")

    def _log_once(self, why: str) -> None:
        if why != self._trouble:
            log.warning(f"the CDI file {self._path} cannot be changed", path=str(self._path), error=why)
        self._trouble = why


def specification(cards: Iterable[GpuCard]) -> Mapping[str, Any]:
    """The specification: one device for each card and one for each MIG device."""
    devices = [_device(held) for card in cards for held in _parts(card)]
    return {"cdiVersion": VERSION, "kind": KIND, "devices": devices}


def variable(held: HeldDevice) -> str:
    """The environment variable that a container gets through CDI."""
    return re.sub(r"[^A-Z0-9]", "_", f"{VARIABLE}_{_suffix(held, '_')}".upper())


def device_node(held: HeldDevice) -> str:
    return f"{NODE_FOLDER}/{_suffix(held, '-')}"


def _parts(card: GpuCard) -> Iterator[HeldDevice]:
    yield HeldDevice(card)
    yield from (HeldDevice(card, slot) for slot in card.slots)


def _device(held: HeldDevice) -> Mapping[str, Any]:
    edits = {
        "env": [f"{variable(held)}={held.uuid}"],
        "deviceNodes": [{"path": device_node(held), "hostPath": NULL_DEVICE, "permissions": "rw"}],
    }
    return {"name": held.uuid, "containerEdits": edits}


def _suffix(held: HeldDevice, between: str) -> str:
    """`0`, or `0-1g.10gb-3` for a MIG device of card 0."""
    index = str(held.card.index)
    return index if held.slot is None else f"{index}{between}{held.slot.id}"
