"""Nodes are prepared on a real API server: what is found, what is started and removed, and what is told."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest_asyncio
from prometheus_client import CollectorRegistry

from croupier.api import kinds
from croupier.api.core_v1 import Pod, micro_time
from croupier.api.gpu import agent_report
from croupier.api.gpu.agent_report import CardHealth
from croupier.controllers.bootstrap import bootstrap
from croupier.controllers.bootstrap import reading as bootstrap_reading
from croupier.controllers.bootstrap.bootstrap import BootstrapController, Sources
from croupier.controllers.bootstrap.metrics import BootstrapMetrics
from croupier.controllers.bootstrap.pods import Images
from croupier.controllers.bootstrap.services import Places
from croupier.controllers.cards.reporters import Reporters
from croupier.core.nodes.bootstrap import BEAT, DCGM, FRESH, GFD
from croupier.kube import client, config
from croupier.kube.client import Deletion, Selection
from croupier.kube.clock import SystemClock
from tests.controllers import card_stage
from tests.controllers.card_stage import Stage
from tests.controllers.world import running
from tests.core.card_stories import Situation
from tests.kube.waiting import until_async

WRITES = ("create", "update", "patch", "apply", "delete")
SOUND = {"driver": "550.54", "cuda": "12.4", "toolkit": True, "monitored_by": "nvml", "beats": 3}
LABELS = {"nvidia.com/gpu.product": "H100"}
BOTH = Images({GFD: "example/gfd:1", DCGM: "example/dcgm:1"})


class Hands(SystemClock):
    """A clock whose hands can be moved on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass
class Ward:
    """A node on the stage, and whoever looks after it."""

    stage: Stage
    clock: Hands = field(default_factory=Hands)
    writes: Counter[str] = field(default_factory=Counter)

    def doctor(self, images: Images | None = None, *, home: str | None = None) -> BootstrapController:
        names = ("inventories", "devices", "nodes", "leases", "pods")
        sources = Sources(**{name: self.stage.followed[name] for name in names})
        places = Places(images or Images(), home or self.stage.namespace, believed=())
        settings = bootstrap.Settings(places=places, clock=self.clock)
        return BootstrapController(
            sources, self.stage.api, reporters=Reporters(self.stage.api), settings=settings
        )

    async def looks(self, doctor: BootstrapController, *, later: float = 0.0) -> dict[str, str]:
        """One look after so many seconds: the phase, and the conditions as they stand then."""
        self.clock.ahead += later
        await self.stage.caught_up()
        await doctor.reconcile(self.stage.node)
        await self.stage.caught_up()
        return await self.told()

    async def told(self) -> dict[str, str]:
        status = (await self.stage.inventory()).status
        found = {one.type: f"{one.status} {one.reason}" for one in status.conditions}
        return {"phase": status.bootstrap.phase or "", **found}

    async def labelled(self, labels: dict[str, str]) -> None:
        await self.stage.api.patch(kinds.NODES, self.stage.node, {"metadata": {"labels": labels}})

    async def has_driver(self) -> None:
        """As the inventory reads it from labels, where no agent tells."""
        driver = {"version": "550.54", "toolkitInstalled": True}
        clear = [card_stage.condition("InventoryIncomplete", False)]
        status = {"driver": driver, "conditions": clear}
        who = "gpu-inventory-controller"
        await self.stage.status(kinds.GPU_NODE_INVENTORIES, self.stage.node, who, status)

    async def card_is(self, phase: str, state: str, occupancy: str) -> None:
        known, judged = {"nodeName": self.stage.node}, {"phase": phase, "state": state}
        await self.stage.status(kinds.GPU_DEVICES, self.stage.card, "gpu-inventory-controller", known)
        await self.stage.status(kinds.GPU_DEVICES, self.stage.card, "gpupool-controller", judged)
        await self.stage.occupied(occupancy)

    async def pods(self, *, leaving: bool = False) -> dict[str, Pod]:
        """Also those that are leaving, if asked for: no kubelet here sees them out."""
        listed = await self.stage.api.list(kinds.PODS, Selection(self.stage.namespace))
        stays = [one for one in listed.items if leaving or one.metadata.deletion_timestamp is None]
        return {one.metadata.name: one for one in stays}

    async def comes_up(self, name: str) -> None:
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await self.stage.api.patch(
            kinds.PODS, name, ready, namespace=self.stage.namespace, subresource="status"
        )

    async def theirs(self, name: str, app: str) -> None:
        """A service pod that somebody else runs on the node."""
        spec = {"nodeName": self.stage.node, "containers": [{"name": "main", "image": "none"}]}
        body = {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}
        await self.stage.api.create(kinds.PODS, body, namespace=self.stage.namespace)

    async def beats(self) -> None:
        """The agent renews its Lease and has nothing new to tell."""
        renewed = {"spec": {"renewTime": micro_time(self.clock.now())}}
        name = agent_report.lease_name(self.stage.node)
        await self.stage.api.patch(kinds.LEASES, name, renewed, namespace=self.stage.namespace)

    async def leave(self) -> None:
        for name in await self.pods(leaving=True):
            how = Deletion(grace_seconds=0)
            await self.stage.api.delete(kinds.PODS, name, namespace=self.stage.namespace, how=how)


