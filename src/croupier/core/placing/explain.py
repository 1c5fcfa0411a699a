"""Explains where a pod is placed, or why it is pending: per node, in the words of the scheduler's Events.

Refusals come from the same functions that decide placement. Added here is only what needs the whole cluster:
how many nodes refuse for the same reason, which nodes come closest, and which smaller request would fit now.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.core.ledgers import claim as claims
from croupier.core.ledgers.claim import Claim
from croupier.core.ledgers.ledger import Card, Grant, Ledger, Part, Refused, Terms
from croupier.core.placing import nearness, placement
from croupier.core.placing.nearness import Instead
from croupier.core.placing.picking import Rank, Strategy
from croupier.core.pods import eligible, want
from croupier.core.pods.eligible import Needs, NodeFacts
from croupier.core.pods.pod import PodView
from croupier.core.pods.want import WHOLE

NO_CARDS: Final = Refused("the node has no cards in the ledger")
ASKS_FOR_NOTHING: Final = Refused(
    "the pod requests gpu.mps.io/ledger but asks for no cards: set the annotations gpu.mps.io/cards "
    "and gpu.mps.io/ratio, request nvidia.com/gpu, or remove gpu.mps.io/ledger"
)
UNMARKED: Final = "it does not request gpu.mps.io/ledger, so the ledger does not manage it"

State: TypeAlias = Literal["Bound", "Pending", "Fits", "Unreadable", "Unmarked", "NoCards", "Finished"]


def elsewhere(nodes: set[str]) -> Refused:
    """The refusal of every other node while a Reservation holds cards for the pod."""
    return Refused(f"a Reservation holds cards of {' and '.join(sorted(nodes))} for the pod")


@dataclass(frozen=True, slots=True)
class World:
    """The part of the cluster state that placement needs."""

    nodes: Mapping[str, NodeFacts]
    ledgers: Mapping[str, Ledger]
    strategy: Strategy = "Spread"


@dataclass(frozen=True, slots=True)
class Fits:
    """The grant that the pod would get on the node, and its rank; lower is better."""

    grant: Grant
    rank: Rank


Verdict: TypeAlias = Fits | Refused


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that refuse for the same reason."""

    reason: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Miss:
    """A node that almost fits, and what it lacks."""

    node: str
    detail: str


@dataclass(frozen=True, slots=True)
class Seat:
    """The cards of one node that the ledger holds for the pod."""

    node: str
    grant: Grant = ()
    held: bool = False
    """The hold is not promoted to Bound yet."""
    until: datetime | None = None
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    pod: PodView
    state: State
    sentence: str
    seat: Seat | None = None
    fits: tuple[str, ...] = ()
    """Nodes that fit now, the best first."""
    refusals: tuple[Group, ...] = ()
    nearest: tuple[Miss, ...] = ()
    instead: tuple[Instead, ...] = ()
    """Smaller requests that would fit now."""
    notes: tuple[str, ...] = field(default=())


def explain(pod: PodView, needs: Needs, world: World) -> Explanation:
    if pod.finished:
        sentence = "the pod has finished and no longer needs cards"
        return Explanation(pod, "Finished", sentence, seat(pod, world))
    if pod.node:
        return _bound(pod, world)
    if pod.trouble:
        return Explanation(pod, "Unreadable", pod.trouble)
    if not pod.marked:
        asks = f"the pod asks for {want.sentence(pod.wants)}" if pod.wants else "the pod asks for no cards"
        return Explanation(pod, "Unmarked", f"{asks}; {UNMARKED}")
    return waiting(pod, needs, world)


def _bound(pod: PodView, world: World) -> Explanation:
    hold = seat(pod, world)
    if hold is not None and hold.node == pod.node:
        cards = holding(world.ledgers[pod.node], hold.grant)
        return Explanation(pod, "Bound", f"the pod is bound to {pod.node} and holds {cards}", hold)
    notes = () if pod.marked else (UNMARKED,)
    if not pod.wants and not pod.trouble and not pod.grant:
        return Explanation(
            pod, "NoCards", f"the pod is bound to {pod.node} and asks for no cards", notes=notes
        )
    asks = pod.trouble or f"it asks for {want.sentence(pod.wants) or 'no cards'}"
    sentence = f"the pod is bound to {pod.node}, but the ledger has no cards for it; {asks}"
    return Explanation(pod, "Bound", sentence, Seat(pod.node, pod.grant) if pod.grant else None, notes=notes)


def waiting(pod: PodView, needs: Needs, world: World) -> Explanation:
    """Explain an unscheduled pod with the verdict of every node."""
    by_node = verdicts(pod, needs, world)
    fits = best(by_node)
    held = seat(pod, world)
    if fits:
        more = f" and {len(fits) - 1} other node{'s' if len(fits) > 2 else ''}" if len(fits) > 1 else ""
        sentence = f"the pod would fit on {fits[0]}{more} now; it waits for the scheduler"
        return Explanation(pod, "Fits", sentence, held, fits, groups(by_node))
    refusals = groups(by_node)
    return Explanation(
        pod,
        "Pending",
        unavailable(refusals),
        held,
        refusals=refusals,
        nearest=tuple(Miss(node, _detail(by_node[node])) for node in nearest(pod, by_node, world)),
        instead=nearness.instead(_open(needs, world), pod.wants, world.strategy),
    )


