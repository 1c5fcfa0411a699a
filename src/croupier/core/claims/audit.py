"""Compares the ledger, the pods and the node's report; finds differences and their repairs.

Leak: a holder without a live pod on the node and without a Reservation.
Ghost: a live pod on the node that uses cards and holds none.
Overlap: more is allocated or used than exists, or one pod holds cards under two names.
WrongCard: the ledger and the allocation in the pod's binding name different cards.
Drift: the cards of the ledger differ from the cards that the node reports.
Stranger: a process runs on a card that its pod does not hold, or that belongs to no pod.

A repair is a change that is safe on any ledger: it never takes cards from a live pod, never overcommits, and
does nothing if the difference no longer exists. A difference without a safe repair is only reported. A single
comparison proves nothing (a bind in progress looks like a Ghost, a pod that just ended like a Leak), so
`confirmed` keeps only differences that two comparisons show.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from croupier.core.claims import holder_lifecycle, rebuild
from croupier.core.ledger import change_layout, ledger, reported_cards, sync_cards
from croupier.core.ledger import holder as holder_names
from croupier.core.ledger.finding import LedgerFinding
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.ledger.reported_cards import CountedCards, NodeCardReport
from croupier.core.ledger.reservation_hold import ReservationHold
from croupier.core.ledger.sync_cards import CardNames
from croupier.core.model import card_request
from croupier.core.model.card import Grant, LedgerCard
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal


@dataclass(frozen=True, slots=True)
class AuditInputs:
    """The state of one node for one comparison."""

    ledger: Ledger
    report: NodeCardReport
    pods: Mapping[str, PodView] = field(default_factory=dict)
    """The pods on the node and the pods of its holders, by `namespace/name`."""
    reservation_holds: Mapping[str, ReservationHold] = field(default_factory=dict)
    """Reservations that hold cards of the node, by `namespace/name` of their pod."""
    reservations: Collection[str] = ()
    """`namespace/name` of every existing Reservation."""
    strangers: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Who uses each card without holding it, as the node's agent reports: holders, or sentences' subjects."""

    def live(self) -> list[PodView]:
        """The unfinished pods of the node, oldest first."""
        here = (pod for pod in self.pods.values() if pod.node == self.ledger.node and not pod.finished)
        return sorted(here, key=rebuild.by_age)


@dataclass(frozen=True, slots=True)
class ReleaseHolder:
    """Release a holder without a pod."""

    holder: str


@dataclass(frozen=True, slots=True)
class AdoptPod:
    """Add a pod as holder of its allocated cards, or of free cards."""

    pod: PodView
    reservation_hold: ReservationHold | None = None


@dataclass(frozen=True, slots=True)
class MoveGrants:
    """Change the grants of these pods to their allocations: all of them or none."""

    grants: tuple[tuple[str, Grant], ...]


@dataclass(frozen=True, slots=True)
class SyncCards:
    """Take over the cards that the node reports."""

    report: NodeCardReport


LedgerRepair: TypeAlias = ReleaseHolder | AdoptPod | MoveGrants | SyncCards


@dataclass(frozen=True, slots=True)
class Divergence:
    finding: LedgerFinding
    repair: LedgerRepair | None = None
    """None: there is no safe automatic repair."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Identifies the difference across comparisons, even if the figures in its message change."""
        return (self.finding.kind, self.finding.card, self.finding.holder)


def compare(world: AuditInputs) -> tuple[Divergence, ...]:
    """All differences, in the order in which they should be repaired."""
    counted = reported_cards.from_report(world.report, sync_cards.in_use(world.ledger))
    names = _current_names(world.ledger, counted)
    return (
        *_drift(world, counted),
        *_leaks(world),
        *_overlaps(world),
        *_wrong_cards(world, names),
        *ghosts(world),
        *strangers(world),
    )


def confirmed(before: Iterable[Divergence], now: Iterable[Divergence]) -> tuple[Divergence, ...]:
    """The differences of `now` that are also in `before`."""
    known = {divergence.identity for divergence in before}
    return tuple(divergence for divergence in now if divergence.identity in known)


def apply(held: Ledger, repair: LedgerRepair) -> Ledger:
    match repair:
        case ReleaseHolder(holder=holder):
            return holder_lifecycle.free(held, holder)
        case AdoptPod(pod=pod, reservation_hold=pledge):
            return _adopted(held, pod, pledge)
        case MoveGrants(grants=grants):
            return _moved(held, grants)
        case SyncCards(report=report):
            return sync_cards.sync(held, report)


