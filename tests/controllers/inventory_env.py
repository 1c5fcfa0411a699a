"""Nodes with labels, NodeFeatures and agent reports, and the running inventory controller."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import msgspec

from croupier.api import kinds, nfd
from croupier.api.core_v1 import micro_time
from croupier.api.gpu import GPUDevice, GPUNodeInventory, agent_report
from croupier.api.gpu.agent_report import AgentReport, CardReport, ReportedHealth
from croupier.api.meta import Condition
from croupier.controllers.inventory.inventory import InventoryController, InventoryOptions
from croupier.controllers.inventory.inventory_snapshot import InventoryInformers
from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel
from croupier.core.model import card_name
from croupier.kube.client.api_client import Client, Selection
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource
from croupier.kube.controller.events import EventRecorder
from tests.controllers.ledger_env import running, watched
from tests.polling import until_async

H100 = catalogue.find("H100")
TIMEOUT = 60.0
PARALLEL = 8
OWNER_LABEL = "croupier-test/stock"
"""The label of nodes that are deleted after the test."""

NODE_FEATURE_CRD: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "nodefeatures.nfd.k8s-sigs.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "nfd.k8s-sigs.io",
        "names": {"kind": "NodeFeature", "plural": "nodefeatures", "singular": "nodefeature"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                        },
                    }
                },
            }
        ],
    },
}
"""The fields that are used, by their names in Node Feature Discovery."""


def gfd(model: CardModel = H100, count: int = 2, **changed: str | None) -> dict[str, str]:
    """The labels of GPU Feature Discovery; `gfd(memory=None)` omits a label."""
    fields: dict[str, str | None] = {
        "gpu.present": "true",
        "gpu.count": str(count),
        "gpu.product": model.product,
        "gpu.memory": str(model.memory_mib),
        "gpu.compute.major": str(model.compute_major),
        "gpu.compute.minor": str(model.compute_minor),
        "mig.capable": str(model.mig_capable).lower(),
        "cuda.driver-version.full": "570.124.06",
        "cuda.runtime-version.full": "12.8",
    }
    fields |= {_dotted(name): value for name, value in changed.items()}
    return {f"nvidia.com/{name}": value for name, value in fields.items() if value is not None}


def _dotted(name: str) -> str:
    """`memory` is `gpu.memory`, `mig_capable` is `mig.capable`."""
    dotted = name.replace("_", ".")
    return dotted if dotted.startswith(("mig", "cuda")) else f"gpu.{dotted}"


def pci(model: CardModel = H100, count: int = 2, **changed: str | None) -> dict[str, str]:
    """The labels of an NFD rule for each card; `pci(vendor="1002")` changes card 1."""
    fields: dict[str, str | None] = {
        f"{index:02}.{part}": value
        for index in range(count)
        for part, value in {"vendor": "10de", "device": model.pci_device, "class": "0302"}.items()
    }
    fields |= {f"01.{part.rstrip('_')}": value for part, value in changed.items()}
    return {f"gpu.deckhouse.io/device.{name}": value for name, value in fields.items() if value is not None}


def bus(model: CardModel = H100, count: int = 2) -> list[dict[str, str]]:
    """The PCI devices that the NFD worker finds: the cards and other devices."""
    cards = [{"vendor": "10de", "device": model.pci_device, "class": "0302"}] * count
    return [
        {"vendor": "8086", "device": "1572", "class": "0200"},
        *cards,
        {"vendor": "10de", "class": "0403"},
    ]


def address(index: int) -> str:
    return f"0000:{index + 16:02x}:00.0"


def line(index: int = 0, model: CardModel = H100, **known: Any) -> CardReport:
    fields: dict[str, Any] = {
        "index": index,
        "address": address(index),
        "uuid": f"GPU-{index}",
        "device": model.pci_device,
        "product": model.product,
        "memory_mib": model.memory_mib,
        "compute_major": model.compute_major,
        "compute_minor": model.compute_minor,
        "mig_capable": model.mig_capable,
        "health": ReportedHealth(clean=3, temperature_c=40),
    }
    return CardReport(**{**fields, **known})


def report(node: str, *lines: CardReport, model: CardModel = H100, **known: Any) -> AgentReport:
    """A report with two cards, unless `lines` are given."""
    fields: dict[str, Any] = {"driver": "570.124.06", "cuda": "12.8", "toolkit": True, "beats": 3}
    cards = lines or tuple(line(index, model) for index in range(2))
    return AgentReport(node=node, **{**fields, "cards": cards, **known})


@dataclass
class InventoryState:
    """The inventory objects of one node."""

    inventory: GPUNodeInventory
    devices: dict[str, GPUDevice] = field(default_factory=dict)

    @property
    def incomplete(self) -> Condition:
        found = condition(self.inventory, "InventoryIncomplete")
        assert found is not None
        return found

    @property
    def summary(self) -> tuple[frozenset[str], str]:
        found = condition(self.inventory, "InventoryIncomplete")
        return frozenset(self.devices), found.reason if found is not None else ""


@dataclass
class InventoryEnv:
    """A namespace for Leases and NodeFeatures, and nodes that are deleted after the test."""

    api: Client
    namespace: str
    nodes: list[str] = field(default_factory=list)
    beats: "itertools.count[int]" = field(default_factory=itertools.count)
    began: str = field(default_factory=lambda: micro_time(SystemClock().now()))
    """Earlier Events belong to other objects with the same name."""

    async def leave(self) -> None:
        """Delete everything that the test created."""
        ours = f"{OWNER_LABEL}={self.namespace}"
        await self.api.delete_collection(kinds.NODES, Selection(labels=ours))
        for kind in (kinds.LEASES, nfd.NODE_FEATURES):
            await self.api.delete_collection(kind, Selection(self.namespace))
        nodes = set(self.nodes)
        devices = (await self.api.list(kinds.GPU_DEVICES)).items
        found = [device.metadata.name for device in devices if device.status.node_name in nodes]
        every: list[tuple[Resource[Any], str]] = [(kinds.GPU_DEVICES, name) for name in found]
        every += [(kinds.GPU_NODE_INVENTORIES, name) for name in nodes]
        await in_parallel(self._delete(kind, name) for kind, name in every)

    async def _delete(self, kind: Resource[Any], name: str) -> None:
        with contextlib.suppress(NotFound):
            await self.api.delete(kind, name)

    async def node(self, name: str, labels: Mapping[str, str] | None = None, gpus: int = 0) -> None:
        self.nodes.append(name)
        marked = {**(labels or {}), OWNER_LABEL: self.namespace}
        await self.api.create(kinds.NODES, {"metadata": {"name": name, "labels": marked}})
        if gpus:
            amounts = {"nvidia.com/gpu": str(gpus)}
            status = {"status": {"allocatable": amounts, "capacity": amounts}}
            await self.api.patch(kinds.NODES, name, status, subresource="status")

    async def relabel(self, node: str, labels: Mapping[str, str | None]) -> None:
        await self.api.patch(kinds.NODES, node, {"metadata": {"labels": dict(labels)}})

    async def feature(
        self,
        node: str,
        devices: Iterable[Mapping[str, str]] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        """Create the NodeFeature of a node."""
        instances = (
            {}
            if devices is None
            else {"pci.device": {"elements": [{"attributes": device} for device in devices]}}
        )
        meta = {"name": node, "labels": {nfd.NODE_NAME_LABEL: node}}
        spec = {"features": {"instances": instances}, "labels": dict(labels or {})}
        await self.api.apply(
            nfd.NODE_FEATURES, {"metadata": meta, "spec": spec}, namespace=self.namespace, force=True
        )

    async def beat(self, reported: AgentReport, text: str | None = None) -> None:
        """A heartbeat of the node's agent, with its report."""
        annotations = {
            agent_report.REPORT_ANNOTATION: agent_report.encode(reported) if text is None else text,
            agent_report.NODE_ANNOTATION: reported.node,
        }
        meta = {
            "name": agent_report.LEASE.name(reported.node),
            "labels": {agent_report.AGENT_LABEL: "node"},
            "annotations": annotations,
        }
        now = micro_time(SystemClock().now() + timedelta(microseconds=next(self.beats)))
        spec = {"holderIdentity": "agent", "leaseDurationSeconds": 40, "renewTime": now}
        await self.api.apply(
            kinds.LEASES, {"metadata": meta, "spec": spec}, namespace=self.namespace, force=True
        )

    async def devices(self, node: str) -> dict[str, GPUDevice]:
        listed = await self.api.list(
            kinds.GPU_DEVICES, Selection(labels=f"gpu.deckhouse.io/node={card_name.shortened(node, 63)}")
        )
        return {device.metadata.name: device for device in listed.items}

    async def inventory(self, node: str) -> GPUNodeInventory | None:
        with contextlib.suppress(NotFound):
            return await self.api.get(kinds.GPU_NODE_INVENTORIES, node)
        return None

    async def condition(self, node: str, kind: str = "InventoryIncomplete") -> Condition | None:
        found = await self.inventory(node)
        return condition(found, kind) if found is not None else None

    async def everything(self) -> dict[str, InventoryState]:
        """Every node that has an inventory, with the cards whose status is written."""
        inventories = (await self.api.list(kinds.GPU_NODE_INVENTORIES)).items
        devices = (await self.api.list(kinds.GPU_DEVICES)).items
        shown = {inventory.metadata.name: InventoryState(inventory) for inventory in inventories}
        for device in devices:
            if (node := device.status.node_name) in shown:
                shown[node].devices[device.metadata.name] = device
        return shown

    async def show(self, expected: Mapping[str, tuple[Iterable[str], str]]) -> dict[str, InventoryState]:
        """Wait until each node has exactly these cards and this reason of InventoryIncomplete."""
        wanted = {node: (frozenset(cards), reason) for node, (cards, reason) in expected.items()}
        last: dict[str, InventoryState] = {}

        def differing() -> dict[str, str]:
            return {
                node: f"wants {sorted(cards)}, {reason}; is {last.get(node)}"
                for node, (cards, reason) in wanted.items()
                if node not in last or last[node].summary != (cards, reason)
            }

        async def matches() -> bool:
            last.clear()
            last.update(await self.everything())
            return not differing()

        try:
            await until_async(matches, "the inventory", TIMEOUT)
        except AssertionError as error:
            raise AssertionError(f"{error}: {differing()}") from None
        return last

    async def shows(self, node: str, *cards: str, reason: str = "InventorySynced") -> GPUNodeInventory:
        return (await self.show({node: (cards, reason)}))[node].inventory

    async def events(self, name: str) -> list[str]:
        listed = await self.api.list(kinds.EVENTS, Selection("default"))
        ours = (event for event in listed.items if event.event_time >= self.began)
        return [event.reason for event in ours if event.regarding.name == name]

    async def has_event(self, name: str, reason: str) -> None:
        async def recorded() -> bool:
            return reason in await self.events(name)

        await until_async(recorded, f"the Event {reason} of {name}", TIMEOUT)

    async def occupied(self, device: str, reason: str) -> None:
        """Set the condition Occupied, as the ledger does."""
        now = SystemClock().now().replace(microsecond=0)
        status: Literal["True", "False"] = "False" if reason in ("Free", "Withdrawn") else "True"
        occupied = Condition(type="Occupied", status=status, reason=reason, last_transition_time=now)
        body = {"metadata": {"name": device}, "status": {"conditions": [msgspec.to_builtins(occupied)]}}
        await self.api.apply(
            kinds.GPU_DEVICES, body, field_manager="croupier-ledger", subresource="status", force=True
        )

    @contextlib.asynccontextmanager
    async def works(self, settings: InventoryOptions | None = None) -> AsyncIterator[InventoryController]:
        async with contextlib.AsyncExitStack() as stack:

            async def informer(kind: Resource[Any], selection: Selection) -> Any:
                return await stack.enter_async_context(watched(self.api, kind, selection))

            here = Selection(self.namespace)
            sources = InventoryInformers(
                nodes=await informer(kinds.NODES, Selection()),
                leases=await informer(
                    kinds.LEASES, Selection(self.namespace, labels=agent_report.LEASE_SELECTOR)
                ),
                features=await informer(nfd.NODE_FEATURES, here),
                devices=await informer(kinds.GPU_DEVICES, Selection()),
                inventories=await informer(kinds.GPU_NODE_INVENTORIES, Selection()),
            )
            recorder = EventRecorder(self.api, "gpu-inventory-controller")
            chosen = settings or InventoryOptions(removal_delay=timedelta(0), confirmation_delay=0.0)
            made = InventoryController(sources, self.api, recorder=recorder, settings=chosen)
            await stack.enter_async_context(running(recorder.run(asyncio.Event())))
            await stack.enter_async_context(running(made.run(asyncio.Event())))
            yield made


async def in_parallel(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all coroutines, a few at a time."""
    slots = asyncio.Semaphore(PARALLEL)

    async def limited(part: Coroutine[Any, Any, None]) -> None:
        async with slots:
            await part

    async with asyncio.TaskGroup() as group:
        for part in work:
            group.create_task(limited(part))


def condition(found: GPUNodeInventory, kind: str) -> Condition | None:
    return next((cond for cond in found.status.conditions if cond.type == kind), None)


def condition_status(found: GPUNodeInventory, kind: str) -> tuple[str, str]:
    """Status and reason."""
    current = condition(found, kind)
    return (current.status, current.reason) if current is not None else ("", "")
