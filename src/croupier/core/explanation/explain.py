"""Explains where a pod is placed, or why it is pending: per node, in the words of the scheduler's Events.

Refusals come from the same functions that decide placement. Added here is only what needs the whole cluster:
how many nodes refuse for the same reason, which nodes come closest, and which smaller request would fit now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.core.claims import claim as claims
from croupier.core.claims.claim import CardClaim
from croupier.core.explanation import nearest_fit
from croupier.core.explanation.nearest_fit import SmallerRequest
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model import card_request, name_list
from croupier.core.model.card import CardGrant, Grant, LedgerCard
from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement
from croupier.core.placement.card_selection import Rank, Strategy
from croupier.core.pods import scheduler_filters
from croupier.core.pods.scheduler_filters import CandidateNode, NodeConstraints

NO_CARDS: Final = Refusal("the node has no cards in the ledger")
ASKS_FOR_NOTHING: Final = Refusal(
    "the pod requests gpu.mps.io/ledger but asks for no cards: set the annotations gpu.mps.io/cards "
    "and gpu.mps.io/ratio, request nvidia.com/gpu, or remove gpu.mps.io/ledger"
)
UNMARKED: Final = "it does not request gpu.mps.io/ledger, so the ledger does not manage it"

PodPlacementState: TypeAlias = Literal[
    "Bound", "Pending", "Fits", "Unreadable", "Unmarked", "NoCards", "Finished"
]


def reserved_elsewhere(nodes: set[str]) -> Refusal:
    """The refusal of every other node while a Reservation holds cards for the pod."""
    return Refusal(f"a Reservation holds cards of {' and '.join(sorted(nodes))} for the pod")


@dataclass(frozen=True, slots=True)
class SchedulingInputs:
    """The part of the cluster state that placement needs."""

    nodes: Mapping[str, CandidateNode]
    ledgers: Mapping[str, Ledger]
    strategy: Strategy = "Spread"


@dataclass(frozen=True, slots=True)
class NodeFits:
    """The grant that the pod would get on the node, and its rank; lower is better."""

    grant: Grant
    rank: Rank


NodeVerdict: TypeAlias = NodeFits | Refusal


@dataclass(frozen=True, slots=True)
class RefusalGroup:
    """Nodes that refuse for the same reason."""

    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A node that almost fits, and what it lacks."""

    node: str
    detail: str


