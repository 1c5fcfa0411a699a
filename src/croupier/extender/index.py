"""Chooses the node of a pod with rankings that are maintained incrementally.

There is one ranking of nodes per distinct request. When the ledger of a node changes, or a pod is assumed on
it or no longer assumed, only that node is ranked again, at the next query. So a filter call costs one
look-up per candidate.

Nothing here waits or writes: the choice of filter is only assumed (assumed_pods.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from croupier.core.ledgers import claim as claims
from croupier.core.ledgers.claim import Claim, Taken
from croupier.core.ledgers.ledger import Ledger, Refused, Terms
from croupier.core.placing import explain, placement
from croupier.core.placing.placement import Rank, Strategy
from croupier.core.pods.want import Wants
from croupier.extender.asked import Asked
from croupier.extender.homes import Homes
from croupier.extender.promises import LASTING, Promise, Promises
from croupier.extender.ranking import Ranking
from croupier.kube.clock import Clock

MOST_RANKINGS: Final = 64
"""Maximum number of rankings; the least recently used one is evicted."""


class Ledgers(Protocol):
    """The methods of the CapacityManager that read ledgers."""

    def ledger(self, node: str) -> Ledger | None: ...
    def nodes(self) -> Collection[str]: ...
    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The nodes for the pod, the best first."""

    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Nowhere:
    """The reason of each node."""

    reasons: Mapping[str, str] = field(default_factory=dict)


