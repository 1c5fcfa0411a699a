"""PriorityClass: a named priority of the cluster."""

from typing import Final

from croupier.api.meta import ObjectMeta
from croupier.api.wire import Wire
from croupier.kube.client.resource import Resource


class PriorityClass(Wire, frozen=True, kw_only=True):
    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False


PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, PriorityClass
)
