"""Sample custom resources for the demo: cards of the simulated nodes, a pool and a CPU limit.

The demo runs no node agent, so it writes the objects itself, from the catalogue of card models.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from croupier.api import kinds
from croupier.api.gpu import GPUDevice, GPUNodeInventory, GPUPool
from croupier.api.gpu.device import (
    INDEX_LABEL,
    MIG,
    NODE_LABEL,
    PCI,
    ComputeCapability,
    DeviceHealth,
    GPUDeviceStatus,
    Hardware,
)
from croupier.api.gpu.node import GPUNodeInventoryStatus, InventoryDevice, NodeHardware
from croupier.api.gpu.pool import GPUPoolSpec, PoolAllocation
from croupier.api.mbcas import PodAllocation, PodAllocationSpec
from croupier.api.meta import Condition, ObjectMeta
from croupier.api.wire import Wire
from croupier.core.cards import catalogue
from croupier.core.cards.catalogue import CardModel
from croupier.core.model import card_name
from croupier.kube.client.api_client import Client
from croupier.kube.client.resource import Resource
from croupier_lab.nodes import SimulatedNodeCards

POOL = "training"


@dataclass(frozen=True, slots=True)
class SampleObject:
    """An object and its resource type."""

    resource: Resource[Any]
    body: Wire


def pci_address(index: int) -> str:
    """PCI address of the simulated card with this index."""
    return f"0000:{0x10 + index:02x}:00.0"


def node_objects(node: str, cards: SimulatedNodeCards, now: datetime) -> Iterator[SampleObject]:
    """The inventory and the cards of one node."""
    yield SampleObject(kinds.GPU_NODE_INVENTORIES, _inventory(node, cards, now))
    for index in range(cards.count):
        yield SampleObject(kinds.GPU_DEVICES, _device(node, index, cards.model, now))


def user_objects(namespace: str) -> Iterator[SampleObject]:
    """A pool and a CPU limit, as a user would create them."""
    yield SampleObject(kinds.GPU_POOLS, _pool())
    yield SampleObject(kinds.POD_ALLOCATIONS, _allocation(namespace))


async def apply(api: Client, exhibits: Iterable[SampleObject]) -> None:
    """Apply the objects with their status. Idempotent."""
    await asyncio.gather(*(_write(api, exhibit) for exhibit in exhibits))


async def _write(api: Client, exhibit: SampleObject) -> None:
    await api.apply(exhibit.resource, exhibit.body, force=True)
    await api.apply(exhibit.resource, exhibit.body, subresource="status", force=True)


def _inventory_id(node: str, index: int) -> str:
    return card_name.inventory_id(node, pci_address(index))


def _device(node: str, index: int, model: CardModel, now: datetime) -> GPUDevice:
    name = _inventory_id(node, index)
    return GPUDevice(
        metadata=ObjectMeta(name=name, labels={NODE_LABEL: node, INDEX_LABEL: str(index)}),
        status=GPUDeviceStatus(
            node_name=node,
            inventory_id=name,
            managed=True,
            auto_attach=False,
            phase="Ready",
            state="Unassigned",
            hardware=_hardware(node, index, model),
            health=DeviceHealth(temperature_c=34, consecutive_healthy=3, last_updated=now),
            conditions=(_ready(now), _healthy(now)),
        ),
    )


def _hardware(node: str, index: int, model: CardModel) -> Hardware:
    return Hardware(
        uuid=f"GPU-sim-{node}-{index}",
        product=model.product,
        pci=PCI(
            vendor=catalogue.NVIDIA,
            device=model.pci_device,
            class_=catalogue.CLASS_3D_CONTROLLER,
            address=pci_address(index),
        ),
        memory_mib=model.memory_mib,
        compute_capability=ComputeCapability(major=model.compute_major, minor=model.compute_minor),
        mig=MIG(capable=model.mig_capable),
    )


def _inventory(node: str, cards: SimulatedNodeCards, now: datetime) -> GPUNodeInventory:
    devices = tuple(
        InventoryDevice(
            inventory_id=_inventory_id(node, index),
            index=index,
            product=cards.model.product,
            memory_mib=cards.model.memory_mib,
            state="Unassigned",
        )
        for index in range(cards.count)
    )
    return GPUNodeInventory(
        metadata=ObjectMeta(name=node),
        status=GPUNodeInventoryStatus(
            hw=NodeHardware(present=True, devices=tuple(sorted(devices, key=lambda each: each.inventory_id))),
            conditions=(_ready(now),),
        ),
    )


def _ready(now: datetime) -> Condition:
    return Condition(
        type="ReadyForPooling",
        status="True",
        reason="Ready",
        message="simulated cards need no driver",
        last_transition_time=now,
    )


def _healthy(now: datetime) -> Condition:
    return Condition(
        type="Faulted",
        status="False",
        reason="Healthy",
        message="no fault was injected",
        last_transition_time=now,
    )


def _pool() -> GPUPool:
    return GPUPool(
        metadata=ObjectMeta(name=POOL), spec=GPUPoolSpec(allocation=PoolAllocation(mode="Exclusive"))
    )


def _allocation(namespace: str) -> PodAllocation:
    return PodAllocation(
        metadata=ObjectMeta(name="my-pod", namespace=namespace),
        spec=PodAllocationSpec(namespace=namespace, pod_name="my-pod", desired_cpu_limit="500m"),
    )
