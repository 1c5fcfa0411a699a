"""A test environment with a real kube-scheduler, simulated nodes, and pods that request cards.

The scheduler is a second one in the shared lab, configured as `croupier scheduler-config` prints it, for the
pods that name it. The test decides whether an extender runs at the configured address.
"""

import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from croupier.api import convert_pod, kinds
from croupier.api.core_v1 import Node, Pod
from croupier.api.mps import allocation
from croupier.capacity.manager import CapacityManager
from croupier.core.ledger.ledger import Ledger
from croupier.core.model.card import Grant, LedgerCard
from croupier.core.model.card_name import indexed_id
from croupier.core.pods.request_parser import PERCENT
from croupier.extender.server import Extender, ExtenderDependencies
from croupier.extender.service import ExtenderOptions
from croupier.kube.client.api_client import EVERYTHING, Client, DeleteOptions, Selection
from croupier.kube.client.errors import NotFound
from croupier.kube.serving.http_server import TLS, Address, ListenOptions
from croupier.ops import scheduler_config
from croupier.ops.scheduler_config import SchedulerConfigOptions
from croupier_lab import controlplane, fleet, nodes, ports, process
from croupier_lab.controlplane import SCHEDULER
from croupier_lab.lab import Lab
from croupier_lab.nodes import SimulatedNode
from croupier_lab.process import LabProcess
from tests import polling
from tests.controllers.ledger_env import requeueing

NAME = "gpu-scheduler"
BIN_PACK = ExtenderOptions(strategy="BinPack")


@dataclass(frozen=True)
class RunningScheduler:
    """A running kube-scheduler and the port of its extender."""

    port: int
    process: LabProcess


def start_scheduler(
    lab: Lab, folder: Path, options: SchedulerConfigOptions | None = None, *, port: int = 0, name: str = NAME
) -> RunningScheduler:
    """Start a kube-scheduler with our configuration."""
    own, free = ports.free(2, chance=random.Random())  # noqa: S311  # ports, not a secret
    port = port or free
    options = replace(
        options or SchedulerConfigOptions(url=f"http://127.0.0.1:{port}"),
        kubeconfig=str(lab.site.kubeconfig(SCHEDULER)),
        scheduler_name=name,
        leader_elect=False,
        qps=controlplane.QPS,
    )
    file = folder / "scheduler.yaml"
    file.write_text(yaml.safe_dump(scheduler_config.configuration(options)))
    site = replace(lab.site, ports={**lab.site.ports, SCHEDULER: own})
    program = controlplane.program(SCHEDULER, site)
    argv = (*program.argv, f"--config={file}")  # the last --config wins
    return RunningScheduler(port, process.start(replace(program, name=f"{name}-{own}", argv=argv), folder))


