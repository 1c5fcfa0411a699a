"""Text of cards, shares and holders, shared by the verbs."""

from typing import TYPE_CHECKING, Any

from croupier.cli import tables

if TYPE_CHECKING:
    from datetime import datetime

    from croupier.core.ledger.ledger import Ledger
    from croupier.core.model.card import LedgerCard


def json(data: Any) -> str:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data)).decode()


def yaml(data: Any) -> str:
    import msgspec
    from yaml import safe_dump

    return safe_dump(msgspec.to_builtins(data), sort_keys=False, allow_unicode=True)


def timestamp(when: "datetime") -> str:
    return f"{when:%Y-%m-%d %H:%M:%S} UTC"


def card_lines(ledger: "Ledger") -> list[str]:
    """One line per card: its usage and its holders."""
    return [_card_line(card) for card in ledger.cards]


def _card_line(card: "LedgerCard") -> str:
    pool = f" of pool {card.pool}" if card.pool else ""
    withheld = "" if card.healthy else f", {card.withheld or 'not healthy'}"
    return f"card {card.index:<2} {_bar(card)} {_free(card)}{pool}{withheld}{_holders(card)}"


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
        return "exclusive, in use" if card.holders else "exclusive, free" if card.free else "exclusive"
    return f"{card.free:>3} % free"


def _holders(card: "LedgerCard") -> str:
    from croupier.core.ledger import holder

    shares = [f"{holder.pod_key(key)} {_amount(card, amount)}" for key, amount in card.holders.items()]
    slots = [f"{holder.pod_key(slot.holder)} MIG {slot.profile}" for slot in card.slots if slot.holder]
    return f"; {', '.join((*shares, *slots))}" if shares or slots else ""


def _amount(card: "LedgerCard", amount: int) -> str:
    return f"{amount} slices" if card.mode == "TimeSlice" else f"{amount} %"
