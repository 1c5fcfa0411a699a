"""`croupier node`: the agent of one node, or of a fleet of simulated nodes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from croupier.api import kinds
from croupier.api.core_v1 import Node
from croupier.api.gpu.device import NODE_LABEL
from croupier.core.cards import catalogue
from croupier.core.nodes.bootstrap import BELIEVED
from croupier.core.nodes.devices import Offer
from croupier.kube.client import Selection
from croupier.kube.clock import SystemClock
from croupier.kube.events import Recorder
from croupier.kube.run import Part
from croupier.kube.store import Change
from croupier.kube.together import first
from croupier.node.agent import features, past
from croupier.node.agent import sight as agent_sight
from croupier.node.agent.agent import Agent, Parts
from croupier.node.agent.agent import Settings as AgentSettings
from croupier.node.agent.fleet import Fleet, StatusServing
from croupier.node.agent.fleet import Sources as FleetSources
from croupier.node.agent.metrics import AgentMetrics
from croupier.node.agent.publishing import REPORTER
from croupier.node.agent.recutting import DEADLINE, Recutter
from croupier.node.agent.recutting_journal import FileJournal, Journal, MemoryJournal
from croupier.node.agent.sight import Pools, Window
from croupier.node.cards import simulated_plan
from croupier.node.cards.cards import Cards
from croupier.node.cards.exporter import Exporter
from croupier.node.cards.nvml import NvmlCards
from croupier.node.cards.simulated import Files, SimulatedCards
from croupier.node.kubelet.serving import KubeletServing
from croupier.node.kubelet.wrong_card import WrongCards
from croupier.wiring.surface import BOUND_PODS, Caches, Settings, Surface, surfaced, until_stopped

LONGEST_LABEL: Final = 63
WRITERS: Final = 32
"""Maximum number of concurrent writes of a fleet."""
BY_LABELS: Final = "labels"
"""Value instead of MODEL:COUNT: simulate the cards that the labels of each node name."""

Source: TypeAlias = Literal["nvml", "simulated"]


@dataclass(frozen=True, slots=True)
class Wish:
    """The command line options of the agent."""

    source: Source
    cards: str = ""
    """The simulated cards: MODEL:COUNT, a file, or `labels`."""
    node: str = ""
    fleet: str | None = None
    """A label selector of the nodes to simulate, instead of one node."""
    kubelet: Path = Path("/var/lib/kubelet")
    host: Path = Path("/")
    """The mount point of the node's root file system."""
    state: Path | None = None
    """A folder for state that survives restarts."""
    faults: Path | None = None
    cdi: Path | None = None
    """The folder in which the container runtime reads CDI specifications, for simulated cards."""
    library: str | None = None
    """The path of the NVML library, if it is not found by its name."""
    every: float = 3.0
    beat: float = 10.0
    deadline: float = DEADLINE
    clock: SystemClock = field(default_factory=SystemClock)


async def work(settings: Settings, wish: Wish) -> int:
    async with surfaced(settings) as surface:
        recorder = Recorder(surface.api, REPORTER, gauge=surface.metrics)
        agent = _fleet(surface, wish, recorder) if wish.fleet is not None else _one(surface, wish, recorder)
        return await until_stopped(surface, [*agent, Part("events", recorder.run)])


def _one(surface: Surface, wish: Wish, recorder: Recorder) -> list[Part]:
    caches = Caches(surface.api, surface.metrics)
    name = wish.node
    nodes = caches.follow(kinds.NODES, Selection(fields=f"metadata.name={name}")).store
    pods = caches.follow(kinds.PODS, Selection(fields=f"spec.nodeName={name}")).store
    devices = caches.follow(kinds.GPU_DEVICES, Selection(labels=_devices_of(name))).store
    maps = caches.follow(
        kinds.CONFIG_MAPS, Selection(surface.settings.namespace, labels=agent_sight.POOL)
    ).store
    window = Window(
        name,
        lambda: nodes.named(name),
        lambda: pods,
        lambda: [device for device in devices if device.status.node_name == name],
        Pools(maps),
    )
    cards = _cards(wish, window)
    serving = KubeletServing(window, cards, wish.kubelet, wish.clock)
    gauge = AgentMetrics(surface.metrics.registry)
    check = WrongCards(window, surface.api, recorder, clock=wish.clock, gauge=gauge)
    believed = frozenset((surface.settings.namespace, *BELIEVED))
    monitor = Exporter(lambda: pods, wish.clock, believed=believed, every=wish.beat)
    parts = Parts(window, cards, serving, _cutter(wish, cards, name), recorder, check, monitor)

    async def look_after(ending: asyncio.Event) -> None:
        agent = Agent(parts, surface.api, replace(_settings(surface, wish, gauge), boot=past.this_boot()))
        subscriptions = [
            nodes.subscribe(lambda change: agent.wake() if _minded(change) else None),
            *(store.subscribe(lambda _: agent.wake()) for store in (pods, devices, maps)),
        ]
        try:
            await agent.run(ending)
        finally:
            for unsubscribe in subscriptions:
                unsubscribe()
        if surface.orders.off:  # without a plugin a pod would start without its card
            await serving.serve(Offer(), {})

    plugins = Part("device plugins", serving.run)
    return [*caches.parts(), plugins, _part(surface, caches, look_after)]