@pytest_asyncio.fixture
async def ward(cluster: Any, crds: Any, town: str) -> AsyncIterator[Ward]:
    writes: Counter[str] = Counter()

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        if verb in WRITES:
            writes[f"{verb} {resource}"] += 1

    async with (
        client.connect(config.load(cluster.kubeconfig), field_manager="test", observe=observe) as api,
        card_stage.stage(api, town) as stage,
    ):
        made = Ward(stage, writes=writes)
        await made.card_is("Ready", "Unassigned", "Free")
        try:
            yield made
        finally:
            await made.leave()


async def test_an_agents_word_makes_a_node_ready(ward: Ward):
    doctor = ward.doctor()

    assert (await ward.looks(doctor))["phase"] == "Validating"
    await ward.stage.reports(CardHealth(clean=1), **{**SOUND, "beats": 1})
    assert (await ward.looks(doctor))["phase"] == "GFD"
    await ward.labelled(LABELS)
    assert (await ward.looks(doctor))["MonitoringMissing"] == "Unknown FewHeartbeats"
    await ward.stage.reports(CardHealth(clean=3), **SOUND)
    told = await ward.looks(doctor)

    assert told["phase"] == "Ready"
    assert told["ReadyForPooling"] == "True Ready"
    status = (await ward.stage.inventory()).status
    assert (status.monitoring.consecutive_heartbeats, status.monitoring.dcgm_ready) == (3, False)
    assert status.monitoring.last_heartbeat is not None
    assert status.bootstrap.toolkit_ready


async def test_a_heartbeat_that_tells_nothing_new_writes_nothing(ward: Ward):
    doctor = ward.doctor()
    await ward.labelled(LABELS)
    await ward.stage.reports(CardHealth(clean=3), **SOUND)
    await ward.looks(doctor)
    await ward.beats()
    await ward.stage.caught_up()
    ward.writes.clear()

    result = await doctor.reconcile(ward.stage.node)

    assert ward.writes == {}
    assert result.again_after == 60.0


async def test_a_missing_driver_is_told_and_workloads_are_named(ward: Ward):
    doctor = ward.doctor()
    await ward.labelled(LABELS)
    await ward.card_is("InUse", "Reserved", "InUse")
    await ward.stage.reports(CardHealth(), **{**SOUND, "driver": ""})

    told = await ward.looks(doctor)

    assert told["phase"] == "ValidatingFailed"
    assert told["DriverMissing"] == "True NoDriver"
    assert told["DegradedWorkloads"] == "True DriverMissing"


