"""An unscheduled pod, as filter and bind need it."""

from dataclasses import dataclass

from croupier.api import convert_pod
from croupier.api.core_v1 import Pod
from croupier.core.model.card_request import CardRequest


@dataclass(frozen=True, slots=True)
class PodRequest:
    key: str
    """`namespace/name`, the name of the pod in a Reservation."""
    uid: str
    version: str = ""
    """The resourceVersion of the pod; a Binding with it fails after the pod has changed."""
    wants: CardRequest = ()
    trouble: str = ""
    """Why its request cannot be read."""
    priority: int = 0

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]

    @property
    def holder(self) -> str:
        return f"{self.key}/{self.uid}"


def read(pod: Pod) -> PodRequest:
    view = convert_pod.view(pod)
    version = pod.metadata.resource_version
    return PodRequest(view.key, view.uid, version, view.wants, view.trouble, view.priority)
