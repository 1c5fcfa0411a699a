"""Synchronizes the cards of a ledger with the node's report and keeps every holder.

Cards can change their names: they are named by index until an inventory names them by PCI address, and again
when the inventory is deleted. A card that is listed under both names would be allocated twice.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from croupier.core.ledger import change_layout, reported_cards
from croupier.core.ledger.ledger import Ledger
from croupier.core.ledger.reported_cards import NodeCardReport
from croupier.core.model.card import CardGrant, Grant, LedgerCard, MigSlot


@dataclass(frozen=True, slots=True)
class CardNames:
    """Translates old card names to those of the current report."""

    node: str
    cards: Mapping[str, LedgerCard]
    by_index: Mapping[int, str]
    indexed: Mapping[str, int]

    def current_name(self, card: str, index: int | None = None) -> str:
        """The card's current name. Two names are the same card if one is made of the other's index."""
        if card in self.cards or reported_cards.is_placeholder(self.node, card):
            return card
        number = self.indexed.get(card, index)
        now = self.by_index.get(number, card) if number is not None else card
        return now if (card in self.indexed) != (now in self.indexed) else card


def card_names(node: str, cards: Iterable[LedgerCard]) -> CardNames:
    listed = sorted(cards, key=LedgerCard.order, reverse=True)
    return CardNames(
        node=node,
        cards={card.id: card for card in listed},
        by_index={card.index: card.id for card in listed if not reported_cards.is_placeholder(node, card.id)},
        indexed=reported_cards.indexed_names(node),
    )


def translate(grant: Grant, names: CardNames, indexes: Sequence[int] = ()) -> Grant:
    """The grant with current card names; `indexes` are the known indexes of its cards."""
    numbers: Sequence[int | None] = indexes if len(indexes) == len(grant) else [None] * len(grant)
    return tuple(
        replace(part, card=names.current_name(part.card, number))
        for part, number in zip(grant, numbers, strict=True)
    )


def in_use(ledger: Ledger) -> tuple[CardGrant, ...]:
    """The grants of all holders, those of bound pods first."""
    holders = sorted(ledger.holders(), key=lambda holder: (holder in ledger.held, holder))
    return tuple(part for holder in holders for part in ledger.grant(holder))


def sync(old: Ledger, report: NodeCardReport) -> Ledger:
    """The ledger with the reported cards, as far as holders allow (core/ledger/change_layout.py)."""
    return with_cards(old, reported_cards.from_report(report, in_use(old)).cards)


def with_cards(old: Ledger, cards: Sequence[LedgerCard]) -> Ledger:
    return _without_placeholders(change_layout.apply_report(old, cards), cards)


def _without_placeholders(fitted: Ledger, cards: Sequence[LedgerCard]) -> Ledger:
    """Moves holders from placeholder cards to real MIG devices of the same profile."""
    reported = {card.id for card in cards}
    for card in fitted.cards:
        if card.id in reported or not reported_cards.is_placeholder(fitted.node, card.id):
            continue
        for slot in card.slots:
            fitted = _moved_to_real_slot(fitted, card.id, slot, reported) if slot.holder else fitted
    gone = {
        card.id
        for card in fitted.cards
        if card.is_free and card.id not in reported and reported_cards.is_placeholder(fitted.node, card.id)
    }
    if not gone:
        return fitted
    return replace(fitted, cards=tuple(card for card in fitted.cards if card.id not in gone))


def _moved_to_real_slot(fitted: Ledger, card_id: str, slot: MigSlot, reported: Iterable[str]) -> Ledger:
    allowed = set(reported)
    for card in fitted.cards:
        free = card.free_slots(slot.profile) if card.id in allowed else ()
        if free:
            cards = (
                _with_holder(other, slot.id, "")
                if other.id == card_id
                else _with_holder(other, free[0].id, slot.holder)
                if other.id == card.id
                else other
                for other in fitted.cards
            )
            return replace(fitted, cards=tuple(cards))
    return fitted


def _with_holder(card: LedgerCard, slot_id: str, holder: str) -> LedgerCard:
    slots = tuple(replace(slot, holder=holder) if slot.id == slot_id else slot for slot in card.slots)
    return replace(card, slots=slots)