def listening(doctor: BootstrapController) -> Callable[[], None]:
    """It hears heartbeats, as it does while it runs."""
    return doctor._reports.subscribe(lambda _: None, bootstrap_reading.word, heard=doctor._hearts.heard)


async def test_a_silent_agent_is_missed_and_a_new_leader_does_not_believe_it_either(ward: Ward):
    """But for a node that was heard of two minutes ago, nobody changes anything."""
    doctor = ward.doctor()
    reports = listening(doctor)
    await ward.labelled(LABELS)
    await ward.stage.reports(CardHealth(clean=3), **SOUND)
    assert (await ward.looks(doctor))["phase"] == "Ready"
    assert (await ward.looks(doctor, later=FRESH - 10))["phase"] == "Ready"
    assert (await ward.looks(doctor, later=20))["MonitoringMissing"] == "True NoHeartbeats"
    reports()

    successor = ward.doctor()
    heard = listening(successor)
    assert (await ward.looks(successor))["MonitoringMissing"] == "True NoHeartbeats"
    await ward.beats()
    assert (await ward.looks(successor))["phase"] == "Ready"
    heard()


async def test_an_agent_that_only_we_did_not_hear_is_not_called_silent(ward: Ward):
    """The cache is late, and the API server has a newer heartbeat."""
    doctor = ward.doctor()
    await ward.labelled(LABELS)
    await ward.stage.reports(CardHealth(clean=3), **SOUND)
    assert (await ward.looks(doctor))["phase"] == "Ready"
    leases = ward.stage.followed["leases"].store
    (old,) = tuple(leases)
    await ward.beats()
    await ward.stage.caught_up()
    leases.put(old)
    ward.clock.ahead += FRESH + 1

    await doctor.reconcile(ward.stage.node)

    assert (await ward.told())["phase"] == "Ready"


async def test_services_are_started_where_nobody_else_runs_them_and_removed_when_an_agent_comes(ward: Ward):
    doctor = ward.doctor(BOTH)
    gfd, dcgm = f"{GFD}-{ward.stage.node}", f"{DCGM}-{ward.stage.node}"
    await ward.has_driver()

    assert (await ward.looks(doctor))["phase"] == "GFD"
    assert set(await ward.pods()) == {gfd, dcgm}
    await ward.comes_up(gfd)
    await ward.labelled(LABELS)
    await ward.comes_up(dcgm)
    assert (await ward.looks(doctor))["phase"] == "Monitoring"
    await ward.looks(doctor, later=BEAT)
    assert (await ward.looks(doctor, later=BEAT))["phase"] == "Ready"
    status = (await ward.stage.inventory()).status
    assert status.monitoring.dcgm_ready
    assert {one.name.partition("/")[2]: one.ready for one in status.bootstrap.workloads} == {
        gfd: True,
        dcgm: True,
    }

    assert (await ward.looks(ward.doctor(BOTH)))["phase"] == "Ready"  # a new leader counts on

    await ward.stage.reports(CardHealth(clean=3), **SOUND)
    assert (await ward.looks(doctor))["phase"] == "Ready"
    assert await ward.pods() == {}


async def test_a_service_is_started_anew_with_another_image(ward: Ward):
    await ward.has_driver()
    await ward.looks(ward.doctor(Images({DCGM: "example/dcgm:1"})))
    (old,) = (await ward.pods()).values()
    doctor = ward.doctor(Images({DCGM: "example/dcgm:2"}))

    await ward.looks(doctor)
    how = Deletion(grace_seconds=0)  # no kubelet here to see it out
    await ward.stage.api.delete(kinds.PODS, old.metadata.name, namespace=old.metadata.namespace, how=how)
    await ward.looks(doctor)

    (new,) = (await ward.pods()).values()
    assert new.metadata.annotations["gpu.deckhouse.io/image"] == "example/dcgm:2"
    assert new.metadata.owner_references[0].kind == "GPUNodeInventory"


