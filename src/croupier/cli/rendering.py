"""Rendering of cards, shares and holders as text and as JSON data, shared by the verbs."""

from typing import TYPE_CHECKING, Any

from croupier.cli import tables, terminal

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.capacity.snapshot import ClusterSnapshot
    from croupier.core.explanation.explain import SchedulingInputs
    from croupier.core.ledger.ledger import Ledger
    from croupier.core.model.card import CardGrant, Grant, LedgerCard
    from croupier.core.model.card_request import CardRequest
    from croupier.core.placement.card_selection import Strategy


def world(seen: "ClusterSnapshot", strategy: "Strategy") -> "SchedulingInputs":
    from croupier.api import convert_affinity
    from croupier.core.explanation.explain import SchedulingInputs

    return SchedulingInputs(
        {name: convert_affinity.node_facts(node) for name, node in seen.nodes.items()}, seen.ledgers, strategy
    )


def strategy(seen: "ClusterSnapshot", wants: "CardRequest") -> "Strategy":
    """The strategy of the requested pool, else the default: the snapshot does not contain the setting."""
    requested = {want.pool for want in wants if want.pool}
    strategies = {pool.metadata.name: pool.spec.scheduling.strategy for pool in seen.pools}
    return next((chosen for name in sorted(requested) if (chosen := strategies.get(name))), "Spread")


def json(data: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data)).decode()


def timestamp(when: "datetime") -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def share(card: "LedgerCard | None", part: "CardGrant") -> str:
    """`50 %`, `2 slices`, `whole`, `MIG 1g.10gb`."""
    if part.slots:
        profiles = {slot.id: slot.profile for slot in card.slots} if card is not None else {}
        return ", ".join(f"MIG {profiles.get(slot, slot)}" for slot in part.slots)
    if card is not None and card.mode == "TimeSlice":
        return terminal.plural(part.share, "slice")
    return "whole" if part.share == 100 else f"{part.share} %"


def parts(ledger: "Ledger", grant: "Grant") -> list[dict[str, Any]]:
    return [_part(ledger.card(part.card), part) for part in grant]


def _part(card: "LedgerCard | None", part: "CardGrant") -> dict[str, Any]:
    data: dict[str, Any] = {"card": part.card, "index": card.index if card is not None else None}
    if part.slots:
        return {**data, "slots": list(part.slots)}
    unit = "slices" if card is not None and card.mode == "TimeSlice" else "percent"
    return {**data, unit: part.share}


def cards(ledger: "Ledger") -> list[dict[str, Any]]:
    return [card(one) for one in ledger.cards]


def card(card: "LedgerCard") -> dict[str, Any]:
    from croupier.api.mps import holder

    held = [
        {"pod": holder.split(key)[0], "holder": key, "share": amount} for key, amount in card.holders.items()
    ]
    data: dict[str, Any] = {
        "card": card.id,
        "index": card.index,
        "mode": card.mode,
        "pool": card.pool or None,
        "healthy": card.healthy,
    }
    if card.mode == "MIG":
        slots = [
            {"slot": slot.id, "profile": slot.profile, "free": not slot.holder, "holder": slot.holder or None}
            for slot in card.slots
        ]
        return {**data, "slots": slots}
    return {**data, "capacity": card.capacity, "free": card.free, "holders": held}


def card_lines(ledger: "Ledger") -> list[str]:
    """One line per card: its usage and its holders."""
    return [_card_line(card) for card in ledger.cards]


def _card_line(card: "LedgerCard") -> str:
    pool = f" of pool {card.pool}" if card.pool else ""
    unhealthy = "" if card.healthy else ", unhealthy"
    return f"card {card.index:<2} {_bar(card)} {_free(card)}{pool}{unhealthy}{_holders(card)}"


def _bar(card: "LedgerCard") -> str:
    if card.mode != "MIG":
        return tables.bar(card.used, card.capacity)
    return tables.bar(sum(bool(slot.holder) for slot in card.slots), len(card.slots))


def _free(card: "LedgerCard") -> str:
    if card.mode == "MIG":
        free = [slot.profile for slot in card.free_slots()]
        counts = ", ".join(f"{free.count(profile)} × {profile}" for profile in dict.fromkeys(free))
        return f"MIG, {counts or 'nothing'} free"
    if card.mode == "TimeSlice":
        return f"{card.free} of {card.capacity} slices free"
    if card.mode == "Exclusive":
        return "exclusive, free" if card.free else "exclusive, in use"
    return f"{card.free:>3} % free"


def _holders(card: "LedgerCard") -> str:
    from croupier.api.mps import holder

    shares = [f"{holder.split(key)[0]} {_amount(card, amount)}" for key, amount in card.holders.items()]
    slots = [f"{holder.split(slot.holder)[0]} MIG {slot.profile}" for slot in card.slots if slot.holder]
    return f"; {', '.join((*shares, *slots))}" if shares or slots else ""


def _amount(card: "LedgerCard", amount: int) -> str:
    return f"{amount} slices" if card.mode == "TimeSlice" else f"{amount} %"