class Index:
    def __init__(
        self,
        book: Ledgers,
        clock: Clock,
        *,
        strategy: Callable[[Wants], Strategy],
        lasting: float = LASTING,
    ) -> None:
        self._book = book
        self._clock = clock
        self._strategy = strategy
        self._promises = Promises(lasting)
        self._homes = Homes()
        self._rankings: dict[tuple[Wants, Strategy], Ranking] = {}
        self._ledgers: dict[str, Ledger | None] = {}  # including assumed pods
        self._changed: set[str] = set(book.nodes())
        self.ranked = 0
        """Total number of node rankings computed."""
        self._unsubscribe = book.subscribe(self._node_changed)

    def close(self) -> None:
        self._unsubscribe()

    def choose(self, asked: Asked, candidates: Sequence[str], *, most: int = 1) -> Chosen | Nowhere:
        """Choose the best of `candidates` and assume the pod there, replacing an earlier assumption."""
        for node in self._promises.expire(self._clock.monotonic()):
            self._forget(node)
        self.take_back(asked.uid)
        result = self._find(asked, candidates, most)
        if isinstance(result, Chosen):
            self._promise(asked, result.nodes[0])
        return result

    def promise(self, uid: str) -> Promise | None:
        """Where the pod is assumed, until that expires."""
        assumed = self._promises.of(uid)
        return assumed if assumed is not None and assumed.until > self._clock.monotonic() else None

    def take_back(self, uid: str) -> None:
        """The pod is bound or is filtered again: it is no longer assumed."""
        if (node := self._promises.drop(uid)) is not None:
            self._forget(node)

    def scores(self, asked: Asked, nodes: Sequence[str], highest: int) -> dict[str, int]:
        """Scores from `highest` for the best node down to 0; nodes that do not fit have 0."""
        ranks = self._ranking(asked.wants, nodes).merits(nodes)
        fits = sorted((rank, node) for node in nodes if not isinstance(rank := ranks[node], Refused))
        steps = max(1, len(fits) - 1)
        scores = {node: highest - highest * place // steps for place, (_, node) in enumerate(fits)}
        return {node: scores.get(node, 0) for node in nodes}

    def strategy(self, wants: Wants) -> Strategy:
        return self._strategy(wants)

    def fits(self, asked: Asked, node: str) -> bool:
        """Whether the pod fits on the node now."""
        return isinstance(self._try(node, asked, self._strategy(asked.wants)), Taken)

    def _find(self, asked: Asked, candidates: Sequence[str], most: int) -> Chosen | Nowhere:
        if asked.trouble:
            return Nowhere(dict.fromkeys(candidates, asked.trouble))
        self._settle_homes()
        if (held := self._home(asked, candidates)) is not None:
            return held
        if not asked.wants:
            return Nowhere(dict.fromkeys(candidates, explain.ASKS_FOR_NOTHING.reason))
        possible = frozenset(candidates)
        ranking = self._ranking(asked.wants, possible)
        best = ranking.best(possible, most)
        return Chosen(best) if best else Nowhere(ranking.reasons(candidates))

    def _home(self, asked: Asked, candidates: Sequence[str]) -> Chosen | Nowhere | None:
        """The node that already holds cards for the pod; None if there is none."""
        held, reserved = self._homes.of(asked.holder), self._homes.of(asked.key)
        if not held and not reserved:
            return None
        possible = set(candidates)
        if ours := sorted(possible.intersection(held)):
            return Chosen((ours[0],))
        if not reserved:
            return None  # the scheduler excluded the node of our own hold, which expires
        reasons = dict.fromkeys(candidates, explain.elsewhere(set(reserved)).reason)
        for node in sorted(possible.intersection(reserved)):
            taken = self._try(node, asked, self._strategy(asked.wants))
            if isinstance(taken, Taken):
                return Chosen((node,))
            reasons[node] = taken.reason
        return Nowhere(reasons)

    def _try(self, node: str, asked: Asked, strategy: Strategy) -> Taken | Refused:
        ledger = self._ledger(node)
        claim = Claim(asked.holder, asked.wants, Terms(), asked.priority)
        return explain.NO_CARDS if ledger is None else claims.decide(ledger, claim, strategy)

    def _promise(self, asked: Asked, node: str) -> None:
        strategy = self._strategy(asked.wants)
        self._promises.make(asked, node, strategy, now=self._clock.monotonic())
        taken = self._try(node, asked, strategy)
        self._forget(node)
        if isinstance(taken, Taken):
            self._ledgers[node] = taken.ledger

    def _ranking(self, wants: Wants, candidates: Collection[str]) -> Ranking:
        """The ranking for `wants`, completed with all candidates."""
        key = (wants, strategy := self._strategy(wants))
        ranking = self._rankings.pop(key, None)
        if ranking is None:
            ranking = Ranking()
            if len(self._rankings) >= MOST_RANKINGS:
                del self._rankings[next(iter(self._rankings))]
        self._rankings[key] = ranking
        for node in ranking.missing(candidates):
            ranking.set(node, self._rank(node, wants, strategy))
        return ranking

    def _rank(self, node: str, wants: Wants, strategy: Strategy) -> Rank | Refused:
        ledger = self._ledger(node)
        if ledger is None:
            return explain.NO_CARDS
        self.ranked += 1
        return placement.rank(ledger, wants, strategy)

    def _ledger(self, node: str) -> Ledger | None:
        """The ledger of the node including assumed pods."""
        if node not in self._ledgers:
            self._ledgers[node] = self._with_promises(node)
        return self._ledgers[node]

    def _with_promises(self, node: str) -> Ledger | None:
        ledger = self._book.ledger(node)
        if ledger is None:
            return None
        for assumed in self._promises.on(node):
            pod = assumed.asked
            claim = Claim(pod.holder, pod.wants, Terms(), pod.priority)
            # A pod that is already in the ledger keeps its grant; bind refuses a pod that no longer fits.
            taken = claims.decide(ledger, claim, assumed.strategy)
            ledger = taken.ledger if isinstance(taken, Taken) else ledger
        return ledger

    def _node_changed(self, node: str) -> None:
        self._changed.add(node)
        self._forget(node)

    def _forget(self, node: str) -> None:
        self._ledgers.pop(node, None)
        for ranking in self._rankings.values():
            ranking.forget(node)

    def _settle_homes(self) -> None:
        for node in self._changed:
            ledger = self._book.ledger(node)
            self._homes.set(node, ledger.held if ledger is not None else ())
        self._changed.clear()
