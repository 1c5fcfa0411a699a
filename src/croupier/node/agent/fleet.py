"""The agents of many simulated nodes in one process.

Everything but the cards is the code of a real node. There is no kubelet, so the devices that a device plugin
would list are written into the status of the Node.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import structlog

from croupier.api.core_v1 import ConfigMap, Node, Pod
from croupier.api.gpu.agent_report import FIELD_MANAGER
from croupier.api.gpu.device import GPUDevice
from croupier.api.gpu.pool_config import ALLOCATION_KEY
from croupier.api.kinds import NODES
from croupier.core import quantity
from croupier.core.model.card import CardGrant
from croupier.core.model.card_request import WHOLE_CARD
from croupier.core.model.gpu_card import GpuCard
from croupier.core.nodes import plugin_devices
from croupier.core.nodes.kubelet_assignments import KubeletAssignment
from croupier.core.nodes.node_conditions import DevicePluginState
from croupier.core.nodes.plugin_devices import NodeCard, ServedResources
from croupier.kube.cache import store
from croupier.kube.cache.store import ObjectChange, Store, StoreIndex
from croupier.kube.client.api_client import Client
from croupier.kube.client.errors import KubeError
from croupier.node import node_informers
from croupier.node.agent.agent import NodeAgent
from croupier.node.node_informers import NodeInformers, PoolConfigMaps

START_CONCURRENCY: Final = 16
"""The number of agents that start concurrently."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class StatusServing:
    """Replaces the kubelet of one node."""

    def __init__(self, api: Client, informers: NodeInformers) -> None:
        self._api = api.with_field_manager(FIELD_MANAGER)
        self._informers = informers
        self._cards: Mapping[str, NodeCard] = {}
        self._written: Mapping[str, tuple[int, int]] = {}
        self._trouble = ""

    async def serve(self, offer: ServedResources, _: Mapping[str, GpuCard]) -> None:
        """Healthy devices are allocatable, all devices are capacity. A removed resource stays with 0."""
        self._cards = offer.cards
        healthy = offer.healthy()
        wanted = {name: (healthy[name], len(ids)) for name, ids in offer.resources.items()}
        node = self._informers.node()
        if node is None or (wanted == self._written and _has_resources(node, wanted)):
            return
        status = {
            "allocatable": {name: str(count) for name, (count, _) in wanted.items()},
            "capacity": {name: str(count) for name, (_, count) in wanted.items()},
        }
        try:
            if not _has_resources(node, wanted):
                name = node.metadata.name
                await self._api.patch(NODES, name, {"status": status}, subresource="status")
        except KubeError as error:
            self._trouble = f"cannot write the status of the node: {error}"
            return
        self._written, self._trouble = wanted, ""

    def service(self) -> DevicePluginState:
        serves = {name: healthy for name, (healthy, _) in self._written.items()}
        return DevicePluginState(serves, troubles=(self._trouble,) if self._trouble else ())

    async def given(self) -> Sequence[KubeletAssignment]:
        """Without a kubelet the devices of a pod are those of its allocation."""
        return [
            KubeletAssignment(
                pod.key, "", "", tuple(device for part in pod.grant for device in self._devices(part))
            )
            for pod in self._informers.unfinished_pods()
            if pod.grant
        ]

    def _devices(self, part: CardGrant) -> Iterator[str]:
        """Device IDs for the share. Which of the hundred percent devices they are does not matter."""
        card = self._cards.get(part.card)
        by_time = card is not None and card.time_sliced
        yield from (f"{part.card}{plugin_devices.SEPARATOR}{slot}" for slot in part.slots)
        for number in range(part.share):
            yield f"{part.card}{plugin_devices.SEPARATOR}{f's{number}' if by_time else f'p{number:02}'}"
        if part.share == WHOLE_CARD and not by_time:
            yield part.card


