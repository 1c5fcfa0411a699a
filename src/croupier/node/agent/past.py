"""Faults of cards from the previous agent's report, carried over into the current state."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from croupier.api.gpu.agent_report import AgentReport, CardHealth
from croupier.core.cards import vitality
from croupier.core.cards.vitality import Scar, Told, Verdict
from croupier.node.cards.cards import Seen, Sighting, Vital

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""The boot ID of the kernel, which is the same in every container."""


def this_boot() -> str:
    """The boot ID. Empty if the kernel does not provide it."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def scars(last: AgentReport | None, boot: str, now: float) -> dict[str, Scar]:
    """The faults to carry over, by the address of the card."""
    if last is None:
        return {}
    rebooted = vitality.has_rebooted(last.boot, boot)
    faults = {
        card.address: vitality.scar(_told(card.uuid, card.health), rebooted=rebooted, now=now)
        for card in last.cards
    }
    return {address: fault for address, fault in faults.items() if fault is not None}


def scarred(seen: Sighting, scars: Mapping[str, Scar], now: float) -> Sighting:
    """The snapshot with the carried faults applied."""
    return replace(seen, cards=tuple(_scarred(card, scars.get(card.address), now) for card in seen.cards))


def _scarred(card: Seen, scar: Scar | None, now: float) -> Seen:
    if scar is None:
        return card
    reported = vitality.scarred(_told(card.uuid, card.health), scar, now)
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


def _told(uuid: str, health: CardHealth | Vital) -> Told:
    return Told(uuid, Verdict(health.healthy, health.reason, health.message), health.xid)
