"""Builders for served cards and bound pods, and a simulated kubelet."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from croupier.core.model import card_name
from croupier.core.model.card import CardGrant
from croupier.core.model.gpu_card import CardHealth, GpuCard
from croupier.core.model.mig import MigDevice
from croupier.core.model.refusal import Refusal
from croupier.core.model.sharing import PoolMode, Sharing
from croupier.core.nodes import device_allocation, plugin_devices
from croupier.core.nodes.device_allocation import (
    AllocationInputs,
    ContainerAllocation,
    PastAllocation,
    PreferenceRequest,
    PreferredDevices,
)
from croupier.core.nodes.kubelet_assignments import BoundPod, ContainerRequest, KubeletAssignment
from croupier.core.nodes.plugin_devices import NodeCard, PoolMembership, ServedResources

NODE = "node-1"
GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
POOL = "gpu.deckhouse.io/"
SMALL = tuple((f"1g.10gb-{start}", "1g.10gb") for start in range(7))
MEDIUM = (("2g.20gb-0", "2g.20gb"), ("2g.20gb-2", "2g.20gb"), ("3g.30gb-4", "3g.30gb"))


def name(index: int) -> str:
    return card_name.inventory_id(NODE, f"0000:{0x10 + index:02x}:00.0")


def whole(index: int = 0, **about) -> NodeCard:
    """A card; `about` are fields of its `GpuCard` or of its `NodeCard`."""
    served = {key: about.pop(key) for key in ("changing", "pool", "kept") if key in about}
    health = CardHealth(healthy=about.pop("healthy", True))
    gpu = GpuCard(index, uuid=f"GPU-{index}", memory_mib=80000, health=health)
    return NodeCard(name(index), replace(gpu, **about), **served)


def partitioned(index: int = 0, slots: Sequence[tuple[str, str]] = SMALL, **about) -> NodeCard:
    made = tuple(
        MigDevice(profile, int(slot.rpartition("-")[2]), 1, f"MIG-{index}-{slot}") for slot, profile in slots
    )
    return whole(index, mig_enabled=True, slots=made, **about)


def pooled(
    index: int = 0, sharing: PoolMode = "MPS", pool: str = "blue", slices: int = 8, **about
) -> NodeCard:
    return whole(index, pool=PoolMembership(pool, Sharing(sharing, slices=slices)), **about)


def share(index: int, percent: int = 100) -> CardGrant:
    return CardGrant(name(index), percent)


def slots(index: int, *ids: str) -> CardGrant:
    return CardGrant(name(index), slots=ids)


def pod(key: str, asks: dict[str, int], *grant: CardGrant, **about) -> BoundPod:
    """A pod with one container, `main`, unless `about` says otherwise."""
    made = BoundPod(f"team/{key}", f"uid-{key}", (ContainerRequest("main", asks),), asks, grant)
    return replace(made, **about)


@dataclass
class KubeletEnv:
    """Allocates devices like the real kubelet: pod by pod, by preference, no device of a resource twice."""

    offer: ServedResources
    pods: list[BoundPod]
    has: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    given: tuple[PastAllocation, ...] = ()

    def holdings(self) -> tuple[KubeletAssignment, ...]:
        return tuple(
            KubeletAssignment(*where, ids)
            for where, ids in self.has.items()
            if not where[1].startswith("init")
        )

    def scene(self) -> AllocationInputs:
        return AllocationInputs(self.offer, tuple(self.pods), self.holdings(), self.given)

    def available(self, resource: str) -> tuple[str, ...]:
        taken = {id for (_, _, of), ids in self.has.items() if of == resource for id in ids}
        listed = self.offer.resources.get(resource, ())
        return tuple(device.id for device in listed if device.healthy and device.id not in taken)

    def admit(self, pod: BoundPod) -> list[ContainerAllocation | Refusal]:
        """Admit every container until one is refused; the devices are in `has`."""
        answers: list[ContainerAllocation | Refusal] = []
        for container in pod.containers:
            for resource, size in container.counts.items():
                answers.append(self.serve(pod, container.name, resource, size))
                if isinstance(answers[-1], Refusal):
                    self.has = {where: ids for where, ids in self.has.items() if where[0] != pod.key}
                    return answers
        return answers

    def serve(self, pod: BoundPod, container: str, resource: str, size: int) -> ContainerAllocation | Refusal:
        """Devices of init containers are reused."""
        reuse = [
            id
            for (key, name, of), ids in self.has.items()
            if (key, of) == (pod.key, resource) and name.startswith("init")
            for id in ids
        ][:size]
        if len(reuse) == size:
            ids = tuple(reuse)
            meant = PreferredDevices(ids, pod, container)
        else:
            available = (*self.available(resource), *reuse)
            meant = device_allocation.preferred(
                PreferenceRequest(resource, size, available, tuple(reuse)), self.scene()
            )
            rest = [id for id in available if id not in meant.ids]
            ids = (*meant.ids, *rest)[:size]
        answer = device_allocation.allocate(resource, ids, self.scene(), meant)
        if isinstance(answer, ContainerAllocation):
            self.has[pod.key, container, resource] = ids
            if meant.pod is not None:
                past = PastAllocation(meant.pod.key, meant.pod.uid, meant.container, resource, ids)
                self.given = (*self.given, past)
        return answer

    def cards_of(self, pod: BoundPod) -> dict[str, int]:
        """The number of devices by card."""
        counted: dict[str, int] = {}
        for (key, _, _), ids in self.has.items():
            if key == pod.key:
                for device in ids:
                    card = plugin_devices.parse_unit(device).card
                    counted[card] = counted.get(card, 0) + 1
        return counted


def kubelet_env(cards: Sequence[NodeCard], *pods: BoundPod) -> KubeletEnv:
    return KubeletEnv(plugin_devices.served_resources(cards), list(pods))