def _drift(world: AuditInputs, counted: CountedCards) -> list[Divergence]:
    """Cards that can be changed to match the report, and cards whose holders prevent it."""
    held, fitted = world.ledger, sync_cards.with_cards(world.ledger, counted.cards)
    old, new = ({card.id: card for card in ledger_.cards} for ledger_ in (held, fitted))
    divergences = [
        Divergence(
            LedgerFinding("Drift", _changed(old.get(card), new.get(card), card), card),
            SyncCards(world.report),
        )
        for card in sorted(old.keys() | new.keys())
        if old.get(card) != new.get(card)
    ]
    divergences += [Divergence(LedgerFinding("Drift", trouble)) for trouble in counted.troubles]
    return divergences + [Divergence(stuck) for stuck in _blocked_by_holders(fitted, counted)]


def _changed(old: LedgerCard | None, new: LedgerCard | None, card_id: str) -> str:
    if old is None:
        return f"the node reports card {card_id}, which the ledger does not have"
    if new is None:
        return f"the ledger has card {card_id}, which the node does not report"
    return f"the node and the ledger differ about card {card_id}"


def _blocked_by_holders(fitted: Ledger, counted: CountedCards) -> list[LedgerFinding]:
    reported = {card.id: card for card in counted.cards}
    findings = []
    for card in fitted.cards:
        now = reported.get(card.id)
        if now is not None and change_layout.same_layout(card, now):
            continue
        change = (
            "is no longer reported"
            if now is None
            else f"is reported in mode {now.mode} or with another layout"
        )
        holders = ", ".join(sorted(holder for holder in fitted.holders() if card.holds(holder)))
        findings.append(
            LedgerFinding("Drift", f"card {card.id} {change}, but is still held by {holders}", card.id)
        )
    return findings


def _leaks(world: AuditInputs) -> list[Divergence]:
    leaks = []
    for holder in sorted(world.ledger.holders()):
        if (why := _leak_reason(world, holder)) is not None:
            sentence = f"{holder} holds {_describe(world.ledger.grant(holder))}, but {why}"
            leaks.append(Divergence(LedgerFinding("Leak", sentence, holder=holder), ReleaseHolder(holder)))
    return leaks


def _leak_reason(world: AuditInputs, holder: str) -> str | None:
    """Why the holder cannot be using its cards; None if it may use them."""
    key = holder_names.reservation_holder(holder)
    if not key:
        return _reservation_leak_reason(world, holder)
    pod = world.pods.get(key)
    if pod is None or pod.holder != holder:
        return "the pod does not exist"
    if pod.finished:
        return "the pod has ended"
    return f"the pod is on node {pod.node}" if pod.node not in ("", world.ledger.node) else None


def _reservation_leak_reason(world: AuditInputs, holder: str) -> str | None:
    """The same for a holder without UID, which needs a Reservation, an expiry or a pod that takes it over."""
    pod, name = world.pods.get(holder), world.ledger.reservations.get(holder)
    if pod is not None and pod.node == world.ledger.node and not pod.finished:
        return None
    if name is not None:
        kept = f"{holder.partition('/')[0]}/{name}" in world.reservations
        return None if kept else f"Reservation {name} is gone"
    return None if holder in world.ledger.held else "it has neither a pod nor a Reservation"


def _overlaps(world: AuditInputs) -> list[Divergence]:
    overlaps = [
        Divergence(LedgerFinding("Overlap", violation))
        for violation in ledger.invariant_violations(world.ledger)
    ]
    for pod in world.live():
        if world.ledger.grant(pod.holder) and world.ledger.grant(pod.key):
            sentence = (
                f"pod {pod.key} holds cards of node {world.ledger.node} twice: with and without its UID"
            )
            repair = None if pod.key in world.ledger.reservations else ReleaseHolder(pod.key)
            overlaps.append(Divergence(LedgerFinding("Overlap", sentence, holder=pod.key), repair))
    return overlaps


def _wrong_cards(world: AuditInputs, names: CardNames) -> list[Divergence]:
    wrong: list[tuple[str, Grant]] = []
    for pod in world.live():
        held = world.ledger.grant(pod.holder)
        allotted = rebuild.allocated_grant(pod, names, world.reservation_holds.get(pod.key))
        if held and allotted and _parts(held) != _parts(allotted):
            wrong.append((pod.holder, allotted))
    together = MoveGrants(tuple(wrong))
    joint = bool(wrong) and apply(world.ledger, together) != world.ledger
    return [_wrong_card(world.ledger, entry, together if joint else MoveGrants((entry,))) for entry in wrong]


def _current_names(held: Ledger, counted: CountedCards) -> CardNames:
    """The names of the cards, without placeholders that the node no longer reports.

    Such a placeholder stays while a pod holds it, but says nothing about where other pods are: syncing moves
    them to real devices, and moving them back would never end.
    """
    reported = {card.id for card in counted.cards}
    current = (
        card
        for card in held.cards
        if card.id in reported or not reported_cards.is_placeholder(held.node, card.id)
    )
    return sync_cards.card_names(held.node, current)


