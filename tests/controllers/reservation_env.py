"""The Reservation controller on a real cluster, with both capacity managers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.mps import Reservation
from croupier.api.quotas import RESOURCE_QUOTAS
from croupier.api.scheduling_v1 import PRIORITY_CLASSES
from croupier.capacity.cluster_view import ClusterView, LedgerInformers
from croupier.capacity.crd import CRDCapacityManager
from croupier.capacity.in_memory import InMemoryCapacityManager
from croupier.capacity.manager import CapacityManager
from croupier.controllers.ledger.reservation import (
    ReservationController,
    ReservationInformers,
    ReservationOptions,
)
from croupier.controllers.ledger.reservation_metrics import ReservationMetrics
from croupier.core.claims.budget import UNLIMITED, ReservationLimits
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import LedgerCard
from croupier.core.pods.request_parser import CARDS, PERCENT, RATIO
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.controller.events import EventRecorder
from tests.controllers.ledger_env import running, watched
from tests.polling import until_async

ManagerMode = Literal["InMemory", "CRD"]


@dataclass
class ReservationEnv:
    """`book` outlives restarts of the controller."""

    api: Client
    namespace: str
    manager: CapacityManager
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    card_loss_delay: float = 2.0
    limits: ReservationLimits = UNLIMITED

    async def open(self, node: str, cards: int = 2) -> None:
        """A node with cards, and its ledger."""
        body = {"metadata": {"name": node, "annotations": {"test": "simulated"}}}
        await self.api.create(kinds.NODES, body)
        await asyncio.gather(*(self.card(node, index) for index in range(cards)))
        await self.open_ledger(node, cards)

    async def open_ledger(self, node: str, cards: int = 2) -> None:
        ledger = Ledger(node, tuple(LedgerCard(f"{node}-{index}", index) for index in range(cards)))
        await self.manager.open(node, ledger)

    async def card(self, node: str, index: int) -> None:
        name = f"{node}-{index}"
        labels = {"gpu.deckhouse.io/device-index": str(index), "gpu.deckhouse.io/node": node}
        await self.api.create(kinds.GPU_DEVICES, {"metadata": {"name": name, "labels": labels}})
        status = {"nodeName": node, "inventoryID": name, "state": "Unassigned"}
        await self.api.patch(kinds.GPU_DEVICES, name, {"status": status}, subresource="status")

    async def sync(self, node: str = "node-1", **health: bool) -> None:
        """Set the health of cards in the ledger, as the card controller does after a report."""
        wanted = {name.replace("_", "-"): healthy for name, healthy in health.items()}

        def change(held: Ledger) -> Ledger:
            cards = (
                card
                if wanted.get(card.id, card.healthy) == card.healthy
                else replace(card, healthy=wanted[card.id], epoch=card.epoch + 1)
                for card in held.cards
            )
            return replace(held, cards=tuple(cards))

        await self.manager.amend(node, change)

    async def ask(
        self, name: str, node: str = "node-1", cards: int = 2, percent: int = 50, **spec: Any
    ) -> None:
        wanted: dict[str, Any] = {"podKey": f"{self.namespace}/{name}", "nodeName": node}
        wanted |= {"numCards": cards, "percentPerCard": percent, **spec}
        body = {"metadata": {"name": name}, "spec": wanted}
        await self.api.create(kinds.RESERVATIONS, body, namespace=self.namespace)

    async def get(self, name: str) -> Reservation | None:
        with contextlib.suppress(NotFound):
            return await self.api.get(kinds.RESERVATIONS, name, namespace=self.namespace)
        return None

    async def becomes(self, name: str, phase: str, says: str = "") -> Reservation:
        seen: list[Any] = [None]

        async def reached() -> Reservation | None:
            seen[0] = found = await self.get(name)
            fits = found is not None and found.status.phase == phase and says in found.status.message
            return found if fits else None

        try:
            found = await until_async(reached, f"{name} to be {phase}")
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {seen[0]}") from None
        assert found is not None
        return found

    async def vanishes(self, name: str) -> None:
        async def deleted() -> bool:
            return await self.get(name) is None

        await until_async(deleted, f"{name} to be gone")

    async def delete(self, name: str) -> None:
        await self.api.delete(kinds.RESERVATIONS, name, namespace=self.namespace)

    async def pod(self, name: str, node: str = "node-1", *, cards: int = 0, percent: int = 50) -> str:
        """A bound pod; with `cards`, it requests them."""
        limits = {PERCENT: str(cards * percent)} if cards else {}
        container = {"name": "main", "image": "none", "resources": {"limits": limits}}
        annotations = {CARDS: str(cards), RATIO: str(percent)} if cards else {}
        body = {
            "metadata": {"name": name, "annotations": annotations},
            "spec": {"nodeName": node, "containers": [container]},
        }
        return (await self.api.create(kinds.PODS, body, namespace=self.namespace)).metadata.uid

    async def pod_ends(self, name: str) -> None:
        done = {"status": {"phase": "Succeeded"}}
        await self.api.patch(kinds.PODS, name, done, namespace=self.namespace, subresource="status")

    def used(self, node: str = "node-1") -> list[int]:
        ledger = self.manager.ledger(node)
        return [] if ledger is None else [card.used for card in ledger.cards]

    async def uses(self, used: list[int], node: str = "node-1") -> None:
        async def matches() -> bool:
            return self.used(node) == used

        await until_async(matches, f"{node} to have {used} in use")

    async def events(self, name: str) -> list[str]:
        listed = await self.api.list(kinds.EVENTS, Selection(self.namespace))
        return [event.reason for event in listed.items if event.regarding.name == name]

    async def told(self, name: str, reason: str) -> None:
        async def recorded() -> bool:
            return reason in await self.events(name)

        await until_async(recorded, f"the Event {reason} of {name}")

    @contextlib.asynccontextmanager
    async def works(self) -> AsyncIterator[ReservationController]:
        """Run a controller; it is cancelled at the end."""
        async with contextlib.AsyncExitStack() as stack:
            chosen = Selection(self.namespace)
            reservations = await stack.enter_async_context(watched(self.api, kinds.RESERVATIONS, chosen))
            bound, pending = (
                Selection(self.namespace, fields=fields) for fields in ("spec.nodeName!=", "spec.nodeName=")
            )
            seen = LedgerInformers(
                reservations=reservations,
                pods=await stack.enter_async_context(watched(self.api, kinds.PODS, bound)),
                nodes=await stack.enter_async_context(watched(self.api, kinds.NODES)),
                devices=await stack.enter_async_context(watched(self.api, kinds.GPU_DEVICES)),
                pools=await stack.enter_async_context(watched(self.api, kinds.GPU_POOLS)),
                inventories=await stack.enter_async_context(watched(self.api, kinds.GPU_NODE_INVENTORIES)),
            )
            sources = ReservationInformers(
                ClusterView(seen),
                await stack.enter_async_context(watched(self.api, kinds.PODS, pending)),
                await stack.enter_async_context(watched(self.api, RESOURCE_QUOTAS, chosen)),
                await stack.enter_async_context(watched(self.api, PRIORITY_CLASSES, Selection())),
            )
            self.registry = CollectorRegistry()
            settings = ReservationOptions(
                outcomes=ReservationMetrics(self.registry, reservations.store),
                limits=lambda: self.limits,
                card_loss_delay=self.card_loss_delay,
            )
            recorder = EventRecorder(self.api, "reservation-controller")
            made = ReservationController(
                sources, self.api, manager=self.manager, recorder=recorder, settings=settings
            )
            await stack.enter_async_context(running(recorder.run(asyncio.Event())))
            await stack.enter_async_context(running(made.run(asyncio.Event())))
            yield made

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@contextlib.asynccontextmanager
async def reservation_env(api: Client, namespace: str, kept: ManagerMode) -> AsyncIterator[ReservationEnv]:
    if kept == "InMemory":
        yield ReservationEnv(api, namespace, InMemoryCapacityManager(strategy="BinPack"))
        return
    async with watched(api, kinds.NODE_RESERVATIONS, Selection()) as records:
        book = CRDCapacityManager(api, records.store, strategy="BinPack")
        yield ReservationEnv(api, namespace, book)
        await book.finish()
