"""Nodes, cards and pods on a real cluster, and the running ledger controllers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.core_v1 import Pod
from croupier.api.mps import NodeReservation, allocation
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.capacity.manager import CapacityManager
from croupier.capacity.writer import LedgerWriterOptions
from croupier.controllers.ledger import audit, card_sync, holders
from croupier.controllers.ledger.audit import Audit
from croupier.controllers.ledger.audit_metrics import AuditMetrics
from croupier.controllers.ledger.card_sync import CardSyncController
from croupier.controllers.ledger.holders import HolderController
from croupier.controllers.ledger.node_reservation_status import NodeReservationStatusController
from croupier.controllers.ledger.occupancy import OccupancyController
from croupier.controllers.ledger.unschedulable_pods import UnschedulablePodRequeuer
from croupier.core.ledger.ledger import HoldTerms, Ledger
from croupier.core.model.card import CardGrant, Grant, LedgerCard
from croupier.kube.cache.informer import Informer
from croupier.kube.cache.reflector import Reflector
from croupier.kube.cache.store import Store
from croupier.kube.client.api_client import EVERYTHING, Client, DeleteOptions, Selection
from croupier.kube.client.clock import Clock, SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.identity import Key
from croupier.kube.client.resource import Resource
from croupier.kube.controller.events import EventRecorder
from tests.polling import until, until_async

ManagerMode = Literal["InMemory", "CRD"]
BOTH_MODES: tuple[ManagerMode, ...] = ("InMemory", "CRD")
NODE = "gpu-worker"


class FakeWatchClock(SystemClock):
    """A clock with an adjustable offset."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