def _wrong_card(held: Ledger, entry: tuple[str, Grant], repair: MoveGrants) -> Divergence:
    holder, allotted = entry
    sentence = (
        f"{holder} was allocated {_describe(allotted)}, but the ledger has {_describe(held.grant(holder))}"
    )
    possible = apply(held, repair) != held
    finding = LedgerFinding("WrongCard", sentence, card=allotted[0].card, holder=holder)
    return Divergence(finding, repair if possible else None)


def ghosts(world: AuditInputs) -> list[Divergence]:
    found = []
    for pod in world.live():
        if world.ledger.grant(pod.holder) or world.ledger.grant(pod.key):
            continue
        pledge = world.reservation_holds.get(pod.key)
        if pod.wants or (pod.grant and pledge is not None) or (pod.trouble and pod.marked):
            found.append(_ghost(world.ledger, AdoptPod(pod, pledge)))
    return found


def _ghost(held: Ledger, repair: AdoptPod) -> Divergence:
    pod = repair.pod
    uses = card_request.describe(pod.wants) or (
        _describe(pod.grant) if pod.grant else f"an unreadable request: {pod.trouble}"
    )
    sentence = f"pod {pod.key} runs on node {held.node} and uses {uses}"
    if pod.trouble and not pod.grant:
        return Divergence(LedgerFinding("Ghost", sentence, holder=pod.holder))
    if apply(held, repair) == held:
        return Divergence(
            LedgerFinding("Overlap", f"{sentence}, which is more than is free", holder=pod.holder)
        )
    return Divergence(LedgerFinding("Ghost", f"{sentence} without an allocation", holder=pod.holder), repair)


def strangers(world: AuditInputs) -> list[Divergence]:
    """Without a repair: the process may be the one that should hold the card."""
    if world.report.silent:
        return []  # the report is old
    return [
        Divergence(finding)
        for card, users in sorted(world.strangers.items())
        for user in users
        if (finding := _stranger(world, card, user)) is not None
    ]


def _stranger(world: AuditInputs, card: str, user: str) -> LedgerFinding | None:
    key = holder_names.reservation_holder(user) if " " not in user else ""
    if not key:
        return LedgerFinding("Stranger", f"{user} runs on card {card} and belongs to no holder", card)
    pod = world.pods.get(key)
    if pod is None or pod.holder != user or pod.finished:
        return None  # its process is ending
    held = (*world.ledger.grant(pod.holder), *world.ledger.grant(pod.key))
    if any(part.card == card for part in held):
        return None
    sentence = f"pod {key} runs a process on card {card}, which it does not hold"
    return LedgerFinding("Stranger", sentence, card, user)


def _adopted(held: Ledger, pod: PodView, reservation_hold: ReservationHold | None) -> Ledger:
    if held.grant(pod.holder) or held.grant(pod.key):
        return held
    grant = rebuild.allocated_grant(pod, sync_cards.card_names(held.node, held.cards), reservation_hold)
    if not grant:
        return rebuild.adopt(held, pod)[0]
    terms = HoldTerms(bound=True, reservation=reservation_hold.name if reservation_hold is not None else "")
    given = rebuild.give_even_if_unhealthy(held, pod.holder, grant, terms)
    return held if isinstance(given, Refusal) else given


def _moved(held: Ledger, grants: Sequence[tuple[str, Grant]]) -> Ledger:
    moved = held
    for holder, _ in grants:
        moved = ledger.release(moved, holder)
    for holder, grant in grants:
        if not held.grant(holder):
            return held  # the holder was released in the meantime
        until, name = held.held.get(holder), held.reservations.get(holder, "")
        terms = HoldTerms(bound=holder not in held.held, until=until, reservation=name)
        given = rebuild.give_even_if_unhealthy(moved, holder, grant, terms)
        if isinstance(given, Refusal):
            return held
        moved = given
    return moved


def _parts(grant: Grant) -> set[tuple[str, int, frozenset[str]]]:
    return {(part.card, part.share, frozenset(part.slots)) for part in grant}


def _describe(grant: Grant) -> str:
    """`50 of node-1-gpu-0 and 1g.10gb-0 of node-1-gpu-1`."""
    return " and ".join(f"{', '.join(part.slots) or part.share} of {part.card}" for part in grant)


def with_pods(world: AuditInputs, live: Mapping[str, PodView | None]) -> AuditInputs:
    """The inputs with the results of live reads of these pods; None: the pod does not exist."""
    pods = {**world.pods, **live}
    return replace(world, pods={key: pod for key, pod in pods.items() if pod is not None})
