"""Builds the availability index: maintained by the informers of nodes and pods, or counted once.

A maintained index always equals a recount of the two stores, and queries need no request to the API server.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from croupier.api import pod_requests
from croupier.api.core_v1 import Node, Pod
from croupier.api.pod_requests import LEAN_NODES, LEAN_PODS, LeanNode, LeanPod
from croupier.capacity.snapshot import BOUND
from croupier.core.availability import Availability
from croupier.kube.cache.store import ObjectChange, Store
from croupier.kube.client.api_client import PAGE_SIZE, Client, Selection
from croupier.kube.client.errors import Gone

N = TypeVar("N", Node, LeanNode)
P = TypeVar("P", Pod, LeanPod)

OnPodsRead = Callable[[int], None]
"""Called with the number of pods of each page."""


def maintain(nodes: Store[N], pods: Store[P]) -> Availability:
    """An index of the stores that follows their changes."""
    index = Availability()
    for node in nodes:
        update_node(index, node)
    for pod in pods:
        update_pod(index, pod)
    nodes.subscribe(lambda change: _node_changed(index, change))
    pods.subscribe(lambda change: _pod_changed(index, change))
    return index


async def count_cluster(api: Client, heard: OnPodsRead = lambda _: None) -> Availability:
    """Count all nodes once."""
    try:
        return await _count(api, heard, page=PAGE_SIZE)
    except Gone:  # the continue token expired: list without paging
        return await _count(api, heard, page=0)


async def count_node(api: Client, name: str) -> Availability:
    """Count one node; lists only its own pods. Raises NotFound if the node does not exist."""
    index = Availability()
    on_node = Selection(fields=f"spec.nodeName={name},{BOUND.fields}")
    node, pods = await asyncio.gather(api.get(LEAN_NODES, name), api.list(LEAN_PODS, on_node))
    update_node(index, node)
    for pod in pods.items:
        update_pod(index, pod)
    return index


async def _count(api: Client, heard: OnPodsRead, *, page: int) -> Availability:
    index = Availability()

    async def read_nodes() -> None:
        async for part in api.pages(LEAN_NODES, limit=page):
            for node in part.items:
                update_node(index, node)

    async def read_pods() -> None:
        async for part in api.pages(LEAN_PODS, BOUND, limit=page):
            for pod in part.items:
                update_pod(index, pod)
            heard(len(part.items))

    await asyncio.gather(read_nodes(), read_pods())
    return index


def update_node(index: Availability, node: Node | LeanNode) -> None:
    allocatable, capacity = pod_requests.capacity_of(node)
    index.set_node(node.metadata.name, allocatable, capacity, cordoned=node.spec.unschedulable)


def update_pod(index: Availability, pod: Pod | LeanPod) -> None:
    occupant = pod_requests.occupant(pod)
    if occupant is not None:
        index.set_pod(occupant)
    else:
        index.drop_pod(pod.metadata.uid)


def _node_changed(index: Availability, change: ObjectChange[N]) -> None:
    if change.new is None:
        index.drop_node(change.key.name)
    else:
        update_node(index, change.new)


def _pod_changed(index: Availability, change: ObjectChange[P]) -> None:
    if change.new is not None:
        update_pod(index, change.new)
    elif change.old is not None:
        index.drop_pod(change.old.metadata.uid)
