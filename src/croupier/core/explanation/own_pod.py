"""Explains a pod from the pod alone, for users who may not read the nodes and their ledgers.

The allocation in the pod's Binding names its cards, and the scheduler's last message says why it is pending.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from croupier.core.explanation import explain as whole
from croupier.core.explanation.explain import PlacementExplanation, SchedulingInputs
from croupier.core.model import name_list
from croupier.core.model.pod_view import PodView
from croupier.core.pods.scheduler_filters import NodeConstraints

NO_MESSAGE: Final = "the pod is pending; the scheduler has not reported a reason yet"
NO_CLUSTER: Final = SchedulingInputs({}, {})


@dataclass(frozen=True, slots=True)
class PoolAmount:
    """What a pool has left, counted in its unit."""

    pool: str
    available: int
    total: int
    unit: str

    @property
    def sentence(self) -> str:
        unit = f" ({self.unit})" if self.unit else ""
        return f"pool {self.pool} has {name_list.part_of(self.available, self.total, 'unit')}{unit} available"


def explain(
    pod: PodView, needs: NodeConstraints, *, message: str, pools: Iterable[PoolAmount] = ()
) -> PlacementExplanation:
    """`message` is the scheduler's last message about the pod, `pools` are those that the pod requests."""
    if pod.node and not pod.finished and (pod.grant or pod.wants or pod.trouble):
        cards = f"holds {describe_cards(pod)}" if pod.grant else "records no allocation of cards"
        return PlacementExplanation(pod, "Bound", f"the pod is bound to {pod.node} and {cards}")
    if pod.node or pod.finished or pod.trouble or not pod.marked:
        return whole.explain(pod, needs, NO_CLUSTER)
    notes = tuple(amount.sentence for amount in pools)
    return PlacementExplanation(pod, "Pending", message or NO_MESSAGE, notes=notes)


def describe_cards(pod: PodView) -> str:
    """`card 0 (GPU-1) and card 1 (GPU-2)`."""
    cards = [part.card for part in pod.grant]
    if len(pod.indexes) != len(cards):
        return " and ".join(f"card {card}" for card in cards)
    return " and ".join(f"card {index} ({card})" for index, card in zip(pod.indexes, cards, strict=True))
