"""Chooses the node of a pod with rankings that are maintained incrementally.

There is one ranking of nodes per distinct request. When the ledger of a node changes, or a pod is assumed on
it or no longer assumed, only that node is ranked again, at the next query. So a filter call costs one
look-up per candidate.

Nothing here waits or writes: the choice of filter is only assumed (assumed_pods.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from croupier.capacity.manager import CapacityManager
from croupier.core.claims import claim as claims
from croupier.core.claims.claim import CardClaim, Granted
from croupier.core.explanation import explain
from croupier.core.ledger.held_nodes import HeldNodes
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card_request import CardRequest
from croupier.core.model.refusal import Refusal
from croupier.core.placement import placement
from croupier.core.placement.placement import Rank, Strategy
from croupier.extender.assumed_pods import ASSUME_TTL, AssumedPod, AssumedPods
from croupier.extender.pod_request import PodRequest
from croupier.extender.request_ranking import RequestRanking
from croupier.kube.client.clock import Clock

MAX_RANKINGS: Final = 64
"""Maximum number of rankings; the least recently used one is evicted."""


@dataclass(frozen=True, slots=True)
class NoFit:
    """The reason of each node."""

    reasons: Mapping[str, str] = field(default_factory=dict)


class NodeRanking:
    def __init__(
        self,
        manager: CapacityManager,
        clock: Clock,
        *,
        strategy: Callable[[CardRequest], Strategy],
        assume_ttl: float = ASSUME_TTL,
    ) -> None:
        self._manager = manager
        self._clock = clock
        self._strategy = strategy
        self._assumed = AssumedPods(assume_ttl)
        self._held_nodes = HeldNodes()
        self._rankings: dict[tuple[CardRequest, Strategy], RequestRanking] = {}
        self._ledgers: dict[str, Ledger | None] = {}  # including assumed pods
        self._changed: set[str] = set(manager.nodes())
        self.ranked = 0
        """Total number of node rankings computed."""
        self._unsubscribe = manager.subscribe(self._node_changed)

    def close(self) -> None:
        self._unsubscribe()

    def choose(self, request: PodRequest, candidates: Sequence[str]) -> str | NoFit:
        """Choose the best of `candidates` and assume the pod there, replacing an earlier assumption."""
        for node in self._assumed.expire(self._clock.monotonic()):
            self._forget(node)
        self.forget_assumed(request.uid)
        result = self._find(request, candidates)
        if isinstance(result, str):
            self._assume(request, result)
        return result

    def assumed(self, uid: str) -> AssumedPod | None:
        """Where the pod is assumed, until that expires."""
        assumed = self._assumed.of(uid)
        return assumed if assumed is not None and assumed.until > self._clock.monotonic() else None

    def forget_assumed(self, uid: str) -> None:
        """The pod is bound or is filtered again: it is no longer assumed."""
        if (node := self._assumed.drop(uid)) is not None:
            self._forget(node)

    def strategy(self, wants: CardRequest) -> Strategy:
        return self._strategy(wants)

    def fits(self, request: PodRequest, node: str) -> bool:
        """Whether the pod fits on the node now."""
        return isinstance(self._try(node, request, self._strategy(request.wants)), Granted)

    def _find(self, request: PodRequest, candidates: Sequence[str]) -> str | NoFit:
        if request.trouble:
            return NoFit(dict.fromkeys(candidates, request.trouble))
        self._refresh_held_nodes()
        if (held := self._held_node(request, candidates)) is not None:
            return held
        if not request.wants:
            return NoFit(dict.fromkeys(candidates, explain.ASKS_FOR_NOTHING.reason))
        possible = frozenset(candidates)
        ranking = self._ranking(request.wants, possible)
        best = ranking.best(possible)
        return NoFit(ranking.reasons(candidates)) if best is None else best

    def _held_node(self, request: PodRequest, candidates: Sequence[str]) -> str | NoFit | None:
        """The node that already holds cards for the pod; None if there is none."""
        held, reserved = self._held_nodes.of(request.holder), self._held_nodes.of(request.key)
        if not held and not reserved:
            return None
        possible = set(candidates)
        if ours := sorted(possible.intersection(held)):
            return ours[0]
        if not reserved:
            return None  # the scheduler excluded the node of our own hold, which expires
        reasons = dict.fromkeys(candidates, explain.reserved_elsewhere(set(reserved)).reason)
        for node in sorted(possible.intersection(reserved)):
            taken = self._try(node, request, self._strategy(request.wants))
            if isinstance(taken, Granted):
                return node
            reasons[node] = taken.reason
        return NoFit(reasons)

    def _try(self, node: str, request: PodRequest, strategy: Strategy) -> Granted | Refusal:
        ledger = self._ledger(node)
        claim = CardClaim(request.holder, request.wants, HoldTerms(), request.priority)
        return explain.NO_CARDS if ledger is None else claims.decide(ledger, claim, strategy)

    def _assume(self, request: PodRequest, node: str) -> None:
        strategy = self._strategy(request.wants)
        self._assumed.assume(request, node, strategy, now=self._clock.monotonic())
        taken = self._try(node, request, strategy)
        self._forget(node)
        if isinstance(taken, Granted):
            self._ledgers[node] = taken.ledger

    def _ranking(self, wants: CardRequest, candidates: Collection[str]) -> RequestRanking:
        """The ranking for `wants`, completed with all candidates."""
        key = (wants, strategy := self._strategy(wants))
        ranking = self._rankings.pop(key, None)
        if ranking is None:
            ranking = RequestRanking()
            if len(self._rankings) >= MAX_RANKINGS:
                del self._rankings[next(iter(self._rankings))]
        self._rankings[key] = ranking
        for node in ranking.missing(candidates):
            ranking.set(node, self._rank(node, wants, strategy))
        return ranking

    def _rank(self, node: str, wants: CardRequest, strategy: Strategy) -> Rank | Refusal:
        ledger = self._ledger(node)
        if ledger is None:
            return explain.NO_CARDS
        self.ranked += 1
        return placement.rank(ledger, wants, strategy)

    def _ledger(self, node: str) -> Ledger | None:
        """The ledger of the node including assumed pods."""
        if node not in self._ledgers:
            self._ledgers[node] = self._with_assumed(node)
        return self._ledgers[node]

    def _with_assumed(self, node: str) -> Ledger | None:
        ledger = self._manager.ledger(node)
        if ledger is None:
            return None
        for assumed in self._assumed.on(node):
            pod = assumed.request
            claim = CardClaim(pod.holder, pod.wants, HoldTerms(), pod.priority)
            # A pod that is already in the ledger keeps its grant; bind refuses a pod that no longer fits.
            taken = claims.decide(ledger, claim, assumed.strategy)
            ledger = taken.ledger if isinstance(taken, Granted) else ledger
        return ledger

    def _node_changed(self, node: str) -> None:
        self._changed.add(node)
        self._forget(node)

    def _forget(self, node: str) -> None:
        self._ledgers.pop(node, None)
        for ranking in self._rankings.values():
            ranking.forget(node)

    def _refresh_held_nodes(self) -> None:
        for node in self._changed:
            ledger = self._manager.ledger(node)
            self._held_nodes.set(node, ledger.held if ledger is not None else ())
        self._changed.clear()
