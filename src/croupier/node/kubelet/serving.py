"""Serves the cards of a node through its kubelet: device plugins and device assignments."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from croupier.core.nodes.devices import Offer, Unit
from croupier.core.nodes.handed import BoundPod, Holding
from croupier.core.nodes.state import Service
from croupier.kube.clock import Clock
from croupier.node.agent.sight import Window
from croupier.node.cards.cards import CardError, Cards, Edits, Held, Seen
from croupier.node.kubelet import plugin, plugin_pods
from croupier.node.kubelet.calls import KubeletError
from croupier.node.kubelet.notes import KubeletNotes
from croupier.node.kubelet.plugin import Plugins
from croupier.node.kubelet.plugin_desk import Desk, Equipment
from croupier.node.kubelet.pod_resources import PodResources

log = structlog.get_logger(__name__)


class KubeletServing:
    """`folder` is the kubelet's root directory, which contains device-plugins and pod-resources."""

    def __init__(self, window: Window, cards: Cards, folder: Path, clock: Clock) -> None:
        self._window = window
        self._cards = cards
        self._seen: Mapping[str, Seen] = {}
        self._offer = Offer()
        self._silent = ""
        resources = PodResources(folder / "pod-resources" / plugin.KUBELET, clock)
        directory = folder / "device-plugins"
        account = KubeletNotes(resources, directory, self._pods)
        desk = Desk(account, Equipment(self._pods, self._edits), clock)
        chosen = plugin.Settings(window.name, directory)
        self._plugins = Plugins(chosen, desk, resources, clock)

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the plugins registered until stopped. Runs concurrently with the agent."""
        await self._plugins.run(stop)

    async def serve(self, offer: Offer, cards: Mapping[str, Seen]) -> None:
        self._offer, self._seen = offer, cards
        await self._plugins.serve(offer)

    def service(self) -> Service:
        standing, healthy = self._plugins.standing, self._offer.healthy()
        done = standing.serves | standing.served_by_others
        return Service(
            serves={name: healthy.get(name, 0) for name in sorted(standing.serves)},
            others=tuple(sorted(standing.served_by_others)),
            waiting=tuple(sorted(self._offer.resources.keys() - done)),
            troubles=(*standing.troubles, *((self._silent,) if self._silent else ())),
        )

    async def given(self) -> Sequence[Holding] | None:
        try:
            holdings = await self._plugins.holdings()
        except KubeletError as error:
            if not self._silent:
                log.warning("cannot read device assignments from the kubelet", error=str(error))
            self._silent = str(error)
            return None
        self._silent = ""
        return holdings

    async def close(self) -> None: ...

    def _pods(self) -> Sequence[BoundPod]:
        return [view for pod in self._window.pods() if (view := plugin_pods.bound(pod)) is not None]

    def _edits(self, parts: Sequence[Unit]) -> Edits:
        return self._cards.container_edits([self._held(part) for part in parts])

    def _held(self, part: Unit) -> Held:
        card = self._seen.get(part.card)
        if card is None:
            raise CardError(f"card {part.card} is no longer on the node")
        if not part.part:
            return Held(card)
        slot = next((slot for slot in card.slots if slot.id == part.part), None)
        if slot is None:
            raise CardError(f"card {part.card} has no MIG device {part.part}")
        return Held(card, slot)
