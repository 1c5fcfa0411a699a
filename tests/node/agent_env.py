"""A simulated node with simulated cards and the real agent."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from croupier.api import kinds
from croupier.api.core_v1 import Node
from croupier.api.gpu import agent_report, pool_config
from croupier.api.gpu.agent_report import AgentReport
from croupier.api.gpu.device import DevicePartitioning
from croupier.core.model import card_name as naming
from croupier.kube.cache.store import Store
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import Client, DeleteOptions, Selection
from croupier.kube.client.clock import SystemClock
from croupier.kube.client.errors import NotFound
from croupier.kube.client.resource import Resource
from croupier.kube.controller.events import EventRecorder
from croupier.node.agent.agent import NodeAgent, NodeAgentOptions, NodeAgentParts
from croupier.node.agent.fleet import StatusServing
from croupier.node.agent.repartitioning import Repartitioner
from croupier.node.cards import simulated_spec, simulated_state
from croupier.node.cards.card_driver import CardDriver
from croupier.node.cards.simulated import SimulatedCards, SimulatedFiles
from croupier.node.mps.share_enforcer import ShareEnforcement, SimulatedEnforcement
from croupier.node.node_informers import NodeInformers, PoolConfigMaps
from tests.controllers.ledger_env import running, watched
from tests.polling import until

LAYOUTS = {
    "small": ["1g.10gb"] * 7,
    "medium": ["2g.20gb", "2g.20gb", "3g.30gb"],
}


def layout(name: str | None = None, devices: object = "all", profiles: list[str] | None = None) -> str:
    """The annotation run.ai/mig.config in its list form."""
    entry = {"devices": devices, "mig-enabled": True, "mig-devices": profiles or LAYOUTS[name or "small"]}
    return yaml.safe_dump({"version": "v1", "mig-configs": {"selected": [entry]}})


@dataclass
class AgentEnv:
    """`writes` lists the writes to the API server by verb and kind."""

    api: Client
    node: str
    namespace: str
    folder: Path
    nodes: Store[Any]
    pods: Store[Any]
    devices: Store[Any]
    maps: Store[Any]
    recorder: EventRecorder
    writes: list[str] = field(default_factory=list)
    clock: SystemClock = field(default_factory=SystemClock)

    def card(self, index: int) -> str:
        return naming.inventory_id(self.node, simulated_state.address(index))

    def informers(self) -> NodeInformers:
        return NodeInformers(
            self.node,
            lambda: self.nodes.named(self.node),
            lambda: self.pods,
            lambda: self.devices,
            PoolConfigMaps(self.maps),
        )

    def agent(
        self,
        cards: str | CardDriver = "SIM-70GB:4",
        beat: float = 1000.0,
        *,
        enforcement: ShareEnforcement | None = None,
        **chosen: Any,
    ) -> NodeAgent:
        """`cards` is the specification of simulated cards, or another driver."""
        window = self.informers()
        files = SimulatedFiles(self.folder / "cards.json", self.faults)
        known: CardDriver = (
            SimulatedCards(self.node, simulated_spec.read(cards), clock=self.clock, files=files)
            if isinstance(cards, str)
            else cards
        )
        serving = StatusServing(self.api, window)
        parts = NodeAgentParts(
            window,
            known,
            serving,
            Repartitioner(known, self.clock),
            self.recorder,
            enforcement or SimulatedEnforcement(),
        )
        settings = NodeAgentOptions(self.namespace, every=0.2, beat=beat, clock=self.clock)
        return NodeAgent(parts, self.api, replace(settings, **chosen))

    @property
    def faults(self) -> Path:
        return self.folder / "faults.yaml"

    def suffers(self, **faults: Any) -> None:
        """Replace the injected faults, for example `suffers(cards={0: {"xid": 79}})`."""
        self.faults.write_text(yaml.safe_dump(faults))

    async def annotate(self, text: str | None) -> None:
        patch = {"metadata": {"annotations": {"run.ai/mig.config": text}}}
        await self.api.patch(kinds.NODES, self.node, patch)

    def shown(self) -> Node:
        node: Node | None = self.nodes.named(self.node)
        assert node is not None
        return node

    def allocatable(self) -> dict[str, str]:
        """The allocatable extended resources, which have a slash in their name."""
        return {name: text for name, text in self.shown().status.allocatable.items() if "/" in name}

    def condition(self, kind: str) -> tuple[str, str, str]:
        for condition in self.shown().status.conditions:
            if condition.type == kind:
                return condition.status, condition.reason, condition.message
        return "", "", ""

    async def report(self) -> AgentReport:
        """The published report. Empty if there is no Lease."""
        name = agent_report.LEASE.name(self.node)
        with contextlib.suppress(NotFound):
            report = agent_report.LEASE.decode(
                await self.api.get(kinds.LEASES, name, namespace=self.namespace)
            )
            assert report is not None
            return report
        return AgentReport(node=self.node)

    async def cut(self, index: int = 0) -> DevicePartitioning:
        """The published partitioning of a card."""
        return next(card.cut for card in (await self.report()).cards if card.index == index)

    async def device(self, index: int, cut: DevicePartitioning | None = None, occupied: str = "Free") -> None:
        """Write the GPUDevice like the inventory controller and the ledger would."""
        name = self.card(index)
        labels = {"gpu.deckhouse.io/node": self.node, "gpu.deckhouse.io/device-index": str(index)}
        await self.api.apply(kinds.GPU_DEVICES, {"metadata": {"name": name, "labels": labels}}, force=True)
        status: dict[str, Any] = {
            "nodeName": self.node,
            "inventoryID": name,
            "conditions": [
                {
                    "type": "Occupied",
                    "status": "True" if occupied in ("InUse", "Reserved") else "False",
                    "reason": occupied,
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
            ],
        }
        if cut is not None:
            status["cut"] = {"target": cut.target, "state": cut.state}
        body = {"metadata": {"name": name}, "status": status}
        written = await self.api.apply(kinds.GPU_DEVICES, body, subresource="status", force=True)
        version = written.metadata.resource_version
        await until(lambda: self._is_seen(name, version), "the device to be seen")

    def _is_seen(self, name: str, version: str) -> bool:
        device = self.devices.named(name)
        return device is not None and device.metadata.resource_version == version

    async def pool(self, name: str, cards: list[int], **allocation: Any) -> None:
        """Write the ConfigMap of the pool like its controller would."""
        data = {
            "inventoryIDs": json.dumps([self.card(index) for index in cards]),
            "allocation": json.dumps(allocation),
        }
        meta = {
            "name": pool_config.name(name),
            "namespace": self.namespace,
            "labels": {pool_config.POOL_LABEL: name},
        }
        await self.api.apply(kinds.CONFIG_MAPS, {"metadata": meta, "data": data}, force=True)

    async def leaves(self) -> None:
        """Delete all objects of the node."""
        at_once = DeleteOptions(grace_seconds=0)
        objects: list[tuple[Resource[Any], Any]] = [
            *((kinds.PODS, pod) for pod in self.pods),
            *((kinds.GPU_DEVICES, device) for device in self.devices),
            *((kinds.CONFIG_MAPS, config_map) for config_map in self.maps),
            *((kinds.NODES, node) for node in self.nodes),
        ]
        for kind, item in objects:
            with contextlib.suppress(NotFound):
                namespace = item.metadata.namespace or None
                await self.api.delete(kind, item.metadata.name, namespace=namespace, how=at_once)


@contextlib.asynccontextmanager
async def agent_env(kubeconfig: Path, node: str, namespace: str, folder: Path) -> AsyncIterator[AgentEnv]:
    writes: list[str] = []

    def observe(verb: str, kind: str, *_: object) -> None:
        if verb not in ("get", "list", "watch"):
            writes.append(f"{verb} {kind}")

    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(api_client.connect(config.load(kubeconfig), observe=observe))

        async def store(kind: Any, chosen: Selection) -> Store[Any]:
            reflector = await stack.enter_async_context(watched(api, kind, chosen))
            synced: Store[Any] = reflector.store
            return synced

        labels = f"gpu.deckhouse.io/node={node}"
        yield AgentEnv(
            api,
            node,
            namespace,
            folder,
            await store(kinds.NODES, Selection(fields=f"metadata.name={node}")),
            await store(kinds.PODS, Selection(fields=f"spec.nodeName={node}")),
            await store(kinds.GPU_DEVICES, Selection(labels=labels)),
            await store(kinds.CONFIG_MAPS, Selection(namespace, labels=pool_config.POOL_LABEL)),
            EventRecorder(api, "croupier-node"),
            writes,
        )


@contextlib.asynccontextmanager
async def at_work(env: AgentEnv, **more: Any) -> AsyncIterator[NodeAgent]:
    """A running agent. It ends like a killed process."""
    agent = env.agent(**more)
    stores = (env.nodes, env.pods, env.devices, env.maps)
    ends = [store.subscribe(lambda _: agent.wake()) for store in stores]
    async with running(agent.run(asyncio.Event())):
        yield agent
    for end in ends:
        end()