def _has_resources(node: Node, wanted: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the status of the node already has these resources."""
    status = node.status
    return all(
        _is_count(status.allocatable.get(name), healthy) and _is_count(status.capacity.get(name), total)
        for name, (healthy, total) in wanted.items()
    )


def _is_count(written: str | None, count: int) -> bool:
    try:
        return written is not None and quantity.parse(written).nanos == count * quantity.NANO
    except quantity.InvalidQuantityError:
        return False


@dataclass(frozen=True, slots=True)
class FleetInformers:
    nodes: Store[Node]
    """The nodes of the fleet."""
    pods: Store[Pod]
    devices: Store[GPUDevice]
    config_maps: Store[ConfigMap]


class NodeAgentFleet:
    """Runs an agent for every node while the node exists."""

    def __init__(self, sources: FleetInformers, make: Callable[[NodeInformers], NodeAgent]) -> None:
        self._sources = sources
        self._make = make
        self._pods: StoreIndex[Pod, str] = sources.pods.index(_pod_node)
        self._devices: StoreIndex[GPUDevice, str] = sources.devices.index(_device_node)
        self._pools = PoolConfigMaps(sources.config_maps)
        self._agents: dict[str, NodeAgent] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._turns = asyncio.Semaphore(START_CONCURRENCY)
        self._news = asyncio.Event()

    @property
    def agents(self) -> Mapping[str, NodeAgent]:
        return self._agents

    async def run(self, stop: asyncio.Event) -> None:
        """The stores must have synced before."""
        ends = [
            self._sources.nodes.subscribe(self._node_changed),
            self._sources.pods.subscribe(lambda change: self._wake(_changed_nodes(change, _pod_node))),
            self._sources.devices.subscribe(lambda change: self._wake(_changed_nodes(change, _device_node))),
            self._sources.config_maps.subscribe(lambda change: self._wake(self._concerned(change))),
        ]
        try:
            with store.open_indexes(self._pods, self._devices):
                await self._run(stop)
        finally:
            for unsubscribe in ends:
                unsubscribe()

    async def _run(self, stop: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            stopped = group.create_task(stop.wait())
            stopped.add_done_callback(lambda _: self._news.set())
            while not stop.is_set():
                self._news.clear()
                self._keep_up(group)
                await self._news.wait()
            for end in self._ends.values():
                end.set()

    def informers(self, name: str) -> NodeInformers:
        return NodeInformers(
            name,
            lambda: self._sources.nodes.named(name),
            lambda: self._pods.get(name),
            lambda: self._devices.get(name),
            self._pools,
        )

    def _keep_up(self, group: asyncio.TaskGroup) -> None:
        """Start agents of new nodes and stop those of deleted nodes."""
        names = {node.metadata.name for node in self._sources.nodes}
        for name in self._agents.keys() - names:
            self._ends.pop(name).set()
            del self._agents[name]
        for name in sorted(names - self._agents.keys()):
            self._agents[name] = self._make(self.informers(name))
            self._ends[name] = asyncio.Event()
            group.create_task(self._live(self._agents[name], self._ends[name]))

    async def _live(self, agent: NodeAgent, end: asyncio.Event) -> None:
        """Limit concurrent first rounds: five hundred at once would time out."""
        async with self._turns:
            running = asyncio.create_task(agent.run(end))
            begun = asyncio.create_task(agent.started.wait())
            await asyncio.wait({running, begun}, return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
        await running

    def _node_changed(self, change: ObjectChange[Node]) -> None:
        if change.old is None or change.new is None:
            self._news.set()
        elif node_informers.relevant_change(change.old, change.new):
            self._wake([change.key.name])

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            if (agent := self._agents.get(name)) is not None:
                agent.wake()

    def _concerned(self, change: ObjectChange[ConfigMap]) -> set[str]:
        """The nodes whose cards joined or left the pool, or all its nodes if its allocation changed."""
        before, after = (_card_ids(config_map) for config_map in (change.old, change.new))
        same = _allocation_text(change.old) == _allocation_text(change.new)
        cards = before ^ after if same else before | after
        return {name for name, agent in self._agents.items() if not cards.isdisjoint(agent.cards)}


def _changed_nodes(change: ObjectChange[T], nodes: Callable[[T], Iterable[str]]) -> set[str]:
    return {name for item in (change.old, change.new) if item is not None for name in nodes(item)}


def _card_ids(config_map: ConfigMap | None) -> frozenset[str]:
    with contextlib.suppress(ValueError):
        return node_informers.decode_pool(config_map).cards if config_map is not None else frozenset()
    return frozenset()


def _allocation_text(config_map: ConfigMap | None) -> str | None:
    return config_map.data.get(ALLOCATION_KEY) if config_map is not None else None


def _pod_node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _device_node(device: GPUDevice) -> Iterable[str]:
    return (device.node_name,) if device.node_name else ()
