"""Simulates where a pod, or several copies of it, would be placed now.

Each copy goes to the best node by the ranking of the scheduler extender, and its cards are taken for the next
copies. Only the chosen node is ranked again, so a thousand copies on thousands of nodes are fast.
"""

import heapq
from dataclasses import dataclass, replace

from croupier.core.explanation import explain
from croupier.core.explanation.explain import NodeFits, PlacementExplanation, SchedulingInputs
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import Grant
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.pods.scheduler_filters import NodeConstraints


@dataclass(frozen=True, slots=True)
class PlacedCopy:
    node: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class WhatIfResult:
    """`places` in placement order; `stopped` explains why the next copy does not fit."""

    places: tuple[PlacedCopy, ...]
    after: SchedulingInputs
    """The cluster with these copies, which `stopped` is about."""
    stopped: PlacementExplanation | None = None


def simulate(pod: PodView, needs: NodeConstraints, world: SchedulingInputs, copies: int = 1) -> WhatIfResult:
    by_node = explain.verdicts(pod, needs, world)
    if explain.held_nodes(pod, world) and (fits := explain.best_nodes(by_node)):
        return _on_reserved_node(pod, needs, world, fits[0], copies)
    ledgers = dict(world.ledgers)
    heap = [
        (verdict.rank, name, verdict.grant)
        for name, verdict in by_node.items()
        if isinstance(verdict, NodeFits)
    ]
    heapq.heapify(heap)
    places: list[PlacedCopy] = []
    while heap and len(places) < copies:
        _, name, grant = heapq.heappop(heap)
        places.append(PlacedCopy(name, grant))
        ledgers[name] = _with_copy(ledgers[name], f"{pod.key}/copy-{len(places)}", grant)
        again = explain.verdict(pod, ledgers[name], world.strategy)
        if isinstance(again, NodeFits):
            heapq.heappush(heap, (again.rank, name, again.grant))
    after = replace(world, ledgers=ledgers)
    stopped = None if len(places) == copies else explain.waiting(pod, needs, after)
    return WhatIfResult(tuple(places), after, stopped)


def _on_reserved_node(
    pod: PodView, needs: NodeConstraints, world: SchedulingInputs, node: str, copies: int
) -> WhatIfResult:
    """The first copy takes the cards of the pod's Reservation; the others are placed normally."""
    ledger = world.ledgers[node]
    place = PlacedCopy(node, ledger.grant(pod.key))
    ledgers = {**world.ledgers, node: ledger_ops.rename(ledger, pod.key, f"{pod.key}/copy-0")}
    after = replace(world, ledgers=ledgers)
    if copies == 1:
        return WhatIfResult((place,), after)
    rest = simulate(pod, needs, after, copies - 1)
    return WhatIfResult((place, *rest.places), rest.after, rest.stopped)


def _with_copy(ledger: Ledger, holder: str, grant: Grant) -> Ledger:
    given = ledger_ops.give(ledger, holder, grant, HoldTerms(bound=True))
    if isinstance(given, Refusal):
        raise AssertionError(f"{ledger.node} refuses a grant that was just planned: {given}")
    return given
