"""`croupier node` as a process on a real kubelet, with the account of deployments/node."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.api import kinds
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import AgentReport
from croupier.core.model import card_name as naming
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import DeleteOptions, Selection
from croupier.node.cards import cdi, simulated_state
from croupier_lab import realnode, shared_cluster
from croupier_lab.lab import Lab
from tests.cli.command import CROUPIER
from tests.controllers.ledger_env import watched
from tests.node.agent_account import account_kubeconfig, installed_account
from tests.node.agent_env import layout
from tests.node.nvml_env import NvmlEnv
from tests.node.plugin_env import TIMEOUT, PluginEnv, pod
from tests.polling import until, until_async

SECONDS = 40

GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
SMALL = "nvidia.com/mig-1g.10gb"
TWO = "nvidia.com/mig-2g.20gb"
THREE = "nvidia.com/mig-3g.30gb"
POOL = "gpu.deckhouse.io/team"


@pytest.fixture(scope="module")
def ours(lab: Lab, crds: Any, real_node: str) -> Iterator[str]:
    """The namespace of the agent, whose account has only the permissions of the manifests."""
    name = shared_cluster.create_namespace(lab.cluster, "node-side")
    with installed_account(lab.cluster, name):
        yield name
    shared_cluster.delete_namespace(lab.cluster, name)


@dataclass
class AgentProcessEnv:
    """The machine as a node with four simulated cards, and the process of its agent."""

    kubelet: PluginEnv
    ours: str
    folder: Path
    kubeconfig: Path
    log: Path
    process: asyncio.subprocess.Process | None = None
    driver: NvmlEnv | None = None
    """The fake driver, if the cards are not simulated by the agent."""
    more: dict[str, Any] = field(default_factory=dict)
    """More options of the agent."""

    async def starts(self) -> None:
        driven = {"nvml": self.driver.library, "host": self.driver.host} if self.driver else {}
        options = {
            "node": self.kubelet.node,
            "cards": "nvml" if self.driver else "simulated=SIM-70GB:4",
            **(driven or {"cdi": self.cdi}),
            "kubelet": realnode.paths_of(self.kubelet.lab).plugins,
            "state": self.folder,
            "faults": self.folder / "faults.yaml",
            "every": 0.5,
            "heartbeat": 1,
            "health": "127.0.0.1:0",
            "lease-namespace": self.ours,
            "kubeconfig": self.kubeconfig,
            "settings": self.settings,
            "mps": self.folder / "mps",
            **self.more,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with self.log.open("a") as out:
            self.process = await asyncio.create_subprocess_exec(
                *CROUPIER, "node", *words, stdout=out, stderr=out, env=self._environment()
            )

    @property
    def settings(self) -> Path:
        return self.folder / "settings.yaml"

    def switches(self, on: bool) -> None:
        """Enable or disable the agent like a ModuleConfig would."""
        self.settings.write_text(yaml.safe_dump({"kind": "ModuleConfig", "spec": {"enabled": on}}))

    @property
    def cdi(self) -> Path:
        return realnode.paths_of(self.kubelet.lab).cdi

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **(self.driver.environment if self.driver else {})}

    async def dies(self) -> None:
        assert self.process is not None
        self.process.kill()
        await self.process.wait()

    async def ends(self) -> int:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            self.process.terminate()
        return await self.process.wait()

    def suffers(self, **faults: Any) -> None:
        (self.folder / "faults.yaml").write_text(yaml.safe_dump(faults))

    def card(self, index: int) -> str:
        return naming.inventory_id(self.kubelet.node, simulated_state.address(index))

    async def annotate(self, text: str | None) -> None:
        patch = {"metadata": {"annotations": {"run.ai/mig.config": text}}}
        await self.kubelet.api.patch(kinds.NODES, self.kubelet.node, patch)

    async def pool(self, cards: list[int], **allocation: Any) -> None:
        ids = [self.card(index) for index in cards]
        data = {"inventoryIDs": json.dumps(ids), "allocation": json.dumps(allocation)}
        meta = {"name": "gpupool-team", "namespace": self.ours, "labels": {"gpu.deckhouse.io/pool": "team"}}
        await self.kubelet.api.apply(kinds.CONFIG_MAPS, {"metadata": meta, "data": data}, force=True)

    async def report(self) -> AgentReport:
        name = agent_report.LEASE.name(self.kubelet.node)
        report = agent_report.LEASE.decode(
            await self.kubelet.api.get(kinds.LEASES, name, namespace=self.ours)
        )
        assert report is not None
        return report

    async def state(self, index: int, wanted: str) -> str:
        async def right() -> bool:
            return (await self.report()).cards[index].cut.state == wanted

        await until_async(right, f"card {index} to be {wanted}", TIMEOUT)
        return (await self.report()).cards[index].cut.message

    async def gone(self, name: str) -> None:
        at_once = DeleteOptions(grace_seconds=0)
        await self.kubelet.api.delete(kinds.PODS, name, namespace=self.kubelet.namespace, how=at_once)


@pytest_asyncio.fixture
async def env(
    lab: Lab, real_node: str, ours: str, namespace: str, tmp_path: Path
) -> AsyncIterator[AgentProcessEnv]:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(api_client.connect(config.load(lab.cluster.kubeconfig)))
        here = Selection(fields=f"metadata.name={real_node}")
        nodes = await stack.enter_async_context(watched(api, kinds.NODES, here))
        pods = await stack.enter_async_context(watched(api, kinds.PODS, Selection(namespace)))
        kubelet = PluginEnv(lab, api, real_node, namespace, pods.store, nodes.store)
        kubeconfig = account_kubeconfig(lab.cluster, ours, real_node, tmp_path)
        process_env = AgentProcessEnv(kubelet, ours, tmp_path, kubeconfig, tmp_path / "agent.log")
        process_env.switches(on=True)
        try:
            yield process_env
            assert await process_env.ends() == 0, process_env.log.read_text()
            assert "forbidden" not in process_env.log.read_text()
        finally:
            if process_env.process is not None:
                await process_env.ends()
            await process_env.annotate(None)
            await api.delete_collection(kinds.CONFIG_MAPS, Selection(ours, labels="gpu.deckhouse.io/pool"))


async def test_allocatable_follows_the_annotation_and_a_container_gets_its_mig_device_through_cdi(
    env,
):
    shows = env.kubelet.shows
    await env.starts()
    await shows({GPU: 4, PERCENT: 400})

    await env.annotate(layout("small", [0, 1, 2, 3]))
    await shows({SMALL: 28, GPU: 0, PERCENT: 0})

    await env.annotate(layout("medium", [0, 1, 2, 3]))
    await shows({TWO: 8, THREE: 4, SMALL: 0})

    await env.annotate(layout(profiles=["3g.30gb"] * 3))
    await until(lambda: _condition(env, "MIGLayoutApplied") == "Refused", "the refusal", TIMEOUT)
    await shows({TWO: 8, THREE: 4, SMALL: 0})
    assert _condition(env, "GPUResourcesServed") == "Served"

    own = {_cdi_variable(f"{index}-3g.30gb-4"): "mine" for index in range(4)}
    meta = {"name": "own", "namespace": env.kubelet.namespace}
    await env.kubelet.api.create(kinds.CONFIG_MAPS, {"metadata": meta, "data": own})
    ways: dict[str, dict[str, Any]] = {
        "slice": {"env": [{"name": name, "value": value} for name, value in own.items()]},
        "referred": {"envFrom": [{"configMapRef": {"name": "own"}}]},
    }
    for name, variables in ways.items():
        asks = pod(name, {THREE: 1})
        command = ["sh", "-c", "echo NODES=$(ls /dev/croupier); env; sleep 3600"]
        asks["spec"]["containers"][0] |= {"command": command, **variables}
        await env.kubelet.opens(asks)
    await env.kubelet.runs(*ways)

    slots = {
        slot.uuid: f"{card.index}-{slot.id}" for card in (await env.report()).cards for slot in card.cut.slots
    }
    for name in ways:
        environment = await env.kubelet.environment(name)
        place = slots[environment["NVIDIA_VISIBLE_DEVICES"]]
        assert environment["NODES"] == place
        seen = {variable: environment[variable] for variable in own}
        given = {_cdi_variable(place): environment["NVIDIA_VISIBLE_DEVICES"]}
        assert seen == own | given, "CDI replaces the pod's variables"

    assert (env.cdi / cdi.FILE).exists()
    await env.ends()
    assert not (env.cdi / cdi.FILE).exists()
    for name in ways:
        await env.gone(name)


def _cdi_variable(place: str) -> str:
    return f"CROUPIER_CDI_{place.upper().replace('-', '_').replace('.', '_')}"


def _condition(env: AgentProcessEnv, kind: str) -> str:
    node = env.kubelet.nodes.named(env.kubelet.node)
    assert node is not None
    conditions = node.status.conditions
    return next((condition.reason for condition in conditions if condition.type == kind), "")


async def test_a_pod_keeps_its_share_while_the_agent_is_disabled_and_its_card_is_repartitioned_after_it(
    env,
):
    await env.starts()
    await env.kubelet.shows({GPU: 4})
    await env.pool([1], mode="MPS")
    await env.kubelet.shows({POOL: 100, GPU: 3})
    promised = [{"card": env.card(1), "index": 1, "percent": 50}]
    await env.kubelet.opens(pod("half", {POOL: 50}, promised=promised))
    await env.kubelet.runs("half")

    environment = await env.kubelet.environment("half")
    card = (await env.report()).cards[1]
    assert environment["NVIDIA_VISIBLE_DEVICES"] == card.uuid
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=35840M"
    assert (environment["CROUPIER_POOL"], environment["CROUPIER_CARDS"]) == ("team", env.card(1))

    env.switches(on=False)
    await env.kubelet.shows({POOL: 0, GPU: 0, PERCENT: 0})
    assert env.kubelet.phase("half") == "Running"
    env.switches(on=True)
    await env.kubelet.shows({POOL: 100, GPU: 3})
    await env.kubelet.runs("half")

    await _mismatch_is_repaired(env, "half", promised)

    await env.pool([1], mode="MIG", migProfile="1g.10gb")
    message = await env.state(1, "Waiting")
    assert message.endswith(f"waiting for {env.kubelet.namespace}/half")
    assert (await env.report()).cards[1].cut.slots == ()
    await env.gone("half")
    await env.kubelet.shows({POOL: 7, GPU: 3})


async def test_cards_are_served_again_after_a_kubelet_restart_a_killed_agent_and_a_card_fault(
    env,
):
    await env.starts()
    await env.kubelet.shows({GPU: 4})
    env.kubelet.lab.kill(realnode.KUBELET)
    await realnode.restart(env.kubelet.lab, realnode.KUBELET)
    await env.kubelet.shows({GPU: 4})

    env.suffers(cards={"all": {"slow": 0.2}})
    await env.annotate(layout("small"))
    await until(lambda: _pieces(env) in range(1, 7), "a partly repartitioned card", TIMEOUT)
    await env.dies()
    assert 0 < _pieces(env) < 7, "the agent was killed in the middle"
    await env.kubelet.shows({GPU: 0})

    env.suffers(cards={2: {"xid": 79}})
    await env.starts()
    await env.kubelet.shows({SMALL: 21, GPU: 0})
    env.suffers()
    await env.kubelet.shows({SMALL: 28, GPU: 0})


async def test_cards_of_nvml_are_served_repartitioned_and_watched(env, nvml_library, tmp_path):
    """The agent and the kubelet with NVML and the library of a fake driver."""
    driver = NvmlEnv(nvml_library, tmp_path)
    driver.install(*["SIM-70GB"] * 4)
    env.driver = driver
    await env.starts()
    await env.kubelet.shows({GPU: 4, PERCENT: 0})  # no process starts MPS daemons here
    assert (await env.report()).source == "nvml"

    await env.annotate(layout("medium"))
    await env.kubelet.shows({TWO: 8, THREE: 4, GPU: 0})
    await env.kubelet.opens(pod("slice", {THREE: 1}))
    await env.kubelet.runs("slice")
    slots = {slot.uuid: slot.profile for card in (await env.report()).cards for slot in card.cut.slots}
    environment = await env.kubelet.environment("slice")
    assert slots[environment["NVIDIA_VISIBLE_DEVICES"]] == "3g.30gb"
    await env.gone("slice")

    driver.xid(1, 79)
    await env.kubelet.shows({TWO: 6, THREE: 3})

    driver.fault("nvmlDeviceCreateGpuInstanceWithPlacement", count=1000, milliseconds=400)
    await env.annotate(layout("small", [0]))
    await until(lambda: "gi 1 19 0 1" in driver.says(), "the first of seven", TIMEOUT)
    await env.dies()
    assert "gi 7 19 6 1" not in driver.says(), "the agent was killed in the middle"
    driver.no_faults()
    await env.starts()
    await env.kubelet.shows({SMALL: 7, TWO: 4, THREE: 2})
    health = (await env.report()).cards[1].health
    assert (health.reason, health.xid) == ("CriticalXID", 79), "the XID is carried over from the killed agent"


def _pieces(env: AgentProcessEnv) -> int:
    """The number of MIG devices of the first card in the state file."""
    file = env.folder / f"{env.kubelet.node}.cards.json"
    return len(json.loads(file.read_text())["cards"][0]["slots"]) if file.exists() else 0


async def _mismatch_is_repaired(env: AgentProcessEnv, name: str, promised: list[dict[str, Any]]) -> None:
    """Change the allocation annotation of a pod and wait until the agent has repaired it."""
    wrong = json.dumps([{"card": env.card(0), "index": 0, "percent": 50}])
    patch = {"metadata": {"annotations": {"gpu.mps.io/allocation": wrong}}}
    await env.kubelet.api.patch(kinds.PODS, name, patch, namespace=env.kubelet.namespace)

    def right() -> bool:
        pod = env.kubelet.pods.named(name, env.kubelet.namespace)
        return pod is not None and json.loads(pod.metadata.annotations["gpu.mps.io/allocation"]) == promised

    await until(right, "the allocation to name the card it has", TIMEOUT)

    async def reported() -> bool:
        events = await env.kubelet.api.list(kinds.EVENTS, Selection(env.kubelet.namespace))
        return any(event.reason == "GPUWrongCard" and env.card(1) in event.note for event in events.items)

    await until_async(reported, "an Event", TIMEOUT)
