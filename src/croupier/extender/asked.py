"""A pod that waits for a place, as filter and bind speak of it."""

from dataclasses import dataclass

from croupier.api import pods
from croupier.api.core_v1 import Pod
from croupier.core.pods.want import Wants


@dataclass(frozen=True, slots=True)
class Asked:
    key: str
    """`namespace/name`: how a person's Reservation names the pod."""
    uid: str
    version: str = ""
    """The resourceVersion this was read from; a Binding for it fails once the pod has another."""
    wants: Wants = ()
    trouble: str = ""
    """Why its request cannot be read."""
    priority: int = 0

    @property
    def holder(self) -> str:
        return f"{self.key}/{self.uid}"


def read(pod: Pod) -> Asked:
    seen = pods.view(pod)
    version = pod.metadata.resource_version
    return Asked(seen.key, seen.uid, version, seen.wants, seen.trouble, seen.priority)
