"""One card on a real API server, with simulated users, agent and ledger, and the real controllers."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from croupier.api import kinds
from croupier.api.gpu import GPUDevice, GPUNodeInventory, agent_report
from croupier.api.gpu.agent_report import AgentReport, CardReport, ReportedHealth
from croupier.api.gpu.device import DRAIN, IGNORE
from croupier.controllers.cards import cards
from croupier.controllers.cards.cards import CardController, CardInformers
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.ledger.ledger import Ledger
from croupier.core.model import card_name as naming
from croupier.core.nodes.bootstrap import MISSING
from croupier.core.pools.assignment import ASSIGNMENT, Approval
from croupier.kube.cache.informer import Informer
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource
from tests.controllers import ledger_env
from tests.controllers.ledger_env import watched
from tests.core.card_scenarios import CardSituation

NODE = "card-stage"
ADDRESS = "0000:65:00.0"
LONG_AGO = "2030-01-31T12:00:00Z"


@dataclass
class DeviceStore:
    """Ledgers that a test sets."""

    ledgers: dict[str, Ledger] = field(default_factory=dict)
    listeners: list[Any] = field(default_factory=list)

    def ledger(self, node: str) -> Ledger | None:
        return self.ledgers.get(node)

    def subscribe(self, changed: Any) -> Any:
        self.listeners.append(changed)
        return lambda: self.listeners.remove(changed)

    def put(self, ledger: Ledger) -> None:
        self.ledgers[ledger.node] = ledger
        for listener in self.listeners:
            listener(ledger.node)


@dataclass
class CardEnv:
    api: Client
    namespace: str
    node: str = NODE
    fake_ledgers: DeviceStore = field(default_factory=DeviceStore)
    made: list[tuple[Resource[Any], str]] = field(default_factory=list)
    followed: dict[str, Informer[Any]] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, tuple[Resource[Any], Selection]]:
        """The watched kinds."""
        here = Selection(self.namespace, labels=agent_report.LEASE_SELECTOR)
        served = Selection(self.namespace, fields="spec.nodeName!=")
        return {
            "devices": (kinds.GPU_DEVICES, Selection()),
            "inventories": (kinds.GPU_NODE_INVENTORIES, Selection()),
            "pools": (kinds.GPU_POOLS, Selection()),
            "nodes": (kinds.NODES, Selection(fields=f"metadata.name={self.node}")),
            "leases": (kinds.LEASES, here),
            "pods": (kinds.PODS, served),
        }

    @property
    def card(self) -> str:
        return naming.inventory_id(self.node, ADDRESS)

    async def build(self) -> None:
        """The node, its inventory and its card, as the inventory controller makes them."""
        labels = {"gpu.deckhouse.io/node": self.node, "gpu.deckhouse.io/device-index": "0"}
        await self.create(kinds.NODES, self.node)
        await self.create(kinds.GPU_NODE_INVENTORIES, self.node)
        await self.create(kinds.GPU_DEVICES, self.card, labels=labels)

    async def create(self, kind: Resource[Any], name: str, **meta: Any) -> None:
        await self.api.create(kind, {"metadata": {"name": name, **meta}})
        self.made.append((kind, name))

    async def leave(self) -> None:
        for kind, name in reversed(self.made):
            with contextlib.suppress(NotFound):
                await self.api.delete(kind, name)
        with contextlib.suppress(NotFound):
            await self.api.delete(kinds.LEASES, agent_report.LEASE.name(self.node), namespace=self.namespace)

    async def pools(self, wanted: dict[str, Any]) -> None:
        """Make exactly these pools exist, of those that this environment created."""
        existing = {name for kind, name in self.made if kind is kinds.GPU_POOLS}
        for name in existing - set(wanted):
            await self.api.delete(kinds.GPU_POOLS, name)
            self.made.remove((kinds.GPU_POOLS, name))
        for name in set(wanted) - existing:
            await self.api.create(kinds.GPU_POOLS, {"metadata": {"name": name}, "spec": wanted[name]})
            self.made.append((kinds.GPU_POOLS, name))

    async def becomes(self, now: CardSituation, *, annotated: bool = True) -> None:
        """Write the situation as all components would; the annotation only if `annotated`."""
        await self.people(now, annotated=annotated)
        await self.judged(now)
        await self.reports(_health(now))
        await self.status(kinds.GPU_DEVICES, self.card, "gpu-inventory-controller", self._known(now))
        await self.occupied(now.occupancy)

    def _known(self, now: CardSituation) -> dict[str, Any]:
        hardware = {"product": "H100"}
        return {"nodeName": self.node, "inventoryID": self.card, "managed": now.managed, "hardware": hardware}

    async def people(self, now: CardSituation, *, annotated: bool = True) -> None:
        annotations: dict[str, str | None] = {DRAIN: "test" if now.drained else None}
        if annotated:
            annotations[ASSIGNMENT] = now.annotation or None
        meta = {"labels": {IGNORE: "true" if now.ignored else None}, "annotations": annotations}
        await self.api.patch(kinds.GPU_DEVICES, self.card, {"metadata": meta})

    async def judged(self, now: CardSituation) -> None:
        """The status of the node as the inventory and bootstrap controllers write it."""
        incomplete = condition("InventoryIncomplete", now.incomplete != "", now.incomplete)
        disabled = condition("ManagedDisabled", not now.managed)
        known = {"conditions": [incomplete, disabled]}
        await self.status(kinds.GPU_NODE_INVENTORIES, self.node, "gpu-inventory-controller", known)
        if now.node == "unseen":
            return
        answers = [condition(name, name in now.failing, now.failing.get(name, "")) for name in MISSING]
        if now.node == "checked":
            answers = [{**answer, "status": "Unknown"} for answer in answers]
        phase = {"fit": "Ready", "checked": "Validating"}.get(str(now.node), "ValidatingFailed")
        status = {"bootstrap": {"phase": phase}, "conditions": answers}
        await self.status(kinds.GPU_NODE_INVENTORIES, self.node, "gpu-bootstrap-controller", status)

    async def occupied(self, reason: str) -> None:
        occupied = [] if reason == "Unknown" else [condition("Occupied", reason in ("Reserved", "InUse"))]
        conditions = [{**item, "reason": reason} for item in occupied]
        await self.status(kinds.GPU_DEVICES, self.card, "croupier-ledger", {"conditions": conditions})

    async def reports(self, health: ReportedHealth, **about: Any) -> None:
        """A heartbeat of the agent with its report."""
        line = CardReport(index=0, address=ADDRESS, product="H100", health=health)
        report = AgentReport(node=self.node, source="simulated", cards=(line,), **about)
        meta = {
            "name": agent_report.LEASE.name(self.node),
            "labels": {agent_report.AGENT_LABEL: "node"},
            "annotations": {
                agent_report.NODE_ANNOTATION: self.node,
                agent_report.REPORT_ANNOTATION: agent_report.encode(report),
            },
        }
        await self.api.apply(
            kinds.LEASES,
            {"metadata": meta, "spec": {"holderIdentity": "agent"}},
            namespace=self.namespace,
            field_manager="agent",
            force=True,
        )

    async def status(self, kind: Resource[Any], name: str, who: str, status: dict[str, Any]) -> None:
        body = {"metadata": {"name": name}, "status": status}
        await self.api.apply(kind, body, field_manager=who, force=True, subresource="status")

    async def device(self) -> GPUDevice:
        return await self.api.get(kinds.GPU_DEVICES, self.card)

    async def inventory(self) -> GPUNodeInventory:
        return await self.api.get(kinds.GPU_NODE_INVENTORIES, self.node)

    async def events(self) -> list[str]:
        """The Events of card and inventory: controller, reason and note."""
        uids = {(await self.device()).metadata.uid, (await self.inventory()).metadata.uid}
        listed = await self.api.list(kinds.EVENTS, Selection("default"))
        about = [event for event in listed.items if event.regarding.uid in uids]
        return [f"{event.reporting_controller} {event.reason}: {event.note}" for event in about]

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Informers for the controllers."""
        async with contextlib.AsyncExitStack() as stack:
            for name, (kind, selection) in self.chosen.items():
                self.followed[name] = await stack.enter_async_context(watched(self.api, kind, selection))
            yield

    def controller(self, recorders: CardEventRecorders, approval: Approval | None = None) -> CardController:
        settings = cards.CardControllerOptions(approval=approval or Approval())
        names = ("devices", "inventories", "pools", "nodes", "leases")
        sources = CardInformers(**{name: self.followed[name] for name in names})
        return CardController(
            sources, self.api, recorders=recorders, ledgers=self.fake_ledgers, settings=settings
        )

    async def caught_up(self) -> None:
        """Wait until the informers have the state of the API server."""
        await ledger_env.caught_up(
            self.api, [(informer, self.chosen[name][1]) for name, informer in self.followed.items()]
        )

    async def rests(self, controller: CardController) -> None:
        """Reconcile until nothing is written."""
        for _ in range(6):
            await self.caught_up()
            before = await self._versions()
            await controller.reconcile(self.node)
            if await self._versions() == before:
                return
        raise AssertionError("the controller does not settle")

    async def _versions(self) -> tuple[str, str]:
        device, inventory = await self.device(), await self.inventory()
        return device.metadata.resource_version, inventory.metadata.resource_version


def _health(now: CardSituation) -> ReportedHealth:
    broken = now.broken
    if broken is None:
        return ReportedHealth(clean=now.clean)
    return ReportedHealth(healthy=False, reason=broken.reason, message=broken.sentence, clean=now.clean)


def condition(name: str, holds: bool, message: str = "") -> dict[str, str]:
    return {
        "type": name,
        "status": "True" if holds else "False",
        "reason": "Test",
        "message": message,
        "lastTransitionTime": LONG_AGO,
    }


@contextlib.asynccontextmanager
async def card_env(api: Client, namespace: str) -> AsyncIterator[CardEnv]:
    made = CardEnv(api, namespace)
    try:
        await made.build()
        async with made.watching():
            yield made
    finally:
        await made.leave()
