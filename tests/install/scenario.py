"""The installation scenario: all steps in order."""

import asyncio

from croupier.api import kinds
from croupier.kube.client.api_client import Selection
from tests.install import chart_options, dashboard, fake_cert_manager, faults, rendering, steps
from tests.install.chart_env import EXTENDER, NAMESPACE, NODE, OPTIONS, WEBHOOK, named
from tests.install.scenario_env import ScenarioEnv

MANAGERS = ("gpu-inventory-controller", "gpu-bootstrap-controller", "gpupool-controller")
HA_ONLY = ("croupier-cpu-limits", "croupier-ledger")
"""Managers that start in the high-availability phase."""
AVAILABLE = (
    "--set=settings.highAvailability=true",
    "--set=settings.https.mode=CertManager",
    "--set=settingsFrom=module",
)
TIMEOUT = 400.0
"""Seconds; about four times the duration on an idle machine."""
MARKET = ("--every=0.5", "--heartbeat=2", "--raise-after=1", "--lower-after=2")


async def run(day: ScenarioEnv, *options: str) -> None:
    """Run the scenario with additional `options` of helm."""
    rendered = asyncio.create_task(asyncio.to_thread(rendering.objects, *OPTIONS, *AVAILABLE, *options))
    try:
        async with asyncio.timeout(TIMEOUT):
            await _run_all(day, *options)
    finally:
        await rendered
        await day.town.rest()


async def _run_all(day: ScenarioEnv, *options: str) -> None:
    await single_replica_phase(day)
    await upgrade_phase(day, *options)
    async with dashboard.shown(day.town, day):
        await high_availability_phase(day)
    await steps.delete_everything(day)


async def single_replica_phase(day: ScenarioEnv) -> None:
    """The default values of the chart."""
    town = day.town
    await faults.crash_between_hold_and_bind(day, opens=True)
    for name in (*MANAGERS, EXTENDER):
        town.start(name)
    _webhook(day)
    await day.until(lambda: _service_pods_exist(day), "service pods on a node without an agent")
    _agent(day)
    await town.ready()
    town.start_scheduler()
    await chart_options.update_settings(day, "2h")
    await asyncio.gather(
        _first_pool_steps(day),
        faults.wait_until_fenced(day),
        chart_options.all_log(day, "settings: applied:"),
    )
    await faults.remove_finalizer(day, EXTENDER)
    await asyncio.gather(faults.damage_certificate(day), chart_options.update_settings(day, "3h"))
    await chart_options.all_log(day, "settings: applied:", times=2)


async def _first_pool_steps(day: ScenarioEnv) -> None:
    await steps.wait_for_cards(day)
    steps.lose_card(day)
    await day.pool(mode="Exclusive")
    await day.capacity(2)
    await day.kubelet_offers({"nvidia.com/gpu": 2})
    await steps.create_unschedulable_pod(day)
    await steps.create_pod_before_capacity(day, "keeps", offered=0)


async def upgrade_phase(day: ScenarioEnv, *options: str) -> None:
    """Upgrade: two replicas, the ledger in the API server, a ModuleConfig, and cert-manager."""
    town = day.town
    await town.rest()
    day.note("all processes have stopped")
    town.results["before noon"] = await day.promised("keeps")
    # Deleted, so that the second scheduler has to create it.
    await day.api.delete(kinds.LEASES, "croupier-scheduler", namespace=NAMESPACE)
    await town.become("available", *AVAILABLE, *options)
    await chart_options.create_module_config(day)
    await asyncio.to_thread(fake_cert_manager.issue, town)
    day.note("the chart is upgraded")
    for name in (*MANAGERS, *HA_ONLY, EXTENDER):
        town.start(name)
    _webhook(day)
    _agent(day)
    market = f"--cgroup-mount={day.floor.mount}"
    town.start("croupier-market", market, *MARKET, node=day.floor.node)
    await town.ready()
    day.note("one of each is ready")
    town.start_scheduler()
    assert {town.replicas(name) for name in (*MANAGERS, *HA_ONLY, EXTENDER, WEBHOOK)} == {2}
    for name in (*MANAGERS, *HA_ONLY, EXTENDER):
        town.start(name, replica=2)
    _webhook(day, replica=2)
    town.start_scheduler(replica=2)
    town.results["after noon"] = await day.until(
        lambda: _cards_of_kept_pod(day), "the ledger to contain the existing pod"
    )


async def high_availability_phase(day: ScenarioEnv) -> None:
    await faults.crash_between_hold_and_bind(day, opens=False)
    await asyncio.gather(_card_steps(day), _limit_steps(day), chart_options.renew_certificate(day))
    await chart_options.update_module_config(day, settings={"maintenance": {"deadline": "3h"}})
    await steps.change_pool_mode(day)
    await chart_options.all_log(day, "settings: applied:", times=2)


async def _card_steps(day: ScenarioEnv) -> None:
    await asyncio.gather(steps.use_pool(day), _unpooled_card_steps(day))
    await day.town.ready()
    await chart_options.update_module_config(day, settings={"maintenance": {"deadline": "2h"}})
    await chart_options.disable_and_enable(day)
    await steps.wait_for_ledger_sync(day)
    await steps.create_pod_before_capacity(day, "team-2", offered=1)
    chart_options.kill_extender_pod(day)
    await steps.expire_booking(day)


async def _unpooled_card_steps(day: ScenarioEnv) -> None:
    """Steps with cards 2 and 3, which are in no pool."""
    await faults.wait_until_fenced(day)
    await day.town.ready([named(EXTENDER, 2)])
    await faults.work_for(day, asyncio.create_task(faults.others_write_the_ledger(day)))
    await faults.remove_finalizer(day, await chart_options.leader(day, "croupier-ledger"))
    await steps.create_and_delete_reservations(day)
    await steps.repartition_cards(day)


async def _limit_steps(day: ScenarioEnv) -> None:
    await steps.raise_limits(day)
    await chart_options.kill_limits_leader(day)
    await steps.change_limit_again(day)


def _agent(day: ScenarioEnv) -> None:
    fast = ("--every=0.5", "--heartbeat=1")
    day.town.start("croupier-node", f"--faults={day.town.faults}", *fast, node=NODE)


def _webhook(day: ScenarioEnv, replica: int = 1) -> None:
    """Start the webhook with its URL, because there is no Service."""
    where = f"--url=https://127.0.0.1:{day.town.gate}"
    day.town.start(WEBHOOK, "--drain=0", where, replica=replica)


async def _service_pods_exist(day: ScenarioEnv) -> bool:
    """Whether GPU Feature Discovery or the exporter was started."""
    return bool((await day.api.list(kinds.PODS, Selection(NAMESPACE))).items)


async def _cards_of_kept_pod(day: ScenarioEnv) -> list[str]:
    """The cards of the existing pod in the new ledger."""
    ledger = await day.api.get(kinds.NODE_RESERVATIONS.raw, NODE)
    return [
        card["id"]
        for card in ledger["spec"].get("cards", ())
        if any(holder.startswith("default/keeps/") for holder in card.get("holders", {}))
    ]