async def test_without_an_image_nothing_is_started_and_the_condition_says_so(ward: Ward):
    await ward.has_driver()

    await ward.looks(ward.doctor())

    assert await ward.pods() == {}
    told = {one.type: one.message for one in (await ward.stage.inventory()).status.conditions}
    assert "no image is set" in told["GFDReady"]


async def test_services_of_others_are_used_but_only_where_they_are_believed(ward: Ward):
    await ward.has_driver()
    await ward.theirs("their-exporter", "nvidia-dcgm-exporter")
    await ward.comes_up("their-exporter")

    far = ward.doctor(home="elsewhere")
    assert (await ward.looks(far))["MonitoringMissing"] == "Unknown NotChecked"
    near = ward.doctor(Images({DCGM: "example/dcgm:1"}))
    assert (await ward.looks(near))["MonitoringMissing"] == "Unknown FewHeartbeats"
    assert set(await ward.pods()) == {"their-exporter"}


async def test_a_node_that_is_not_managed_is_not_judged(ward: Ward):
    doctor = ward.doctor()
    await ward.stage.reports(CardHealth(clean=3), **SOUND)
    await ward.looks(doctor)

    await ward.stage.judged(Situation(managed=False))
    told = await ward.looks(doctor)

    assert told == {"phase": "Disabled", "InventoryIncomplete": "False Test", "ManagedDisabled": "True Test"}


async def test_metrics_show_the_nodes_there_are(ward: Ward):
    registry = CollectorRegistry()
    BootstrapMetrics(registry, ward.stage.followed["inventories"].store)
    node = {"node": ward.stage.node}
    await ward.looks(ward.doctor())

    assert registry.get_sample_value("gpu_bootstrap_node_phase", {**node, "phase": "Validating"}) == 1
    assert registry.get_sample_value("gpu_bootstrap_ready", node) == 0

    await ward.stage.api.delete(kinds.GPU_NODE_INVENTORIES, ward.stage.node)
    await ward.stage.caught_up()
    assert registry.get_sample_value("gpu_bootstrap_ready", node) is None
    assert registry.get_sample_value("gpu_bootstrap_node_phase", {**node, "phase": "Validating"}) is None


async def test_from_an_agents_heartbeat_to_a_card_that_is_ready_and_back(ward: Ward):
    """Both controllers at work, each in its own fields."""
    stage, reporters = ward.stage, Reporters(ward.stage.api)
    names = ("inventories", "devices", "nodes", "leases", "pods")
    sources = Sources(**{name: stage.followed[name] for name in names})
    doctor = BootstrapController(sources, stage.api, reporters=reporters)
    await stage.status(
        kinds.GPU_NODE_INVENTORIES,
        stage.node,
        "gpu-inventory-controller",
        {"conditions": [card_stage.condition("InventoryIncomplete", False)]},
    )
    await ward.card_is("Discovered", "Unassigned", "Free")

    async def reaches(phase: str, state: str) -> None:
        async def look() -> bool:
            return ((await ward.told())["phase"], (await stage.device()).status.phase) == (phase, state)

        await until_async(look, f"the node to be {phase} and its card {state}", within=60)

    stop = asyncio.Event()
    cards = stage.controller(reporters)
    async with running(reporters.run(stop)), running(cards.run(stop)), running(doctor.run(stop)):
        await reaches("Validating", "Validating")
        await ward.labelled(LABELS)
        await stage.reports(CardHealth(clean=3), **SOUND)
        await reaches("Ready", "Ready")
        await stage.reports(CardHealth(clean=3), **{**SOUND, "driver": ""})
        await reaches("ValidatingFailed", "Faulted")
        await stage.reports(CardHealth(clean=3), **SOUND)
        await reaches("Ready", "Ready")

        async def said() -> bool:
            events = await stage.events()
            wanted = (
                "GPUDriverMissing: the agent of the node finds no driver",
                "GPUDeviceDegraded: Ready -> Faulted",
            )
            return all(any(f"gpu-bootstrap-controller {one}" in line for line in events) for one in wanted)

        await until_async(said, "the Events", within=60)
