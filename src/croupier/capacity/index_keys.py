"""Index keys of objects: the node of a pod, the node and the pool of a card."""

from collections.abc import Iterable

from croupier.api.core_v1 import Pod
from croupier.api.gpu import GPUDevice


def node_of_pod(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def node_of_device(device: GPUDevice) -> Iterable[str]:
    return (device.status.node_name,) if device.status.node_name else ()


def pool_of_device(device: GPUDevice) -> Iterable[str]:
    return (device.pool_name,) if device.pool_name else ()
