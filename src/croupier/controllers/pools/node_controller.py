"""The controller for labels and taints of pools on nodes. One key is one node.

The list of taints can only be replaced as a whole, and other clients change it too. So the write is bound to
the resource version that was read, and retried after a conflict.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from croupier.api.core_v1 import Node
from croupier.api.core_v1 import Taint as WireTaint
from croupier.api.gpu import GPUDevice, GPUPool
from croupier.api.kinds import NODES
from croupier.capacity import index_keys
from croupier.core.cards import lifecycle
from croupier.core.pods.scheduler_filters import NodeTaint
from croupier.core.pools import node_labels as pool_nodes
from croupier.core.pools.hints import NODE_LABEL, TAINTS
from croupier.core.pools.node_labels import NodeMarks
from croupier.kube.cache import store
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Raw
from croupier.kube.controller.control_loop import Controller, ControllerOptions
from croupier.kube.controller.controller_run import ALWAYS_LEADER, LeaderCheck
from croupier.kube.controller.metrics import ControllerMetrics
from croupier.kube.controller.reconcile import DONE, Result

NAME: Final = "pool-nodes"
FIELD_MANAGER: Final = lifecycle.POOL

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PoolNodeInformers:
    nodes: Informer[Node]
    devices: Informer[GPUDevice]
    pools: Informer[GPUPool]


@dataclass(frozen=True, slots=True)
class PoolNodeOptions:
    options: ControllerOptions = field(default_factory=lambda: ControllerOptions(workers=4))
    metrics: ControllerMetrics = field(default_factory=ControllerMetrics)


class PoolNodeController:
    def __init__(
        self, sources: PoolNodeInformers, api: Client, settings: PoolNodeOptions | None = None
    ) -> None:
        self._sources = sources
        self._api = api.with_field_manager(FIELD_MANAGER)
        self._devices = sources.devices.store.index(index_keys.node_of_device)
        self._pooled = sources.devices.store.index(index_keys.pool_of_device)
        settings = settings or PoolNodeOptions()
        self.controller: Controller[str] = Controller(
            NAME, self.reconcile, settings.options, metrics=settings.metrics
        )
        self.controller.watch(sources.nodes.store, sources.nodes.cache, lambda node: (node.metadata.name,))
        self.controller.watch(sources.devices.store, sources.devices.cache, index_keys.node_of_device)
        self.controller.watch(sources.pools.store, sources.pools.cache, self._nodes_of)

    async def run(self, stop: asyncio.Event, leader_check: LeaderCheck = ALWAYS_LEADER) -> None:
        with store.open_indexes(self._devices, self._pooled):
            await self.controller.run(stop, leader_check)

    async def reconcile(self, node: str) -> Result:
        existing = self._sources.nodes.store.named(node)
        if existing is None:
            return DONE
        now = node_marks(existing)
        wanted = pool_nodes.decide(now, self._pools_on(node))
        if wanted == now:
            return DONE
        try:
            written = await self._api.patch(NODES, node, _patch(existing, now, wanted))
        except NotFound:
            return DONE
        self.controller.wrote(node, NODES, written)
        log.info(f"node {node} got the labels and taints of its pools", node=node, pools=sorted(wanted.pools))
        return DONE

    def _pools_on(self, node: str) -> dict[str, tuple[NodeTaint, ...]]:
        names = {device.pool_name for device in self._devices.get(node)} - {""}
        pools = {name: self._sources.pools.store.named(name) for name in names}
        return {name: _taints(pool) for name, pool in pools.items()}

    def _nodes_of(self, pool: GPUPool) -> set[str]:
        devices = self._pooled.get(pool.metadata.name)
        return {node for device in devices for node in index_keys.node_of_device(device)}


def node_marks(node: Node) -> NodeMarks:
    """The pool labels and taints of the node."""
    written = node.metadata.annotations.get(TAINTS, "")
    labels = (key.removeprefix(NODE_LABEL) for key in node.metadata.labels if key.startswith(NODE_LABEL))
    return NodeMarks(
        pools=frozenset(labels),
        taints=tuple(_taint(taint) for taint in node.spec.taints),
        ours=frozenset(written.split(",")) if written else frozenset(),
    )


def _patch(node: Node, now: NodeMarks, wanted: NodeMarks) -> Raw:
    labels: dict[str, str | None] = {NODE_LABEL + name: "" for name in wanted.pools}
    labels |= {NODE_LABEL + name: None for name in now.pools - wanted.pools}
    meta: dict[str, Any] = {"labels": labels}
    if (wanted.taints, wanted.ours) == (now.taints, now.ours):
        return {"metadata": meta}
    before = {_taint(taint): taint for taint in node.spec.taints}
    taints = [before.get(taint) or _to_wire(taint) for taint in wanted.taints]
    meta |= {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {TAINTS: ",".join(sorted(wanted.ours)) or None},
    }
    return {"metadata": meta, "spec": {"taints": [msgspec.to_builtins(taint) for taint in taints]}}


def _taints(pool: GPUPool | None) -> tuple[NodeTaint, ...]:
    if pool is None:
        return ()
    return tuple(NodeTaint(taint.key, taint.effect, taint.value) for taint in pool.spec.scheduling.taints)


def _taint(taint: WireTaint) -> NodeTaint:
    return NodeTaint(taint.key, taint.effect, taint.value)


def _to_wire(taint: NodeTaint) -> WireTaint:
    return WireTaint(key=taint.key, value=taint.value, effect=taint.effect)
