"""`croupier node` as a process on a real kubelet, under the account of deployments/node."""

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from croupier.api import kinds
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import AgentReport
from croupier.core.cards import card as naming
from croupier.kube import client, config
from croupier.kube.client import Deletion, Selection
from croupier.lab import borrowed, realnode
from croupier.lab.lab import Lab
from croupier.node.cards import cdi, simulated_state
from tests.cli.command import CROUPIER
from tests.controllers.world import watched
from tests.kube.waiting import until, until_async
from tests.node.agent_house import layout
from tests.node.node_rights import account, rights
from tests.node.nvml_bench import NvmlBench
from tests.node.plugin_house import WITHIN, House, pod

GPU = "nvidia.com/gpu"
PERCENT = "gpu.mps.io/percent"
SMALL = "nvidia.com/mig-1g.10gb"
TWO = "nvidia.com/mig-2g.20gb"
THREE = "nvidia.com/mig-3g.30gb"
POOL = "gpu.deckhouse.io/team"


@pytest.fixture(scope="module")
def ours(lab: Lab, crds: Any, real_node: str) -> Iterator[str]:
    """The namespace of the agent, whose account has the rights of the manifests and no others."""
    name = borrowed.create_namespace(lab.cluster, "node-side")
    with rights(lab.cluster, name):
        yield name
    borrowed.delete_namespace(lab.cluster, name)


