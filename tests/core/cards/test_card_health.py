"""Card health: hardware faults make a card unhealthy, faults of programs do not.

A restarted agent carries over the fault that the previous agent reported, but not forever.
"""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.core.cards import card_health
from croupier.core.cards.card_health import (
    XID_HOLD_SECONDS,
    CarriedFault,
    HealthReadings,
)
from croupier.core.model.gpu_card import CardHealth, GpuCard

FIT = {
    "no readings": HealthReadings(),
    "cool": HealthReadings(temperature_c=60, slowdown_c=90),
    "warm, without a known limit": HealthReadings(temperature_c=110),
    "a fault of a program": HealthReadings(xid=13),
    "a page fault": HealthReadings(xid=31),
    "contained": HealthReadings(xid=94),
    "no memory errors": HealthReadings(ecc_errors=0),
}

UNFIT = {
    "off the bus": (HealthReadings(xid=79), "CriticalXID", "XID 79: it has fallen off the bus"),
    "an unknown XID": (
        HealthReadings(xid=999),
        "CriticalXID",
        "XID 999: an error of the card or its driver",
    ),
    "no response": (HealthReadings(lost="GPU is lost", xid=79), "CardLost", "does not respond: GPU is lost"),
    "a failed row remapping": (
        HealthReadings(remap_failed=True, ecc_errors=1),
        "RowRemapFailed",
        "replace the card",
    ),
    "memory errors": (HealthReadings(ecc_errors=1), "ECCErrors", "an uncorrected memory error since"),
    "at its limit": (
        HealthReadings(temperature_c=90, slowdown_c=90),
        "Overheated",
        "90 °C and throttles at 90 °C",
    ),
}


@pytest.mark.parametrize("readings", FIT.values(), ids=FIT)
def test_healthy_cards(readings):
    health = card_health.diagnose(readings)

    assert (health.healthy, health.reason, health.message) == (True, "", "")


@pytest.mark.parametrize(("readings", "reason", "sentence"), UNFIT.values(), ids=UNFIT)
def test_unhealthy_cards(readings, reason, sentence):
    verdict = card_health.diagnose(readings)

    assert (verdict.healthy, verdict.reason) == (False, reason)
    assert sentence in verdict.message


def told(reason: str = "", xid: int | None = 79, uuid: str = "GPU-1") -> GpuCard:
    return GpuCard(0, uuid=uuid, health=CardHealth(not reason, reason, "why" if reason else "", xid))


LEFT = {
    "a critical XID counts again": (told("CriticalXID"), 100.0 + XID_HOLD_SECONDS),
    "a critical XID of a lost card": (told("CardLost"), 100.0 + XID_HOLD_SECONDS),
    "a critical XID before the driver was unreachable": (told("DriverUnreachable"), 100.0 + XID_HOLD_SECONDS),
    "an expired XID is only reported": (told(), 100.0),
    "an XID hidden by overheating is only reported": (told("Overheated"), 100.0),
    "an XID of a program is only reported": (told("CardLost", xid=13), 100.0),
    "none": (told("CardLost", xid=None), None),
}


@pytest.mark.parametrize(("last", "until"), LEFT.values(), ids=LEFT)
def test_the_carried_fault(last, until):
    found = card_health.carried_fault(last, rebooted=False, now=100.0)

    assert (found.until if found is not None else None) == until
    assert card_health.carried_fault(last, rebooted=True, now=100.0) is None, "a reboot resets the card"


BOOTS = {
    "another": ("monday", "tuesday", True),
    "the same": ("monday", "monday", False),
    "unknown to the previous agent": ("", "tuesday", False),
    "unknown to both": ("monday", "", False),
}


@pytest.mark.parametrize(("before", "now", "rebooted"), BOOTS.values(), ids=BOOTS)
def test_a_reboot_is_detected_by_the_boot_id(before, now, rebooted):
    assert card_health.has_rebooted(before, now) is rebooted


SCAR = CarriedFault("GPU-1", 79, until=100.0)
SHOWN = {
    "healthy by its readings": (told(xid=None), 99.9, "CriticalXID", 79),
    "overheated": (told("Overheated", xid=None), 99.9, "CriticalXID", 79),
    "lost": (told("CardLost", xid=None), 99.9, "CardLost", 79),
    "with a new XID": (told("CriticalXID", xid=48), 99.9, "CriticalXID", 48),
    "with an XID of a program": (told(xid=45), 99.9, "CriticalXID", 79),
    "with a later XID of a program": (told(xid=45), 100.0, "", 45),
    "after the hold time": (told(xid=None), 100.0, "", 79),
    "another board": (told(xid=None, uuid="GPU-2"), 99.9, "", None),
}


@pytest.mark.parametrize(("seen", "now", "reason", "xid"), SHOWN.values(), ids=SHOWN)
def test_reported_health_with_a_carried_fault(seen, now, reason, xid):
    found = card_health.with_carried_fault(seen, SCAR, now)

    assert (found.health.healthy, found.health.reason, found.health.xid) == (not reason, reason, xid)
    assert bool(found.health.message) is bool(reason)


@dataclass
class Watcher:
    """An agent with one card, limited to XIDs; it can be restarted."""

    now: float = 0.0
    boot: str = "boot-0"
    boots: int = 0
    xid: int | None = None
    xid_at: float = 0.0
    scar: CarriedFault | None = None

    def hears(self, xid: int) -> None:
        if self.xid is None or card_health.supersedes(xid, self.xid, self.now - self.xid_at):
            self.xid, self.xid_at = xid, self.now

    def told(self) -> GpuCard:
        counts = self.xid is not None and self.now - self.xid_at < XID_HOLD_SECONDS
        health = card_health.diagnose(HealthReadings(xid=self.xid if counts else None))
        seen = GpuCard(0, uuid="GPU-1", health=replace(health, xid=self.xid))
        return card_health.with_carried_fault(seen, self.scar, self.now)

    def restart(self, *, reboot: bool) -> None:
        last, before = self.told(), self.boot
        self.boots += reboot
        self.boot = f"boot-{self.boots}"
        rebooted = card_health.has_rebooted(before, self.boot)
        self.xid, self.scar = None, card_health.carried_fault(last, rebooted=rebooted, now=self.now)


HAPPENINGS = st.one_of(
    st.tuples(st.just("time"), st.integers(1, 90)),
    st.tuples(st.just("xid"), st.sampled_from([13, 31, 48, 63, 64, 79, 999])),
    st.tuples(st.sampled_from(["restart", "reboot"]), st.just(0)),
)


@given(st.lists(HAPPENINGS, max_size=12))
def test_agent_restarts_neither_shorten_nor_prolong_a_fault_forever(story):
    watcher, fatal_at, any_xid = Watcher(), None, False
    for what, number in story:
        match what:
            case "time":
                watcher.now += number
            case "xid":
                watcher.hears(number)
                any_xid = True
                fatal_at = watcher.now if card_health.is_critical(number) else fatal_at
            case _:
                watcher.restart(reboot=what == "reboot")
                if what == "reboot":
                    fatal_at, any_xid = None, False
        if fatal_at is not None and watcher.now - fatal_at < XID_HOLD_SECONDS:
            assert watcher.told().health.reason == "CriticalXID", "neither a restart nor a clean-up heals it"
        if fatal_at is None:
            assert watcher.told().health.healthy, "a reboot resets the card, and programs break none"
        assert (watcher.told().health.xid is not None) is any_xid, "told until the next boot"

    watcher.now += XID_HOLD_SECONDS
    assert watcher.told().health.healthy, "without news it is well again"
