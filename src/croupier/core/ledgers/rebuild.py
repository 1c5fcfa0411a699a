"""The ledger of a node made from what other objects say.

Where no NodeReservation is the record, two things outlive every process: the allocation that came with
a pod's Binding, and the status of Reservations. Pods that another scheduler bound carry neither and use
cards all the same. Whatever does not fit together is named; no record, however wrong, can overcommit a
card, and no tenant's annotation can claim more than its pod asks for.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from croupier.core.ledgers import capacity, ledger, refit
from croupier.core.ledgers.finding import Finding
from croupier.core.ledgers.ledger import Card, Grant, Ledger, Refused, Slot, Terms
from croupier.core.ledgers.pledge import Pledge
from croupier.core.ledgers.refit import Names
from croupier.core.placing import placement
from croupier.core.pods import want
from croupier.core.pods.pod import PodView
from croupier.core.pods.want import WHOLE, Shares, Slots, Units, Wants

LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    ledger: Ledger
    findings: tuple[Finding, ...] = ()


def rebuild(
    node: str, cards: Sequence[Card], pods: Iterable[PodView], reservations: Iterable[Pledge], now: datetime
) -> Rebuilt:
    """Older pods first, then Reservations, then pods nobody gave anything: equal records, equal ledger."""
    live = sorted((pod for pod in pods if pod.node == node and not pod.finished), key=age)
    promised = sorted((one for one in reservations if one.node == node), key=lambda one: (one.pod, one.name))
    pledges = {one.pod: one for one in reversed(promised)}
    names = refit.names(node, cards)
    grants = {pod.holder: allotted(pod, names, pledges.get(pod.key)) for pod in live}

    waiting = [refit.translate(one.grant, names) for one in promised]
    book = _opened(node, cards, [*grants.values(), *waiting])
    book, findings = _allocated(book, live, grants, pledges)
    book, more = _promised(book, promised, names, now)
    findings += more
    for pod in live:
        if not grants[pod.holder]:
            book, found = adopt(book, pod, sick={card.id for card in cards if not card.healthy})
            findings += found
    return Rebuilt(_with_health(book, cards), tuple(findings))


def age(pod: PodView) -> tuple[datetime, str, str]:
    """The order in which pods came, for `sorted`."""
    return (pod.created or LONG_AGO, pod.key, pod.uid)


def allotted(pod: PodView, names: Names, pledge: Pledge | None = None) -> Grant:
    """Its allocation by the names of today, as far as it can be believed.

    Whoever may create a bound pod can write an allocation into it. It counts if the pod asks for that
    much, or if a Reservation is behind it. Slots of made-up cards that are gone are only a number.
    """
    if pledge is None and not plausible(pod.grant, pod.wants):
        return ()
    if pledge is not None and not pod.grant:
        return refit.translate(pledge.grant, names)
    grant = refit.translate(pod.grant, names, pod.indexes)
    gone = (part.card for part in grant if part.card not in names.cards)
    return () if any(capacity.is_made_up(names.node, card) for card in gone) else grant


def plausible(grant: Grant, wants: Wants) -> bool:
    """Nobody who asks for `wants` would be given more than this."""
    units = sum(one.count for one in wants if isinstance(one, Units))
    cards = sum(one.cards for one in wants if isinstance(one, Shares)) + units
    percent = sum(one.cards * one.percent for one in wants if isinstance(one, Shares)) + WHOLE * units
    slots = sum(one.count for one in wants if isinstance(one, Slots)) + units
    return (
        sum(1 for part in grant if part.share) <= cards
        and sum(part.share for part in grant) <= percent
        and sum(len(part.slots) for part in grant) <= slots
    )


def adopt(book: Ledger, pod: PodView, *, sick: Collection[str] = ()) -> tuple[Ledger, list[Finding]]:
    """Count a pod that somebody else bound on cards that are free; rather not on those that are `sick`."""
    if not pod.wants:
        return book, [_unreadable(book.node, pod)] if pod.trouble and pod.marked else []
    chosen = placement.choose(_with_sick(book, sick), pod.wants, "BinPack")
    if isinstance(chosen, Refused):
        chosen = placement.choose(book, pod.wants, "BinPack")
    uses = f"pod {pod.key} runs on node {book.node} and uses {want.sentence(pod.wants)}"
    if isinstance(chosen, Refused):
        return book, [Finding("Overlap", f"{uses}, which is more than is left: {chosen}", holder=pod.holder)]
    given = ledger.give(book, pod.holder, chosen, Terms(bound=True))
    if isinstance(given, Refused):
        return book, [Finding("Overlap", f"{uses}, which cannot be counted: {given}", holder=pod.holder)]
    where = ", ".join(part.card for part in chosen)
    return given, [Finding("Ghost", f"{uses} that nobody gave it; counted on {where}", holder=pod.holder)]


def regardless(book: Ledger, holder: str, grant: Grant, terms: Terms) -> Ledger | Refused:
    """As `ledger.give`, even of sick cards: a pod that runs on one has it already."""
    sick = {card.id for card in book.cards if not card.healthy}
    well = replace(book, cards=tuple(replace(card, healthy=True) for card in book.cards))
    given = ledger.give(well, holder, grant, terms)
    return given if isinstance(given, Refused) else _with_sick(given, sick)


def _unreadable(node: str, pod: PodView) -> Finding:
    sentence = f"pod {pod.key} runs on node {node}, and what it uses cannot be read: {pod.trouble}"
    return Finding("Ghost", sentence, holder=pod.holder)


def _opened(node: str, cards: Sequence[Card], grants: Collection[Grant]) -> Ledger:
    """The cards with nobody on them, all fit to hold: pods go on using a card that is ill or vanished."""
    empty = [replace(card, healthy=True, holders={}, slots=_free(card.slots)) for card in cards]
    known = {card.id for card in empty}
    numbers = (n for n in range(capacity.MOST_INDEX + 1) if n not in {card.index for card in empty})
    for part in sorted((part for grant in grants for part in grant), key=lambda part: part.card):
        if part.card not in known and len(empty) < ledger.MOST_CARDS:
            known.add(part.card)
            empty.append(_lost(part.card, next(numbers), grants))
    return Ledger(node, tuple(sorted(empty, key=lambda card: (card.index, card.id))))


def _free(slots: Iterable[Slot]) -> tuple[Slot, ...]:
    return tuple(replace(slot, holder="") for slot in slots)


def _lost(card_id: str, index: int, grants: Collection[Grant]) -> Card:
    """A card nobody reports any more, as far as what pods have of it tells."""
    ids = sorted({slot for grant in grants for part in grant if part.card == card_id for slot in part.slots})
    if not ids:
        return Card(card_id, index)
    slots = (Slot(slot, slot.rpartition("-")[0] or slot, start, 1) for start, slot in enumerate(ids))
    return Card(card_id, index, mode="MIG", slots=tuple(slots)[: capacity.MOST_SLOTS])


def _allocated(
    book: Ledger, live: Iterable[PodView], grants: Mapping[str, Grant], pledges: Mapping[str, Pledge]
) -> tuple[Ledger, list[Finding]]:
    """Every pod on the cards its allocation names."""
    findings = []
    for pod in live:
        if not grants[pod.holder]:
            continue
        pledge = pledges.get(pod.key)
        terms = Terms(bound=True, reservation=pledge.name if pledge is not None else "")
        given = ledger.give(book, pod.holder, grants[pod.holder], terms)
        if isinstance(given, Refused):
            sentence = f"pod {pod.key} runs on node {book.node} with cards that others have: {given}"
            findings.append(Finding("Overlap", sentence, holder=pod.holder))
        else:
            book = given
    return book, findings


def _promised(
    book: Ledger, promised: Iterable[Pledge], names: Names, now: datetime
) -> tuple[Ledger, list[Finding]]:
    """Every Reservation whose pod is not here yet."""
    findings = []
    bound = {key_of(holder) for holder in book.reservations}
    for pledge in promised:
        if pledge.pod in bound:
            continue
        grant = refit.translate(pledge.grant, names)
        given = ledger.give(book, pledge.pod, grant, pledge.terms(now))
        if isinstance(given, Refused) or given is book:
            why = given if isinstance(given, Refused) else "another Reservation for the pod holds cards"
            sentence = f"Reservation {pledge.name} for pod {pledge.pod} does not hold what it says: {why}"
            findings.append(Finding("Overlap", sentence, holder=pledge.pod))
        else:
            book = given
    return book, findings


def key_of(holder: str) -> str:
    """`namespace/pod` of a holder."""
    return "/".join(holder.split("/")[:2])


def _with_sick(book: Ledger, sick: Collection[str]) -> Ledger:
    if not sick:
        return book
    cards = (replace(card, healthy=False) if card.id in sick else card for card in book.cards)
    return replace(book, cards=tuple(cards))


def _with_health(book: Ledger, reported: Sequence[Card]) -> Ledger:
    """A card that nobody reports is there only because somebody has it."""
    health = {card.id: card.healthy for card in reported}
    cards = (replace(card, healthy=health.get(card.id, False)) for card in book.cards)
    kept = (card for card in cards if card.id in health or not card.is_free)
    return replace(book, cards=tuple(kept))
