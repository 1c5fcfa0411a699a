"""The availability index, kept by what the watches of nodes and pods bring.

It equals a recount of the two stores at every moment, so it is as fresh as they are, and asking it needs no
request to the API server.
"""

from typing import TypeVar

from croupier.api import occupancy
from croupier.api.core_v1 import Node, Pod
from croupier.api.occupancy import LeanNode, LeanPod
from croupier.core.availability import Availability
from croupier.kube.store import Change, Store

N = TypeVar("N", Node, LeanNode)
P = TypeVar("P", Pod, LeanPod)


def follow(nodes: Store[N], pods: Store[P]) -> Availability:
    """What the stores hold now, and every change of them from now on."""
    index = Availability()
    for node in nodes:
        see_node(index, node)
    for pod in pods:
        see_pod(index, pod)
    nodes.subscribe(lambda change: _node_changed(index, change))
    pods.subscribe(lambda change: _pod_changed(index, change))
    return index


def see_node(index: Availability, node: Node | LeanNode) -> None:
    allocatable, capacity = occupancy.offer(node)
    index.set_node(node.metadata.name, allocatable, capacity)


def see_pod(index: Availability, pod: Pod | LeanPod) -> None:
    occupant = occupancy.occupant(pod)
    if occupant is not None:
        index.set_pod(occupant)
    else:
        index.drop_pod(pod.metadata.uid)


def _node_changed(index: Availability, change: Change[N]) -> None:
    if change.new is None:
        index.drop_node(change.key.name)
    else:
        see_node(index, change.new)


def _pod_changed(index: Availability, change: Change[P]) -> None:
    if change.new is not None:
        see_pod(index, change.new)
    elif change.old is not None:
        index.drop_pod(change.old.metadata.uid)
