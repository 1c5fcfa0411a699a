"""Simulates where a pod, or several copies of it, would be placed now.

Each copy goes to the best node by the ranking of the scheduler extender, and its cards are taken for the next
copies. Only the chosen node is ranked again, so a thousand copies on thousands of nodes are fast.
"""

import heapq
from dataclasses import dataclass, replace

from croupier.core.ledgers import ledger as ledger_ops
from croupier.core.ledgers.ledger import Grant, Ledger, Refused, Terms
from croupier.core.placing import explain
from croupier.core.placing.explain import Explanation, Fits, World
from croupier.core.pods.eligible import Needs
from croupier.core.pods.pod import PodView


@dataclass(frozen=True, slots=True)
class Place:
    node: str
    grant: Grant


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`places` in placement order; `stopped` explains why the next copy does not fit."""

    places: tuple[Place, ...]
    stopped: Explanation | None = None


def play(pod: PodView, needs: Needs, world: World, copies: int = 1) -> Rehearsal:
    by_node = explain.verdicts(pod, needs, world)
    if explain.homes(pod, world) and (fits := explain.best(by_node)):
        return _at_home(pod, needs, world, fits[0], copies)
    ledgers = dict(world.ledgers)
    heap = [
        (verdict.rank, name, verdict.grant) for name, verdict in by_node.items() if isinstance(verdict, Fits)
    ]
    heapq.heapify(heap)
    places: list[Place] = []
    while heap and len(places) < copies:
        _, name, grant = heapq.heappop(heap)
        places.append(Place(name, grant))
        ledgers[name] = _taken(ledgers[name], f"{pod.key}/copy-{len(places)}", grant)
        again = explain.verdict(pod, ledgers[name], world.strategy)
        if isinstance(again, Fits):
            heapq.heappush(heap, (again.rank, name, again.grant))
    if len(places) == copies:
        return Rehearsal(tuple(places))
    return Rehearsal(tuple(places), explain.waiting(pod, needs, replace(world, ledgers=ledgers)))


def _at_home(pod: PodView, needs: Needs, world: World, node: str, copies: int) -> Rehearsal:
    """The first copy takes the cards of the pod's Reservation; the others are placed normally."""
    ledger = world.ledgers[node]
    place = Place(node, ledger.grant(pod.key))
    ledgers = {**world.ledgers, node: ledger_ops.rename(ledger, pod.key, f"{pod.key}/copy-0")}
    if copies == 1:
        return Rehearsal((place,))
    rest = play(pod, needs, replace(world, ledgers=ledgers), copies - 1)
    return Rehearsal((place, *rest.places), rest.stopped)


def _taken(ledger: Ledger, holder: str, grant: Grant) -> Ledger:
    given = ledger_ops.give(ledger, holder, grant, Terms(bound=True))
    if isinstance(given, Refused):
        raise AssertionError(f"{ledger.node} refuses a grant that was just planned: {given}")
    return given
