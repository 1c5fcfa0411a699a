"""The ledger as JSON data, for the command line and web pages; docs/commands.md describes the fields."""

from typing import Any

from croupier.capacity.snapshot import ClusterSnapshot
from croupier.core.ledger import holder, overview
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.overview import FreeOfTotal
from croupier.core.model import name_list
from croupier.core.model.card import CardGrant, Grant, LedgerCard


def share(card: LedgerCard | None, part: CardGrant) -> str:
    """`50 %`, `2 slices`, `whole`, `MIG 1g.10gb`."""
    if part.slots:
        profiles = {slot.id: slot.profile for slot in card.slots} if card is not None else {}
        return ", ".join(f"MIG {profiles.get(slot, slot)}" for slot in part.slots)
    if card is not None and card.mode == "TimeSlice":
        return name_list.counted(part.share, "slice")
    return "whole" if part.share == 100 else f"{part.share} %"


def parts(ledger: Ledger, grant: Grant) -> list[dict[str, Any]]:
    return [_part(ledger.card(part.card), part) for part in grant]


def _part(card: LedgerCard | None, part: CardGrant) -> dict[str, Any]:
    data: dict[str, Any] = {"card": part.card, "index": card.index if card is not None else None}
    if part.slots:
        return {**data, "slots": list(part.slots)}
    unit = "slices" if card is not None and card.mode == "TimeSlice" else "percent"
    return {**data, unit: part.share}


def cards(ledger: Ledger) -> list[dict[str, Any]]:
    return [card(one) for one in ledger.cards]


def card(card: LedgerCard) -> dict[str, Any]:
    held = [
        {"pod": holder.pod_key(key), "holder": key, "share": amount} for key, amount in card.holders.items()
    ]
    data: dict[str, Any] = {
        "card": card.id,
        "index": card.index,
        "mode": card.mode,
        "pool": card.pool or None,
        "healthy": card.healthy,
        "withheld": withheld(card),
    }
    if card.mode == "MIG":
        slots = [
            {"slot": slot.id, "profile": slot.profile, "free": not slot.holder, "holder": slot.holder or None}
            for slot in card.slots
        ]
        return {**data, "slots": slots}
    return {**data, "capacity": card.capacity, "free": card.free, "holders": held}


def withheld(card: LedgerCard) -> dict[str, str] | None:
    """Why the card takes no new pods; None if it does, and if nothing more than `healthy` is known."""
    why = card.withheld if not card.healthy else None
    return {"state": why.state, "reason": why.reason} if why is not None else None


def _amount(amount: FreeOfTotal) -> dict[str, int]:
    return {"free": amount.free, "total": amount.total}


def node_summary(seen: ClusterSnapshot, name: str) -> dict[str, Any]:
    sums = overview.summary(seen.ledgers[name])
    return {
        "node": name,
        "cards": _amount(sums.cards),
        "percent": _amount(sums.percent),
        "slots": {profile: _amount(amount) for profile, amount in sums.slots.items()},
        "slices": _amount(sums.slices),
        "holders": sums.holders,
        "held": sums.held,
        "sick": sums.withheld.get("Unhealthy", 0),
        "withheld": dict(sums.withheld),
        "findings": [
            {
                "class": finding.kind,
                "message": finding.message,
                "card": finding.card or None,
                "holder": finding.holder or None,
            }
            for finding in seen.findings.get(name, ())
        ],
        "recorded": name in seen.recorded,
    }


def node_details(seen: ClusterSnapshot, name: str) -> dict[str, Any]:
    entry = seen.ledgers[name]
    return {
        **node_summary(seen, name),
        "devices": cards(entry),
        "waiting": dict(sorted(entry.held.items())),
        "reservations": dict(sorted(entry.reservations.items())),
    }
