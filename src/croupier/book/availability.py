"""Builds the availability index: maintained by the informers of nodes and pods, or counted once.

A maintained index always equals a recount of the two stores, and queries need no request to the API server.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from croupier.api import occupancy
from croupier.api.core_v1 import Node, Pod
from croupier.api.occupancy import LEAN_NODES, LEAN_PODS, LeanNode, LeanPod
from croupier.book.snapshot import BOUND
from croupier.core.availability import Availability
from croupier.kube.client import PAGE, Client, Selection
from croupier.kube.errors import Gone
from croupier.kube.store import Change, Store

N = TypeVar("N", Node, LeanNode)
P = TypeVar("P", Pod, LeanPod)

Heard = Callable[[int], None]
"""Called with the number of pods of each page."""


def follow(nodes: Store[N], pods: Store[P]) -> Availability:
    """An index of the stores that follows their changes."""
    index = Availability()
    for node in nodes:
        see_node(index, node)
    for pod in pods:
        see_pod(index, pod)
    nodes.subscribe(lambda change: _node_changed(index, change))
    pods.subscribe(lambda change: _pod_changed(index, change))
    return index


async def take(api: Client, heard: Heard = lambda _: None) -> Availability:
    """Count all nodes once."""
    try:
        return await _counted(api, heard, page=PAGE)
    except Gone:  # the continue token expired: list without paging
        return await _counted(api, heard, page=0)


async def take_node(api: Client, name: str) -> Availability:
    """Count one node; lists only its own pods. Raises NotFound if the node does not exist."""
    index = Availability()
    on_node = Selection(fields=f"spec.nodeName={name},{BOUND.fields}")
    node, pods = await asyncio.gather(api.get(LEAN_NODES, name), api.list(LEAN_PODS, on_node))
    see_node(index, node)
    for pod in pods.items:
        see_pod(index, pod)
    return index


async def _counted(api: Client, heard: Heard, *, page: int) -> Availability:
    index = Availability()

    async def read_nodes() -> None:
        async for part in api.pages(LEAN_NODES, limit=page):
            for node in part.items:
                see_node(index, node)

    async def read_pods() -> None:
        async for part in api.pages(LEAN_PODS, BOUND, limit=page):
            for pod in part.items:
                see_pod(index, pod)
            heard(len(part.items))

    await asyncio.gather(read_nodes(), read_pods())
    return index


def see_node(index: Availability, node: Node | LeanNode) -> None:
    allocatable, capacity = occupancy.offer(node)
    index.set_node(node.metadata.name, allocatable, capacity, cordoned=node.spec.unschedulable)


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
