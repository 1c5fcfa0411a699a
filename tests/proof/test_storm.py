"""Many schedulers with more demand than capacity never get the same cards.

Every revision of every ledger is checked; the grants of the schedulers are compared with the ledgers while
they are held; and after everything is released the ledgers are as before.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from croupier.kube.client import api_client, config
from croupier_lab.lab import Lab
from tests.proof import claim_load as claim_module
from tests.proof import env, history
from tests.proof.facts import HolderAdded
from tests.proof.history import History
from tests.proof.invariants import LedgerRevision
from tests.proof.processes import ChildProcess, child_processes

SECONDS = 40

PATIENCE = 1800.0


async def gather(players: list[ChildProcess]) -> list[dict[str, Any]]:
    """The reports of all writers of all processes."""
    heard = await asyncio.gather(*(player.receive(PATIENCE) for player in players))
    return [account for report in heard for account in report]


def pick(accounts: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return {key: value for account in accounts for key, value in account[name].items()}


def every_yes_is_in(recording: History, accounts: list[dict[str, Any]]) -> list[str]:
    """Grants that are missing in the history or differ from it."""
    took = {
        (fact.node, fact.holder): fact.grant for fact in recording.facts() if isinstance(fact, HolderAdded)
    }
    wrong = []
    for holder, (node, grant) in pick(accounts, "promised").items():
        if took.get((node, holder)) != frozenset((card, share, "") for card, share in grant):
            wrong.append(f"{holder} was promised {grant} of {node}")
    return wrong


def contents(sheets: dict[str, LedgerRevision]) -> dict[str, Any]:
    return {node: (sheet.cards, sheet.held, sheet.reservations) for node, sheet in sheets.items()}


def summary(accounts: list[dict[str, Any]], recording: History, seconds: float) -> str:
    total = {
        name: sum(account[name] for account in accounts)
        for name in ("asked", "yes", "no", "attempts", "conflicts")
    }
    return (
        f"{total['asked']} requests by {len(accounts)} writers in {seconds:.0f} s: {total['yes']} yes, "
        f"{total['no']} no; {recording.revisions} revisions checked; {total['attempts']} writes, "
        f"{total['conflicts']} conflicts; "
        f"slowest answer {max(account['slowest'] for account in accounts):.1f} s"
    )


Failure = Callable[[list[ChildProcess]], Awaitable[None]]


async def nothing(_players: list[ChildProcess]) -> None:
    """No failure."""


async def storm(
    lab: Lab, recording: History, folder: Path, options: dict[str, Any], failure: Failure = nothing
) -> list[dict[str, Any]]:
    """Run the schedulers, check while they hold cards, release everything, check again; returns reports."""
    count = options.pop("schedulers")
    async with child_processes(folder) as start:
        players = []
        for number in range(count):
            flags = [f"--{name}={value}" for name, value in options.items()]
            known = (f"--kubeconfig={lab.kubeconfig}", f"--name=s{number}")
            players.append(await start(claim_module.__name__, f"s{number}", *known, *flags))
        assert [await player.receive() for player in players] == ["ready"] * count
        for player in players:
            player.tell("go")
        await failure(players)
        accounts = await gather(players)
        await recording.complete()
        assert recording.gaps() == []
        held = env.holders(recording.judge)
        live, unknown = pick(accounts, "live"), pick(accounts, "unknown")
        assert {who: node for who, node in held.items() if who not in unknown} == live, "lost or leaked"
        for player in players:
            player.tell("end")
        await gather(players)
        assert [await player.ended() for player in players] == [0] * count
    return accounts


def fair(accounts: list[dict[str, Any]], each: int) -> None:
    for account in accounts:
        assert account["asked"] == each, account["name"]
        assert account["yes"] > 0, f"{account['name']} got no grant"


async def test_many_schedulers_at_130_percent(private_lab, size, tell, tmp_path):
    lab = await private_lab(crds=True)
    nodes = [f"node-{number}" for number in range(size.nodes)]
    each = size.requests // size.schedulers
    budget = size.nodes * size.cards * 130 // size.schedulers
    async with api_client.connect(config.load(lab.kubeconfig)) as api, history.record(api) as recording:
        await env.create_ledgers(api, nodes, size.cards)
        await recording.complete()
        before = contents(recording.sheets())

        began = time.monotonic()
        options = {"nodes": ",".join(nodes), "requests": each, "budget": budget, "at-once": size.at_once}
        accounts = await storm(lab, recording, tmp_path, {**options, "schedulers": size.schedulers})
        await recording.complete()

        tell(f"Storm, {size}. {summary(accounts, recording, time.monotonic() - began)}")
    assert recording.faults() == []
    assert every_yes_is_in(recording, accounts) == []
    assert contents(recording.sheets()) == before
    assert [account["troubles"] for account in accounts if account["troubles"]] == []
    assert sum(account["no"] for account in accounts) > 0, "demand never exceeded capacity"
    fair(accounts, each)


async def test_64_writers_on_one_node(private_lab, size, tell, tmp_path):
    lab = await private_lab(crds=True)
    async with api_client.connect(config.load(lab.kubeconfig)) as api, history.record(api) as recording:
        await env.create_ledgers(api, ["hot"], 8)
        await recording.complete()
        before = contents(recording.sheets())

        began = time.monotonic()
        options = {
            "nodes": "hot",
            "requests": size.hot_requests,
            "budget": 16,
            "writers": 8,
            "shares": "1,2,5,10",
        }
        accounts = await storm(lab, recording, tmp_path, {**options, "schedulers": 8})
        await recording.complete()

        tell(f"Hot node, {size.name}. {summary(accounts, recording, time.monotonic() - began)}")
    assert len(accounts) == 64
    assert recording.faults() == []
    assert every_yes_is_in(recording, accounts) == []
    assert contents(recording.sheets()) == before
    assert [account["troubles"] for account in accounts if account["troubles"]] == []
    fair(accounts, size.hot_requests)
