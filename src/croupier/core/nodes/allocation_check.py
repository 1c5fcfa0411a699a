"""Checks that the kubelet assigned every pod the devices that the ledger granted.

The kubelet may choose other devices: its request names no pod, and the device plugin cannot force a choice.
If the actual devices of a pod overlap with no other pod, its grant can be changed to match; two pods with
swapped cards both move. If they overlap, one of the pods must be deleted.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from croupier.core.model.card import Grant
from croupier.core.nodes import kubelet_assignments
from croupier.core.nodes.kubelet_assignments import BoundPod, KubeletAssignment
from croupier.core.nodes.plugin_devices import NodeCard


@dataclass(frozen=True, slots=True)
class AllocationMismatch:
    pod: BoundPod
    actual: Grant
    """The devices that the kubelet assigned."""
    overlaps: tuple[str, ...] = ()
    """Pods that have some of these devices too, or were granted them and have none yet."""

    @property
    def can_move(self) -> bool:
        """The grant can be changed to the actual devices, together with the other mismatches that can."""
        return not self.overlaps

    def __str__(self) -> str:
        promise = f"was granted {describe(self.pod.grant)}" if self.pod.grant else "was granted nothing"
        clash = f", which {' and '.join(self.overlaps)} has or was granted" if self.overlaps else ""
        return f"pod {self.pod.key} {promise} but has {describe(self.actual)}{clash}"


def compare(
    pods: Iterable[BoundPod], holdings: Iterable[KubeletAssignment], cards: Mapping[str, NodeCard]
) -> tuple[AllocationMismatch, ...]:
    """The mismatches, in the order of `pods`, which are the unfinished pods of the node.

    Fewer devices than granted are no mismatch: the kubelet does not show the devices of init containers.
    """
    ids: dict[str, list[str]] = {}
    for holding in holdings:
        ids.setdefault(holding.pod, []).extend(holding.ids)
    has = {key: kubelet_assignments.parts(set(devices)) for key, devices in ids.items()}
    live = tuple(pods)
    promises = {pod.key: kubelet_assignments.with_current_names(pod.grant, cards) for pod in live}
    effective = {**promises, **has}
    return tuple(
        AllocationMismatch(pod, has[pod.key], _overlaps(pod, effective, cards))
        for pod in live
        if pod.key in has and not kubelet_assignments.is_within(has[pod.key], promises[pod.key])
    )


def _overlaps(
    pod: BoundPod, effective: Mapping[str, Grant], cards: Mapping[str, NodeCard]
) -> tuple[str, ...]:
    others = {key: grant for key, grant in effective.items() if key != pod.key}
    return tuple(dict.fromkeys(kubelet_assignments.conflicts(effective[pod.key], others, cards)))


def describe(grant: Grant) -> str:
    """`50 of card node-1-0000-65-00-0 and 1g.10gb-0 of card node-1-0000-66-00-0`."""
    return " and ".join(
        f"{', '.join(part.slots) if part.slots else part.share} of card {part.card}" for part in grant
    )
