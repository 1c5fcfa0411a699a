"""The availability index, kept by what the watches of nodes and pods bring.

It equals a recount of the two stores at every moment, so it is as fresh as they are, and asking it needs no
request to the API server.
"""


from croupier.api import occupancy
from croupier.api.core_v1 import Node, Pod
from croupier.core import quantity
from croupier.core.availability import Availability
from croupier.kube.store import Change, Store


def follow(nodes: Store[Node], pods: Store[Pod]) -> Availability:
    """What the stores hold now, and every change of them from now on."""
    index = Availability()
    for node in nodes:
        see_node(index, node)
    for pod in pods:
        see_pod(index, pod)
    nodes.subscribe(lambda change: node_changed(index, change))
    pods.subscribe(lambda change: pod_changed(index, change))
    return index


def node_changed(index: Availability, change: Change[Node]) -> None:
    if change.new is None:
        index.drop_node(change.key.name)
    elif change.old is None or change.old.status != change.new.status:
        see_node(index, change.new)


def pod_changed(index: Availability, change: Change[Pod]) -> None:
    if change.new is not None:
        see_pod(index, change.new)
    elif change.old is not None:
        index.drop_pod(change.old.metadata.uid)


def see_node(index: Availability, node: Node) -> None:
    index.set_node(
        node.metadata.name,
        allocatable={name: quantity.parse(text) for name, text in node.status.allocatable.items()},
        capacity={name: quantity.parse(text) for name, text in node.status.capacity.items()},
    )


def see_pod(index: Availability, pod: Pod) -> None:
    occupant = occupancy.occupant(pod)
    if occupant is not None:
        index.set_pod(occupant)
    else:
        index.drop_pod(pod.metadata.uid)
