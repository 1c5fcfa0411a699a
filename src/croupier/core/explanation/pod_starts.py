"""Which waiting pods would start after a change of cards.

Waiting pods are placed in the order of the scheduler, priority first and then age, once as the cluster is and
once as it would be. Pods that request the same share their verdicts, and only the node that took a pod is
ranked again. A pod can only start because of the change if it requests cards of a pool that changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from croupier.core.explanation import explain
from croupier.core.explanation.explain import NodeFits
from croupier.core.ledger import ledger as ledger_ops
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import Grant
from croupier.core.model.card_request import CardRequest
from croupier.core.model.pod_view import PodView
from croupier.core.model.refusal import Refusal
from croupier.core.placement.card_selection import Strategy
from croupier.core.pods import scheduler_filters
from croupier.core.pods.scheduler_filters import CandidateNode, NodeConstraints

MAX_PODS: Final = 100
"""The largest number of waiting pods that are placed."""
MAX_VERDICTS: Final = 20_000
"""The largest number of questions to ledgers; then the remaining pods are left out."""
_LAST: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class QueuedPod:
    view: PodView
    needs: NodeConstraints = field(default_factory=NodeConstraints)
    strategy: Strategy = "Spread"


@dataclass(frozen=True, slots=True)
class PodStart:
    pod: PodView
    node: str
    cards: str
    """`50 % of card 0`."""


@dataclass(frozen=True, slots=True)
class PodStarts:
    pods: tuple[PodStart, ...] = ()
    left_out: int = 0
    """Waiting pods that were not considered, because there are too many."""


def starts(
    waiting: Iterable[QueuedPod],
    nodes: Mapping[str, CandidateNode],
    ledgers: Mapping[str, Ledger],
    changed: Mapping[str, Ledger],
) -> PodStarts:
    """The pods that fit with the ledgers `changed` and do not fit without them."""
    touched = _touched_pools(ledgers, changed)
    asking = sorted((pod for pod in waiting if _pools(pod) & touched), key=_order) if touched else []
    candidates = asking[:MAX_PODS]
    busy = {holder for ledger in ledgers.values() for holder in ledger.held} if candidates else set()
    queue = [pod for pod in candidates if not {pod.view.key, pod.view.holder} & busy]
    verdicts = _Verdicts(nodes)
    before, seen_before = _placed(queue, ledgers, verdicts)
    after, seen_after = _placed(queue, {**ledgers, **changed}, verdicts)
    starting = tuple(start for uid, start in after.items() if uid not in before)
    return PodStarts(starting, len(asking) - len(candidates) + len(queue) - min(seen_before, seen_after))


def _order(pod: QueuedPod) -> tuple[int, datetime, str]:
    return -pod.view.priority, pod.view.created or _LAST, pod.view.key


def _pools(pod: QueuedPod) -> set[str]:
    return {want.pool for want in pod.view.wants}


def _touched_pools(ledgers: Mapping[str, Ledger], changed: Mapping[str, Ledger]) -> set[str]:
    """The pools, and empty for no pool, of which a card changed."""
    pools: set[str] = set()
    for name, ledger in changed.items():
        old = {card.id: card for card in ledgers[name].cards} if name in ledgers else {}
        for card in ledger.cards:
            if card != old.get(card.id):
                pools |= {card.pool}
    return pools


def _placed(
    queue: Sequence[QueuedPod], ledgers: Mapping[str, Ledger], verdicts: "_Verdicts"
) -> tuple[dict[str, PodStart], int]:
    """Where the pods would be placed one after the other, by UID, and how many were considered."""
    now = dict(ledgers)
    found: dict[str, PodStart] = {}
    by_pool = _nodes_by_pool(ledgers)
    for number, pod in enumerate(queue):
        if verdicts.asked > MAX_VERDICTS:
            return found, number
        having = set().union(*(by_pool.get(pool, set()) for pool in _pools(pod)))
        fits = [
            (verdict.rank, name, verdict.grant)
            for name in having & verdicts.admitting(pod.needs)
            if (verdict := verdicts.of(pod, now[name])) is not None
        ]
        if fits:
            _, name, grant = min(fits)
            cards = explain.describe_grant(now[name], grant)
            now[name] = _with_pod(now[name], pod.view, grant)
            found[pod.view.uid] = PodStart(pod.view, name, cards)
    return found, len(queue)


def _nodes_by_pool(ledgers: Mapping[str, Ledger]) -> dict[str, set[str]]:
    nodes: dict[str, set[str]] = {}
    for name, ledger in ledgers.items():
        for card in ledger.cards:
            nodes.setdefault(card.pool, set()).add(name)
    return nodes


def _with_pod(ledger: Ledger, pod: PodView, grant: Grant) -> Ledger:
    given = ledger_ops.give(ledger, pod.holder, grant, HoldTerms(bound=True))
    if isinstance(given, Refusal):
        raise AssertionError(f"{ledger.node} refuses a grant that was just planned: {given}")
    return given


class _Verdicts:
    """Verdicts of nodes, remembered for pods that request the same of the same ledger."""

    def __init__(self, nodes: Mapping[str, CandidateNode]) -> None:
        self.nodes = nodes
        self.asked = 0
        self._known: dict[tuple[int, Strategy, CardRequest], tuple[Ledger, NodeFits | None]] = {}
        self._admitting: dict[str, set[str]] = {}

    def admitting(self, needs: NodeConstraints) -> set[str]:
        """The nodes that pass the scheduler's own filters."""
        key = repr(needs)
        if key not in self._admitting:
            passing = (n for n, node in self.nodes.items() if not scheduler_filters.rejection(node, needs))
            self._admitting[key] = set(passing)
        return self._admitting[key]

    def of(self, pod: QueuedPod, ledger: Ledger) -> NodeFits | None:
        key = (id(ledger), pod.strategy, pod.view.wants)
        if key not in self._known:
            self.asked += 1
            verdict = explain.verdict(pod.view, ledger, pod.strategy)
            # The ledger is kept, so that its id is not used again.
            self._known[key] = ledger, verdict if isinstance(verdict, NodeFits) else None
        return self._known[key][1]
