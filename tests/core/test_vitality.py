"""A card is unfit for what hardware does, never for what a program does to itself."""

import pytest

from croupier.core import vitality
from croupier.core.vitality import Readings

FIT = {
    "nothing known": Readings(),
    "cool": Readings(temperature_c=60, slowdown_c=90),
    "warm, and nobody tells where it is too hot": Readings(temperature_c=110),
    "a program's fault": Readings(xid=13),
    "a page fault": Readings(xid=31),
    "contained": Readings(xid=94),
    "no memory errors": Readings(ecc_errors=0),
}

UNFIT = {
    "off the bus": (Readings(xid=79), "CriticalXID", "XID 79: it has fallen off the bus"),
    "one nobody has heard of": (
        Readings(xid=999),
        "CriticalXID",
        "XID 999: an error of the card or its driver",
    ),
    "it does not answer": (Readings(lost="GPU is lost", xid=79), "CardLost", "does not answer: GPU is lost"),
    "a row that cannot be replaced": (
        Readings(remap_failed=True, ecc_errors=1),
        "RowRemapFailed",
        "exchange",
    ),
    "memory errors": (Readings(ecc_errors=1), "ECCErrors", "an uncorrected memory error since"),
    "at its limit": (
        Readings(temperature_c=90, slowdown_c=90),
        "Overheated",
        "90 °C, and it slows down at 90 °C",
    ),
}


@pytest.mark.parametrize("readings", FIT.values(), ids=FIT)
def test_fit(readings):
    assert vitality.judge(readings) == vitality.Verdict()


@pytest.mark.parametrize(("readings", "reason", "sentence"), UNFIT.values(), ids=UNFIT)
def test_unfit(readings, reason, sentence):
    verdict = vitality.judge(readings)

    assert (verdict.healthy, verdict.reason) == (False, reason)
    assert sentence in verdict.message
