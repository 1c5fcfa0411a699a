"""Whether the kubelet handed every pod what it was promised.

It is asked to, and may do otherwise: it names no pod when it asks, and nobody can stop it. What differs
is told with what can be done. If what the pod has clashes with nobody, the promise can follow it: also
when two pods have each other's cards, for then both promises move. If it clashes, somebody must go.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from croupier.core.ledgers.ledger import Grant
from croupier.core.nodes import handed
from croupier.core.nodes.devices import NodeCard
from croupier.core.nodes.handed import BoundPod, Holding


@dataclass(frozen=True, slots=True)
class Mismatch:
    pod: BoundPod
    actual: Grant
    """What it has."""
    overlaps: tuple[str, ...] = ()
    """Pods that have some of it too, or were promised it and have nothing yet."""

    @property
    def can_move(self) -> bool:
        """Its promise can be changed into what it has, together with those of all others that can."""
        return not self.overlaps

    def __str__(self) -> str:
        promise = f"was promised {words(self.pod.grant)}" if self.pod.grant else "was promised nothing"
        clash = f", which {' and '.join(self.overlaps)} has or was promised" if self.overlaps else ""
        return f"pod {self.pod.key} {promise} and has {words(self.actual)}{clash}"


def compare(
    pods: Iterable[BoundPod], holdings: Iterable[Holding], cards: Mapping[str, NodeCard]
) -> tuple[Mismatch, ...]:
    """What differs, in the order of `pods`, which are those of the node that are not finished.

    A pod with less than its promise is right: the kubelet does not show what init containers had.
    """
    ids: dict[str, list[str]] = {}
    for one in holdings:
        ids.setdefault(one.pod, []).extend(one.ids)
    has = {key: handed.parts(set(found)) for key, found in ids.items()}
    live = tuple(pods)
    promises = {pod.key: handed.named(pod.grant, cards) for pod in live}
    standing = {**promises, **has}
    return tuple(
        Mismatch(pod, has[pod.key], _overlaps(pod, standing, cards))
        for pod in live
        if pod.key in has and not handed.is_within(has[pod.key], promises[pod.key])
    )


def _overlaps(pod: BoundPod, standing: Mapping[str, Grant], cards: Mapping[str, NodeCard]) -> tuple[str, ...]:
    others = {key: grant for key, grant in standing.items() if key != pod.key}
    return tuple(dict.fromkeys(handed.clashes(standing[pod.key], others, cards)))


def words(grant: Grant) -> str:
    """`50 of card node-1-0000-65-00-0 and 1g.10gb-0 of card node-1-0000-66-00-0`."""
    return " and ".join(
        f"{', '.join(part.slots) if part.slots else part.share} of card {part.card}" for part in grant
    )
