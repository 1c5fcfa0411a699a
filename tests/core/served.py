"""Builders for served cards and bound pods, and a simulated kubelet."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from croupier.core.cards import card
from croupier.core.ledgers.capacity import Sharing
from croupier.core.ledgers.ledger import Part, Refused
from croupier.core.nodes import allotment, devices
from croupier.core.nodes.allotment import Answer, Asked, Given, Preference, Scene
from croupier.core.nodes.devices import CardSlot, Membership, NodeCard, Offer
from croupier.core.nodes.handed import Asking, BoundPod, Holding

NODE = "node-1"
GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
POOL = "gpu.deckhouse.io/"
SMALL = tuple((f"1g.10gb-{start}", "1g.10gb") for start in range(7))
MEDIUM = (("2g.20gb-0", "2g.20gb"), ("2g.20gb-2", "2g.20gb"), ("3g.30gb-4", "3g.30gb"))


def name(index: int) -> str:
    return card.inventory_id(NODE, f"0000:{0x10 + index:02x}:00.0")


def whole(index: int = 0, **about) -> NodeCard:
    return NodeCard(name(index), index, **{"uuid": f"GPU-{index}", "memory_mib": 80000, **about})


def cut(index: int = 0, slots: Sequence[tuple[str, str]] = SMALL, **about) -> NodeCard:
    made = tuple(CardSlot(slot, profile, f"MIG-{index}-{slot}") for slot, profile in slots)
    return whole(index, mig_enabled=True, slots=made, **about)


def pooled(index: int = 0, sharing: Sharing = "MPS", pool: str = "blue", slices: int = 8) -> NodeCard:
    return whole(index, pool=Membership(pool, sharing, slices))


def share(index: int, percent: int = 100) -> Part:
    return Part(name(index), percent)


def slots(index: int, *ids: str) -> Part:
    return Part(name(index), slots=ids)


def pod(key: str, asks: dict[str, int], *grant: Part, **about) -> BoundPod:
    """A pod with one container, `main`, unless `about` says otherwise."""
    made = BoundPod(f"team/{key}", f"uid-{key}", (Asking("main", asks),), asks, grant)
    return replace(made, **about)


@dataclass
class Kubelet:
    """Allocates devices like the real kubelet: pod by pod, by preference, no device of a resource twice."""

    offer: Offer
    pods: list[BoundPod]
    has: dict[tuple[str, str, str], tuple[str, ...]] = field(default_factory=dict)
    given: tuple[Given, ...] = ()

    def holdings(self) -> tuple[Holding, ...]:
        return tuple(
            Holding(*where, ids) for where, ids in self.has.items() if not where[1].startswith("init")
        )

    def scene(self) -> Scene:
        return Scene(self.offer, tuple(self.pods), self.holdings(), self.given)

    def available(self, resource: str) -> tuple[str, ...]:
        taken = {id for (_, _, of), ids in self.has.items() if of == resource for id in ids}
        listed = self.offer.resources.get(resource, ())
        return tuple(device.id for device in listed if device.healthy and device.id not in taken)

    def admit(self, pod: BoundPod) -> list[Answer | Refused]:
        """Admit every container until one is refused; the devices are in `has`."""
        answers: list[Answer | Refused] = []
        for container in pod.containers:
            for resource, size in container.counts.items():
                answers.append(self.serve(pod, container.name, resource, size))
                if isinstance(answers[-1], Refused):
                    self.has = {where: ids for where, ids in self.has.items() if where[0] != pod.key}
                    return answers
        return answers

    def serve(self, pod: BoundPod, container: str, resource: str, size: int) -> Answer | Refused:
        """Devices of init containers are reused."""
        reuse = [
            id
            for (key, name, of), ids in self.has.items()
            if (key, of) == (pod.key, resource) and name.startswith("init")
            for id in ids
        ][:size]
        if len(reuse) == size:
            ids = tuple(reuse)
            meant = Preference(ids, pod, container)
        else:
            available = (*self.available(resource), *reuse)
            meant = allotment.preferred(Asked(resource, size, available, tuple(reuse)), self.scene())
            rest = [id for id in available if id not in meant.ids]
            ids = (*meant.ids, *rest)[:size]
        answer = allotment.answer(resource, ids, self.scene(), meant)
        if isinstance(answer, Answer):
            self.has[pod.key, container, resource] = ids
            if meant.pod is not None:
                past = Given(meant.pod.key, meant.pod.uid, meant.container, resource, ids)
                self.given = (*self.given, past)
        return answer

    def cards_of(self, pod: BoundPod) -> dict[str, int]:
        """The number of devices by card."""
        counted: dict[str, int] = {}
        for (key, _, _), ids in self.has.items():
            if key == pod.key:
                for device in ids:
                    card = devices.unit(device).card
                    counted[card] = counted.get(card, 0) + 1
        return counted


def kubelet(cards: Sequence[NodeCard], *pods: BoundPod) -> Kubelet:
    return Kubelet(devices.offer(cards), list(pods))