@dataclass
class LedgerEnv:
    api: Client
    namespace: str
    manager: CapacityManager
    clock: FakeWatchClock = field(default_factory=FakeWatchClock)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    made: list[tuple[Resource[Any], str]] = field(default_factory=list)
    uids: dict[str, str] = field(default_factory=dict)
    """UIDs of the newest node or pod by name."""

    async def leave(self) -> None:
        """Delete everything that the test created."""
        for kind, name in self.made:
            namespace = self.namespace if kind.namespaced else None
            with contextlib.suppress(NotFound):
                await self.api.delete(kind, name, namespace=namespace, how=DeleteOptions(grace_seconds=0))
        for node in {name for kind, name in self.made if kind is kinds.NODES}:
            with contextlib.suppress(NotFound):
                await self.api.delete(kinds.NODE_RESERVATIONS, node)

    async def create(self, kind: Resource[Any], body: dict[str, Any]) -> Any:
        namespace = self.namespace if kind.namespaced else None
        created = await self.api.create(kind, body, namespace=namespace)
        self.made.append((kind, created.metadata.name))
        self.uids[created.metadata.name] = created.metadata.uid
        return created

    async def node(self, name: str = NODE, **allocatable: int) -> None:
        """`node(gpu=2, **{"mig-1g.10gb": 7})`."""
        await self.create(kinds.NODES, {"metadata": {"name": name}})
        await self.offers(name, **allocatable)

    async def offers(self, name: str = NODE, **allocatable: int) -> None:
        """Set the allocatable resources of the node."""
        amounts = {f"nvidia.com/{resource}": str(count) for resource, count in allocatable.items()}
        status = {"status": {"allocatable": amounts, "capacity": amounts}}
        await self.api.patch(kinds.NODES, name, status, subresource="status")

    async def device(self, index: int, node: str = NODE, **status: Any) -> str:
        card = f"{node}-0000-{index:02x}-00-0"
        labels = {"gpu.deckhouse.io/device-index": str(index), "gpu.deckhouse.io/node": node}
        pool = status.get("poolRef", {}).get("name")
        notes = {"gpu.deckhouse.io/assignment": pool} if pool else {}
        meta = {"name": card, "labels": labels, "annotations": notes}
        await self.create(kinds.GPU_DEVICES, {"metadata": meta})
        known = {"nodeName": node, "inventoryID": card, "state": "Unassigned", **status}
        await self.api.patch(kinds.GPU_DEVICES, card, {"status": known}, subresource="status")
        return card

    async def pod(self, name: str, gpus: int = 0, **annotations: str) -> Pod:
        """A pending pod of a scheduler that does not exist; the test binds it."""
        amount = {"nvidia.com/gpu": str(gpus)} if gpus else {}
        main = {"name": "main", "image": "none", "resources": {"limits": amount}}
        spec = {"schedulerName": "none", "containers": [main], "terminationGracePeriodSeconds": 0}
        meta = {"name": name, "annotations": {f"gpu.mps.io/{key}": text for key, text in annotations.items()}}
        created: Pod = await self.create(kinds.PODS, {"metadata": meta, "spec": spec})
        return created

    async def bind(self, pod: Pod, grant: Grant = (), node: str = NODE, *, fenced: bool = False) -> None:
        """Bind as the extender does, with the allocation; `fenced` adds the resource version."""
        meta: dict[str, Any] = {"name": pod.metadata.name, "uid": pod.metadata.uid}
        if fenced:
            meta["resourceVersion"] = pod.metadata.resource_version
        if grant:
            entries = [{"card": part.card, "index": 0, "percent": part.share} for part in grant]
            meta["annotations"] = {allocation.ALLOCATION: msgspec.json.encode(entries).decode()}
        body = {"metadata": meta, "target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        await self.api.create(
            kinds.PODS, body, namespace=self.namespace, name=pod.metadata.name, subresource="binding"
        )

    async def runs(self, name: str, *cards: str, percent: int = 50, node: str = NODE) -> str:
        """A bound pod with a share of each card; returns its holder name."""
        pod = await self.pod(name, cards=str(len(cards)), ratio=str(percent))
        await self.bind(pod, tuple(CardGrant(card, percent) for card in cards), node)
        return f"{self.namespace}/{name}/{pod.metadata.uid}"

    async def ends(self, name: str) -> None:
        done = {"status": {"phase": "Succeeded"}}
        await self.api.patch(kinds.PODS, name, done, namespace=self.namespace, subresource="status")

    async def delete(self, name: str) -> None:
        await self.api.delete(kinds.PODS, name, namespace=self.namespace)

    async def get(self, name: str) -> Pod:
        return await self.api.get(kinds.PODS, name, namespace=self.namespace)

    def holder(self, pod: Pod) -> str:
        return f"{pod.metadata.key}/{pod.metadata.uid}"

    async def hold(self, holder: str, *cards: str, seconds: int = 120, percent: int = 50) -> None:
        """Hold cards as the extender does before a Binding, by the real clock."""
        limit = SystemClock().now().replace(microsecond=0) + timedelta(seconds=seconds)
        await self.plant(holder, *cards, percent=percent, terms=HoldTerms(until=limit))

    async def plant(
        self, holder: str, *cards: str, percent: int = 50, terms: HoldTerms | None = None, node: str = NODE
    ) -> None:
        from croupier.core.ledger import ledger

        grant = tuple(CardGrant(card, percent) for card in cards)

        def change(newest: Ledger) -> Ledger:
            given = ledger.give(newest, holder, grant, terms or HoldTerms(bound=True))
            assert isinstance(given, Ledger), given
            return given

        await self.manager.amend(node, change)

    def ledger(self, node: str = NODE) -> Ledger:
        held = self.manager.ledger(node)
        assert held is not None, f"{node} has no ledger"
        return held

    def cards(self, node: str = NODE) -> dict[str, tuple[bool, int]]:
        """Health and used percent by card; empty without a ledger."""
        held = self.manager.ledger(node)
        return {} if held is None else {card.id: (card.healthy, card.used) for card in held.cards}

    async def shows(self, cards: dict[str, tuple[bool, int]], node: str = NODE) -> None:
        try:
            await until(lambda: self.cards(node) == cards, f"{node} to have {cards}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it has {self.cards(node)}") from None

    async def events(self, name: str, namespace: str | None = None) -> list[str]:
        """Events of the newest node or pod with that name."""
        listed = await self.api.list(kinds.EVENTS, Selection(namespace or self.namespace))
        about = (event for event in listed.items if event.regarding.uid == self.uids[name])
        return [f"{event.reason}: {event.note}" for event in about]

    def metric(self, name: str, kind: str) -> float | None:
        return self.registry.get_sample_value(name, {"class": kind})

    @contextlib.asynccontextmanager
    async def sees(self) -> AsyncIterator[ClusterView]:
        """Synced informers; of pods only the bound ones, as in production."""
        chosen = Selection(self.namespace)
        bound = Selection(self.namespace, fields="spec.nodeName!=")
        async with contextlib.AsyncExitStack() as stack:

            async def informer(kind: Resource[Any], selection: Selection) -> Informer[Any]:
                return await stack.enter_async_context(watched(self.api, kind, selection))

            yield ClusterView(
                LedgerInformers(
                    nodes=await informer(kinds.NODES, Selection()),
                    devices=await informer(kinds.GPU_DEVICES, Selection()),
                    pools=await informer(kinds.GPU_POOLS, Selection()),
                    pods=await informer(kinds.PODS, bound),
                    reservations=await informer(kinds.RESERVATIONS, chosen),
                    inventories=await informer(kinds.GPU_NODE_INVENTORIES, Selection()),
                )
            )

    @contextlib.asynccontextmanager
    async def works(self, *parts: str, recheck_delay: float = 0.05) -> AsyncIterator[Audit]:
        """Run the controllers `capacity`, `holders` (default: both) and `occupancy`.

        Yields the audit, which the test runs itself.
        """
        parts = parts or ("capacity", "holders")
        async with self.sees() as sight, contextlib.AsyncExitStack() as stack:
            recorder = EventRecorder(self.api, "gpu-ledger")
            await stack.enter_async_context(running(recorder.run(asyncio.Event())))
            if "capacity" in parts:
                controller = CardSyncController(
                    sight, self.manager, card_sync.CardSyncOptions(clock=self.clock)
                )
                await stack.enter_async_context(running(controller.run(asyncio.Event())))
            if "holders" in parts:
                holder_controller = HolderController(
                    sight,
                    self.api,
                    manager=self.manager,
                    recorder=recorder,
                    # No other component promotes holders or binds pods here.
                    settings=holders.HolderOptions(clock=self.clock, patience=timedelta.max, unseen=1.0),
                )
                await stack.enter_async_context(running(holder_controller.run(asyncio.Event())))
            if "occupancy" in parts:
                occupancy = OccupancyController(sight, self.api, manager=self.manager)
                await stack.enter_async_context(running(occupancy.run(asyncio.Event())))
            self.registry = CollectorRegistry()
            yield Audit(
                sight,
                self.api,
                manager=self.manager,
                recorder=recorder,
                settings=audit.AuditOptions(recheck_delay=recheck_delay, metrics=AuditMetrics(self.registry)),
            )

    @contextlib.asynccontextmanager
    async def tells(self, of: Audit) -> AsyncIterator[None]:
        """Run the controller for the status of NodeReservations."""
        async with watched(self.api, kinds.NODE_RESERVATIONS, Selection()) as records:
            made = NodeReservationStatusController(
                records, self.api, manager=self.manager, findings=of.findings
            )
            async with running(made.run(asyncio.Event())):
                yield

    async def record(self, node: str = NODE) -> NodeReservation | None:
        with contextlib.suppress(NotFound):
            return await self.api.get(kinds.NODE_RESERVATIONS, node)
        return None


