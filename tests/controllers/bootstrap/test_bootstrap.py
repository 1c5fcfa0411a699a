"""The bootstrap controller on a real API server: conditions, service pods and Events."""

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
from croupier.api.gpu.agent_report import ReportedHealth
from croupier.controllers.bootstrap import bootstrap
from croupier.controllers.bootstrap import node_snapshot as bootstrap_snapshot
from croupier.controllers.bootstrap.bootstrap import BootstrapController, BootstrapInformers
from croupier.controllers.bootstrap.metrics import BootstrapMetrics
from croupier.controllers.bootstrap.service_manifests import ServiceImages
from croupier.controllers.bootstrap.service_pods import ServicePodOptions
from croupier.controllers.shared.card_events import CardEventRecorders
from croupier.core.nodes.bootstrap import DCGM, GFD, HEARTBEAT_INTERVAL, HEARTBEAT_TIMEOUT
from croupier.kube.client import api_client, config
from croupier.kube.client.api_client import DeleteOptions, Selection
from croupier.kube.client.clock import SystemClock
from tests.controllers import card_env
from tests.controllers.card_env import CardEnv
from tests.controllers.ledger_env import running
from tests.core.card_scenarios import CardSituation
from tests.polling import until_async

WRITES = ("create", "update", "patch", "apply", "delete")
HEALTHY_REPORT = {"driver": "550.54", "cuda": "12.4", "toolkit": True, "monitored_by": "nvml", "beats": 3}
LABELS = {"nvidia.com/gpu.product": "H100"}
BOTH = ServiceImages({GFD: "example/gfd:1", DCGM: "example/dcgm:1"})


