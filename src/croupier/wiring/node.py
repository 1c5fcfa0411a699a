"""`croupier node`: the agent of one node, or of a fleet of simulated nodes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from croupier.api import kinds
from croupier.api.core_v1 import Node
from croupier.api.gpu.agent_report import FIELD_MANAGER
from croupier.api.gpu.device import NODE_LABEL
from croupier.api.gpu.pool_config import POOL_LABEL
from croupier.core.cards import catalogue
from croupier.core.model import card_name
from croupier.core.nodes.bootstrap import TRUSTED_NAMESPACES
from croupier.core.nodes.plugin_devices import ServedResources
from croupier.kube.cache.store import ObjectChange
from croupier.kube.client.api_client import Selection
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.concurrency import wait_or_stop
from croupier.kube.controller.events import EventRecorder
from croupier.kube.serving.component_runner import Component
from croupier.node import node_informers as agent_sight
from croupier.node.agent import gpu_labels, previous_report
from croupier.node.agent.agent import NodeAgent, NodeAgentParts
from croupier.node.agent.agent import NodeAgentOptions as AgentSettings
from croupier.node.agent.fleet import FleetInformers as FleetSources
from croupier.node.agent.fleet import NodeAgentFleet, StatusServing
from croupier.node.agent.metrics import NodeAgentMetrics
from croupier.node.agent.repartition_journal import RepartitionJournal
from croupier.node.agent.repartitioning import DEADLINE, Repartitioner
from croupier.node.cards import simulated_spec
from croupier.node.cards.card_driver import CardDriver
from croupier.node.cards.dcgm_exporter import DcgmExporter
from croupier.node.cards.nvml import NvmlCards
from croupier.node.cards.simulated import SimulatedCards, SimulatedFiles
from croupier.node.kubelet.allocation_mismatch import MismatchMetrics, MismatchRepair
from croupier.node.kubelet.kubelet_serving import KubeletServing
from croupier.node.mps.mps_control import PROGRAM, MpsControl
from croupier.node.mps.mps_daemons import MpsDaemons
from croupier.node.mps.mps_folder import DEFAULT_FOLDER, MpsFolder
from croupier.node.mps.share_enforcer import HamiCore, ShareEnforcement, ShareEnforcer, SimulatedEnforcement
from croupier.node.node_informers import NodeInformers, PoolConfigMaps
from croupier.wiring.process_context import (
    BOUND_PODS,
    InformerFactory,
    ProcessContext,
    ProcessOptions,
    open_context,
    run_until_stopped,
)

MAX_WRITES: Final = 32
"""Maximum number of concurrent writes of a fleet."""
CARDS_FROM_LABELS: Final = "labels"
"""Value instead of MODEL:COUNT: simulate the cards that the labels of each node name."""

CardSource: TypeAlias = Literal["nvml", "simulated"]


@dataclass(frozen=True, slots=True)
class NodeProcessOptions:
    """The command line options of the agent."""

    source: CardSource
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
    mps: Path = DEFAULT_FOLDER
    """The folder of the MPS daemons, at the same path in all containers and on the node."""
    mps_program: str = PROGRAM
    static_partitions: bool = True
    """Use static partitions of MPS where the driver has them."""
    hami_core: Path | None = None
    """The folder on the node with the files of HAMi-core."""
    every: float = 3.0
    beat: float = 10.0
    deadline: float = DEADLINE
    clock: SystemClock = field(default_factory=SystemClock)


async def work(settings: ProcessOptions, options: NodeProcessOptions) -> int:
    async with open_context(settings) as context:
        recorder = EventRecorder(context.api, FIELD_MANAGER, metrics=context.metrics.events)
        agent = (
            _fleet(context, options, recorder)
            if options.fleet is not None
            else _single_node(context, options, recorder)
        )
        return await run_until_stopped(
            context, [*agent, Component("events", recorder.run)], name="croupier node"
        )


def _single_node(
    context: ProcessContext, options: NodeProcessOptions, recorder: EventRecorder
) -> list[Component]:
    caches = InformerFactory(context.api, context.metrics)
    name = options.node
    nodes = caches.follow(kinds.NODES, Selection(fields=f"metadata.name={name}")).store
    pods = caches.follow(kinds.PODS, Selection(fields=f"spec.nodeName={name}")).store
    devices = caches.follow(kinds.GPU_DEVICES, Selection(labels=_devices_of(name))).store
    maps = caches.follow(kinds.CONFIG_MAPS, Selection(context.settings.namespace, labels=POOL_LABEL)).store
    window = NodeInformers(
        name,
        lambda: nodes.named(name),
        lambda: pods,
        lambda: [device for device in devices if device.status.node_name == name],
        PoolConfigMaps(maps),
    )
    cards = _cards(options, window)
    enforcement = _enforcement(options, cards)
    serving = KubeletServing(window, cards, options.kubelet, enforcement, options.clock)
    metrics = NodeAgentMetrics(context.metrics.registry)
    mismatches = MismatchMetrics(context.metrics.registry)
    check = MismatchRepair(window, context.api, recorder, clock=options.clock, metrics=mismatches)
    believed = frozenset((context.settings.namespace, *TRUSTED_NAMESPACES))
    monitor = DcgmExporter(lambda: pods, options.clock, trusted_namespaces=believed, every=options.beat)
    parts = NodeAgentParts(
        window, cards, serving, _repartitioner(options, cards, name), recorder, enforcement, check, monitor
    )

    async def look_after(ending: asyncio.Event) -> None:
        agent = NodeAgent(
            parts, context.api, replace(_settings(context, options, metrics), boot=previous_report.boot_id())
        )
        subscriptions = [
            nodes.subscribe(lambda change: agent.wake() if _is_relevant(change) else None),
            *(store.subscribe(lambda _: agent.wake()) for store in (pods, devices, maps)),
        ]
        try:
            await agent.run(ending)
        finally:
            for unsubscribe in subscriptions:
                unsubscribe()
        if context.live_settings.off:  # without a plugin a pod would start without its card
            await serving.serve(ServedResources(), {})

    plugins = [Component("device plugins", serving.run)]
    if isinstance(enforcement, ShareEnforcer):
        plugins.append(Component("MPS daemons", enforcement.run))
    return [*caches.components(), *plugins, _component(context, caches, look_after)]


def _is_relevant(change: ObjectChange[Node]) -> bool:
    return change.old is None or change.new is None or agent_sight.relevant_change(change.old, change.new)


def _devices_of(node: str) -> str:
    """The label selector of a node's GPUDevices."""
    return f"{NODE_LABEL}={card_name.shortened(node, card_name.LABEL_LIMIT)}"