def verdicts(pod: PodView, needs: Needs, world: World) -> dict[str, Verdict]:
    """The verdict of every node, with the scheduler's own filters first."""
    by_node: dict[str, Verdict] = {}
    reserved_on = homes(pod, world)
    for name, node in world.nodes.items():
        if obstacle := eligible.obstacle(node, needs):
            by_node[name] = Refused(obstacle)
        elif reserved_on and name not in reserved_on:
            by_node[name] = elsewhere(reserved_on)
        else:
            by_node[name] = verdict(pod, world.ledgers.get(name), world.strategy)
    return by_node


def homes(pod: PodView, world: World) -> set[str]:
    """Nodes on which a Reservation holds cards for the pod."""
    return {name for name, ledger in world.ledgers.items() if ledger.grant(pod.key)}


def verdict(pod: PodView, ledger: Ledger | None, strategy: Strategy) -> Verdict:
    """The verdict of one node's ledger."""
    if ledger is None:
        return ASKS_FOR_NOTHING if not pod.wants else NO_CARDS
    if ledger.grant(pod.key) or ledger.grant(pod.holder):
        taken = claims.decide(ledger, Claim(pod.holder, pod.wants, Terms()), strategy)
        return taken if isinstance(taken, Refused) else Fits(taken.grant, claims.HOLDS)
    if not pod.wants:
        return ASKS_FOR_NOTHING
    plan = placement.plan(ledger, pod.wants, strategy)
    return plan if isinstance(plan, Refused) else Fits(plan.grant, plan.rank)


def best(found: Mapping[str, Verdict]) -> tuple[str, ...]:
    """The nodes that fit, the best first; ties are ordered by name."""
    fits = [(verdict.rank, node) for node, verdict in found.items() if isinstance(verdict, Fits)]
    return tuple(node for _, node in sorted(fits))


def groups(found: Mapping[str, Verdict]) -> tuple[Group, ...]:
    """Refusals grouped by reason, the most frequent first."""
    nodes: dict[str, list[str]] = {}
    for node in sorted(found):
        verdict = found[node]
        if isinstance(verdict, Refused):
            nodes.setdefault(verdict.reason, []).append(node)
    ordered = sorted(nodes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return tuple(Group(reason, tuple(names)) for reason, names in ordered)


def unavailable(refusals: tuple[Group, ...]) -> str:
    """The message that kube-scheduler writes to the pod's Events."""
    total = sum(len(group.nodes) for group in refusals)
    if not total:
        return "no nodes available to schedule pods"
    reasons = sorted(f"{len(group.nodes)} {group.reason}" for group in refusals)
    return f"0/{total} nodes are available: {', '.join(reasons)}."


def nearest(pod: PodView, found: Mapping[str, Verdict], world: World, most: int = 3) -> tuple[str, ...]:
    """Nodes with the smallest shortfall; nodes that are refused for other reasons are left out."""
    short = (node for node, verdict in found.items() if isinstance(verdict, Refused) and verdict.detail)
    by_lack = sorted((nearness.lack(world.ledgers[node], pod.wants), node) for node in short)
    return tuple(node for _, node in by_lack[:most])


def _detail(verdict: Verdict) -> str:
    return verdict.detail if isinstance(verdict, Refused) else ""


def _open(needs: Needs, world: World) -> dict[str, Ledger]:
    """The ledgers of nodes that pass the scheduler's filters."""
    return {
        name: ledger
        for name, ledger in world.ledgers.items()
        if name in world.nodes and not eligible.obstacle(world.nodes[name], needs)
    }


def seat(pod: PodView, world: World) -> Seat | None:
    """The pod's hold on any node, with the node it is bound to first."""
    names = sorted(world.ledgers, key=lambda name: (name != pod.node, name))
    for name in names:
        ledger = world.ledgers[name]
        for holder in (pod.holder, pod.key):
            if grant := ledger.grant(holder):
                until, reservation = ledger.held.get(holder), ledger.reservations.get(holder, "")
                return Seat(name, grant, holder in ledger.held, until, reservation)
    return None


def holding(ledger: Ledger, grant: Grant) -> str:
    """`50 % of card 0 and 50 % of card 1`."""
    return " and ".join(_part(ledger.card(part.card), part) for part in grant)


def _part(card: Card | None, part: Part) -> str:
    if card is None:
        return f"card {part.card}, which the node no longer has"
    if part.slots:
        profiles = {slot.id: slot.profile for slot in card.slots}
        return " and ".join(f"MIG {profiles.get(slot, slot)} of card {card.index}" for slot in part.slots)
    if card.mode == "TimeSlice":
        return f"{part.share} slice{'s' if part.share > 1 else ''} of card {card.index}"
    return f"card {card.index}" if part.share == WHOLE else f"{part.share} % of card {card.index}"
