"""Whether a card is fit to be given to anybody, from what its driver tells.

Programs break, too, and the driver reports that with the same kind of message (an XID) as broken hardware.
Those that a program can cause are not held against the card; every other is, also one nobody knows yet.

An XID is told once, to whoever looks just then. So what an agent told of it binds the agent after it: with
a restart of ours nothing has become better. With a restart of the machine it may have: that resets cards.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

HELD: Final = 60.0
"""Seconds a critical XID makes its card unfit: trouble that lasts shows in other ways, or comes again."""
CRITICAL: Final = "CriticalXID"
LOST: Final = "CardLost"
UNREACHABLE: Final = "DriverUnreachable"

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


_GRAVER: Final = frozenset({CRITICAL, LOST, UNREACHABLE})
"""Reasons that are told rather than that of an XID, which may be held against the card all the same."""


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


@dataclass(frozen=True, slots=True)
class Told:
    """What was told of a card: its verdict, and the last XID there was."""

    uuid: str
    verdict: Verdict = Verdict()
    xid: int | None = None


@dataclass(frozen=True, slots=True)
class Scar:
    """An XID that an agent before us was told, and until when it is held against the board."""

    uuid: str
    xid: int
    until: float


def is_critical(xid: int) -> bool:
    return xid > 0 and xid not in _PROGRAMS


def judge(readings: Readings) -> Verdict:
    """The gravest trouble, if there is any."""
    if readings.lost:
        return _unfit(LOST, f"the card does not answer: {readings.lost}; reset it or look at the machine")
    if readings.xid is not None and is_critical(readings.xid):
        known = _KNOWN.get(readings.xid, "an error of the card or its driver")
        return _unfit(CRITICAL, f"the driver reported XID {readings.xid}: {known}")
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


def supersedes(new: int, old: int, age: float) -> bool:
    """Whether an XID is told in place of the last one: what breaks a card is followed by clean-ups."""
    return is_critical(new) or not is_critical(old) or age >= HELD


def scar(last: Told, *, rebooted: bool, now: float) -> Scar | None:
    """What is left of what the agent before us told `last`.

    Nobody knows what happened between that agent and us, so what counted then counts anew.
    """
    if rebooted or last.xid is None:
        return None
    counted = last.verdict.reason in _GRAVER and is_critical(last.xid)
    return Scar(last.uuid, last.xid, now + HELD if counted else now)


def scarred(seen: Told, before: Scar | None, now: float) -> Told:
    """What is to be told of a card: another board in its place has no part in its past."""
    if before is None or before.uuid != seen.uuid:
        return seen
    counts = now < before.until
    verdict = seen.verdict
    if counts and verdict.reason not in _GRAVER:
        verdict = judge(Readings(xid=before.xid))
    hidden = seen.xid is None or (counts and not is_critical(seen.xid))
    return Told(seen.uuid, verdict, before.xid if hidden else seen.xid)


def has_rebooted(before: str, now: str) -> bool:
    """By the names of two boots; one that nobody told may have been the same."""
    return bool(before and now) and before != now


def _unfit(reason: str, message: str) -> Verdict:
    return Verdict(healthy=False, reason=reason, message=message)


def _errors(number: int) -> str:
    return "an uncorrected memory error" if number == 1 else f"{number} uncorrected memory errors"
