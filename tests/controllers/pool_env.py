"""Pools on a real cluster: the test simulates inventory, ledger and agents; the pool controllers are real."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from croupier.api import kinds, meta
from croupier.api.core_v1 import ConfigMap, Node
from croupier.api.gpu import GPUDevice, GPUPool, pool_config
from croupier.api.mps import allocation
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.read_only_ledgers import ReadOnlyLedgers
from croupier.controllers.pools import node_controller as pool_nodes
from croupier.controllers.pools import pool
from croupier.controllers.pools.booking import Bookings
from croupier.controllers.pools.metrics import PoolMetrics
from croupier.controllers.pools.node_controller import PoolNodeController
from croupier.controllers.pools.pool import PoolController
from croupier.kube.cache.informer import Informer
from croupier.kube.client import api_client
from croupier.kube.client.api_client import EVERYTHING, Client, DeleteOptions, Selection
from croupier.kube.client.config import Config
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource
from croupier.kube.controller.events import EventRecorder
from tests.clocks import OffsetClock
from tests.controllers.ledger_env import caught_up, running, watched
from tests.polling import until_async

NOW = "2026-01-01T00:00:00Z"
TIMEOUT = 60.0
DEBOUNCE = 0.02
TYPES = [{"name": "1g.10gb", "count": 7}, {"name": "2g.20gb", "count": 3}, {"name": "3g.30gb", "count": 2}]


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def cut(profile: str = "", number: int = 0, state: str = "Applied", **fields: Any) -> dict[str, Any]:
    """The layout of a card as its agent reports it: `number` devices of a profile, or whole."""
    slots = [
        {"id": f"{profile}-{start}", "profile": profile, "start": start, "size": 1} for start in range(number)
    ]
    target = f"{profile}:{number}" if number else "whole"
    return {"enabled": bool(number), "slots": slots, "target": target, "state": state, **fields}


class FixedBookings(Bookings):
    """Booked units that the test sets."""

    def __init__(self) -> None:
        self.promised: dict[str, int] = {}

    def booked(self, pool: str) -> int:
        return self.promised.get(pool, 0)

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None


@contextlib.asynccontextmanager
async def pool_env(connection: Config, namespace: str) -> AsyncIterator["PoolEnv"]:
    writes: list[str] = []

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        if verb not in ("get", "list", "watch") and resource != kinds.EVENTS.full_name:
            writes.append(resource)

    async with api_client.connect(connection, field_manager="test", observe=observe) as api:
        made = PoolEnv(api, namespace, writes=writes)
        try:
            yield made
        finally:
            await made.leave()


@dataclass
class PoolEnv:
    api: Client
    namespace: str
    bookings: FixedBookings = field(default_factory=FixedBookings)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    made: list[tuple[Resource[Any], str]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    """Kinds of all writes so far, without Events."""
    followed: list[tuple[Informer[Any], Selection]] = field(default_factory=list)
    """The caches of the controllers."""
    clock: OffsetClock = field(default_factory=OffsetClock)
    controller: PoolController | None = None
    nodes: PoolNodeController | None = None

    async def create(self, kind: Resource[Any], body: dict[str, Any]) -> Any:
        created = await self.api.create(kind, body, namespace=self.namespace if kind.namespaced else None)
        self.made.append((kind, created.metadata.name))
        return created

    async def leave(self) -> None:
        """Delete everything that the test created."""
        for kind, name in reversed(self.made):
            namespace = self.namespace if kind.namespaced else None
            with contextlib.suppress(NotFound):
                await self.api.patch(kind, name, {"metadata": {"finalizers": None}}, namespace=namespace)
                await self.api.delete(kind, name, namespace=namespace, how=DeleteOptions(grace_seconds=0))
            if kind is kinds.GPU_POOLS:
                await forget(self.api, self.namespace, name)

    # Writes of users, inventory, ledger and agents.

    async def node(self, name: str, *, taints: tuple[dict[str, str], ...] = (), **labels: str) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)}}
        await self.create(kinds.NODES, body)
        await self.create(kinds.GPU_NODE_INVENTORIES, {"metadata": {"name": name}})
        status = {"conditions": [condition("InventoryIncomplete", "False", "InventorySynced")]}
        await self.api.patch(kinds.GPU_NODE_INVENTORIES, name, {"status": status}, subresource="status")

    async def card(self, node: str, index: int, serves: str = "", **status: Any) -> str:
        """A ready card; with `serves` it is in that pool."""
        name = f"{node}-0000-{index:02x}-00-0"
        labels = {"gpu.deckhouse.io/node": node, "gpu.deckhouse.io/device-index": str(index)}
        annotations = {"gpu.deckhouse.io/assignment": serves} if serves else {}
        await self.create(
            kinds.GPU_DEVICES, {"metadata": {"name": name, "labels": labels, "annotations": annotations}}
        )
        plain = {
            "nodeName": node,
            "inventoryID": name,
            "managed": True,
            "hardware": {"product": "SIM", "mig": {"capable": True, "types": TYPES}},
            **(_serving(serves) if serves else {"state": "Unassigned", "phase": "Ready"}),
        }
        await self._status(name, {**plain, **status})
        await self.occupied(name, "Free")
        return name

    async def joins(self, card: str, name: str) -> None:
        """Put the card into the pool, as the card controller does."""
        await self._status(card, _serving(name))

    async def leaves(self, card: str) -> None:
        await self._status(card, {"state": "Unassigned", "phase": "Ready", "poolRef": None})

    async def occupied(self, card: str, reason: str) -> None:
        busy = "True" if reason in ("Reserved", "InUse") else "False"
        ready = condition("ReadyForPooling", "True", "Ready")
        await self._status(card, {"conditions": [ready, condition("Occupied", busy, reason)]})

    async def is_cut(self, card: str, *args: Any, **fields: Any) -> None:
        await self._status(card, {"cut": cut(*args, **fields)})

    async def is_enforced(self, card: str, *, ready: bool) -> None:
        """What the agent reports about the MPS daemon of the card."""
        await self._status(card, {"enforcement": {"by": "MPSClient", "ready": ready}})

    async def _status(self, card: str, status: dict[str, Any]) -> None:
        await self.api.patch(kinds.GPU_DEVICES, card, {"status": status}, subresource="status")

    async def pool(self, name: str, mode: str = "Exclusive", **spec: Any) -> None:
        allocation_ = {"mode": mode, **spec.pop("allocation", {})}
        await self.create(
            kinds.GPU_POOLS, {"metadata": {"name": name}, "spec": {"allocation": allocation_, **spec}}
        )

    async def set_allocation(self, name: str, **allocation_: Any) -> None:
        """Change the allocation of the pool."""
        whole = {"migProfile": None, "migLayout": None, "timeSlice": None, "enforcement": None, **allocation_}
        await self.api.patch(kinds.GPU_POOLS, name, {"spec": {"allocation": whole}})

    async def confirms(self, name: str) -> None:
        found = await self.get(name)
        annotation = {"gpu.deckhouse.io/confirmed": str(found.metadata.generation)}
        await self.api.patch(kinds.GPU_POOLS, name, {"metadata": {"annotations": annotation}})

    async def runs(self, name: str, node: str, card: str, pool_: str, percent: int = 100) -> None:
        """A pod that holds a share of a card, bound as by the extender."""
        asked = {f"gpu.deckhouse.io/{pool_}": "1" if percent == 100 else str(percent)}
        main = {"name": "main", "image": "none", "resources": {"limits": asked}}
        spec = {"schedulerName": "none", "containers": [main], "terminationGracePeriodSeconds": 0}
        pod = await self.create(kinds.PODS, {"metadata": {"name": name}, "spec": spec})
        entry = [{"card": card, "index": 0, "percent": percent}]
        annotations = {allocation.ALLOCATION: msgspec.json.encode(entry).decode()}
        body = {
            "metadata": {"name": name, "uid": pod.metadata.uid, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self.api.create(kinds.PODS, body, namespace=self.namespace, name=name, subresource="binding")

    async def ends(self, name: str) -> None:
        await self.api.delete(kinds.PODS, name, namespace=self.namespace, how=DeleteOptions(grace_seconds=0))

    # Reads.

    async def get(self, name: str) -> GPUPool:
        return await self.api.get(kinds.GPU_POOLS, name)

    async def config(self, name: str) -> ConfigMap | None:
        with contextlib.suppress(NotFound):
            return await self.api.get(kinds.CONFIG_MAPS, pool_config.name(name), namespace=self.namespace)
        return None

    async def device(self, card: str) -> GPUDevice:
        return await self.api.get(kinds.GPU_DEVICES, card)

    async def node_now(self, name: str) -> Node:
        return await self.api.get(kinds.NODES, name)

    async def condition(self, name: str, kind: str) -> str:
        """`True Draining`."""
        found = meta.condition((await self.get(name)).status.conditions, kind)
        return f"{found.status} {found.reason}" if found is not None else ""

    async def message(self, name: str, kind: str) -> str:
        found = meta.condition((await self.get(name)).status.conditions, kind)
        return found.message if found is not None else ""

    async def says(self, name: str, kind: str, *words: str) -> None:
        """A message may follow the status of its condition a moment later."""

        async def so() -> bool:
            message = await self.message(name, kind)
            return all(word in message for word in words)

        await self.eventually(so, f"{kind} of {name} to say {words}")

    async def becomes(self, name: str, kind: str, wanted: str) -> None:
        async def so() -> bool:
            return await self.condition(name, kind) == wanted

        try:
            await until_async(so, f"{name} to be {kind} {wanted}", within=TIMEOUT)
        except AssertionError as error:
            found = (await self.get(name)).status.conditions
            raise AssertionError(
                f"{error}: {[(c.type, c.status, c.reason, c.message) for c in found]}"
            ) from None

    async def eventually(self, look: Callable[[], Any], what: str) -> Any:
        return await until_async(look, what, within=TIMEOUT)

    async def events(self, name: str) -> set[str]:
        listed = await self.api.list(kinds.EVENTS, Selection("default"))
        return {event.reason for event in listed.items if event.regarding.name == name}

    async def rests(self, name: str) -> None:
        """Wait until nothing is written by a reconcile that sees every write before it."""

        async def quiet() -> bool:
            assert self.controller is not None
            before = len(self.writes)
            await caught_up(self.api, self.followed)
            self.clock.ahead += timedelta(seconds=DEBOUNCE)  # so that the reconcile is not postponed
            await self.controller.reconcile(name)
            return len(self.writes) == before

        await self.eventually(quiet, f"{name} to settle")

    @contextlib.asynccontextmanager
    async def works(self, *, debounce: float = DEBOUNCE, **settings: Any) -> AsyncIterator[None]:
        """Run the controllers."""
        async with contextlib.AsyncExitStack() as stack:

            async def follow(kind: Resource[Any], chosen: Selection = EVERYTHING) -> Informer[Any]:
                informer = await stack.enter_async_context(watched(self.api, kind, chosen))
                self.followed.append((informer, chosen))
                return informer

            self.followed.clear()
            bound = Selection(self.namespace, fields="spec.nodeName!=")
            seen = LedgerInformers(
                nodes=await follow(kinds.NODES),
                devices=await follow(kinds.GPU_DEVICES),
                pools=await follow(kinds.GPU_POOLS),
                pods=await follow(kinds.PODS, bound),
                reservations=await follow(kinds.RESERVATIONS, Selection(self.namespace)),
                inventories=await follow(kinds.GPU_NODE_INVENTORIES),
            )
            ledgers = ReadOnlyLedgers(ClusterView(seen), await follow(kinds.NODE_RESERVATIONS))
            configs = await follow(
                kinds.CONFIG_MAPS, Selection(self.namespace, labels=pool_config.POOL_LABEL)
            )
            sources = pool.PoolInformers(
                pools=seen.pools,
                devices=seen.devices,
                nodes=seen.nodes,
                inventories=seen.inventories,
                config_maps=configs,
                namespaces=await follow(kinds.NAMESPACES),
                accounts=await follow(kinds.SERVICE_ACCOUNTS),
                ledgers=ledgers,
                bookings=self.bookings,
            )
            recorder = EventRecorder(self.api, pool.REPORTER)
            self.registry = CollectorRegistry()
            wanted = {"namespace": self.namespace, "clock": self.clock, **settings}
            figures = PoolMetrics(self.registry, seen.pools.store)
            self.controller = PoolController(
                sources,
                self.api,
                recorder=recorder,
                settings=pool.PoolControllerOptions(debounce=debounce, pool_metrics=figures, **wanted),
            )
            self.nodes = PoolNodeController(
                pool_nodes.PoolNodeInformers(seen.nodes, seen.devices, seen.pools), self.api
            )
            for part in (recorder.run, self.controller.run, self.nodes.run):
                await stack.enter_async_context(running(part(asyncio.Event())))
            yield

    def metric(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


async def forget(api: Client, namespace: str, name: str) -> None:
    """Delete what a pool without a running controller left behind."""
    with contextlib.suppress(NotFound):
        await api.patch(kinds.GPU_POOLS, name, {"metadata": {"finalizers": None}})
    with contextlib.suppress(NotFound):
        await api.delete(kinds.CONFIG_MAPS, pool_config.name(name), namespace=namespace)


def _serving(name: str) -> dict[str, Any]:
    reference = {"name": name, "resource": f"gpu.deckhouse.io/{name}"}
    return {"state": "Assigned", "phase": "Assigned", "poolRef": reference}
