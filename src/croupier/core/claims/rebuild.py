"""Rebuilds the ledger of a node from pods and Reservations.

Without a NodeReservation two records outlive a process: the allocation in a pod's Binding and the status of
Reservations. Pods that another scheduler bound have neither but use cards as well. Contradictions become
findings; no record can overcommit a card, and a pod's annotation can never claim more than the pod requests.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Final

from croupier.core.ledger import change_layout, ledger, reported_cards, sync_cards
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.reported_cards import NodeCardReport
from croupier.core.ledger.reservation_hold import ReservationHold
from croupier.core.ledger.sync_cards import CardNames
from croupier.core.model import card_request
from croupier.core.model.card import MAX_CARDS, Grant, LedgerCard, MigSlot
from croupier.core.model.card_request import WHOLE_CARD, CardRequest, CardShares, MigDevices, PoolUnits
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement

EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RebuiltLedger:
    ledger: Ledger
    findings: tuple[LedgerFinding, ...] = ()


def rebuild(
    report: NodeCardReport, pods: Iterable[PodView], reservations: Iterable[ReservationHold], now: datetime
) -> RebuiltLedger:
    """Older pods first, then Reservations, then pods without allocation. The result is deterministic.

    A node without inventory reports only how many cards it has: the cards of pods and Reservations are kept.
    """
    node = report.node
    live = sorted((pod for pod in pods if pod.node == node and not pod.finished), key=by_age)
    promised = sorted(
        (hold for hold in reservations if hold.node == node), key=lambda hold: (hold.pod, hold.name)
    )
    report = _with_pools_of_pods(report, live)
    recorded = (*(pod.grant for pod in live), *(hold.grant for hold in promised))
    cards = reported_cards.from_report(report, chain.from_iterable(recorded)).cards
    pledges = {hold.pod: hold for hold in reversed(promised)}
    names = sync_cards.card_names(node, cards)
    grants = {pod.holder: allocated_grant(pod, names, pledges.get(pod.key)) for pod in live}

    waiting = [sync_cards.translate(hold.grant, names) for hold in promised]
    rebuilt = _empty_ledger(node, cards, [*grants.values(), *waiting])
    rebuilt, findings = _with_pods(rebuilt, live, grants, pledges)
    rebuilt, more = _with_reservations(rebuilt, promised, names, now)
    findings += more
    for pod in live:
        if not grants[pod.holder]:
            rebuilt, more = adopt(rebuilt, pod, unhealthy={card.id for card in cards if not card.healthy})
            findings += more
    return RebuiltLedger(_with_health(rebuilt, cards), tuple(findings))


def _with_pools_of_pods(report: NodeCardReport, live: Iterable[PodView]) -> NodeCardReport:
    """The report with the pools of pods that hold cards without a pool.

    The record of a card is lost with its Node object. While a pod of a pool holds it, it is in that pool.
    """
    pools = {
        part.card: want.pool
        for pod in live
        if is_plausible(pod.grant, pod.wants, {})
        for want in pod.wants
        if want.pool in report.pools
        for part in pod.grant
    }
    lost = {device.id for device in report.devices if not device.pool} & pools.keys()
    if not lost:
        return report
    devices = (replace(card, pool=pools[card.id]) if card.id in lost else card for card in report.devices)
    return replace(report, devices=tuple(devices))


def by_age(pod: PodView) -> tuple[datetime, str, str]:
    """Sort key: creation time, then name."""
    return (pod.created or EARLIEST, pod.key, pod.uid)


def allocated_grant(pod: PodView, names: CardNames, reservation_hold: ReservationHold | None = None) -> Grant:
    """The pod's allocation with current card names, if it is trustworthy.

    Every user who may create a bound pod can write an allocation into it. The allocation counts if the pod
    requests at least that much, or if its Reservation holds that much. Slots of placeholder cards that no
    longer exist are ignored.
    """
    reserved = reservation_hold.grant if reservation_hold is not None else ()
    if not pod.grant and reserved:
        return sync_cards.translate(reserved, names)
    if not is_plausible(pod.grant, pod.wants, names.cards) and not _is_no_larger(pod.grant, reserved):
        return sync_cards.translate(reserved, names)
    grant = sync_cards.translate(pod.grant, names, pod.indexes)
    gone = (part.card for part in grant if part.card not in names.cards)
    return () if any(reported_cards.is_placeholder(names.node, card) for card in gone) else grant


def is_plausible(grant: Grant, wants: CardRequest, cards: Mapping[str, LedgerCard]) -> bool:
    """Whether the grant is not larger than the request `wants`.

    Units of a pool are counted as the pool's `cards` count them. On a card that is not known, or has left the
    pool, a unit may be a whole card.
    """
    return _within_units(grant, wants, cards) and _within_totals(grant, wants)


def _is_no_larger(grant: Grant, reserved: Grant) -> bool:
    """A Reservation holds the same share of each of its cards."""
    most = max((part.share for part in reserved), default=0)
    return len(grant) <= len(reserved) and all(part.share <= most and not part.slots for part in grant)


def _within_units(grant: Grant, wants: CardRequest, cards: Mapping[str, LedgerCard]) -> bool:
    left = Counter({item.pool: item.count for item in wants if isinstance(item, PoolUnits)})
    for part in grant:
        card = cards.get(part.card)
        if card is not None and card.pool in left:
            left[card.pool] -= card.units(part)
    return all(count >= 0 for count in left.values())


def _within_totals(grant: Grant, wants: CardRequest) -> bool:
    units = sum(item.count for item in wants if isinstance(item, PoolUnits))
    cards = sum(item.cards for item in wants if isinstance(item, CardShares)) + units
    percent = (
        sum(item.cards * item.percent for item in wants if isinstance(item, CardShares)) + WHOLE_CARD * units
    )
    slots = sum(item.count for item in wants if isinstance(item, MigDevices)) + units
    return (
        sum(1 for part in grant if part.share) <= cards
        and sum(part.share for part in grant) <= percent
        and sum(len(part.slots) for part in grant) <= slots
    )


def adopt(
    current: Ledger, pod: PodView, *, unhealthy: Collection[str] = ()
) -> tuple[Ledger, list[LedgerFinding]]:
    """Add a pod that another scheduler bound as holder of free cards, preferably not of unhealthy ones.

    The pod runs already, so its share may be smaller than that of new holders.
    """
    if not pod.wants:
        return current, [_unreadable(current.node, pod)] if pod.trouble and pod.marked else []
    any_share = replace(current, cards=tuple(replace(card, smallest=1) for card in current.cards))
    chosen = placement.choose(_with_unhealthy(any_share, unhealthy), pod.wants, "BinPack")
    if isinstance(chosen, Refusal):
        chosen = placement.choose(any_share, pod.wants, "BinPack")
    uses = f"pod {pod.key} runs on node {current.node} and uses {card_request.describe(pod.wants)}"
    if isinstance(chosen, Refusal):
        return current, [
            LedgerFinding("Overlap", f"{uses}, which is more than is free: {chosen}", holder=pod.holder)
        ]
    given = ledger.give(current, pod.holder, chosen, HoldTerms(bound=True))
    if isinstance(given, Refusal):
        return current, [
            LedgerFinding("Overlap", f"{uses}, which cannot be counted: {given}", holder=pod.holder)
        ]
    where = ", ".join(part.card for part in chosen)
    return given, [
        LedgerFinding("Ghost", f"{uses} without an allocation; counted on {where}", holder=pod.holder)
    ]


def give_even_if_unhealthy(current: Ledger, holder: str, grant: Grant, terms: HoldTerms) -> Ledger | Refusal:
    """Like `ledger.give`, but also on unhealthy cards: a pod that already runs on one keeps it."""
    unhealthy = {card.id for card in current.cards if not card.healthy}
    all_healthy = replace(current, cards=tuple(replace(card, healthy=True) for card in current.cards))
    given = ledger.give(all_healthy, holder, grant, terms)
    return given if isinstance(given, Refusal) else _with_unhealthy(given, unhealthy)


def _unreadable(node: str, pod: PodView) -> LedgerFinding:
    sentence = f"pod {pod.key} runs on node {node}, but its card request cannot be read: {pod.trouble}"
    return LedgerFinding("Ghost", sentence, holder=pod.holder)


def _empty_ledger(node: str, cards: Sequence[LedgerCard], grants: Collection[Grant]) -> Ledger:
    """All cards without holders and healthy, because pods keep using unhealthy and unreported cards."""
    empty = [replace(change_layout.without_holders(card), healthy=True) for card in cards]
    known = {card.id for card in empty}
    numbers = (n for n in range(reported_cards.MAX_INDEX + 1) if n not in {card.index for card in empty})
    for part in sorted((part for grant in grants for part in grant), key=lambda part: part.card):
        if part.card not in known and len(empty) < MAX_CARDS:
            known.add(part.card)
            empty.append(_unreported_card(part.card, next(numbers), grants))
    return Ledger(node, tuple(sorted(empty, key=LedgerCard.order)))


def _unreported_card(card_id: str, index: int, grants: Collection[Grant]) -> LedgerCard:
    """A card that is no longer reported, as described by the grants of its pods."""
    ids = sorted({slot for grant in grants for part in grant if part.card == card_id for slot in part.slots})
    if not ids:
        return LedgerCard(card_id, index)
    slots = (MigSlot(slot, slot.rpartition("-")[0] or slot, start, 1) for start, slot in enumerate(ids))
    return LedgerCard(card_id, index, mode="MIG", slots=tuple(slots)[: reported_cards.MAX_SLOTS])


def _with_pods(
    current: Ledger,
    live: Iterable[PodView],
    grants: Mapping[str, Grant],
    reservation_holds: Mapping[str, ReservationHold],
) -> tuple[Ledger, list[LedgerFinding]]:
    """Add every pod as holder of its allocated cards."""
    findings = []
    for pod in live:
        if not grants[pod.holder]:
            continue
        pledge = reservation_holds.get(pod.key)
        terms = HoldTerms(bound=True, reservation=pledge.name if pledge is not None else "")
        given = ledger.give(current, pod.holder, grants[pod.holder], terms)
        if isinstance(given, Refusal):
            sentence = f"pod {pod.key} runs on node {current.node} with cards of other holders: {given}"
            findings.append(LedgerFinding("Overlap", sentence, holder=pod.holder))
        else:
            current = given
    return current, findings


def _with_reservations(
    current: Ledger, promised: Iterable[ReservationHold], names: CardNames, now: datetime
) -> tuple[Ledger, list[LedgerFinding]]:
    """Add every Reservation whose pod is not bound here yet."""
    findings = []
    bound = {holder_names.pod_key(holder) for holder in current.reservations}
    for pledge in promised:
        if pledge.pod in bound:
            continue
        grant = sync_cards.translate(pledge.grant, names)
        given = ledger.give(current, pledge.pod, grant, pledge.terms(now))
        if isinstance(given, Refusal) or given is current:
            why = given if isinstance(given, Refusal) else "another Reservation for the pod holds cards"
            sentence = (
                f"Reservation {pledge.name} for pod {pledge.pod} does not hold the cards in its status: {why}"
            )
            findings.append(LedgerFinding("Overlap", sentence, holder=pledge.pod))
        else:
            current = given
    return current, findings


def _with_unhealthy(current: Ledger, unhealthy: Collection[str]) -> Ledger:
    if not unhealthy:
        return current
    cards = (replace(card, healthy=False) if card.id in unhealthy else card for card in current.cards)
    return replace(current, cards=tuple(cards))


def _with_health(current: Ledger, reported: Sequence[LedgerCard]) -> Ledger:
    """Restore health from the report; an unreported card is kept, unhealthy, only while it has holders."""
    known = {card.id: card for card in reported}
    cards = (_as_reported(card, known.get(card.id)) for card in current.cards)
    kept = (card for card in cards if card.id in known or not card.is_free)
    return replace(current, cards=tuple(kept))


def _as_reported(card: LedgerCard, reported: LedgerCard | None) -> LedgerCard:
    if reported is None:
        return replace(card, healthy=False, withheld=None)
    return replace(card, healthy=reported.healthy, withheld=reported.withheld)
