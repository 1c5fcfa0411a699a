"""Rebuilds the ledger of a node from pods and Reservations.

Without a NodeReservation two records outlive a process: the allocation in a pod's Binding and the status of
Reservations. Pods that another scheduler bound have neither but use cards as well. Contradictions become
findings; no record can overcommit a card, and a pod's annotation can never claim more than the pod requests.
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
    """Older pods first, then Reservations, then pods without allocation. The result is deterministic."""
    live = sorted((pod for pod in pods if pod.node == node and not pod.finished), key=age)
    promised = sorted(
        (hold for hold in reservations if hold.node == node), key=lambda hold: (hold.pod, hold.name)
    )
    pledges = {hold.pod: hold for hold in reversed(promised)}
    names = refit.names(node, cards)
    grants = {pod.holder: allotted(pod, names, pledges.get(pod.key)) for pod in live}

    waiting = [refit.translate(hold.grant, names) for hold in promised]
    rebuilt = _opened(node, cards, [*grants.values(), *waiting])
    rebuilt, findings = _allocated(rebuilt, live, grants, pledges)
    rebuilt, more = _promised(rebuilt, promised, names, now)
    findings += more
    for pod in live:
        if not grants[pod.holder]:
            rebuilt, more = adopt(rebuilt, pod, sick={card.id for card in cards if not card.healthy})
            findings += more
    return Rebuilt(_with_health(rebuilt, cards), tuple(findings))


def age(pod: PodView) -> tuple[datetime, str, str]:
    """Sort key: creation time, then name."""
    return (pod.created or LONG_AGO, pod.key, pod.uid)


def allotted(pod: PodView, names: Names, pledge: Pledge | None = None) -> Grant:
    """The pod's allocation with current card names, if it is trustworthy.

    Every user who may create a bound pod can write an allocation into it. The allocation counts if the pod
    requests at least that much, or if the pod has a Reservation. Slots of placeholder cards that no longer
    exist are ignored.
    """
    if pledge is None and not plausible(pod.grant, pod.wants):
        return ()
    if pledge is not None and not pod.grant:
        return refit.translate(pledge.grant, names)
    grant = refit.translate(pod.grant, names, pod.indexes)
    gone = (part.card for part in grant if part.card not in names.cards)
    return () if any(capacity.is_made_up(names.node, card) for card in gone) else grant


def plausible(grant: Grant, wants: Wants) -> bool:
    """Whether the grant is not larger than the request `wants`."""
    units = sum(item.count for item in wants if isinstance(item, Units))
    cards = sum(item.cards for item in wants if isinstance(item, Shares)) + units
    percent = sum(item.cards * item.percent for item in wants if isinstance(item, Shares)) + WHOLE * units
    slots = sum(item.count for item in wants if isinstance(item, Slots)) + units
    return (
        sum(1 for part in grant if part.share) <= cards
        and sum(part.share for part in grant) <= percent
        and sum(len(part.slots) for part in grant) <= slots
    )


def adopt(current: Ledger, pod: PodView, *, sick: Collection[str] = ()) -> tuple[Ledger, list[Finding]]:
    """Add a pod that another scheduler bound as holder of free cards, preferably not of unhealthy ones."""
    if not pod.wants:
        return current, [_unreadable(current.node, pod)] if pod.trouble and pod.marked else []
    chosen = placement.choose(_with_sick(current, sick), pod.wants, "BinPack")
    if isinstance(chosen, Refused):
        chosen = placement.choose(current, pod.wants, "BinPack")
    uses = f"pod {pod.key} runs on node {current.node} and uses {want.sentence(pod.wants)}"
    if isinstance(chosen, Refused):
        return current, [
            Finding("Overlap", f"{uses}, which is more than is free: {chosen}", holder=pod.holder)
        ]
    given = ledger.give(current, pod.holder, chosen, Terms(bound=True))
    if isinstance(given, Refused):
        return current, [Finding("Overlap", f"{uses}, which cannot be counted: {given}", holder=pod.holder)]
    where = ", ".join(part.card for part in chosen)
    return given, [Finding("Ghost", f"{uses} without an allocation; counted on {where}", holder=pod.holder)]


def regardless(current: Ledger, holder: str, grant: Grant, terms: Terms) -> Ledger | Refused:
    """Like `ledger.give`, but also on unhealthy cards: a pod that already runs on one keeps it."""
    unhealthy = {card.id for card in current.cards if not card.healthy}
    all_healthy = replace(current, cards=tuple(replace(card, healthy=True) for card in current.cards))
    given = ledger.give(all_healthy, holder, grant, terms)
    return given if isinstance(given, Refused) else _with_sick(given, unhealthy)


def _unreadable(node: str, pod: PodView) -> Finding:
    sentence = f"pod {pod.key} runs on node {node}, but its card request cannot be read: {pod.trouble}"
    return Finding("Ghost", sentence, holder=pod.holder)


def _opened(node: str, cards: Sequence[Card], grants: Collection[Grant]) -> Ledger:
    """All cards without holders and healthy, because pods keep using unhealthy and unreported cards."""
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
    """A card that is no longer reported, as described by the grants of its pods."""
    ids = sorted({slot for grant in grants for part in grant if part.card == card_id for slot in part.slots})
    if not ids:
        return Card(card_id, index)
    slots = (Slot(slot, slot.rpartition("-")[0] or slot, start, 1) for start, slot in enumerate(ids))
    return Card(card_id, index, mode="MIG", slots=tuple(slots)[: capacity.MOST_SLOTS])


def _allocated(
    current: Ledger, live: Iterable[PodView], grants: Mapping[str, Grant], pledges: Mapping[str, Pledge]
) -> tuple[Ledger, list[Finding]]:
    """Add every pod as holder of its allocated cards."""
    findings = []
    for pod in live:
        if not grants[pod.holder]:
            continue
        pledge = pledges.get(pod.key)
        terms = Terms(bound=True, reservation=pledge.name if pledge is not None else "")
        given = ledger.give(current, pod.holder, grants[pod.holder], terms)
        if isinstance(given, Refused):
            sentence = f"pod {pod.key} runs on node {current.node} with cards of other holders: {given}"
            findings.append(Finding("Overlap", sentence, holder=pod.holder))
        else:
            current = given
    return current, findings


def _promised(
    current: Ledger, promised: Iterable[Pledge], names: Names, now: datetime
) -> tuple[Ledger, list[Finding]]:
    """Add every Reservation whose pod is not bound here yet."""
    findings = []
    bound = {key_of(holder) for holder in current.reservations}
    for pledge in promised:
        if pledge.pod in bound:
            continue
        grant = refit.translate(pledge.grant, names)
        given = ledger.give(current, pledge.pod, grant, pledge.terms(now))
        if isinstance(given, Refused) or given is current:
            why = given if isinstance(given, Refused) else "another Reservation for the pod holds cards"
            sentence = (
                f"Reservation {pledge.name} for pod {pledge.pod} does not hold the cards in its status: {why}"
            )
            findings.append(Finding("Overlap", sentence, holder=pledge.pod))
        else:
            current = given
    return current, findings


def key_of(holder: str) -> str:
    """`namespace/pod` of a holder."""
    return "/".join(holder.split("/")[:2])


def _with_sick(current: Ledger, sick: Collection[str]) -> Ledger:
    if not sick:
        return current
    cards = (replace(card, healthy=False) if card.id in sick else card for card in current.cards)
    return replace(current, cards=tuple(cards))


def _with_health(current: Ledger, reported: Sequence[Card]) -> Ledger:
    """Restore health from the report; an unreported card is kept, unhealthy, only while it has holders."""
    health = {card.id: card.healthy for card in reported}
    cards = (replace(card, healthy=health.get(card.id, False)) for card in current.cards)
    kept = (card for card in cards if card.id in health or not card.is_free)
    return replace(current, cards=tuple(kept))
