"""Labels and taints on the nodes of pools: one label for each pool, and the taints that pools specify.

Only taints that Croupier added are removed again: a taint from a user or from Kubernetes stays, even if a
pool specifies the same one. The added taints are recorded in an annotation of the node.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from croupier.core.pods.scheduler_filters import NodeTaint


@dataclass(frozen=True, slots=True)
class NodeMarks:
    """Pool labels and taints of a node. `ours` are the taints that Croupier added, as text."""

    pools: frozenset[str] = frozenset()
    """Pools whose label the node has."""
    taints: tuple[NodeTaint, ...] = ()
    ours: frozenset[str] = frozenset()


def decide(now: NodeMarks, pools: Mapping[str, Iterable[NodeTaint]]) -> NodeMarks:
    """The desired labels and taints; `pools` are those with cards on the node, with their taints."""
    wanted = {str(taint): taint for taints in pools.values() for taint in taints}
    foreign = tuple(taint for taint in now.taints if str(taint) not in now.ours)
    present = {(taint.key, taint.effect) for taint in foreign}
    missing = (taint for taint in wanted.values() if (taint.key, taint.effect) not in present)
    added = sorted(missing, key=lambda taint: (taint.key, taint.value, taint.effect))
    kept = _first_of_a_kind(added)
    return NodeMarks(frozenset(pools), (*foreign, *kept), frozenset(str(taint) for taint in kept))


def _first_of_a_kind(taints: Iterable[NodeTaint]) -> tuple[NodeTaint, ...]:
    """A node can have one taint for each key and effect; of two pools with other values the first wins."""
    kinds: dict[tuple[str, str], NodeTaint] = {}
    for taint in taints:
        kinds.setdefault((taint.key, taint.effect), taint)
    return tuple(kinds.values())
