"""Faults of cards from the previous agent's report, carried over into the current state."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from croupier.api.gpu.agent_report import AgentReport, ReportedHealth
from croupier.core.cards import card_health
from croupier.core.cards.card_health import CardDiagnosis, CarriedFault, ReportedDiagnosis
from croupier.node.cards.card_driver import DriverSnapshot, ObservedCard, ObservedHealth

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
        card.address: card_health.carried_fault(_reported(card.uuid, card.health), rebooted=rebooted, now=now)
        for card in last.cards
    }
    return {address: fault for address, fault in faults.items() if fault is not None}


def with_carried_faults(
    seen: DriverSnapshot, scars: Mapping[str, CarriedFault], now: float
) -> DriverSnapshot:
    """The snapshot with the carried faults applied."""
    return replace(
        seen, cards=tuple(_with_carried_fault(card, scars.get(card.address), now) for card in seen.cards)
    )


def _with_carried_fault(card: ObservedCard, scar: CarriedFault | None, now: float) -> ObservedCard:
    if scar is None:
        return card
    reported = card_health.with_carried_fault(_reported(card.uuid, card.health), scar, now)
    verdict = reported.verdict
    return replace(
        card,
        health=replace(
            card.health,
            healthy=verdict.healthy,
            reason=verdict.reason,
            message=verdict.message,
            xid=reported.xid,
        ),
    )


def _reported(uuid: str, health: ReportedHealth | ObservedHealth) -> ReportedDiagnosis:
    return ReportedDiagnosis(uuid, CardDiagnosis(health.healthy, health.reason, health.message), health.xid)