@dataclass
class Station:
    """The machine as a node with four simulated cards, and the process that looks after them."""

    house: House
    ours: str
    folder: Path
    speaker: Path
    log: Path
    process: asyncio.subprocess.Process | None = None
    driver: NvmlBench | None = None
    """Where cards come from a driver and are not simulated."""

    async def starts(self) -> None:
        driven = {"nvml": self.driver.library, "host": self.driver.host} if self.driver else {}
        options = {
            "node": self.house.node,
            "cards": "nvml" if self.driver else "simulated=SIM-70GB:4",
            **(driven or {"cdi": self.cdi}),
            "kubelet": realnode.ground(self.house.lab).plugins,
            "state": self.folder,
            "faults": self.folder / "faults.yaml",
            "every": 0.5,
            "heartbeat": 1,
            "health": "127.0.0.1:0",
            "lease-namespace": self.ours,
            "kubeconfig": self.speaker,
            "settings": self.settings,
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
        """Everything, as a ModuleConfig would."""
        self.settings.write_text(yaml.safe_dump({"kind": "ModuleConfig", "spec": {"enabled": on}}))

    @property
    def cdi(self) -> Path:
        return realnode.ground(self.house.lab).cdi

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
        return naming.inventory_id(self.house.node, simulated_state.address(index))

    async def annotate(self, text: str | None) -> None:
        patch = {"metadata": {"annotations": {"run.ai/mig.config": text}}}
        await self.house.api.patch(kinds.NODES, self.house.node, patch)

    async def pool(self, cards: list[int], **allocation: Any) -> None:
        ids = [self.card(index) for index in cards]
        data = {"inventoryIDs": json.dumps(ids), "allocation": json.dumps(allocation)}
        meta = {"name": "gpupool-team", "namespace": self.ours, "labels": {"gpu.deckhouse.io/pool": "team"}}
        await self.house.api.apply(kinds.CONFIG_MAPS, {"metadata": meta, "data": data}, force=True)

    async def report(self) -> AgentReport:
        name = agent_report.lease_name(self.house.node)
        found = agent_report.read(await self.house.api.get(kinds.LEASES, name, namespace=self.ours))
        assert found is not None
        return found

    async def state(self, index: int, wanted: str) -> str:
        async def right() -> bool:
            return (await self.report()).cards[index].cut.state == wanted

        await until_async(right, f"card {index} to be {wanted}", WITHIN)
        return (await self.report()).cards[index].cut.message

    async def gone(self, name: str) -> None:
        house, at_once = self.house, Deletion(grace_seconds=0)
        await house.api.delete(kinds.PODS, name, namespace=house.namespace, how=at_once)


@pytest_asyncio.fixture
async def station(
    lab: Lab, real_node: str, ours: str, namespace: str, tmp_path: Path
) -> AsyncIterator[Station]:
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(client.connect(config.load(lab.cluster.kubeconfig)))
        here = Selection(fields=f"metadata.name={real_node}")
        nodes = await stack.enter_async_context(watched(api, kinds.NODES, here))
        pods = await stack.enter_async_context(watched(api, kinds.PODS, Selection(namespace)))
        house = House(lab, api, real_node, namespace, pods.store, nodes.store)
        speaker = account(lab.cluster, ours, real_node, tmp_path)
        made = Station(house, ours, tmp_path, speaker, tmp_path / "agent.log")
        made.switches(on=True)
        try:
            yield made
            assert await made.ends() == 0, made.log.read_text()
            assert "forbidden" not in made.log.read_text()
        finally:
            if made.process is not None:
                await made.ends()
            await made.annotate(None)
            await api.delete_collection(kinds.CONFIG_MAPS, Selection(ours, labels="gpu.deckhouse.io/pool"))


async def test_allocatable_follows_the_annotation_and_a_container_sees_its_mig_device_as_the_cdi_file_says(
    station,
):
    shows = station.house.shows
    await station.starts()
    await shows({GPU: 4, PERCENT: 400})

    await station.annotate(layout("small", [0, 1, 2, 3]))
    await shows({SMALL: 28, GPU: 0, PERCENT: 0})

    await station.annotate(layout("medium", [0, 1, 2, 3]))
    await shows({TWO: 8, THREE: 4, SMALL: 0})

    await station.annotate(layout(profiles=["3g.30gb"] * 3))
    await until(lambda: _condition(station, "MIGLayoutApplied") == "Refused", "the refusal", WITHIN)
    await shows({TWO: 8, THREE: 4, SMALL: 0})
    assert _condition(station, "GPUResourcesServed") == "Served"

    asks = pod("slice", {THREE: 1})
    asks["spec"]["containers"][0]["command"] = ["sh", "-c", "echo NODES=$(ls /dev/croupier); env; sleep 3600"]
    await station.house.opens(asks)
    await station.house.runs("slice")

    told = await station.house.environment("slice")
    slots = {
        slot.uuid: f"{card.index}-{slot.id}"
        for card in (await station.report()).cards
        for slot in card.cut.slots
    }
    place = slots[told["NVIDIA_VISIBLE_DEVICES"]]
    assert told["NODES"] == place
    variable = f"CROUPIER_CDI_{place.upper().replace('-', '_').replace('.', '_')}"
    assert {name for name in told if name.startswith("CROUPIER_CDI")} == {variable}
    assert told[variable] == told["NVIDIA_VISIBLE_DEVICES"]

    assert (station.cdi / cdi.FILE).exists()
    await station.ends()
    assert not (station.cdi / cdi.FILE).exists()
    await station.gone("slice")


def _condition(station: Station, kind: str) -> str:
    node = station.house.nodes.named(station.house.node)
    assert node is not None
    return next((one.reason for one in node.status.conditions if one.type == kind), "")


async def test_a_pod_of_a_pool_has_its_share_outlives_an_agent_switched_off_and_its_card_is_cut_only_after_it(
    station,
):
    await station.starts()
    await station.house.shows({GPU: 4})
    await station.pool([1], mode="MPS")
    await station.house.shows({POOL: 100, GPU: 3})
    promised = [{"card": station.card(1), "index": 1, "percent": 50}]
    await station.house.opens(pod("half", {POOL: 50}, promised=promised))
    await station.house.runs("half")

    told = await station.house.environment("half")
    seen = (await station.report()).cards[1]
    assert told["NVIDIA_VISIBLE_DEVICES"] == seen.uuid
    assert told["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "50"
    assert told["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=35840M"
    assert (told["CROUPIER_POOL"], told["CROUPIER_CARDS"]) == ("team", station.card(1))

    station.switches(on=False)
    await station.house.shows({POOL: 0, GPU: 0, PERCENT: 0})
    assert station.house.phase("half") == "Running"
    station.switches(on=True)
    await station.house.shows({POOL: 100, GPU: 3})
    await station.house.runs("half")

    await _noticed_and_put_right(station, "half", promised)

    await station.pool([1], mode="MIG", migProfile="1g.10gb")
    message = await station.state(1, "Waiting")
    assert message.endswith(f"waits for {station.house.namespace}/half")
    assert (await station.report()).cards[1].cut.slots == ()
    await station.gone("half")
    await station.house.shows({POOL: 7, GPU: 3})


async def test_a_kubelet_that_restarts_an_agent_killed_in_the_middle_of_a_change_and_a_sick_card_are_back(
    station,
):
    await station.starts()
    await station.house.shows({GPU: 4})
    station.house.lab.kill(realnode.KUBELET)
    await realnode.restart(station.house.lab, realnode.KUBELET)
    await station.house.shows({GPU: 4})

    station.suffers(cards={"all": {"slow": 0.2}})
    await station.annotate(layout("small"))
    await until(lambda: _pieces(station) in range(1, 7), "a card that is half cut", WITHIN)
    await station.dies()
    assert 0 < _pieces(station) < 7, "the blow came in the middle"
    await station.house.shows({GPU: 0})

    station.suffers(cards={2: {"xid": 79}})
    await station.starts()
    await station.house.shows({SMALL: 21, GPU: 0})
    station.suffers()
    await station.house.shows({SMALL: 28, GPU: 0})


async def test_cards_of_a_driver_are_served_cut_watched_and_outlive_their_agent(
    station, nvml_library, tmp_path
):
    """The same agent and the same kubelet over NVML, down to a driver's library of our own."""
    bench = NvmlBench(nvml_library, tmp_path)
    bench.install(*["SIM-70GB"] * 4)
    station.driver = bench
    await station.starts()
    await station.house.shows({GPU: 4, PERCENT: 400})
    assert (await station.report()).source == "nvml"

    await station.annotate(layout("medium"))
    await station.house.shows({TWO: 8, THREE: 4, GPU: 0})
    await station.house.opens(pod("slice", {THREE: 1}))
    await station.house.runs("slice")
    slots = {slot.uuid: slot.profile for card in (await station.report()).cards for slot in card.cut.slots}
    told = await station.house.environment("slice")
    assert slots[told["NVIDIA_VISIBLE_DEVICES"]] == "3g.30gb"
    await station.gone("slice")

    bench.xid(1, 79)
    await station.house.shows({TWO: 6, THREE: 3})

    bench.fault("nvmlDeviceCreateGpuInstanceWithPlacement", count=1000, milliseconds=400)
    await station.annotate(layout("small", [0]))
    await until(lambda: "gi 1 19 0 1" in bench.says(), "the first of seven", WITHIN)
    await station.dies()
    assert "gi 7 19 6 1" not in bench.says(), "the blow came in the middle"
    bench.no_faults()
    await station.starts()
    await station.house.shows({SMALL: 7, TWO: 4, THREE: 2})
    sick = (await station.report()).cards[1].health
    assert (sick.reason, sick.xid) == ("CriticalXID", 79), "the XID that only the agent before was told of"


def _pieces(station: Station) -> int:
    """MIG devices of the first card, by the file that stands for the hardware."""
    file = station.folder / f"{station.house.node}.cards.json"
    return len(json.loads(file.read_text())["cards"][0]["slots"]) if file.exists() else 0


async def _noticed_and_put_right(station: Station, name: str, promised: list[dict[str, Any]]) -> None:
    """The pod has what it was promised; now its promise says something else."""
    wrong = json.dumps([{"card": station.card(0), "index": 0, "percent": 50}])
    patch = {"metadata": {"annotations": {"gpu.mps.io/allocation": wrong}}}
    await station.house.api.patch(kinds.PODS, name, patch, namespace=station.house.namespace)

    def right() -> bool:
        found = station.house.pods.named(name, station.house.namespace)
        return (
            found is not None and json.loads(found.metadata.annotations["gpu.mps.io/allocation"]) == promised
        )

    await until(right, "the allocation to name the card it has", WITHIN)

    async def told() -> bool:
        events = await station.house.api.list(kinds.EVENTS, Selection(station.house.namespace))
        return any(one.reason == "GPUWrongCard" and station.card(1) in one.note for one in events.items)

    await until_async(told, "an Event", WITHIN)