@contextlib.asynccontextmanager
async def ledger_env(api: Client, namespace: str, kept: ManagerMode) -> AsyncIterator[LedgerEnv]:
    if kept == "InMemory":
        yield LedgerEnv(api, namespace, InMemoryCapacityManager())
        return
    async with watched(api, kinds.NODE_RESERVATIONS, Selection()) as records:
        book = CRDCapacityManager(api, records.store, rules=LedgerWriterOptions(flush_after=0.1))
        yield LedgerEnv(api, namespace, book)
        await book.finish()


@contextlib.asynccontextmanager
async def watched(
    api: Client, resource: Resource[Any], chosen: Selection = EVERYTHING
) -> AsyncIterator[Informer[Any]]:
    store: Store[Any] = Store(resource)
    reflector: Reflector[Any] = Reflector(api, store, selection=chosen)
    async with running(reflector.run()):
        await reflector.synced()
        yield Informer(store, reflector)


async def caught_up(api: Client, informers: Iterable[tuple[Informer[Any], Selection]]) -> None:
    """Wait until the informers have the state of the API server."""
    for informer, chosen in informers:
        store = informer.store

        async def is_current(store: Store[Any] = store, chosen: Selection = chosen) -> bool:
            listed = await api.list(store.resource, chosen)
            return _versions(listed.items) == _versions(store)

        await until_async(is_current, f"the cache of {store.resource.plural} to catch up", within=60)


def _versions(items: Iterable[Any]) -> dict[Key, str]:
    return {item.metadata.key: item.metadata.resource_version for item in items}


@contextlib.asynccontextmanager
async def requeueing(
    api: Client, namespace: str, nodes: Selection, clock: Clock | None = None
) -> AsyncIterator[Informer[Pod]]:
    """Run the controller that requeues unschedulable pods; yields the pending pods."""
    async with (
        watched(api, kinds.PODS, Selection(namespace, fields="spec.nodeName=")) as pending,
        watched(api, kinds.NODES, nodes) as known,
        running(UnschedulablePodRequeuer(pending, known, api, clock).run(asyncio.Event())),
    ):
        yield pending


@contextlib.asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """Run `work` in a task and cancel it at the end; its errors are raised."""
    task = asyncio.ensure_future(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def card(index: int, node: str = NODE) -> str:
    return f"{node}-gpu-{index}"


def empty_ledger(count: int = 2, node: str = NODE) -> Ledger:
    return Ledger(node, tuple(LedgerCard(card(index, node), index) for index in range(count)))
