"""NodeFeature of Node Feature Discovery: what its worker and others find in a node.

Only the few fields that tell of GPUs. Where NFD is not installed there are none, and labels are read instead.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import field

from croupier.api.meta import ObjectMeta
from croupier.api.wire import Wire
from croupier.core.cards.features import Scan
from croupier.kube.resource import Resource

NODE_NAME: Final = "nfd.node.kubernetes.io/node-name"
"""The label with the name of the node that a NodeFeature is about."""
PCI: Final = "pci.device"


class Instance(Wire, frozen=True, kw_only=True):
    attributes: dict[str, str] = field(default_factory=dict)


class InstanceSet(Wire, frozen=True, kw_only=True):
    elements: tuple[Instance, ...] = ()


class Features(Wire, frozen=True, kw_only=True):
    instances: dict[str, InstanceSet] = field(default_factory=dict)


class NodeFeatureSpec(Wire, frozen=True, kw_only=True):
    features: Features = Features()
    labels: dict[str, str] = field(default_factory=dict)


class NodeFeature(Wire, frozen=True, kw_only=True):
    """nfd.k8s-sigs.io/v1alpha1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeFeatureSpec = NodeFeatureSpec()


NODE_FEATURES: Final = Resource(
    "nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature", True, NodeFeature
)


def node_of(found: NodeFeature) -> str:
    """NFD's own objects are named like their node; those of others only say it in a label."""
    return found.metadata.labels.get(NODE_NAME) or found.metadata.name


def scan(found: Iterable[NodeFeature]) -> Scan:
    """All objects about one node together; where two say the same thing differently, the first by name."""
    labels: dict[str, str] = {}
    devices: list[dict[str, str]] | None = None
    for one in sorted(found, key=lambda one: one.metadata.key):
        labels = {**one.spec.labels, **labels}
        if (bus := one.spec.features.instances.get(PCI)) is not None and devices is None:
            devices = [device.attributes for device in bus.elements]
    return Scan(labels, None if devices is None else tuple(devices))
