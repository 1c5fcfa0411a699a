"""Updates the cards of a ledger from the node's report, as far as their holders allow.

Health with its reason, index and the smallest share are always updated. Mode, layout, capacity and pool
change only if every holder keeps its grant; otherwise the card changes after its last holder is released. A
card that is no longer reported stays in the ledger, unhealthy, until then.

A card may change its name between its index (no PCI address known) and its address. With two names it would
be allocated twice, so the new name takes over the holders of the old one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from croupier.core.ledger import reported_cards
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import card_name as naming
from croupier.core.model.card import MAX_CARDS, LedgerCard, MigSlot
from croupier.core.model.withheld import Withheld


def apply_report(ledger: Ledger, reported: Iterable[LedgerCard]) -> Ledger:
    now = {card.id: card for card in reported}
    known = _renamed(ledger, now)
    kept = [card for old in known if (card := _updated(old, now.get(old.id))) is not None]
    here = {card.id for card in known}
    added = [without_holders(card) for card in now.values() if card.id not in here]
    cards = _limited(sorted((*kept, *added), key=LedgerCard.order))
    return ledger if cards == ledger.cards else replace(ledger, cards=cards)


def without_holders(card: LedgerCard) -> LedgerCard:
    slots = tuple(replace(slot, holder="") if slot.holder else slot for slot in card.slots)
    return replace(card, holders={}, slots=slots, smallest=max(1, card.smallest))


def _limited(cards: Sequence[LedgerCard]) -> tuple[LedgerCard, ...]:
    """At most `MAX_CARDS` cards; cards with holders come first, retired ones last."""
    if len(cards) <= MAX_CARDS:
        return tuple(cards)
    kept = sorted(cards, key=lambda card: (card.is_free, card.is_retired, *card.order()))[:MAX_CARDS]
    return tuple(sorted(kept, key=LedgerCard.order))


def _renamed(ledger: Ledger, now: Mapping[str, LedgerCard]) -> list[LedgerCard]:
    names = _names(ledger, now)
    return [
        replace(card, id=names[card.id], epoch=card.epoch + 1) if card.id in names else card
        for card in ledger.cards
    ]


def _names(ledger: Ledger, now: Mapping[str, LedgerCard]) -> dict[str, str]:
    """Maps old card names to new ones.

    Cards with the same index are the same card; a healthy old card is preferred. An old card with holders
    whose index matches no new card is mapped to any of the remaining new cards.
    """
    known = {card.id for card in ledger.cards}
    gone = [card for card in ledger.cards if card.id not in now and _is_real(ledger.node, card)]
    gone.sort(key=lambda card: (not card.healthy, *card.order()))
    new = sorted(
        (c for c in now.values() if c.id not in known and _is_real(ledger.node, c)), key=LedgerCard.order
    )
    names: dict[str, str] = {}
    for by_index in (True, False):
        for old in gone:
            if old.id in names or (not by_index and old.is_free):
                continue
            same = (c for c in new if _may_be_same_card(old, c) and (not by_index or c.index == old.index))
            if (card := next(same, None)) is not None:
                names[old.id] = card.id
                new.remove(card)
    return names


def _is_real(node: str, card: LedgerCard) -> bool:
    """Whether the card is not a placeholder that counts MIG devices."""
    return not reported_cards.is_placeholder(node, card.id)


def _may_be_same_card(old: LedgerCard, new: LedgerCard) -> bool:
    """Exactly one of the two is named by its index, so both may be the same card."""
    return naming.is_indexed(old.id) != naming.is_indexed(new.id)


def _updated(old: LedgerCard, new: LedgerCard | None) -> LedgerCard | None:
    if new is None:
        return None if old.is_free else _with_health(old, healthy=False, withheld=None)
    smallest = new.smallest or old.smallest
    now = replace(old, index=new.index, smallest=smallest)
    facts = _with_health(now, healthy=new.healthy, withheld=new.withheld)
    if same_layout(old, new):
        return facts
    if (slots := _with_old_holders(old, new)) is None:
        return facts
    changed = replace(
        facts, mode=new.mode, capacity=new.capacity, pool=new.pool, slots=slots, epoch=old.epoch + 1
    )
    return changed if old.is_free or _still_fits(old, changed) else facts


def _with_health(card: LedgerCard, *, healthy: bool, withheld: Withheld | None) -> LedgerCard:
    """Only health decides about holders, so a new reason alone is no new epoch."""
    if card.healthy == healthy:
        return card if card.withheld == withheld else replace(card, withheld=withheld)
    return replace(card, healthy=healthy, withheld=withheld, epoch=card.epoch + 1)


def same_layout(one: LedgerCard, other: LedgerCard) -> bool:
    """Whether both cards have the same mode, capacity, pool and slots, regardless of holders."""
    return _layout(one) == _layout(other)


def _layout(card: LedgerCard) -> tuple[object, ...]:
    layout = tuple((slot.id, slot.profile, slot.start, slot.size) for slot in card.slots)
    return card.mode, card.capacity, card.pool, layout


def _with_old_holders(old: LedgerCard, new: LedgerCard) -> tuple[MigSlot, ...] | None:
    """The new slots with the old holders; None if a held slot does not exist any more."""
    held = {(s.id, s.profile, s.start, s.size): s.holder for s in old.slots if s.holder}
    slots = tuple(
        replace(slot, holder=held.pop((slot.id, slot.profile, slot.start, slot.size), ""))
        for slot in new.slots
    )
    return None if held else slots


def _still_fits(old: LedgerCard, new: LedgerCard) -> bool:
    """Whether the holders of `old` keep their shares on `new`."""
    if old.pool != new.pool or old.mode != new.mode:
        return False
    return old.used <= new.capacity or old.mode == "MIG"