def _minded(change: Change[Node]) -> bool:
    return change.old is None or change.new is None or agent_sight.differ(change.old, change.new)


def _devices_of(node: str) -> str:
    """The label selector of a node's GPUDevices; a node name too long for a label selects all."""
    return f"{NODE_LABEL}={node}" if len(node) <= LONGEST_LABEL else NODE_LABEL


def _fleet(surface: Surface, wish: Wish, recorder: Recorder) -> list[Part]:
    caches = Caches(surface.api, surface.metrics)
    sources = FleetSources(
        nodes=caches.follow(kinds.NODES, Selection(labels=wish.fleet)).store,
        pods=caches.follow(kinds.PODS, BOUND_PODS).store,
        devices=caches.follow(kinds.GPU_DEVICES).store,
        config_maps=caches.follow(
            kinds.CONFIG_MAPS, Selection(surface.settings.namespace, labels=agent_sight.POOL)
        ).store,
    )

    turns, gauge = asyncio.Semaphore(WRITERS), AgentMetrics(surface.metrics.registry)

    def make(window: Window) -> Agent:
        cards = _cards(wish, window)
        serving = StatusServing(surface.api, window)
        parts = Parts(window, cards, serving, _cutter(wish, cards, window.name), recorder)
        # Watches and the faults file report all changes; frequent polling is only for real drivers.
        chosen = replace(_settings(surface, wish, gauge), every=max(wish.every, wish.beat), turns=turns)
        return Agent(parts, surface.api, chosen)

    return [*caches.parts(), _part(surface, caches, lambda ending: Fleet(sources, make).run(ending))]


def _part(surface: Surface, caches: Caches, run: Callable[[asyncio.Event], Any]) -> Part:
    """The agent starts after all caches have synced."""

    async def working(stop: asyncio.Event) -> None:
        await first(stop, caches.synced())
        await surface.orders.obeyed(lambda ending, _: run(ending), stop)

    surface.checks.ready["caches"] = caches.behind
    return Part("agent", working)


def check(wish: Wish) -> None:
    """Raises CardError if the simulated cards are invalid."""
    if wish.source == "simulated" and wish.cards != BY_LABELS:
        simulated_plan.read(wish.cards)


def _cards(wish: Wish, window: Window) -> Cards:
    if wish.source == "nvml":
        return NvmlCards(clock=wish.clock, library=wish.library, host=wish.host)
    state = wish.state / f"{window.name}.cards.json" if wish.state is not None else None
    plan = simulated_plan.read(_labelled(window) if wish.cards == BY_LABELS else wish.cards)
    files = Files(state, wish.faults, wish.cdi)
    return SimulatedCards(window.name, plan, clock=wish.clock, files=files)


def _labelled(window: Window) -> str:
    """The cards that a node's labels name."""
    node = window.node()
    labels = node.metadata.labels if node is not None else {}
    product = labels.get(f"{features.GPU}.product", "")
    name = next((model.name for model in catalogue.MODELS if model.product == product), product)
    return f"{name}:{labels.get(f'{features.GPU}.count', '1')}"


def _cutter(wish: Wish, cards: Cards, node: str) -> Recutter:
    journal: Journal = (
        MemoryJournal() if wish.state is None else FileJournal(wish.state / f"{node}.changes.json")
    )
    return Recutter(cards, wish.clock, deadline=wish.deadline, journal=journal)


def _settings(surface: Surface, wish: Wish, gauge: AgentMetrics) -> AgentSettings:
    return AgentSettings(
        surface.settings.namespace, every=wish.every, beat=wish.beat, clock=wish.clock, gauge=gauge
    )
