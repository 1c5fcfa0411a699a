"""NodeFeature of Node Feature Discovery (NFD), reduced to the fields about GPUs.

Clusters without NFD have no such objects. Node labels are used instead.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import field

from croupier.api.meta import ObjectMeta
from croupier.api.wire import Wire
from croupier.core.cards.features import NodeFeatureScan
from croupier.kube.client.resource import Resource

NODE_NAME_LABEL: Final = "nfd.node.kubernetes.io/node-name"
"""The label with the name of the node that a NodeFeature describes."""
PCI_FEATURE: Final = "pci.device"


class FeatureInstance(Wire, frozen=True, kw_only=True):
    attributes: dict[str, str] = field(default_factory=dict)


class FeatureInstanceSet(Wire, frozen=True, kw_only=True):
    elements: tuple[FeatureInstance, ...] = ()


class NodeFeatureInstances(Wire, frozen=True, kw_only=True):
    instances: dict[str, FeatureInstanceSet] = field(default_factory=dict)


class NodeFeatureSpec(Wire, frozen=True, kw_only=True):
    features: NodeFeatureInstances = NodeFeatureInstances()
    labels: dict[str, str] = field(default_factory=dict)


class NodeFeature(Wire, frozen=True, kw_only=True):
    """nfd.k8s-sigs.io/v1alpha1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeFeatureSpec = NodeFeatureSpec()


NODE_FEATURES: Final = Resource(
    "nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature", True, NodeFeature
)


def node_of(feature: NodeFeature) -> str:
    """The node of the object. NFD names its objects after the node; other producers only set the label."""
    return feature.metadata.labels.get(NODE_NAME_LABEL) or feature.metadata.name


def scan(features: Iterable[NodeFeature]) -> NodeFeatureScan:
    """Merge all objects about one node. If two contradict each other, the first by name wins."""
    labels: dict[str, str] = {}
    devices: list[dict[str, str]] | None = None
    for feature in sorted(features, key=lambda feature: feature.metadata.key):
        labels = {**feature.spec.labels, **labels}
        if (bus := feature.spec.features.instances.get(PCI_FEATURE)) is not None and devices is None:
            devices = [device.attributes for device in bus.elements]
    return NodeFeatureScan(labels, None if devices is None else tuple(devices))
