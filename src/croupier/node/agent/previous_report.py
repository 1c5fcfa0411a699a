"""Faults of cards from the previous agent's report, carried over into the current state."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from croupier.api.gpu import convert_report
from croupier.api.gpu.agent_report import AgentReport
from croupier.core.cards import card_health
from croupier.core.cards.card_health import CarriedFault
from croupier.node.cards.card_driver import DriverSnapshot

_BOOT_ID_FILE: Final = Path("/proc/sys/kernel/random/boot_id")
"""The boot ID of the kernel, which is the same in every container."""


def boot_id() -> str:
    """The boot ID. Empty if the kernel does not provide it."""
    try:
        return _BOOT_ID_FILE.read_text().strip()
    except OSError:
        return ""


def carried_faults(last: AgentReport | None, boot: str, now: float) -> dict[str, CarriedFault]:
    """The faults to carry over, by the address of the card."""
    if last is None:
        return {}
    rebooted = card_health.has_rebooted(last.boot, boot)
    faults = {
        card.address: card_health.carried_fault(card, rebooted=rebooted, now=now)
        for card in map(convert_report.gpu_card, last.cards)
    }
    return {address: fault for address, fault in faults.items() if fault is not None}


def with_carried_faults(
    seen: DriverSnapshot, faults: Mapping[str, CarriedFault], now: float
) -> DriverSnapshot:
    """The snapshot with the carried faults applied."""
    cards = (card_health.with_carried_fault(card, faults.get(card.address), now) for card in seen.cards)
    return replace(seen, cards=tuple(cards))
