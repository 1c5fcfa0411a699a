"""Where a pod sits, or why it waits: node by node, in the very words the scheduler's Events have.

A refusal is found by the same functions that refuse in earnest; nothing is worded anew here except what
only a reader who sees the whole cluster can know: how many nodes say the same, which ones come
nearest, and which smaller wish would be granted at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, TypeAlias

from croupier.core.ledgers import claim as claiming
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
    "the pod carries gpu.mps.io/ledger but asks for no cards: set the annotations gpu.mps.io/cards "
    "and gpu.mps.io/ratio, request nvidia.com/gpu, or leave the mark out"
)
UNMARKED: Final = "it does not carry gpu.mps.io/ledger, so it does not go through the ledger"

State: TypeAlias = Literal["Bound", "Pending", "Fits", "Unreadable", "Unmarked", "NoCards", "Finished"]


def elsewhere(nodes: set[str]) -> Refused:
    """Said of every other node while a Reservation waits for the pod."""
    return Refused(f"a Reservation holds cards of {' and '.join(sorted(nodes))} for the pod")


@dataclass(frozen=True, slots=True)
class World:
    """The cluster as far as it matters to one pod."""

    nodes: Mapping[str, NodeFacts]
    ledgers: Mapping[str, Ledger]
    strategy: Strategy = "Spread"


@dataclass(frozen=True, slots=True)
class Fits:
    """What the pod would get there, and how good that is; the lower, the better."""

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
    """A node that comes close, and what it is short of."""

    node: str
    detail: str


@dataclass(frozen=True, slots=True)
class Seat:
    """What the pod has of a node, by the ledger."""

    node: str
    grant: Grant = ()
    held: bool = False
    """Not bound yet, or not promoted yet."""
    until: datetime | None = None
    reservation: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    pod: PodView
    state: State
    sentence: str
    seat: Seat | None = None
    fits: tuple[str, ...] = ()
    """Nodes that could take it now, the best first."""
    refusals: tuple[Group, ...] = ()
    nearest: tuple[Miss, ...] = ()
    instead: tuple[Instead, ...] = ()
    """Smaller wishes that would be granted now."""
    notes: tuple[str, ...] = field(default=())


def explain(pod: PodView, needs: Needs, world: World) -> Explanation:
    if pod.finished:
        sentence = "the pod has finished and needs no cards any more"
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
    found = seat(pod, world)
    if found is not None and found.node == pod.node:
        has = holding(world.ledgers[pod.node], found.grant)
        return Explanation(pod, "Bound", f"the pod is bound to {pod.node} and holds {has}", found)
    notes = () if pod.marked else (UNMARKED,)
    if not pod.wants and not pod.trouble and not pod.grant:
        return Explanation(
            pod, "NoCards", f"the pod is bound to {pod.node} and asks for no cards", notes=notes
        )
    asks = pod.trouble or f"it asks for {want.sentence(pod.wants) or 'no cards'}"
    sentence = f"the pod is bound to {pod.node}, and the ledger shows nothing for it; {asks}"
    return Explanation(pod, "Bound", sentence, Seat(pod.node, pod.grant) if pod.grant else None, notes=notes)


def waiting(pod: PodView, needs: Needs, world: World) -> Explanation:
    """Of a pod that is to be placed: what every node says to it."""
    found = verdicts(pod, needs, world)
    fits = best(found)
    held = seat(pod, world)
    if fits:
        more = f" and {len(fits) - 1} other node{'s' if len(fits) > 2 else ''}" if len(fits) > 1 else ""
        sentence = f"the pod would fit on {fits[0]}{more} now; it waits for the scheduler"
        return Explanation(pod, "Fits", sentence, held, fits, groups(found))
    refusals = groups(found)
    return Explanation(
        pod,
        "Pending",
        unavailable(refusals),
        held,
        refusals=refusals,
        nearest=tuple(Miss(node, _detail(found[node])) for node in nearest(pod, found, world)),
        instead=nearness.instead(_open(needs, world), pod.wants, world.strategy),
    )


def verdicts(pod: PodView, needs: Needs, world: World) -> dict[str, Verdict]:
    """What every node would say to the pod now, asked in the order the scheduler asks."""
    found: dict[str, Verdict] = {}
    waiting_on = homes(pod, world)
    for name, node in world.nodes.items():
        if obstacle := eligible.obstacle(node, needs):
            found[name] = Refused(obstacle)
        elif waiting_on and name not in waiting_on:
            found[name] = elsewhere(waiting_on)
        else:
            found[name] = verdict(pod, world.ledgers.get(name), world.strategy)
    return found


def homes(pod: PodView, world: World) -> set[str]:
    """Where a Reservation waits for the pod."""
    return {name for name, ledger in world.ledgers.items() if ledger.grant(pod.key)}


def verdict(pod: PodView, ledger: Ledger | None, strategy: Strategy) -> Verdict:
    """What the ledger of one node would say to the pod."""
    if ledger is None:
        return ASKS_FOR_NOTHING if not pod.wants else NO_CARDS
    if ledger.grant(pod.key) or ledger.grant(pod.holder):
        taken = claiming.decide(ledger, Claim(pod.holder, pod.wants, Terms()), strategy)
        return taken if isinstance(taken, Refused) else Fits(taken.grant, claiming.HOLDS)
    if not pod.wants:
        return ASKS_FOR_NOTHING
    plan = placement.plan(ledger, pod.wants, strategy)
    return plan if isinstance(plan, Refused) else Fits(plan.grant, plan.rank)


def best(found: Mapping[str, Verdict]) -> tuple[str, ...]:
    """The nodes that fit, the best first; between equals the first by name."""
    fits = [(verdict.rank, node) for node, verdict in found.items() if isinstance(verdict, Fits)]
    return tuple(node for _, node in sorted(fits))


def groups(found: Mapping[str, Verdict]) -> tuple[Group, ...]:
    """Equal reasons together, the most frequent first."""
    nodes: dict[str, list[str]] = {}
    for node in sorted(found):
        verdict = found[node]
        if isinstance(verdict, Refused):
            nodes.setdefault(verdict.reason, []).append(node)
    ordered = sorted(nodes.items(), key=lambda entry: (-len(entry[1]), entry[0]))
    return tuple(Group(reason, tuple(names)) for reason, names in ordered)


def unavailable(refusals: tuple[Group, ...]) -> str:
    """As kube-scheduler writes it into the pod's Events."""
    total = sum(len(group.nodes) for group in refusals)
    if not total:
        return "no nodes available to schedule pods"
    reasons = sorted(f"{len(group.nodes)} {group.reason}" for group in refusals)
    return f"0/{total} nodes are available: {', '.join(reasons)}."


