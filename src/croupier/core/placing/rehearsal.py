"""Where a pod, or many copies of it, would go now: the placement played through on paper.

Each copy goes to the best node by the ranking the scheduler's extender uses, and what it takes is gone for
the next. Only the node that was taken is ranked again, so a thousand copies on thousands of
nodes are played in a moment.
"""

import heapq
from dataclasses import dataclass, replace

from croupier.core.ledgers import ledger as book
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
    """`places` in the order the copies would be placed; `stopped` says why the next one was not."""

    places: tuple[Place, ...]
    stopped: Explanation | None = None


def play(pod: PodView, needs: Needs, world: World, copies: int = 1) -> Rehearsal:
    found = explain.verdicts(pod, needs, world)
    if explain.homes(pod, world) and (fits := explain.best(found)):
        return _at_home(pod, needs, world, fits[0], copies)
    ledgers = dict(world.ledgers)
    heap = [(one.rank, name, one.grant) for name, one in found.items() if isinstance(one, Fits)]
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
    """The first copy takes what a Reservation holds for the pod of this name; the others go like any."""
    ledger = world.ledgers[node]
    place = Place(node, ledger.grant(pod.key))
    ledgers = {**world.ledgers, node: book.rename(ledger, pod.key, f"{pod.key}/copy-0")}
    if copies == 1:
        return Rehearsal((place,))
    rest = play(pod, needs, replace(world, ledgers=ledgers), copies - 1)
    return Rehearsal((place, *rest.places), rest.stopped)


def _taken(ledger: Ledger, holder: str, grant: Grant) -> Ledger:
    given = book.give(ledger, holder, grant, Terms(bound=True))
    if isinstance(given, Refused):
        raise AssertionError(f"{ledger.node} refuses what it was just asked for: {given}")
    return given
