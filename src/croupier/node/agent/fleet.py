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
from croupier.api.gpu.device import NODE_LABEL, GPUDevice
from croupier.api.kinds import NODES
from croupier.core import quantity
from croupier.core.ledgers.ledger import Part
from croupier.core.nodes import devices
from croupier.core.nodes.devices import NodeCard, Offer
from croupier.core.nodes.handed import Holding
from croupier.core.nodes.state import Service
from croupier.core.pods.want import WHOLE
from croupier.kube import store
from croupier.kube.client import Client
from croupier.kube.errors import KubeError
from croupier.kube.store import Change, Index, Store
from croupier.node.agent import sight
from croupier.node.agent.agent import Agent
from croupier.node.agent.publishing import REPORTER
from croupier.node.agent.sight import Pools, Window
from croupier.node.cards.cards import Seen

AT_ONCE: Final = 16
"""The number of agents that start concurrently."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class StatusServing:
    """Replaces the kubelet of one node."""

    def __init__(self, api: Client, window: Window) -> None:
        self._api = api.acting_as(REPORTER)
        self._window = window
        self._cards: Mapping[str, NodeCard] = {}
        self._written: Mapping[str, tuple[int, int]] = {}
        self._trouble = ""

    async def serve(self, offer: Offer, _: Mapping[str, Seen]) -> None:
        """Healthy devices are allocatable, all devices are capacity. A removed resource stays with 0."""
        self._cards = offer.cards
        healthy = offer.healthy()
        wanted = {name: (healthy[name], len(ids)) for name, ids in offer.resources.items()}
        node = self._window.node()
        if node is None or (wanted == self._written and _stands(node, wanted)):
            return
        status = {
            "allocatable": {name: str(count) for name, (count, _) in wanted.items()},
            "capacity": {name: str(count) for name, (_, count) in wanted.items()},
        }
        try:
            if not _stands(node, wanted):
                name = node.metadata.name
                await self._api.patch(NODES, name, {"status": status}, subresource="status")
        except KubeError as error:
            self._trouble = f"cannot write the status of the node: {error}"
            return
        self._written, self._trouble = wanted, ""

    def service(self) -> Service:
        serves = {name: healthy for name, (healthy, _) in self._written.items()}
        return Service(serves, troubles=(self._trouble,) if self._trouble else ())

    async def given(self) -> Sequence[Holding]:
        """Without a kubelet the devices of a pod are those of its allocation."""
        return [
            Holding(pod.key, "", "", tuple(device for part in pod.grant for device in self._devices(part)))
            for pod in self._window.live()
            if pod.grant
        ]

    def _devices(self, part: Part) -> Iterator[str]:
        """Device IDs for the share. Which of the hundred percent devices they are does not matter."""
        card = self._cards.get(part.card)
        by_time = card is not None and card.pool is not None and card.pool.sharing == "TimeSlice"
        yield from (f"{part.card}{devices.BETWEEN}{slot}" for slot in part.slots)
        for number in range(part.share):
            yield f"{part.card}{devices.BETWEEN}{f's{number}' if by_time else f'p{number:02}'}"
        if part.share == WHOLE and not by_time:
            yield part.card

    async def close(self) -> None: ...


def _stands(node: Node, wanted: Mapping[str, tuple[int, int]]) -> bool:
    """Whether the status of the node already has these resources."""
    status = node.status
    return all(
        _same(status.allocatable.get(name), healthy) and _same(status.capacity.get(name), total)
        for name, (healthy, total) in wanted.items()
    )


def _same(written: str | None, count: int) -> bool:
    try:
        return written is not None and quantity.parse(written).nanos == count * quantity.NANO
    except quantity.InvalidQuantityError:
        return False


@dataclass(frozen=True, slots=True)
class Sources:
    nodes: Store[Node]
    """The nodes of the fleet."""
    pods: Store[Pod]
    devices: Store[GPUDevice]
    config_maps: Store[ConfigMap]


class Fleet:
    """Runs an agent for every node while the node exists."""

    def __init__(self, sources: Sources, make: Callable[[Window], Agent]) -> None:
        self._sources = sources
        self._make = make
        self._pods: Index[Pod, str] = sources.pods.index(_pod_node)
        self._devices: Index[GPUDevice, str] = sources.devices.index(_device_node)
        self._pools = Pools(sources.config_maps)
        self._agents: dict[str, Agent] = {}
        self._ends: dict[str, asyncio.Event] = {}
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._news = asyncio.Event()

    @property
    def agents(self) -> Mapping[str, Agent]:
        return self._agents

    async def run(self, stop: asyncio.Event) -> None:
        """The stores must have synced before."""
        ends = [
            self._sources.nodes.subscribe(self._node_changed),
            self._sources.pods.subscribe(lambda change: self._wake(_names(change, _pod_node))),
            self._sources.devices.subscribe(lambda change: self._wake(_names(change, _device_node))),
            self._sources.config_maps.subscribe(lambda change: self._wake(self._concerned(change))),
        ]
        try:
            with store.kept(self._pods, self._devices):
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

    def window(self, name: str) -> Window:
        return Window(
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
            self._agents[name] = self._make(self.window(name))
            self._ends[name] = asyncio.Event()
            group.create_task(self._live(self._agents[name], self._ends[name]))

    async def _live(self, agent: Agent, end: asyncio.Event) -> None:
        """Limit concurrent first rounds: five hundred at once would time out."""
        async with self._turns:
            running = asyncio.create_task(agent.run(end))
            begun = asyncio.create_task(agent.begun.wait())
            await asyncio.wait({running, begun}, return_when=asyncio.FIRST_COMPLETED)
            begun.cancel()
        await running

    def _node_changed(self, change: Change[Node]) -> None:
        if change.old is None or change.new is None:
            self._news.set()
        elif sight.differ(change.old, change.new):
            self._wake([change.key.name])

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            if (agent := self._agents.get(name)) is not None:
                agent.wake()

    def _concerned(self, change: Change[ConfigMap]) -> set[str]:
        """The nodes whose cards joined or left the pool, or all its nodes if its allocation changed."""
        before, after = (_ids(config_map) for config_map in (change.old, change.new))
        same = _shared(change.old) == _shared(change.new)
        cards = before ^ after if same else before | after
        return {name for name, agent in self._agents.items() if not cards.isdisjoint(agent.cards)}


def _names(change: Change[T], nodes: Callable[[T], Iterable[str]]) -> set[str]:
    return {name for item in (change.old, change.new) if item is not None for name in nodes(item)}


def _ids(config_map: ConfigMap | None) -> frozenset[str]:
    with contextlib.suppress(ValueError):
        return sight.pool(config_map).cards if config_map is not None else frozenset()
    return frozenset()


def _shared(config_map: ConfigMap | None) -> str | None:
    return config_map.data.get(sight.ALLOCATION) if config_map is not None else None


def _pod_node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


def _device_node(device: GPUDevice) -> Iterable[str]:
    name = device.status.node_name or device.metadata.labels.get(NODE_LABEL)
    return (name,) if name else ()