def nearest(pod: PodView, found: Mapping[str, Verdict], world: World, most: int = 3) -> tuple[str, ...]:
    """Nodes that lack least of what is wanted; those that cards could not help are left out."""
    short = (node for node, verdict in found.items() if isinstance(verdict, Refused) and verdict.detail)
    by_lack = sorted((nearness.lack(world.ledgers[node], pod.wants), node) for node in short)
    return tuple(node for _, node in by_lack[:most])


def _detail(verdict: Verdict) -> str:
    return verdict.detail if isinstance(verdict, Refused) else ""


def _open(needs: Needs, world: World) -> dict[str, Ledger]:
    """The ledgers of nodes the scheduler would consider."""
    return {
        name: ledger
        for name, ledger in world.ledgers.items()
        if name in world.nodes and not eligible.obstacle(world.nodes[name], needs)
    }


def seat(pod: PodView, world: World) -> Seat | None:
    """What is held for it, wherever; first where it is bound."""
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
        return " and ".join(f"MIG {profiles.get(one, one)} of card {card.index}" for one in part.slots)
    if card.mode == "TimeSlice":
        return f"{part.share} slice{'s' if part.share > 1 else ''} of card {card.index}"
    return f"card {card.index}" if part.share == WHOLE else f"{part.share} % of card {card.index}"
