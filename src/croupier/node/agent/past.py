"""What cards went through before this agent came: read once, from what the agent before it told."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from croupier.api.gpu.agent_report import AgentReport, CardHealth
from croupier.core.cards import vitality
from croupier.core.cards.vitality import Scar, Told, Verdict
from croupier.node.cards.cards import Seen, Sighting, Vital

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
"""The kernel's own name for this boot, the same in every container."""


def this_boot() -> str:
    """Empty where the kernel does not tell."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


def scars(last: AgentReport | None, boot: str, now: float) -> dict[str, Scar]:
    """By the card's address."""
    if last is None:
        return {}
    rebooted = vitality.has_rebooted(last.boot, boot)
    found = {
        card.address: vitality.scar(_told(card.uuid, card.health), rebooted=rebooted, now=now)
        for card in last.cards
    }
    return {address: scar for address, scar in found.items() if scar is not None}


def scarred(seen: Sighting, scars: Mapping[str, Scar], now: float) -> Sighting:
    """What is seen now, in the light of that."""
    return replace(seen, cards=tuple(_scarred(card, scars.get(card.address), now) for card in seen.cards))


def _scarred(card: Seen, scar: Scar | None, now: float) -> Seen:
    if scar is None:
        return card
    told = vitality.scarred(_told(card.uuid, card.health), scar, now)
    verdict = told.verdict
    return replace(
        card,
        health=replace(
            card.health,
            healthy=verdict.healthy,
            reason=verdict.reason,
            message=verdict.message,
            xid=told.xid,
        ),
    )


def _told(uuid: str, health: CardHealth | Vital) -> Told:
    return Told(uuid, Verdict(health.healthy, health.reason, health.message), health.xid)