def _fleet(context: ProcessContext, options: NodeProcessOptions, recorder: EventRecorder) -> list[Component]:
    caches = InformerFactory(context.api, context.metrics)
    sources = FleetSources(
        nodes=caches.follow(kinds.NODES, Selection(labels=options.fleet)).store,
        pods=caches.follow(kinds.PODS, BOUND_PODS).store,
        devices=caches.follow(kinds.GPU_DEVICES).store,
        config_maps=caches.follow(
            kinds.CONFIG_MAPS, Selection(context.settings.namespace, labels=POOL_LABEL)
        ).store,
    )

    turns, metrics = asyncio.Semaphore(MAX_WRITES), NodeAgentMetrics(context.metrics.registry)

    def make(informers: NodeInformers) -> NodeAgent:
        cards = _cards(options, informers)
        serving = StatusServing(context.api, informers)
        parts = NodeAgentParts(
            informers, cards, serving, _repartitioner(options, cards, informers.name), recorder
        )
        # Watches and the faults file report all changes; frequent polling is only for real drivers.
        chosen = replace(
            _settings(context, options, metrics), every=max(options.every, options.beat), write_slots=turns
        )
        return NodeAgent(parts, context.api, chosen)

    return [
        *caches.components(),
        _component(context, caches, lambda ending: NodeAgentFleet(sources, make).run(ending)),
    ]


def _component(
    context: ProcessContext, caches: InformerFactory, run: Callable[[asyncio.Event], Any]
) -> Component:
    """The agent starts after all caches have synced."""

    async def working(stop: asyncio.Event) -> None:
        await wait_or_stop(stop, caches.synced())
        await context.live_settings.run_with(lambda ending, _: run(ending), stop)

    context.checks.ready["caches"] = caches.not_synced
    return Component("agent", working)


def check(options: NodeProcessOptions) -> None:
    """Raises CardError if the simulated cards are invalid."""
    if options.source == "simulated" and options.cards != CARDS_FROM_LABELS:
        simulated_spec.read(options.cards)


def _cards(options: NodeProcessOptions, informers: NodeInformers) -> CardDriver:
    if options.source == "nvml":
        return NvmlCards(clock=options.clock, library=options.library, host=options.host)
    state = options.state / f"{informers.name}.cards.json" if options.state is not None else None
    plan = simulated_spec.read(
        _cards_from_labels(informers) if options.cards == CARDS_FROM_LABELS else options.cards
    )
    files = SimulatedFiles(state, options.faults, options.cdi)
    return SimulatedCards(informers.name, plan, clock=options.clock, files=files)


def _enforcement(options: NodeProcessOptions, cards: CardDriver) -> ShareEnforcement:
    """Real cards have MPS daemons; of simulated cards nothing is enforced."""
    if not isinstance(cards, NvmlCards):
        return SimulatedEnforcement()
    clock, hami = options.clock, options.hami_core
    seen_at = options.host / hami.relative_to("/") if hami is not None else None
    daemons = MpsDaemons(MpsFolder(options.mps), MpsControl(options.mps_program), cards, clock)
    return ShareEnforcer(daemons, HamiCore(hami, seen_at), clock, static=options.static_partitions)


def _cards_from_labels(informers: NodeInformers) -> str:
    """The cards that a node's labels name."""
    node = informers.node()
    labels = node.metadata.labels if node is not None else {}
    product = labels.get(f"{gpu_labels.GPU_PREFIX}.product", "")
    name = next((model.name for model in catalogue.MODELS if model.product == product), product)
    return f"{name}:{labels.get(f'{gpu_labels.GPU_PREFIX}.count', '1')}"


def _repartitioner(options: NodeProcessOptions, cards: CardDriver, node: str) -> Repartitioner:
    path = options.state / f"{node}.changes.json" if options.state is not None else None
    return Repartitioner(cards, options.clock, deadline=options.deadline, journal=RepartitionJournal(path))


def _settings(
    context: ProcessContext, options: NodeProcessOptions, metrics: NodeAgentMetrics
) -> AgentSettings:
    return AgentSettings(
        context.settings.namespace,
        every=options.every,
        beat=options.beat,
        clock=context.api.clock,
        metrics=metrics,
    )
