"""The installation scenario: all steps in order."""

import asyncio

from croupier.api import kinds
from croupier.kube.client.api_client import Selection
from tests.install import chart_options, dashboard, fake_cert_manager, faults, page_steps, rendering, steps
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


async def run(env: ScenarioEnv, *options: str) -> None:
    """Run the scenario with additional `options` of helm."""
    rendered = asyncio.create_task(asyncio.to_thread(rendering.objects, *OPTIONS, *AVAILABLE, *options))
    try:
        async with asyncio.timeout(TIMEOUT):
            await _run_all(env, *options)
    finally:
        await rendered
        await env.chart.rest()


async def _run_all(env: ScenarioEnv, *options: str) -> None:
    await single_replica_phase(env)
    await upgrade_phase(env, *options)
    async with dashboard.shown(env.chart, env):
        await high_availability_phase(env)
    await steps.delete_everything(env)


async def single_replica_phase(env: ScenarioEnv) -> None:
    """One replica of each process, and the ledger in memory."""
    chart = env.chart
    await faults.crash_between_hold_and_bind(env, opens=True)
    for name in (*MANAGERS, EXTENDER):
        chart.start(name)
    _webhook(env)
    await env.until(lambda: _service_pods_exist(env), "service pods on a node without an agent")
    _agent(env)
    await chart.ready()
    chart.start_scheduler()
    await chart_options.update_settings(env, "2h")
    await asyncio.gather(
        _first_pool_steps(env),
        faults.wait_until_fenced(env),
        chart_options.all_log(env, "were applied:"),
    )
    await faults.remove_finalizer(env, EXTENDER)
    await asyncio.gather(faults.damage_certificate(env), chart_options.update_settings(env, "3h"))
    await chart_options.all_log(env, "were applied:", times=2)


async def _first_pool_steps(env: ScenarioEnv) -> None:
    await steps.wait_for_cards(env)
    steps.lose_card(env)
    await env.pool(mode="Exclusive")
    await env.capacity(2)
    await env.kubelet_offers({"nvidia.com/gpu": 2})
    await steps.create_unschedulable_pod(env)
    await steps.create_pod_before_capacity(env, "keeps", offered=0)


async def upgrade_phase(env: ScenarioEnv, *options: str) -> None:
    """Upgrade: two replicas, the ledger in the API server, a ModuleConfig, and cert-manager."""
    chart = env.chart
    await chart.rest()
    env.note("all processes have stopped")
    chart.results["before noon"] = await env.promised("keeps")
    # Deleted, so that the second scheduler has to create it.
    await env.api.delete(kinds.LEASES, "croupier-scheduler", namespace=NAMESPACE)
    await chart.become("available", *AVAILABLE, *options)
    await chart_options.create_module_config(env)
    await asyncio.to_thread(fake_cert_manager.issue, chart)
    env.note("the chart is upgraded")
    for name in (*MANAGERS, *HA_ONLY, EXTENDER):
        chart.start(name)
    _webhook(env)
    _agent(env)
    market = f"--cgroup-mount={env.market.mount}"
    chart.start("croupier-market", market, *MARKET, node=env.market.node)
    await chart.ready()
    env.note("one of each is ready")
    chart.start_scheduler()
    assert {chart.replicas(name) for name in (*MANAGERS, *HA_ONLY, EXTENDER, WEBHOOK)} == {2}
    for name in (*MANAGERS, *HA_ONLY, EXTENDER):
        chart.start(name, replica=2)
    _webhook(env, replica=2)
    chart.start_scheduler(replica=2)
    chart.results["after noon"] = await env.until(
        lambda: _cards_of_kept_pod(env), "the ledger to contain the existing pod"
    )


async def high_availability_phase(env: ScenarioEnv) -> None:
    await faults.crash_between_hold_and_bind(env, opens=False)
    await asyncio.gather(_card_steps(env), _limit_steps(env), chart_options.renew_certificate(env))
    await chart_options.update_module_config(env, settings={"maintenance": {"deadline": "3h"}})
    await steps.change_pool_mode(env)
    await chart_options.all_log(env, "were applied:", times=2)
    await page_steps.use_page(env)


async def _card_steps(env: ScenarioEnv) -> None:
    await asyncio.gather(steps.use_pool(env), _unpooled_card_steps(env))
    await env.chart.ready()
    await chart_options.update_module_config(env, settings={"maintenance": {"deadline": "2h"}})
    await chart_options.disable_and_enable(env)
    await steps.wait_for_ledger_sync(env)
    await steps.create_pod_before_capacity(env, "team-2", offered=1)
    chart_options.kill_extender_pod(env)
    await steps.expire_booking(env)


async def _unpooled_card_steps(env: ScenarioEnv) -> None:
    """Steps with cards 2 and 3, which are in no pool."""
    await faults.wait_until_fenced(env)
    await env.chart.ready([named(EXTENDER, 2)])
    await faults.work_for(env, asyncio.create_task(faults.others_write_the_ledger(env)))
    await faults.remove_finalizer(env, await chart_options.leader(env, "croupier-ledger"))
    await steps.create_and_delete_reservations(env)
    await steps.repartition_cards(env)


async def _limit_steps(env: ScenarioEnv) -> None:
    await steps.raise_limits(env)
    await chart_options.kill_limits_leader(env)
    await steps.change_limit_again(env)


def _agent(env: ScenarioEnv) -> None:
    fast = ("--every=0.5", "--heartbeat=1")
    env.chart.start("croupier-node", f"--faults={env.chart.faults}", *fast, node=NODE)


def _webhook(env: ScenarioEnv, replica: int = 1) -> None:
    """Start the webhook with its URL, because there is no Service."""
    where = f"--url=https://127.0.0.1:{env.chart.gate}"
    env.chart.start(WEBHOOK, "--drain=0", where, replica=replica)


async def _service_pods_exist(env: ScenarioEnv) -> bool:
    """Whether GPU Feature Discovery or the exporter was started."""
    return bool((await env.api.list(kinds.PODS, Selection(NAMESPACE))).items)


async def _cards_of_kept_pod(env: ScenarioEnv) -> list[str]:
    """The cards of the existing pod in the new ledger."""
    ledger = await env.api.get(kinds.NODE_RESERVATIONS.raw, NODE)
    return [
        card["id"]
        for card in ledger["spec"].get("cards", ())
        if any(holder.startswith("default/keeps/") for holder in card.get("holders", {}))
    ]
