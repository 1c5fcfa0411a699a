"""Whether a card is fit to be given to anybody, from what its driver tells.

Programs break, too, and the driver reports that with the same kind of message (an XID) as broken hardware.
Those that a program can cause are not held against the card; every other is, also one nobody knows yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_PROGRAMS: Final = frozenset({13, 31, 43, 45, 63, 66, 68, 69, 92, 94, 109, 137})
"""XIDs of faulting programs, of memory faults that were contained or mended, and of clean-ups after those."""
_KNOWN: Final[Mapping[int, str]] = {
    46: "the GPU stopped processing",
    48: "an uncorrectable memory error",
    61: "its internal microcontroller broke off",
    62: "its internal microcontroller halted",
    64: "a faulty memory row could not be replaced",
    74: "an NVLink error",
    79: "it has fallen off the bus",
    95: "an uncontained memory error",
    110: "a security fault",
    119: "its system processor does not answer",
    120: "its system processor failed",
    140: "an unrecovered memory error",
}


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read at one look; None is what the driver does not tell."""

    lost: str = ""
    """Why the card does not answer."""
    xid: int | None = None
    """The last one, as long as it counts."""
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    remap_failed: bool = False
    temperature_c: int | None = None
    slowdown_c: int | None = None
    """Where it slows down to save itself."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` is one word for programs, `message` a sentence for people; both empty while it is fit."""

    healthy: bool = True
    reason: str = ""
    message: str = ""


def is_critical(xid: int) -> bool:
    return xid > 0 and xid not in _PROGRAMS


def judge(readings: Readings) -> Verdict:
    """The gravest trouble, if there is any."""
    if readings.lost:
        return _unfit(
            "CardLost", f"the card does not answer: {readings.lost}; reset it or look at the machine"
        )
    if readings.xid is not None and is_critical(readings.xid):
        known = _KNOWN.get(readings.xid, "an error of the card or its driver")
        return _unfit("CriticalXID", f"the driver reported XID {readings.xid}: {known}")
    if readings.remap_failed:
        return _unfit(
            "RowRemapFailed", "a faulty memory row could not be replaced; the card needs an exchange"
        )
    if readings.ecc_errors:
        return _unfit(
            "ECCErrors", f"{_errors(readings.ecc_errors)} since the driver was loaded; reset the card"
        )
    limit, now = readings.slowdown_c, readings.temperature_c
    if limit is not None and now is not None and now >= limit:
        return _unfit("Overheated", f"{now} °C, and it slows down at {limit} °C; look at its cooling")
    return Verdict()


def _unfit(reason: str, message: str) -> Verdict:
    return Verdict(healthy=False, reason=reason, message=message)


def _errors(number: int) -> str:
    return "an uncorrected memory error" if number == 1 else f"{number} uncorrected memory errors"
