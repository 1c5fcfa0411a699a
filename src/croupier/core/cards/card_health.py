"""Whether a card is healthy, from the readings of its driver.

The driver reports faults of programs and of hardware with the same kind of message, an XID. XIDs that a
program can cause do not make the card unhealthy; all others do, including unknown ones.

The driver reports an XID once. So a restarted agent carries over the fault that the previous agent reported:
a restart of the agent repairs nothing. A reboot of the machine resets the card and clears the fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from croupier.core.model.gpu_card import CardHealth, GpuCard

XID_HOLD_SECONDS: Final = 60.0
"""Seconds a critical XID keeps its card unhealthy: a lasting fault shows in other readings or recurs."""
CRITICAL: Final = "CriticalXID"
LOST: Final = "CardLost"
UNREACHABLE: Final = "DriverUnreachable"

_PROGRAM_XIDS: Final = frozenset({13, 31, 43, 45, 63, 66, 68, 69, 92, 94, 109, 137})
"""XIDs of faulting programs, of contained or repaired memory faults, and of clean-ups after those."""
_XID_TEXTS: Final[Mapping[int, str]] = {
    46: "the GPU stopped processing",
    48: "an uncorrectable memory error",
    61: "a breakpoint or warning of its internal microcontroller",
    62: "its internal microcontroller halted",
    64: "a faulty memory row could not be remapped",
    74: "an NVLink error",
    79: "it has fallen off the bus",
    95: "an uncontained memory error",
    110: "a security fault",
    119: "its system processor does not respond",
    120: "its system processor failed",
    140: "an unrecovered memory error",
}


_TAKES_PRECEDENCE: Final = frozenset({CRITICAL, LOST, UNREACHABLE})
"""Reasons that take precedence over the reason of a carried XID."""


@dataclass(frozen=True, slots=True)
class HealthReadings:
    """One set of readings; None for values that the driver does not report."""

    lost: str = ""
    """Why the card does not respond."""
    xid: int | None = None
    """The last XID, while it counts."""
    ecc_errors: int | None = None
    """Uncorrected memory errors since the driver was loaded."""
    remap_failed: bool = False
    temperature_c: int | None = None
    slowdown_c: int | None = None
    """The temperature at which the card throttles."""


@dataclass(frozen=True, slots=True)
class CarriedFault:
    """An XID that a previous agent reported, and until when it keeps the board unhealthy."""

    uuid: str
    xid: int
    until: float


def is_critical(xid: int) -> bool:
    return xid > 0 and xid not in _PROGRAM_XIDS


def diagnose(readings: HealthReadings) -> CardHealth:
    """The health of the card, by its most severe fault."""
    if readings.lost:
        message = f"the card does not respond: {readings.lost}; reset the card or check the machine"
        return CardHealth(False, LOST, message, readings.xid)
    reason, message = _fault(readings) or ("", "")
    return CardHealth(not reason, reason, message, readings.xid, readings.ecc_errors, readings.temperature_c)


def _fault(readings: HealthReadings) -> tuple[str, str] | None:
    """Reason and message of the most severe fault."""
    if readings.xid is not None and is_critical(readings.xid):
        known = _XID_TEXTS.get(readings.xid, "an error of the card or its driver")
        return (CRITICAL, f"the driver reported XID {readings.xid}: {known}")
    if readings.remap_failed:
        return ("RowRemapFailed", "a faulty memory row could not be remapped; replace the card")
    if readings.ecc_errors:
        return ("ECCErrors", f"{_errors(readings.ecc_errors)} since the driver was loaded; reset the card")
    limit, now = readings.slowdown_c, readings.temperature_c
    if limit is not None and now is not None and now >= limit:
        return ("Overheated", f"the card has {now} °C and throttles at {limit} °C; check its cooling")
    return None


def supersedes(new: int, old: int, age: float) -> bool:
    """Whether a new XID replaces the last one: clean-up XIDs must not hide a recent critical one."""
    return is_critical(new) or not is_critical(old) or age >= XID_HOLD_SECONDS


def carried_fault(last: GpuCard, *, rebooted: bool, now: float) -> CarriedFault | None:
    """The fault to carry over from the last report of the previous agent.

    What happened between the two agents is unknown, so a critical XID counts from now on again.
    """
    xid = last.health.xid
    if rebooted or xid is None:
        return None
    counted = last.health.reason in _TAKES_PRECEDENCE and is_critical(xid)
    return CarriedFault(last.uuid, xid, now + XID_HOLD_SECONDS if counted else now)


def with_carried_fault(card: GpuCard, before: CarriedFault | None, now: float) -> GpuCard:
    """The card to report, with the carried fault. A replaced board does not inherit it."""
    if before is None or before.uuid != card.uuid:
        return card
    counts, health = now < before.until, card.health
    hidden = health.xid is None or (counts and not is_critical(health.xid))
    if counts and health.reason not in _TAKES_PRECEDENCE:
        fault = diagnose(HealthReadings(xid=before.xid))
        health = replace(health, healthy=fault.healthy, reason=fault.reason, message=fault.message)
    return replace(card, health=replace(health, xid=before.xid if hidden else health.xid))


def has_rebooted(before: str, now: str) -> bool:
    """Compare two boot ids; an empty id is unknown and counts as the same boot."""
    return bool(before and now) and before != now


def _errors(number: int) -> str:
    return "an uncorrected memory error" if number == 1 else f"{number} uncorrected memory errors"
