"""Usage is what a judge recounts from every recorded revision of the ledgers, to the second.

The process that counts is killed with SIGKILL while pods come and go, and the next one continues.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from croupier.kube.client import api_client, config
from croupier.kube.client.resource import Raw
from croupier.kube.controller.events import EventRecorder
from tests.cli.env import CommandResult, croupier
from tests.polling import until_async
from tests.proof import history
from tests.proof import replica as replica_module
from tests.proof.flow_env import FlowEnv
from tests.proof.manager_env import LedgerManagerEnv
from tests.proof.processes import ChildProcess, Start, child_processes
from tests.proof.test_replicas import bound, opened

SECONDS = 50


def card_seconds(revisions: Iterable[Raw]) -> dict[str, Fraction]:
    """The card-seconds of each namespace, from the raw objects alone.

    Percent is the only mode here. A revision is valid from its write until the next write of its node.
    """
    used: Counter[str] = Counter()
    last: dict[str, Raw] = {}
    for raw in revisions:
        node = raw["metadata"]["name"]
        if node in last:
            span = written(raw) - written(last[node])
            for card in last[node]["spec"]["cards"]:
                for holder, percent in (card.get("holders") or {}).items():
                    used[holder.split("/")[0]] += percent * span
        last[node] = raw
    assert not [card for raw in last.values() for card in raw["spec"]["cards"] if card.get("holders")]
    return {namespace: Fraction(amount, 100) for namespace, amount in used.items()}


def written(raw: Raw) -> int:
    """When the spec was written, by the clock of the API server."""
    entries = [entry for entry in raw["metadata"]["managedFields"] if not entry.get("subresource")]
    return max(int(datetime.fromisoformat(entry["time"]).timestamp()) for entry in entries)


def ask(lab: Any) -> CommandResult:
    return croupier(
        "usage", "--since=24h", "-o", "json", "--install-namespace=default", kubeconfig=lab.kubeconfig
    )


def recorded_until(lab: Any) -> int:
    return int(datetime.fromisoformat(ask(lab).data["until"]).timestamp())


def reported(lab: Any) -> dict[str, Fraction]:
    answer = ask(lab)
    rows = answer.data["rows"] if answer.code == 0 else []
    return {row["namespace"]: Fraction(row["cardSeconds"]).limit_denominator(100) for row in rows}


async def counter(start: Start, lab: Any, name: str) -> ChildProcess:
    process = await start(
        replica_module.__name__, name, f"--kubeconfig={lab.kubeconfig}", f"--name={name}", "--elected"
    )
    assert await process.receive() == "leading"
    return process


async def everything_is_released(places: list[FlowEnv]) -> None:
    async def released() -> bool:
        sheets = [await place.sheet() for place in places]
        return not any(sheet.grants for sheet in sheets if sheet is not None)

    await until_async(released, "everything to be released", within=60)


async def reports(lab: Any, right: Callable[[dict[str, Fraction]], bool]) -> dict[str, Fraction]:
    """Wait until the command reports the right figures."""
    figures: dict[str, Fraction] = {}

    async def look() -> bool:
        figures.update(await asyncio.to_thread(reported, lab))
        return right(figures)

    try:
        await until_async(look, "the right figures", within=50)
    except AssertionError as late:
        raise AssertionError(f"{late}; the command reports {figures}") from None
    return figures


async def test_usage_is_exact_although_the_counting_process_is_killed(private_lab, tell, tmp_path):
    lab = await private_lab(crds=True)
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        history.record(api, keep=True) as recording,
        child_processes(tmp_path) as start,
    ):
        places = [FlowEnv(api, f"team-{number}") for number in range(2)]
        for place in places:
            await place.lay()
        first = await counter(start, lab, "first")
        for place in places:
            await opened(place)
        house = LedgerManagerEnv(api, EventRecorder(api, "proof"), ttl=timedelta(seconds=60))
        await house.synced()
        for place in places:
            await bound(house, place, "early")
            await asyncio.sleep(1.3)  # the time itself is what is counted
        first.kill()
        await first.ended()
        await bound(house, places[0], "unseen")
        await asyncio.sleep(1.3)
        await counter(start, lab, "second")
        await places[0].remove_pod("early")
        await bound(house, places[1], "late")
        await house.binder.drain()
        await asyncio.sleep(2.1)
        await places[0].remove_pod("unseen")
        await places[1].remove_pod("early")
        await places[1].remove_pod("late")
        await everything_is_released(places)
        await house.close()
        await recording.complete()
        expected = card_seconds(recording.kept())
        await reports(lab, lambda figures: figures == expected)
    assert recording.faults() == []
    assert min(expected.values()) > 1
    tell(f"Usage: {len(recording.kept())} revisions recounted, {dict(expected)} card-seconds, equal")


async def test_changes_that_the_api_server_has_forgotten_cost_at_most_the_missed_time(
    private_lab, tell, tmp_path
):
    """Nodes with at most one missed write are exact."""
    lab = await private_lab(crds=True, durable=True)
    async with (
        api_client.connect(config.load(lab.kubeconfig)) as api,
        history.record(api, keep=True) as recording,
        child_processes(tmp_path) as start,
    ):
        busy, quiet = places = [FlowEnv(api, name) for name in ("busy", "quiet")]
        for place in places:
            await place.lay(cards=8)
        first = await counter(start, lab, "first")
        for place in places:
            await opened(place)
        house = LedgerManagerEnv(api, EventRecorder(api, "proof"), ttl=timedelta(seconds=60))
        await house.synced()
        for place in places:
            await bound(house, place, "early")
        await house.binder.drain()
        await reports(lab, lambda figures: figures.keys() == {"busy", "quiet"})
        first.kill()
        await first.ended()
        for name in ("one", "two"):
            await bound(house, busy, name)
            await asyncio.sleep(1.1)
        await house.binder.drain()
        await recording.complete()
        last = written(recording.kept()[-1])
        missed = last - recorded_until(lab)
        lab.kill("kube-apiserver")
        await asyncio.to_thread(lab.etcd_compact)
        await lab.start("kube-apiserver")
        await lab.ready()
        await counter(start, lab, "second")
        await reports(lab, lambda _: recorded_until(lab) > last)
        for place, names in ((busy, ("early", "one", "two")), (quiet, ("early",))):
            for name in names:
                await place.remove_pod(name)
        await everything_is_released(places)
        await recording.complete()
        expected = card_seconds(recording.kept())

        def is_right(figures: dict[str, Fraction]) -> bool:
            lost = expected["busy"] - figures["busy"]
            return figures["quiet"] == expected["quiet"] and 0 < lost <= 8 * missed

        figures = await reports(lab, is_right)
        await house.close()
    assert recording.faults() == []
    lost = expected["busy"] - figures["busy"]
    tell(f"Usage with forgotten changes: {lost} of at most {8 * missed} card-seconds are not counted")