class AdvancingClock(SystemClock):
    """A clock that can be advanced."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@dataclass
class BootstrapEnv:
    """A node with its card, and bootstrap controllers."""

    stage: CardEnv
    clock: AdvancingClock = field(default_factory=AdvancingClock)
    writes: Counter[str] = field(default_factory=Counter)

    def controller(
        self, images: ServiceImages | None = None, *, home: str | None = None
    ) -> BootstrapController:
        names = ("inventories", "devices", "nodes", "leases", "pods")
        sources = BootstrapInformers(**{name: self.stage.followed[name] for name in names})
        places = ServicePodOptions(
            images or ServiceImages(), home or self.stage.namespace, trusted_namespaces=()
        )
        settings = bootstrap.BootstrapOptions(places=places, clock=self.clock)
        return BootstrapController(
            sources, self.stage.api, recorders=CardEventRecorders(self.stage.api), settings=settings
        )

    async def reconciles(self, controller: BootstrapController, *, later: float = 0.0) -> dict[str, str]:
        """Reconcile after `later` seconds; returns the phase and the conditions."""
        self.clock.ahead += later
        await self.stage.caught_up()
        await controller.reconcile(self.stage.node)
        await self.stage.caught_up()
        return await self.state()

    async def state(self) -> dict[str, str]:
        status = (await self.stage.inventory()).status
        found = {cond.type: f"{cond.status} {cond.reason}" for cond in status.conditions}
        return {"phase": status.bootstrap.phase or "", **found}

    async def labelled(self, labels: dict[str, str]) -> None:
        await self.stage.api.patch(kinds.NODES, self.stage.node, {"metadata": {"labels": labels}})

    async def has_driver(self) -> None:
        """Report a driver as the inventory does from labels, without an agent."""
        driver = {"version": "550.54", "toolkitInstalled": True}
        clear = [card_env.condition("InventoryIncomplete", False)]
        status = {"driver": driver, "conditions": clear}
        who = "gpu-inventory-controller"
        await self.stage.status(kinds.GPU_NODE_INVENTORIES, self.stage.node, who, status)

    async def card_is(self, phase: str, state: str, occupancy: str) -> None:
        known, judged = {"nodeName": self.stage.node}, {"phase": phase, "state": state}
        await self.stage.status(kinds.GPU_DEVICES, self.stage.card, "gpu-inventory-controller", known)
        await self.stage.status(kinds.GPU_DEVICES, self.stage.card, "gpupool-controller", judged)
        await self.stage.occupied(occupancy)

    async def pods(self, *, leaving: bool = False) -> dict[str, Pod]:
        """The service pods; with `leaving` also terminating ones, because no kubelet finishes them."""
        listed = await self.stage.api.list(kinds.PODS, Selection(self.stage.namespace))
        stays = [pod for pod in listed.items if leaving or pod.metadata.deletion_timestamp is None]
        return {pod.metadata.name: pod for pod in stays}

    async def comes_up(self, name: str) -> None:
        ready = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
        await self.stage.api.patch(
            kinds.PODS, name, ready, namespace=self.stage.namespace, subresource="status"
        )

    async def theirs(self, name: str, app: str) -> None:
        """A service pod of another operator on the node."""
        spec = {"nodeName": self.stage.node, "containers": [{"name": "main", "image": "none"}]}
        body = {"metadata": {"name": name, "labels": {"app": app}}, "spec": spec}
        await self.stage.api.create(kinds.PODS, body, namespace=self.stage.namespace)

    async def beats(self) -> None:
        """The agent renews its Lease without a new report."""
        renewed = {"spec": {"renewTime": micro_time(self.clock.now())}}
        name = agent_report.LEASE.name(self.stage.node)
        await self.stage.api.patch(kinds.LEASES, name, renewed, namespace=self.stage.namespace)

    async def leave(self) -> None:
        for name in await self.pods(leaving=True):
            how = DeleteOptions(grace_seconds=0)
            await self.stage.api.delete(kinds.PODS, name, namespace=self.stage.namespace, how=how)


@pytest_asyncio.fixture
async def env(cluster: Any, crds: Any, shared_namespace: str) -> AsyncIterator[BootstrapEnv]:
    writes: Counter[str] = Counter()

    def observe(verb: str, resource: str, code: int, seconds: float) -> None:
        if verb in WRITES:
            writes[f"{verb} {resource}"] += 1

    async with (
        api_client.connect(config.load(cluster.kubeconfig), field_manager="test", observe=observe) as api,
        card_env.card_env(api, shared_namespace) as stage,
    ):
        made = BootstrapEnv(stage, writes=writes)
        await made.card_is("Ready", "Unassigned", "Free")
        try:
            yield made
        finally:
            await made.leave()


async def test_the_report_of_an_agent_makes_a_node_ready(env: BootstrapEnv):
    controller = env.controller()

    assert (await env.reconciles(controller))["phase"] == "Validating"
    await env.stage.reports(ReportedHealth(clean=1), **{**HEALTHY_REPORT, "beats": 1})
    assert (await env.reconciles(controller))["phase"] == "GFD"
    await env.labelled(LABELS)
    assert (await env.reconciles(controller))["MonitoringMissing"] == "Unknown FewHeartbeats"
    await env.stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
    state = await env.reconciles(controller)

    assert state["phase"] == "Ready"
    assert state["ReadyForPooling"] == "True Ready"
    inventory = await env.stage.inventory()
    status, generation = inventory.status, inventory.metadata.generation
    assert {condition.observed_generation for condition in status.conditions} == {generation}
    assert (status.monitoring.consecutive_heartbeats, status.monitoring.dcgm_ready) == (3, False)
    assert status.monitoring.last_heartbeat is not None
    assert status.bootstrap.toolkit_ready


async def test_a_heartbeat_without_news_writes_nothing(env: BootstrapEnv):
    controller = env.controller()
    await env.labelled(LABELS)
    await env.stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
    await env.reconciles(controller)
    await env.beats()
    await env.stage.caught_up()
    env.writes.clear()

    result = await controller.reconcile(env.stage.node)

    assert env.writes == {}
    assert result.requeue_after == 60.0


async def test_a_missing_driver_is_reported_with_degraded_workloads(env: BootstrapEnv):
    controller = env.controller()
    await env.labelled(LABELS)
    await env.card_is("InUse", "Reserved", "InUse")
    await env.stage.reports(ReportedHealth(), **{**HEALTHY_REPORT, "driver": ""})

    state = await env.reconciles(controller)

    assert state["phase"] == "ValidatingFailed"
    assert state["DriverMissing"] == "True NoDriver"
    assert state["DegradedWorkloads"] == "True DriverMissing"


def subscribe(controller: BootstrapController) -> Callable[[], None]:
    """Subscribe to heartbeats, as `run` does."""
    return controller._reports.subscribe(
        lambda _: None, bootstrap_snapshot.relevant_fields, heartbeat=controller._renewed
    )


async def test_a_silent_agent_is_reported_also_by_a_new_leader(env: BootstrapEnv):
    """A restart does not change the state of a node with a recent heartbeat."""
    controller = env.controller()
    unsubscribe_old = subscribe(controller)
    await env.labelled(LABELS)
    await env.stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
    assert (await env.reconciles(controller))["phase"] == "Ready"
    assert (await env.reconciles(controller, later=HEARTBEAT_TIMEOUT - 10))["phase"] == "Ready"
    assert (await env.reconciles(controller, later=20))["MonitoringMissing"] == "True NoHeartbeats"
    unsubscribe_old()

    successor = env.controller()
    unsubscribe = subscribe(successor)
    assert (await env.reconciles(successor))["MonitoringMissing"] == "True NoHeartbeats"
    await env.beats()
    assert (await env.reconciles(successor))["phase"] == "Ready"
    unsubscribe()


async def test_a_stale_informer_does_not_make_an_agent_silent(env: BootstrapEnv):
    """The informer is stale, and the API server has a newer heartbeat."""
    controller = env.controller()
    await env.labelled(LABELS)
    await env.stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
    assert (await env.reconciles(controller))["phase"] == "Ready"
    leases = env.stage.followed["leases"].store
    (old,) = tuple(leases)
    await env.beats()
    await env.stage.caught_up()
    leases.put(old)
    env.clock.ahead += HEARTBEAT_TIMEOUT + 1

    await controller.reconcile(env.stage.node)

    assert (await env.state())["phase"] == "Ready"


async def test_services_are_started_if_missing_and_removed_with_an_agent(env: BootstrapEnv):
    controller = env.controller(BOTH)
    gfd, dcgm = f"{GFD}-{env.stage.node}", f"{DCGM}-{env.stage.node}"
    await env.has_driver()

    assert (await env.reconciles(controller))["phase"] == "GFD"
    assert set(await env.pods()) == {gfd, dcgm}
    await env.comes_up(gfd)
    await env.labelled(LABELS)
    await env.comes_up(dcgm)
    assert (await env.reconciles(controller))["phase"] == "Monitoring"
    await env.reconciles(controller, later=HEARTBEAT_INTERVAL)
    assert (await env.reconciles(controller, later=HEARTBEAT_INTERVAL))["phase"] == "Ready"
    status = (await env.stage.inventory()).status
    assert status.monitoring.dcgm_ready
    assert {load.name.partition("/")[2]: load.ready for load in status.bootstrap.workloads} == {
        gfd: True,
        dcgm: True,
    }

    assert (await env.reconciles(env.controller(BOTH)))[
        "phase"
    ] == "Ready"  # a new leader continues the count

    await env.stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
    assert (await env.reconciles(controller))["phase"] == "Ready"
    assert await env.pods() == {}


async def test_a_service_is_replaced_after_a_change_of_its_image(env: BootstrapEnv):
    await env.has_driver()
    await env.reconciles(env.controller(ServiceImages({DCGM: "example/dcgm:1"})))
    (old,) = (await env.pods()).values()
    controller = env.controller(ServiceImages({DCGM: "example/dcgm:2"}))

    await env.reconciles(controller)
    how = DeleteOptions(grace_seconds=0)  # no kubelet finishes the deletion here
    await env.stage.api.delete(kinds.PODS, old.metadata.name, namespace=old.metadata.namespace, how=how)
    await env.reconciles(controller)

    (new,) = (await env.pods()).values()
    assert new.metadata.annotations["gpu.deckhouse.io/image"] == "example/dcgm:2"
    assert new.metadata.owner_references[0].kind == "GPUNodeInventory"


async def test_without_an_image_nothing_is_started_and_the_condition_says_so(env: BootstrapEnv):
    await env.has_driver()

    await env.reconciles(env.controller())

    assert await env.pods() == {}
    messages = {cond.type: cond.message for cond in (await env.stage.inventory()).status.conditions}
    assert "it has no image" in messages["GFDReady"]


async def test_services_of_others_count_only_in_trusted_namespaces(env: BootstrapEnv):
    await env.has_driver()
    await env.theirs("their-exporter", "nvidia-dcgm-exporter")
    await env.comes_up("their-exporter")

    far = env.controller(home="elsewhere")
    assert (await env.reconciles(far))["MonitoringMissing"] == "Unknown NotChecked"
    near = env.controller(ServiceImages({DCGM: "example/dcgm:1"}))
    assert (await env.reconciles(near))["MonitoringMissing"] == "Unknown FewHeartbeats"
    assert set(await env.pods()) == {"their-exporter"}


async def test_an_unmanaged_node_has_no_conditions(env: BootstrapEnv):
    controller = env.controller()
    await env.stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
    await env.reconciles(controller)

    await env.stage.judged(CardSituation(managed=False))
    state = await env.reconciles(controller)

    assert state == {"phase": "Disabled", "InventoryIncomplete": "False Test", "ManagedDisabled": "True Test"}


async def test_metrics_follow_the_nodes(env: BootstrapEnv):
    registry = CollectorRegistry()
    BootstrapMetrics(registry, env.stage.followed["inventories"].store)
    node = {"node": env.stage.node}
    await env.reconciles(env.controller())

    assert registry.get_sample_value("gpu_bootstrap_node_phase", {**node, "phase": "Validating"}) == 1
    assert registry.get_sample_value("gpu_bootstrap_ready", node) == 0

    await env.stage.api.delete(kinds.GPU_NODE_INVENTORIES, env.stage.node)
    await env.stage.caught_up()
    assert registry.get_sample_value("gpu_bootstrap_ready", node) is None
    assert registry.get_sample_value("gpu_bootstrap_node_phase", {**node, "phase": "Validating"}) is None


async def test_from_a_heartbeat_to_a_ready_card_and_back(env: BootstrapEnv):
    """Both controllers run, each with its own fields."""
    stage, reporters = env.stage, CardEventRecorders(env.stage.api)
    names = ("inventories", "devices", "nodes", "leases", "pods")
    sources = BootstrapInformers(**{name: stage.followed[name] for name in names})
    controller = BootstrapController(sources, stage.api, recorders=reporters)
    await stage.status(
        kinds.GPU_NODE_INVENTORIES,
        stage.node,
        "gpu-inventory-controller",
        {"conditions": [card_env.condition("InventoryIncomplete", False)]},
    )
    await env.card_is("Discovered", "Unassigned", "Free")

    async def reaches(phase: str, state: str) -> None:
        async def reached() -> bool:
            return ((await env.state())["phase"], (await stage.device()).status.phase) == (phase, state)

        await until_async(reached, f"the node to be {phase} and its card {state}", within=60)

    stop = asyncio.Event()
    cards = stage.controller(reporters)
    async with running(reporters.run(stop)), running(cards.run(stop)), running(controller.run(stop)):
        await reaches("Validating", "Validating")
        await env.labelled(LABELS)
        await stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
        await reaches("Ready", "Ready")
        await stage.reports(ReportedHealth(clean=3), **{**HEALTHY_REPORT, "driver": ""})
        await reaches("ValidatingFailed", "Faulted")
        await stage.reports(ReportedHealth(clean=3), **HEALTHY_REPORT)
        await reaches("Ready", "Ready")

        async def recorded() -> bool:
            events = await stage.events()
            wanted = (
                "GPUDriverMissing: the agent found no driver",
                "GPUDeviceDegraded: Ready -> Faulted",
            )
            return all(
                any(f"gpu-bootstrap-controller {event}" in line for line in events) for event in wanted
            )

        await until_async(recorded, "the Events", within=60)
