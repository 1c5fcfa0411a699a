"""The installation scenario: all steps in order."""

import asyncio

from croupier.api import kinds
from croupier.kube.client import Selection
from tests.install import choices, issuer, rendering, stories, trouble, watching
from tests.install.a_day import Day
from tests.install.town import EXTENDER, NAMESPACE, NODE, OPTIONS, WEBHOOK, named

MANAGERS = ("gpu-inventory-controller", "gpu-bootstrap-controller", "gpupool-controller")
LATER = ("croupier-cpu-limits", "croupier-ledger")
"""Managers that start in the high-availability phase."""
AVAILABLE = (
    "--set=settings.highAvailability=true",
    "--set=settings.https.mode=CertManager",
    "--set=settingsFrom=module",
)
LONGEST = 400.0
"""Seconds; about four times the duration on an idle machine."""
MARKET = ("--every=0.5", "--heartbeat=2", "--raise-after=1", "--lower-after=2")


async def whole(day: Day, *options: str) -> None:
    """Run the scenario with additional `options` of helm."""
    rendered = asyncio.create_task(asyncio.to_thread(rendering.objects, *OPTIONS, *AVAILABLE, *options))
    try:
        async with asyncio.timeout(LONGEST):
            await _all_of_it(day, *options)
    finally:
        await rendered
        await day.town.rest()


async def _all_of_it(day: Day, *options: str) -> None:
    await morning(day)
    await noon(day, *options)
    async with watching.shown(day.town, day):
        await afternoon(day)
    await stories.night(day)


async def morning(day: Day) -> None:
    """The default values of the chart."""
    town = day.town
    await trouble.somebody_crashed(day, opens=True)
    for name in (*MANAGERS, EXTENDER):
        town.start(name)
    _webhook(day)
    await day.until(lambda: _served(day), "service pods on a node without an agent")
    _agent(day)
    await town.ready()
    town.start_scheduler()
    await choices.settings_say(day, "2h")
    await asyncio.gather(
        _pool_of_the_morning(day),
        trouble.its_pod_is_fenced(day),
        choices.everybody_says(day, "settings: applied:"),
    )
    await trouble.a_finalizer_is_torn_off(day, EXTENDER)
    await asyncio.gather(trouble.a_certificate_is_damaged(day), choices.settings_say(day, "3h"))
    await choices.everybody_says(day, "settings: applied:", times=2)


async def _pool_of_the_morning(day: Day) -> None:
    await stories.cards_are_found(day)
    stories.a_card_is_lost(day)
    await day.pool(mode="Exclusive")
    await day.capacity(2)
    await day.kubelet_offers({"nvidia.com/gpu": 2})
    await stories.a_pod_waits_in_vain(day)
    await stories.a_pod_comes_too_early(day, "keeps", offered=0)


async def noon(day: Day, *options: str) -> None:
    """Upgrade: two replicas, the ledger in the API server, a ModuleConfig, and cert-manager."""
    town = day.town
    await town.rest()
    day.note("all processes have stopped")
    town.told["before noon"] = await day.promised("keeps")
    # Deleted, so that the second scheduler has to create it.
    await day.api.delete(kinds.LEASES, "croupier-scheduler", namespace=NAMESPACE)
    await town.become("available", *AVAILABLE, *options)
    await choices.a_module_config_comes(day)
    await asyncio.to_thread(issuer.issue, town)
    day.note("the chart is upgraded")
    for name in (*MANAGERS, *LATER, EXTENDER):
        town.start(name)
    _webhook(day)
    _agent(day)
    market = f"--cgroup-mount={day.floor.mount}"
    town.start("croupier-market", market, *MARKET, node=day.floor.node)
    await town.ready()
    day.note("one of each is ready")
    town.start_scheduler()
    assert {town.replicas(name) for name in (*MANAGERS, *LATER, EXTENDER, WEBHOOK)} == {2}
    for name in (*MANAGERS, *LATER, EXTENDER):
        town.start(name, replica=2)
    _webhook(day, replica=2)
    town.start_scheduler(replica=2)
    town.told["after noon"] = await day.until(lambda: _kept(day), "the ledger to contain the existing pod")


async def afternoon(day: Day) -> None:
    await trouble.somebody_crashed(day, opens=False)
    await asyncio.gather(_deals(day), _limits(day), choices.a_certificate_is_renewed(day))
    await choices.module_says(day, settings={"maintenance": {"deadline": "3h"}})
    await stories.a_pool_is_rebuilt(day)
    await choices.everybody_says(day, "settings: applied:", times=2)


async def _deals(day: Day) -> None:
    await asyncio.gather(stories.a_pool_serves(day), _cards_of_nobody(day))
    await day.town.ready()
    await choices.module_says(day, settings={"maintenance": {"deadline": "2h"}})
    await choices.switched_off_and_on(day)
    await stories.the_ledger_follows(day)
    await stories.a_pod_comes_too_early(day, "team-2", offered=1)
    choices.the_pod_of_an_extender_is_lost(day)
    await stories.a_booking_expires(day)


async def _cards_of_nobody(day: Day) -> None:
    """Steps with cards 2 and 3, which are in no pool."""
    await trouble.its_pod_is_fenced(day)
    await day.town.ready([named(EXTENDER, 2)])
    await trouble.work_for(day, asyncio.create_task(trouble.others_write_the_ledger(day)))
    await trouble.a_finalizer_is_torn_off(day, await choices.leader(day, "croupier-ledger"))
    await stories.reservations_come_and_go(day)
    await stories.cards_are_cut(day)


async def _limits(day: Day) -> None:
    await stories.limits_move(day)
    await choices.the_leader_of_limits_crashes(day)
    await stories.a_limit_moves_again(day)


def _agent(day: Day) -> None:
    fast = ("--every=0.5", "--heartbeat=1")
    day.town.start("croupier-node", f"--faults={day.town.faults}", *fast, node=NODE)


def _webhook(day: Day, replica: int = 1) -> None:
    """Start the webhook with its URL, because there is no Service."""
    where = f"--url=https://127.0.0.1:{day.town.gate}"
    day.town.start(WEBHOOK, "--drain=0", where, replica=replica)


async def _served(day: Day) -> bool:
    """Whether GPU Feature Discovery or the exporter was started."""
    return bool((await day.api.list(kinds.PODS, Selection(NAMESPACE))).items)


async def _kept(day: Day) -> list[str]:
    """The cards of the existing pod in the new ledger."""
    ledger = await day.api.get(kinds.NODE_RESERVATIONS.raw, NODE)
    return [
        card["id"]
        for card in ledger["spec"].get("cards", ())
        if any(holder.startswith("default/keeps/") for holder in card.get("holders", {}))
    ]
