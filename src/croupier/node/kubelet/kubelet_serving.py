"""Serves the cards of a node through its kubelet: device plugins and device assignments."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from croupier.api import convert_pod
from croupier.core.model.gpu_card import GpuCard
from croupier.core.nodes.kubelet_assignments import BoundPod, KubeletAssignment
from croupier.core.nodes.node_conditions import DevicePluginState
from croupier.core.nodes.plugin_devices import DeviceUnit, ServedResources
from croupier.kube.client.clock import Clock
from croupier.node.cards.card_driver import CardDriver, CardError, ContainerEdits, HeldDevice
from croupier.node.kubelet import plugin_manager
from croupier.node.kubelet.allocator import Allocator, AllocatorInputs
from croupier.node.kubelet.checkpoint import KubeletCheckpoint
from croupier.node.kubelet.grpc_calls import KubeletError
from croupier.node.kubelet.plugin_manager import PluginManager
from croupier.node.kubelet.pod_resources import PodResources
from croupier.node.mps.share_enforcer import ShareEnforcement
from croupier.node.node_informers import NodeInformers

log = structlog.get_logger(__name__)


class KubeletServing:
    """`folder` is the kubelet's root directory, which contains device-plugins and pod-resources."""

    def __init__(
        self,
        informers: NodeInformers,
        cards: CardDriver,
        folder: Path,
        enforcement: ShareEnforcement,
        clock: Clock,
    ) -> None:
        self._informers = informers
        self._cards = cards
        self._seen: Mapping[str, GpuCard] = {}
        self._offer = ServedResources()
        self._error = ""
        resources = PodResources(folder / "pod-resources" / plugin_manager.KUBELET_SOCKET, clock)
        directory = folder / "device-plugins"
        account = KubeletCheckpoint(resources, directory, self._pods)
        desk = Allocator(account, AllocatorInputs(self._pods, self._edits, enforce=enforcement.edits), clock)
        chosen = plugin_manager.PluginOptions(informers.name, directory)
        self._plugins = PluginManager(chosen, desk, resources, clock)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the plugins registered until stopped. Runs concurrently with the agent."""
        await self._plugins.run(stop)

    async def serve(self, offer: ServedResources, cards: Mapping[str, GpuCard]) -> None:
        self._offer, self._seen = offer, cards
        await self._plugins.serve(offer)

    def service(self) -> DevicePluginState:
        standing, healthy = self._plugins.status, self._offer.healthy()
        done = standing.serves | standing.served_by_others
        return DevicePluginState(
            serves={name: healthy.get(name, 0) for name in sorted(standing.serves)},
            others=tuple(sorted(standing.served_by_others)),
            waiting=tuple(sorted(self._offer.resources.keys() - done)),
            troubles=(*standing.troubles, *((self._error,) if self._error else ())),
        )

    async def given(self) -> Sequence[KubeletAssignment] | None:
        try:
            holdings = await self._plugins.holdings()
        except KubeletError as error:
            if not self._error:
                log.warning(
                    f"the agent cannot read device assignments from the kubelet: {error}", error=str(error)
                )
            self._error = str(error)
            return None
        self._error = ""
        return holdings

    def _pods(self) -> Sequence[BoundPod]:
        return [view for pod in self._informers.pods() if (view := convert_pod.bound(pod)) is not None]

    def _edits(self, parts: Sequence[DeviceUnit]) -> ContainerEdits:
        return self._cards.container_edits([self._held(part) for part in parts])

    def _held(self, part: DeviceUnit) -> HeldDevice:
        card = self._seen.get(part.card)
        if card is None:
            raise CardError(f"card {part.card} is no longer on the node")
        if not part.part:
            return HeldDevice(card)
        slot = next((slot for slot in card.slots if slot.id == part.part), None)
        if slot is None:
            raise CardError(f"card {part.card} has no MIG device {part.part}")
        return HeldDevice(card, slot)