@dataclass(frozen=True, slots=True)
class PodHold:
    """The cards of one node that the ledger holds for the pod."""

    node: str
    grant: Grant = ()
    held: bool = False
    """The hold is not promoted to Bound yet."""
    until: datetime | None = None
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class PlacementExplanation:
    pod: PodView
    state: PodPlacementState
    sentence: str
    seat: PodHold | None = None
    fits: tuple[str, ...] = ()
    """Nodes that fit now, the best first."""
    refusals: tuple[RefusalGroup, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    instead: tuple[SmallerRequest, ...] = ()
    """Smaller requests that would fit now."""
    notes: tuple[str, ...] = field(default=())


def explain(pod: PodView, needs: NodeConstraints, world: SchedulingInputs) -> PlacementExplanation:
    if pod.finished:
        sentence = "the pod has finished and no longer needs cards"
        return PlacementExplanation(pod, "Finished", sentence, pod_hold(pod, world))
    if pod.node:
        return _bound(pod, world)
    if pod.trouble:
        return PlacementExplanation(pod, "Unreadable", pod.trouble)
    if not pod.marked:
        asks = (
            f"the pod asks for {card_request.describe(pod.wants)}"
            if pod.wants
            else "the pod asks for no cards"
        )
        return PlacementExplanation(pod, "Unmarked", f"{asks}; {UNMARKED}")
    return waiting(pod, needs, world)


def _bound(pod: PodView, world: SchedulingInputs) -> PlacementExplanation:
    hold = pod_hold(pod, world)
    if hold is not None and hold.node == pod.node:
        sentence = allocation_sentence(world.ledgers[pod.node], hold.grant)
        return PlacementExplanation(pod, "Bound", sentence, hold)
    notes = () if pod.marked else (UNMARKED,)
    if not pod.wants and not pod.trouble and not pod.grant:
        return PlacementExplanation(
            pod, "NoCards", f"the pod is bound to {pod.node} and asks for no cards", notes=notes
        )
    asks = pod.trouble or f"it asks for {card_request.describe(pod.wants) or 'no cards'}"
    sentence = f"the pod is bound to {pod.node}, but the ledger has no cards for it; {asks}"
    return PlacementExplanation(
        pod, "Bound", sentence, PodHold(pod.node, pod.grant) if pod.grant else None, notes=notes
    )


def waiting(pod: PodView, needs: NodeConstraints, world: SchedulingInputs) -> PlacementExplanation:
    """Explain an unscheduled pod with the verdict of every node."""
    by_node = verdicts(pod, needs, world)
    fits = best_nodes(by_node)
    held = pod_hold(pod, world)
    if fits:
        more = f" and {name_list.counted(len(fits) - 1, 'other node')}" if len(fits) > 1 else ""
        sentence = f"the pod would fit on {fits[0]}{more} now; it waits for the scheduler"
        return PlacementExplanation(pod, "Fits", sentence, held, fits, refusal_groups(by_node))
    refusals = refusal_groups(by_node)
    eligible = _eligible_ledgers(needs, world)
    never = nearest_fit.never_fits(eligible.values(), pod.wants)
    return PlacementExplanation(
        pod,
        "Pending",
        scheduler_message(refusals),
        held,
        refusals=refusals,
        nearest=tuple(NearMiss(node, _detail(by_node[node])) for node in nearest(pod, by_node, world)),
        instead=nearest_fit.smaller_requests(eligible, pod.wants, world.strategy),
        notes=(never,) if never else (),
    )


def verdicts(pod: PodView, needs: NodeConstraints, world: SchedulingInputs) -> dict[str, NodeVerdict]:
    """The verdict of every node, with the scheduler's own filters first."""
    by_node: dict[str, NodeVerdict] = {}
    reserved_on = held_nodes(pod, world)
    for name, node in world.nodes.items():
        if obstacle := scheduler_filters.rejection(node, needs):
            by_node[name] = Refusal(obstacle)
        elif reserved_on and name not in reserved_on:
            by_node[name] = reserved_elsewhere(reserved_on)
        else:
            by_node[name] = verdict(pod, world.ledgers.get(name), world.strategy)
    return by_node


def held_nodes(pod: PodView, world: SchedulingInputs) -> set[str]:
    """Nodes on which a Reservation holds cards for the pod."""
    return {name for name, ledger in world.ledgers.items() if ledger.grant(pod.key)}


def verdict(pod: PodView, ledger: Ledger | None, strategy: Strategy) -> NodeVerdict:
    """The verdict of one node's ledger."""
    if ledger is None:
        return ASKS_FOR_NOTHING if not pod.wants else NO_CARDS
    if ledger.grant(pod.key) or ledger.grant(pod.holder):
        taken = claims.decide(ledger, CardClaim(pod.holder, pod.wants, HoldTerms()), strategy)
        return taken if isinstance(taken, Refusal) else NodeFits(taken.grant, claims.ALREADY_HOLDS)
    if not pod.wants:
        return ASKS_FOR_NOTHING
    plan = placement.plan(ledger, pod.wants, strategy)
    return plan if isinstance(plan, Refusal) else NodeFits(plan.grant, plan.rank)


def best_nodes(found: Mapping[str, NodeVerdict]) -> tuple[str, ...]:
    """The nodes that fit, the best first; ties are ordered by name."""
    fits = [(verdict.rank, node) for node, verdict in found.items() if isinstance(verdict, NodeFits)]
    return tuple(node for _, node in sorted(fits))


def refusal_groups(found: Mapping[str, NodeVerdict]) -> tuple[RefusalGroup, ...]:
    """Refusals grouped by reason, the most frequent first."""
    nodes: dict[str, list[str]] = {}
    for node in sorted(found):
        verdict = found[node]
        if isinstance(verdict, Refusal):
            nodes.setdefault(verdict.reason, []).append(node)
    ordered = sorted(nodes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return tuple(RefusalGroup(reason, tuple(names)) for reason, names in ordered)


def scheduler_message(refusals: tuple[RefusalGroup, ...]) -> str:
    """The message that kube-scheduler writes to the pod's Events."""
    total = sum(len(group.nodes) for group in refusals)
    if not total:
        return "no nodes available to schedule pods"
    reasons = sorted(f"{len(group.nodes)} {group.reason}" for group in refusals)
    return f"0/{total} nodes are available: {', '.join(reasons)}."


def nearest(
    pod: PodView, found: Mapping[str, NodeVerdict], world: SchedulingInputs, most: int = 3
) -> tuple[str, ...]:
    """Nodes with the smallest shortfall; nodes that are refused for other reasons are left out."""
    short = (node for node, verdict in found.items() if isinstance(verdict, Refusal) and verdict.detail)
    by_lack = sorted((nearest_fit.shortfall(world.ledgers[node], pod.wants), node) for node in short)
    return tuple(node for _, node in by_lack[:most])


def _detail(verdict: NodeVerdict) -> str:
    return verdict.detail if isinstance(verdict, Refusal) else ""


def _eligible_ledgers(needs: NodeConstraints, world: SchedulingInputs) -> dict[str, Ledger]:
    """The ledgers of nodes that pass the scheduler's filters."""
    return {
        name: ledger
        for name, ledger in world.ledgers.items()
        if name in world.nodes and not scheduler_filters.rejection(world.nodes[name], needs)
    }


def pod_hold(pod: PodView, world: SchedulingInputs) -> PodHold | None:
    """The pod's hold on any node, with the node it is bound to first."""
    names = sorted(world.ledgers, key=lambda name: (name != pod.node, name))
    for name in names:
        ledger = world.ledgers[name]
        for holder in (pod.holder, pod.key):
            if grant := ledger.grant(holder):
                until, reservation = ledger.held.get(holder), ledger.reservations.get(holder, "")
                return PodHold(name, grant, holder in ledger.held, until, reservation)
    return None


def allocation_sentence(ledger: Ledger, grant: Grant) -> str:
    """Which cards a bound pod holds."""
    return f"the pod is bound to {ledger.node} and holds {describe_grant(ledger, grant)}"


def describe_grant(ledger: Ledger, grant: Grant) -> str:
    """`50 % of card 0 and 50 % of card 1`."""
    return " and ".join(_part(ledger.card(part.card), part) for part in grant)


def _part(card: LedgerCard | None, part: CardGrant) -> str:
    if card is None:
        return f"card {part.card}, which the node no longer has"
    if part.slots:
        profiles = {slot.id: slot.profile for slot in card.slots}
        return " and ".join(f"MIG {profiles.get(slot, slot)} of card {card.index}" for slot in part.slots)
    if card.mode == "TimeSlice":
        return f"{name_list.counted(part.share, 'slice')} of card {card.index}"
    return f"card {card.index}" if part.share == WHOLE_CARD else f"{part.share} % of card {card.index}"