@dataclass
class ExtenderEnv:
    """The nodes and pods of one test."""

    api: Client
    manager: CapacityManager
    namespace: str
    port: int = 0
    made: list[str] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def extender(
        self,
        settings: ExtenderOptions = BIN_PACK,
        dependencies: ExtenderDependencies | None = None,
        *,
        api: Client | None = None,
        tls: TLS | None = None,
    ) -> AsyncIterator[Extender]:
        listen = ListenOptions(Address("127.0.0.1", self.port), tls)
        made = Extender(
            self.manager, api or self.api, settings=settings, listen=listen, dependencies=dependencies
        )
        async with made.serving():
            yield made

    @contextlib.asynccontextmanager
    async def sleepers(self) -> AsyncIterator[None]:
        """Run the controller that requeues unschedulable pods."""
        async with requeueing(self.api, self.namespace, EVERYTHING):
            yield

    async def node(self, name: str, *, cards: int = 2, known: bool = True) -> str:
        """A simulated node; if `known`, with a ledger of cards that are shared by percent."""
        simulated = SimulatedNode(name, "zone-a", nodes.parse_cards(f"H100:{cards}") if cards else None)
        await self.api.create(kinds.NODES, nodes.manifest(simulated, datetime.now(UTC)))
        self.made.append(name)

        async def usable() -> Node | None:
            current = await self.api.get(kinds.NODES, name)
            return current if fleet.is_schedulable(current) else None

        await polling.until_async(usable, f"node {name} to be usable")
        if known and cards:
            await self.manager.open(name, Ledger(name, tuple(_card(name, index) for index in range(cards))))
        return name

    async def pod(self, name: str, **how: Any) -> Pod:
        return await self.api.create(kinds.PODS, manifest(name, **how), namespace=self.namespace)

    async def delete(self, name: str) -> None:
        how = DeleteOptions(grace_seconds=0)
        await self.api.delete(kinds.PODS, name, namespace=self.namespace, how=how)

    async def look(self, name: str) -> Pod | None:
        with contextlib.suppress(NotFound):
            return await self.api.get(kinds.PODS, name, namespace=self.namespace)
        return None

    async def placed(self, name: str, within: float = polling.TIMEOUT) -> tuple[str, Grant]:
        """The node of the pod, and its grant."""

        async def bound() -> Pod | None:
            pod = await self.look(name)
            return pod if pod is not None and pod.spec.node_name else None

        placed = await polling.until_async(bound, f"pod {name} to be bound", within)
        assert placed is not None
        return placed.spec.node_name, convert_pod.view(placed).grant

    async def sentence(self, name: str, containing: str = "") -> str:
        """The message of the scheduler's Event about an unschedulable pod."""

        pod = await self.look(name)
        assert pod is not None

        async def said() -> str:
            events = await self.api.list(kinds.EVENTS, Selection(namespace=self.namespace))
            notes = [
                event.note
                for event in events.items
                if event.regarding.uid == pod.metadata.uid and event.reason == "FailedScheduling"
            ]
            return next((note for note in reversed(notes) if containing in note), "")

        return await polling.until_async(said, f"an Event about pod {name} with {containing!r}")

    def holders(self, node: str) -> set[str]:
        ledger = self.manager.ledger(node)
        assert ledger is not None
        return ledger.holders()

    async def settled(self, node: str) -> None:
        """Wait until no holder of the node is Held."""
        await polling.until(lambda: not self._held(node), f"no holder to be Held on {node}")

    def _held(self, node: str) -> bool:
        ledger = self.manager.ledger(node)
        return ledger is not None and bool(ledger.held)

    async def clear(self) -> None:
        """Delete all objects, so that they do not affect the next test."""
        now = DeleteOptions(grace_seconds=0)
        await self.api.delete_collection(kinds.PODS, Selection(namespace=self.namespace), how=now)
        for name in self.made:
            with contextlib.suppress(NotFound):
                await self.api.delete(kinds.NODES, name)
        await self.api.delete_collection(kinds.NODE_RESERVATIONS, EVERYTHING)


def _card(node: str, index: int) -> LedgerCard:
    return LedgerCard(indexed_id(node, index), index)


def manifest(
    name: str,
    *,
    cards: str = "",
    ratio: str = "",
    gpus: int = 0,
    marked: bool = True,
    lacks: str = "",
    scheduler: str = NAME,
    **spec: Any,
) -> dict[str, Any]:
    """A pod as created by its owner and changed by admission."""
    annotations = {allocation.CARDS: cards, allocation.RATIO: ratio}
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    if marked:
        limits[allocation.MARK] = "1"
    if (cards or "1").isdigit() and (ratio or "100").isdigit() and (cards or ratio):
        limits[PERCENT] = str(int(cards or "1") * int(ratio or "100"))
    if lacks:
        limits[lacks] = "1"
    container = {"name": "main", "image": "any", "resources": {"limits": limits}}
    return {
        "metadata": {
            "name": name,
            "annotations": {key: value for key, value in annotations.items() if value},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **spec,
        },
    }
