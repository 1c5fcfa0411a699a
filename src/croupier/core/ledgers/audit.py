"""Ledger against pods against what the node reports: what differs, and how it can be put right.

Leak: a holder without a live pod on the node, and without a Reservation that keeps it.
Ghost: a live pod on the node that uses cards and holds nothing.
Overlap: more is given or used than there is, or one pod holds under two names.
WrongCard: the ledger and the allocation that came with the pod's binding name different cards.
Drift: the cards of the ledger are not those the node reports.

A repair is a change that is safe on any ledger: it never takes from a live pod, never overcommits, and
does nothing where the difference is gone. What has no safe repair is named and left to people. One look
proves nothing: a bind on its way looks like a Ghost and a pod that just ended like a Leak, so
`confirmed` keeps only what two looks show.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from croupier.core.ledgers import capacity, claim, ledger, rebuild, recut, refit, settle
from croupier.core.ledgers.capacity import Counted, Report
from croupier.core.ledgers.finding import Finding
from croupier.core.ledgers.ledger import Card, Grant, Ledger, Refused, Terms
from croupier.core.ledgers.pledge import Pledge
from croupier.core.ledgers.refit import Names
from croupier.core.pods import want
from croupier.core.pods.pod import PodView


@dataclass(frozen=True, slots=True)
class World:
    """All that is known of one node at one look."""

    ledger: Ledger
    report: Report
    pods: Mapping[str, PodView] = field(default_factory=dict)
    """Those on the node and those its holders name, by `namespace/name`."""
    pledges: Mapping[str, Pledge] = field(default_factory=dict)
    """Reservations that hold cards of the node, by `namespace/name` of their pod."""
    reservations: Collection[str] = ()
    """`namespace/name` of every Reservation there is."""

    def live(self) -> list[PodView]:
        """The pods that run here, oldest first."""
        here = (pod for pod in self.pods.values() if pod.node == self.ledger.node and not pod.finished)
        return sorted(here, key=rebuild.age)


@dataclass(frozen=True, slots=True)
class Release:
    """Give back what a holder without a pod has."""

    holder: str


@dataclass(frozen=True, slots=True)
class Adopt:
    """Count a pod on the cards it was allocated, or on free ones."""

    pod: PodView
    pledge: Pledge | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """Let pods hold what they were allocated: all of these, or none."""

    grants: tuple[tuple[str, Grant], ...]


@dataclass(frozen=True, slots=True)
class Refit:
    """Take over the cards the node reports."""

    report: Report


Repair: TypeAlias = Release | Adopt | Move | Refit


@dataclass(frozen=True, slots=True)
class Divergence:
    finding: Finding
    repair: Repair | None = None
    """None: a person must look."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """The same in the next look, however its numbers change meanwhile."""
        return (self.finding.kind, self.finding.card, self.finding.holder)


def look(world: World) -> tuple[Divergence, ...]:
    """Everything that differs, in the order in which repairs are best made."""
    names = refit.names(world.ledger.node, world.ledger.cards)
    return (*_drift(world), *_leaks(world), *_twice(world), *_wrong_cards(world, names), *_ghosts(world))


def confirmed(before: Iterable[Divergence], now: Iterable[Divergence]) -> tuple[Divergence, ...]:
    """What both looks show, as the later one shows it."""
    seen = {one.identity for one in before}
    return tuple(one for one in now if one.identity in seen)


def apply(held: Ledger, repair: Repair) -> Ledger:
    match repair:
        case Release(holder=holder):
            return settle.free(held, holder)
        case Adopt(pod=pod, pledge=pledge):
            return _adopted(held, pod, pledge)
        case Move(grants=grants):
            return _moved(held, grants)
        case Refit(report=report):
            return refit.refit(held, report)


def _drift(world: World) -> list[Divergence]:
    """Cards that can follow the report, and cards whose holders keep them from it."""
    held, fitted = world.ledger, refit.refit(world.ledger, world.report)
    counted = capacity.count(world.report, refit.in_use(held))
    old, new = ({card.id: card for card in one.cards} for one in (held, fitted))
    found = [
        Divergence(Finding("Drift", _changed(old.get(card), new.get(card), card), card), Refit(world.report))
        for card in sorted(old.keys() | new.keys())
        if old.get(card) != new.get(card)
    ]
    found += [Divergence(Finding("Drift", trouble)) for trouble in counted.troubles]
    return found + [Divergence(stuck) for stuck in _stuck(fitted, counted)]


def _changed(old: Card | None, new: Card | None, card_id: str) -> str:
    if old is None:
        return f"the node reports card {card_id}, which the ledger does not have"
    if new is None:
        return f"the ledger has card {card_id}, which the node does not report"
    return f"the node reports card {card_id} otherwise than the ledger has it"


def _stuck(fitted: Ledger, counted: Counted) -> list[Finding]:
    reported = {card.id: card for card in counted.cards}
    found = []
    for card in fitted.cards:
        now = reported.get(card.id)
        if now is not None and recut.same_shape(card, now):
            continue
        what = (
            "is not reported any more" if now is None else f"is reported in mode {now.mode} or cut otherwise"
        )
        who = ", ".join(sorted(holder for holder in fitted.holders() if card.holds(holder)))
        found.append(Finding("Drift", f"card {card.id} {what}, and is still held by {who}", card.id))
    return found


def _leaks(world: World) -> list[Divergence]:
    found = []
    for holder in sorted(world.ledger.holders()):
        if (why := _nobody(world, holder)) is not None:
            sentence = f"{holder} holds {_said(world.ledger.grant(holder))}, but {why}"
            found.append(Divergence(Finding("Leak", sentence, holder=holder), Release(holder)))
    return found


def _nobody(world: World, holder: str) -> str | None:
    """Why the holder cannot be using what it holds; None while it may."""
    key = claim.reserved_as(holder)
    if not key:
        return _unkept(world, holder)
    pod = world.pods.get(key)
    if pod is None or pod.holder != holder:
        return "there is no such pod"
    if pod.finished:
        return "the pod has ended"
    return f"the pod is on node {pod.node}" if pod.node not in ("", world.ledger.node) else None


def _unkept(world: World, holder: str) -> str | None:
    """A name without UID: kept by its Reservation, by its time, or by a pod that is about to take it over."""
    pod, name = world.pods.get(holder), world.ledger.reservations.get(holder)
    if pod is not None and pod.node == world.ledger.node and not pod.finished:
        return None
    if name is not None:
        kept = f"{holder.partition('/')[0]}/{name}" in world.reservations
        return None if kept else f"Reservation {name} is gone"
    return None if holder in world.ledger.held else "neither a pod nor a Reservation is behind it"


def _twice(world: World) -> list[Divergence]:
    found = [Divergence(Finding("Overlap", fault)) for fault in ledger.faults(world.ledger)]
    for pod in world.live():
        if world.ledger.grant(pod.holder) and world.ledger.grant(pod.key):
            sentence = f"pod {pod.key} holds twice on node {world.ledger.node}: with its UID and without"
            repair = None if pod.key in world.ledger.reservations else Release(pod.key)
            found.append(Divergence(Finding("Overlap", sentence, holder=pod.key), repair))
    return found


def _wrong_cards(world: World, names: Names) -> list[Divergence]:
    wrong: list[tuple[str, Grant]] = []
    for pod in world.live():
        has = world.ledger.grant(pod.holder)
        allotted = rebuild.allotted(pod, names, world.pledges.get(pod.key))
        if has and allotted and _parts(has) != _parts(allotted):
            wrong.append((pod.holder, allotted))
    together = Move(tuple(wrong))
    joint = bool(wrong) and apply(world.ledger, together) != world.ledger
    return [_wrong_card(world.ledger, one, together if joint else Move((one,))) for one in wrong]


def _wrong_card(held: Ledger, one: tuple[str, Grant], repair: Move) -> Divergence:
    holder, allotted = one
    sentence = f"{holder} was allocated {_said(allotted)}, but the ledger says {_said(held.grant(holder))}"
    possible = apply(held, repair) != held
    finding = Finding("WrongCard", sentence, card=allotted[0].card, holder=holder)
    return Divergence(finding, repair if possible else None)


def _ghosts(world: World) -> list[Divergence]:
    found = []
    for pod in world.live():
        if world.ledger.grant(pod.holder) or world.ledger.grant(pod.key):
            continue
        pledge = world.pledges.get(pod.key)
        if pod.wants or (pod.grant and pledge is not None) or (pod.trouble and pod.marked):
            found.append(_ghost(world.ledger, Adopt(pod, pledge)))
    return found


def _ghost(held: Ledger, repair: Adopt) -> Divergence:
    pod = repair.pod
    uses = want.sentence(pod.wants) or (
        _said(pod.grant) if pod.grant else f"what cannot be read: {pod.trouble}"
    )
    sentence = f"pod {pod.key} runs on node {held.node} and uses {uses}"
    if pod.trouble and not pod.grant:
        return Divergence(Finding("Ghost", sentence, holder=pod.holder))
    if apply(held, repair) == held:
        return Divergence(Finding("Overlap", f"{sentence}, which is more than is left", holder=pod.holder))
    return Divergence(Finding("Ghost", f"{sentence} that nobody gave it", holder=pod.holder), repair)


def _adopted(held: Ledger, pod: PodView, pledge: Pledge | None) -> Ledger:
    if held.grant(pod.holder) or held.grant(pod.key):
        return held
    grant = rebuild.allotted(pod, refit.names(held.node, held.cards), pledge)
    if not grant:
        return rebuild.adopt(held, pod)[0]
    terms = Terms(bound=True, reservation=pledge.name if pledge is not None else "")
    given = rebuild.regardless(held, pod.holder, grant, terms)
    return held if isinstance(given, Refused) else given


def _moved(held: Ledger, grants: Sequence[tuple[str, Grant]]) -> Ledger:
    moved = held
    for holder, _ in grants:
        moved = ledger.release(moved, holder)
    for holder, grant in grants:
        if not held.grant(holder):
            return held  # it left meanwhile
        until, name = held.held.get(holder), held.reservations.get(holder, "")
        terms = Terms(bound=holder not in held.held, until=until, reservation=name)
        given = rebuild.regardless(moved, holder, grant, terms)
        if isinstance(given, Refused):
            return held
        moved = given
    return moved


def _parts(grant: Grant) -> set[tuple[str, int, frozenset[str]]]:
    return {(part.card, part.share, frozenset(part.slots)) for part in grant}


def _said(grant: Grant) -> str:
    """`50 of node-1-gpu-0 and 1g.10gb-0 of node-1-gpu-1`."""
    return " and ".join(f"{', '.join(part.slots) or part.share} of {part.card}" for part in grant)


def with_pods(world: World, live: Mapping[str, PodView | None]) -> World:
    """The world as the API server itself has just shown these pods; None is a pod that is not there."""
    pods = {**world.pods, **live}
    return replace(world, pods={key: pod for key, pod in pods.items() if pod is not None})
